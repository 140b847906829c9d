//! What a stack is started with: the config file, the environment, Envoy's workers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use services::spawner;

use super::{Fallible, Part, binary, envoy, filter_wasm};

/// The otari key of user and workspace `default`.
pub(super) const BOOTSTRAP_KEY: &str = "gw-bootstrap-key-of-the-tests";
/// The admin credential.
pub(super) const MASTER_KEY: &str = "master-key-of-the-tests";
/// The operator's credential at the scripted Anthropic, which Envoy adds and no client may see.
pub(super) const ANTHROPIC_KEY: &str = "sk-ant-operator-canary";
/// The operator's credential at the scripted `OpenAI`.
pub(super) const OPENAI_KEY: &str = "sk-openai-operator-canary";

/// A stack in the making: a config that serves every scenario over every provider type, unless told otherwise.
#[derive(Debug, Clone)]
pub struct Setup {
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
    concurrency: u32,
    mesh: Option<Mesh>,
}

/// Files of somebody else's Envoy; each may hold the [`Place`]s.
#[derive(Debug, Clone)]
struct Mesh {
    config: String,
    envoy: String,
}

/// What a file of a mesh says instead of what is known only when a stack starts.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// The port Envoy listens on.
    ListenPort,
    /// The port of the scripted model.
    ModelPort,
    /// The data folder, with sockets.
    DataDir,
    /// The path of the filter.
    Filter,
}

impl Place {
    /// The mark in the text.
    pub fn mark(self) -> String {
        format!("<{self:?}>")
    }
}

impl Default for Setup {
    fn default() -> Self {
        let providers = r#"{
  chat: {type: openai_compatible, base_url: "MODEL", wires: [chat_completions]},
  messages: {type: openai_compatible, base_url: "MODEL", wires: [messages]},
  responses: {type: openai_compatible, base_url: "MODEL", wires: [responses]},
  anthropic: {type: anthropic, base_url: "MODEL", api_key_env: SCRIPTED_ANTHROPIC_KEY},
  openai: {type: openai, base_url: "MODEL", api_key_env: SCRIPTED_OPENAI_KEY},
  nowhere: {type: openai_compatible, base_url: "http://127.0.0.1:1", wires: [chat_completions]}}"#;
        let models = r#"[
  {match: "claude--*", provider: anthropic},
  {match: "gpt--*", provider: openai},
  {match: "messages--*", provider: messages},
  {match: "responses--*", provider: responses},
  {match: "nowhere--*", provider: nowhere},
  {match: "unknown--*", provider: chat},
  {match: "*", provider: chat}]"#;
        let setup = Self { config: BTreeMap::new(), env: BTreeMap::new(), concurrency: 2, mesh: None };
        setup
            .set("providers", providers)
            .set("models", models)
            .set("policy", "{poll_ms: 100}")
            // Tests look at which processes there are.
            .set("sandbox", "{warm_sessions: 0}")
            .env("OTARI_BOOTSTRAP_KEY", BOOTSTRAP_KEY)
            .env("OTARI_MASTER_KEY", MASTER_KEY)
            .env("SCRIPTED_ANTHROPIC_KEY", ANTHROPIC_KEY)
            .env("SCRIPTED_OPENAI_KEY", OPENAI_KEY)
    }
}

impl Setup {
    /// Sets a top-level key of the config file to a YAML value; `MODEL` in it is the scripted model's URL.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.config.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets an environment variable of sidecar and Envoy.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Number of Envoy's workers.
    #[must_use]
    pub fn concurrency(mut self, workers: u32) -> Self {
        self.concurrency = workers;
        self
    }

    /// Both files as an operator with a mesh would write them, with [`Place`]s in them; nothing is rendered.
    #[must_use]
    pub fn mesh(mut self, config: String, envoy: String) -> Self {
        self.mesh = Some(Mesh { config, envoy });
        self
    }

    /// Writes the config file, and in a mesh Envoy's.
    pub(super) fn write(&self, dir: &Path, listen: SocketAddr, model: SocketAddr) -> Fallible<()> {
        let data_dir = dir.join("data");
        let Some(mesh) = &self.mesh else {
            return Ok(std::fs::write(dir.join("otari.yaml"), self.render(listen, &data_dir, model))?);
        };
        let filled = |text: &str| -> Fallible<String> {
            Ok(text
                .replace(&Place::ListenPort.mark(), &listen.port().to_string())
                .replace(&Place::ModelPort.mark(), &model.port().to_string())
                .replace(&Place::DataDir.mark(), &data_dir.display().to_string())
                .replace(&Place::Filter.mark(), &filter_wasm()?.display().to_string()))
        };
        std::fs::write(dir.join("otari.yaml"), filled(&mesh.config)?)?;
        Ok(std::fs::write(dir.join("envoy.yaml"), filled(&mesh.envoy)?)?)
    }

    fn render(&self, listen: SocketAddr, data_dir: &Path, model: SocketAddr) -> String {
        let head = format!("listen: {listen}\ndata_dir: {}\n", data_dir.display());
        let lines = self.config.iter().map(|(key, value)| format!("{key}: {value}\n"));
        head + &lines.collect::<String>().replace("MODEL", &format!("http://{model}"))
    }

    pub(super) fn start_sidecar(&self, dir: &Path, config: &Path) -> Fallible<Part> {
        let mut command = self.sidecar_command(dir)?;
        command.arg("serve").arg("--config").arg(config);
        Ok(Part::start("sidecar", command, dir)?)
    }

    pub(super) fn start_envoy(&self, dir: &Path, config: &Path) -> Fallible<Part> {
        let rendered = dir.join("envoy.yaml");
        if self.mesh.is_none() {
            self.render_envoy(dir, config, &rendered)?;
        }
        let mut command = spawner::leashed(&envoy()?);
        command.arg("--config-path").arg(&rendered);
        // With hot restart on, Envoy would end with the thread that started it.
        command.args(["--disable-hot-restart", "--log-level", "warn", "--concurrency"]);
        command.arg(self.concurrency.to_string()).envs(&self.env);
        Ok(Part::start("envoy", command, dir)?)
    }

    fn render_envoy(&self, dir: &Path, config: &Path, rendered: &Path) -> Fallible<()> {
        let mut render = self.sidecar_command(dir)?;
        render.arg("envoy-config").arg("--config").arg(config).arg("--filter").arg(filter_wasm()?);
        let output = render.arg("--output").arg(rendered).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        if !output.status.success() {
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("`otari-sidecar envoy-config` failed:\n{problem}").into());
        }
        Ok(())
    }

    fn sidecar_command(&self, dir: &Path) -> Fallible<Command> {
        let mut command = spawner::leashed(&binary("otari-sidecar")?);
        command.current_dir(dir).envs(&self.env);
        Ok(command)
    }
}
