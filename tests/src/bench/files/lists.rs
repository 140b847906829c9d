//! A page of a list and one file's metadata, among a thousand files and among very many, in turns; on SQLite and on
//! PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use services::postgres::Postgres;

use super::{hundredth, median, seconds};
use crate::client::{Call, Connection, Target};
use crate::file_rows::{fill, sqlite};
use crate::stack::{Fallible, Part, binary, eventually};

/// What few files are.
const FEW: u32 = 1_000;
/// Requests of each kind, to each.
const REQUESTS: usize = 400;
const HOP_SECRET: &str = "the hop secret of a measurement, made for one run";

pub(super) async fn run(rows: u32) -> Fallible<Value> {
    let folder = tempfile::tempdir()?;
    let mut figures = serde_json::Map::new();
    for database in ["sqlite", "postgresql"] {
        let few = Sidecar::start(folder.path(), &format!("{database}-few"), FEW, database).await?;
        let many = Sidecar::start(folder.path(), &format!("{database}-many"), rows, database).await?;
        for (name, path) in [("list", "/v1/files?limit=100&after="), ("metadata", "/v1/files/")] {
            let (mut of_few, mut of_many) = (few.client().await?, many.client().await?);
            let (mut with_few, mut with_many) = (Vec::new(), Vec::new());
            for request in 0..REQUESTS {
                with_few.push(few.timed(&mut of_few, path, request).await?);
                with_many.push(many.timed(&mut of_many, path, request).await?);
            }
            let (with_few, with_many) = (median(with_few), median(with_many));
            let figure = json!({"ratio": hundredth(with_many / with_few), "few_ms": hundredth(with_few * 1000.0),
                "many_ms": hundredth(with_many * 1000.0)});
            figures.insert(format!("{database}_{name}"), figure);
        }
    }
    figures.insert("rows".to_owned(), rows.into());
    Ok(figures.into())
}

/// A sidecar with files in its database, and none in its store.
pub(super) struct Sidecar {
    /// Its data folder.
    pub(super) data: PathBuf,
    config: PathBuf,
    rows: u32,
    _process: Part,
}

impl Sidecar {
    pub(super) async fn start(folder: &Path, name: &str, rows: u32, database: &str) -> Fallible<Self> {
        let folder = folder.join(name);
        std::fs::create_dir(&folder)?;
        let data = folder.join("data");
        let url = if database == "sqlite" { "sqlite".to_owned() } else { Postgres::shared()?.database()? };
        let config = write_config(&folder, &data, &url)?;
        command("migrate", &config)?
            .stdout(Stdio::null())
            .status()?
            .success()
            .then_some(())
            .ok_or("`otari-sidecar migrate` failed")?;
        if rows > 0 {
            fill(&data, &url, rows)?;
        }
        let process = Part::start("sidecar", command("serve", &config)?, &folder)?;
        let socket = data.join("sidecar.sock");
        let ready = async || Call::get("/healthz").send(Target::Unix(socket.clone())).await.is_ok();
        if !eventually(Duration::from_secs(30), ready).await {
            return Err(format!("a sidecar does not come up:\n{}", process.log()).into());
        }
        Ok(Self { data, config, rows, _process: process })
    }

    pub(super) async fn client(&self) -> Fallible<Connection> {
        Ok(Connection::open(Target::Unix(self.data.join("sidecar.sock"))).await?)
    }

    /// A command of the sidecar's with the same config.
    pub(super) fn command(&self, name: &str) -> Fallible<Command> {
        command(name, &self.config)
    }

    /// Runs statements in its SQLite database.
    pub(super) fn sql(&self, statements: &str) -> Fallible<()> {
        sqlite(&self.data, statements)
    }

    /// Seconds for a file somewhere among them.
    async fn timed(&self, client: &mut Connection, path: &str, request: usize) -> Fallible<f64> {
        // Spread over all of them, and never the last of a page.
        let number = u64::from(self.rows) * (request as u64 * 7 % 90 + 5) / 100;
        let call = of_envoy(Call::get(format!("{path}file-otr{number:032x}")));
        let begun = Instant::now();
        let answer = client.send(call).await?;
        let time = seconds(begun.elapsed());
        if answer.status == 200 { Ok(time) } else { Err(answer.text().into()) }
    }
}

/// A call as the sidecar's Envoy would make it.
pub(super) fn of_envoy(call: Call) -> Call {
    call.header("x-otari-hop", HOP_SECRET)
}

fn write_config(folder: &Path, data: &Path, url: &str) -> Fallible<PathBuf> {
    let config = folder.join("otari.yaml");
    let text = format!(
        "data_dir: {}\ndatabase_url: \"{url}\"\nidentity: {{mode: none}}\nhop_secret_env: BENCH_HOP_SECRET\n\
         log: {{level: warn}}\nsandbox: {{backend: none}}\nmodel_url: \"http://127.0.0.1:1\"\n\
         files: {{sweep_interval_sec: 0, workspace_max_files: 10000000}}\n\
         providers: {{local: {{type: openai_compatible, base_url: \"http://127.0.0.1:1\"}}}}\n\
         models: [{{match: \"*\", provider: local}}]\n",
        data.display()
    );
    std::fs::write(&config, text)?;
    Ok(config)
}

fn command(name: &str, config: &Path) -> Fallible<Command> {
    let mut command = services::spawner::leashed(&binary("otari-sidecar")?);
    command.arg(name).arg("--config").arg(config).env("BENCH_HOP_SECRET", HOP_SECRET).stdin(Stdio::null());
    Ok(command)
}
