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

/// A sidecar's folder before it runs, with its database made.
pub(super) struct Prepared {
    folder: PathBuf,
    /// Its data folder.
    pub(super) data: PathBuf,
    config: PathBuf,
    url: String,
}

/// A sidecar that runs.
pub(super) struct Sidecar {
    data: PathBuf,
    rows: u32,
    _process: Part,
}

impl Prepared {
    /// `sweep_seconds`: between two sweeps, 0 for none.
    pub(super) fn new(folder: &Path, name: &str, database: &str, sweep_seconds: u64) -> Fallible<Self> {
        let folder = folder.join(name);
        std::fs::create_dir(&folder)?;
        let data = folder.join("data");
        let url = if database == "sqlite" { "sqlite".to_owned() } else { Postgres::shared()?.database()? };
        let config = write_config(&folder, &data, &url, sweep_seconds)?;
        command("migrate", &config)?
            .stdout(Stdio::null())
            .status()?
            .success()
            .then_some(())
            .ok_or("`otari-sidecar migrate` failed")?;
        Ok(Self { folder, data, config, url })
    }

    /// Runs statements in its SQLite database.
    pub(super) fn sql(&self, statements: &str) -> Fallible<()> {
        sqlite(&self.data, statements)
    }

    pub(super) async fn serve(self, rows: u32) -> Fallible<Sidecar> {
        let process = Part::start("sidecar", command("serve", &self.config)?, &self.folder)?;
        let socket = self.data.join("sidecar.sock");
        let ready = async || Call::get("/healthz").send(Target::Unix(socket.clone())).await.is_ok();
        if !eventually(Duration::from_secs(30), ready).await {
            return Err(format!("a sidecar does not come up:\n{}", process.log()).into());
        }
        Ok(Sidecar { data: self.data, rows, _process: process })
    }
}

impl Sidecar {
    /// One with `rows` files in its database, and none in its store.
    async fn start(folder: &Path, name: &str, rows: u32, database: &str) -> Fallible<Self> {
        let prepared = Prepared::new(folder, name, database, 0)?;
        fill(&prepared.data, &prepared.url, rows)?;
        prepared.serve(rows).await
    }

    pub(super) async fn client(&self) -> Fallible<Connection> {
        Ok(Connection::open(Target::Unix(self.data.join("sidecar.sock"))).await?)
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

fn write_config(folder: &Path, data: &Path, url: &str, sweep_seconds: u64) -> Fallible<PathBuf> {
    let config = folder.join("otari.yaml");
    let text = format!(
        "data_dir: {}\ndatabase_url: \"{url}\"\nidentity: {{mode: none}}\nhop_secret_env: BENCH_HOP_SECRET\n\
         log: {{level: warn}}\nsandbox: {{backend: none}}\nmodel_url: \"http://127.0.0.1:1\"\n\
         files: {{sweep_interval_sec: {sweep_seconds}, workspace_max_files: 10000000}}\n\
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
