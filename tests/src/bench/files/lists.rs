//! A page of a list and one file's metadata, among a thousand files and among very many, in turns; on SQLite and on
//! PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use services::postgres::Postgres;

use super::{hundredth, median, seconds};
use crate::client::{Call, Connection, Target};
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

/// Rows as uploads would have left them, a millisecond apart.
fn fill(data: &Path, url: &str, rows: u32) -> Fallible<()> {
    let select = |id: &str, from: &str| {
        format!(
            "INSERT INTO files (id, user_id, workspace_id, state, filename, mime_type, purpose, size_bytes, sha256, \
             created_at_ms, sweep_at_ms) SELECT {id}, 'default', 'default', 'stored', 'name.csv', 'text/csv', \
             'user_data', 10, 'x', 1000 + n, 9223372036854775807 FROM {from};"
        )
    };
    let usage =
        format!("INSERT INTO file_usage (workspace_id, size_bytes, files) VALUES ('default', {rows}0, {rows});");
    if url == "sqlite" {
        let all = format!(
            "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows}) SELECT n FROM c)"
        );
        let insert = select("printf('file-otr%032x', n)", &all);
        return sqlite(data, &format!("{insert} {usage}"));
    }
    let insert = select("'file-otr' || lpad(to_hex(n), 32, '0')", &format!("generate_series(1, {rows}) AS n"));
    for statement in [insert.as_str(), &usage, "VACUUM ANALYZE files"] {
        Postgres::shared()?.tell_database(url, statement)?;
    }
    Ok(())
}

/// Runs statements in a SQLite database as one transaction.
fn sqlite(data: &Path, statements: &str) -> Fallible<()> {
    let script = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1])\nd.executescript(sys.argv[2])\nd.close()";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(data.join("otari.db")).arg(format!("BEGIN; {statements} COMMIT; ANALYZE;"));
    python.status()?.success().then_some(()).ok_or_else(|| "the rows cannot be made".into())
}
