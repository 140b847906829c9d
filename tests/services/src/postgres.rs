//! PostgreSQL, from Debian's package `postgresql`: one server per process, with a database for each who asks.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Fallible, folder, run, spawner, wait_until};

/// Who it runs as when we are root, which it refuses to be; the first that exists.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];
/// Nobody is asked for it: the folder of the socket is closed to others.
const PASSWORD: &str = "a-password-that-no-log-shows";

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    socket: PathBuf,
}

impl Postgres {
    /// The server of this process, started by the first who asks.
    pub fn shared() -> Fallible<&'static Self> {
        static SERVER: OnceLock<Result<Postgres, String>> = OnceLock::new();
        match SERVER.get_or_init(|| Self::start().map_err(|error| error.to_string())) {
            Ok(server) => Ok(server),
            Err(error) => Err(error.clone().into()),
        }
    }

    /// The URL of a new, empty database.
    pub fn database(&self) -> Fallible<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.tell(&format!("CREATE DATABASE {name}"))?;
        Ok(format!("postgres://otari:{PASSWORD}@localhost/{name}?host={}", self.socket.display()))
    }

    /// Runs one statement.
    pub fn tell(&self, statement: &str) -> Fallible<()> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--username=otari", "--dbname=postgres"]);
        psql.arg("--host").arg(&self.socket).arg("--command").arg(statement);
        run(psql)
    }

    /// Runs one statement in the database of this URL.
    pub fn tell_database(&self, url: &str, statement: &str) -> Fallible<()> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--quiet"]).arg(url).arg("--command").arg(statement);
        run(psql)
    }

    fn start() -> Fallible<Self> {
        let programs = programs()?;
        let folder = folder("postgres")?;
        let user = Unprivileged::find(&folder)?;
        let data = folder.join("data");
        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["--auth=trust", "--username=otari", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata"]);
        initdb.arg(&data);
        run(initdb)?;
        let mut server = user.command(&programs.join("postgres"));
        server.arg("-D").arg(&data).arg("-k").arg(&folder);
        // Of a test's data nothing has to outlive the machine.
        for setting in ["listen_addresses=", "fsync=off", "full_page_writes=off", "max_connections=500"] {
            server.arg("-c").arg(setting);
        }
        let log = std::fs::File::create(folder.join("log"))?;
        server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = spawner::spawn(server)?;
        let socket = folder.join(".s.PGSQL.5432");
        let server = Self { programs, socket: folder };
        wait_until("PostgreSQL", &mut child, || socket.exists() && server.tell("SELECT 1").is_ok())?;
        Ok(server)
    }
}

/// Where its programs are: Debian keeps them out of the path, by version.
fn programs() -> Fallible<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|path| path.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().ok_or_else(|| "PostgreSQL is missing: run `make services`, or install `postgresql`".into())
}

/// Whom the server runs as, if that must be another.
struct Unprivileged(Option<&'static str>);

impl Unprivileged {
    /// Gives them the folder, too.
    fn find(folder: &Path) -> Fallible<Self> {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700))?;
        if std::fs::metadata(folder)?.uid() != 0 {
            return Ok(Self(None));
        }
        let users = std::fs::read_to_string("/etc/passwd")?;
        for name in UNPRIVILEGED {
            let line = users.lines().find(|line| line.split(':').next() == Some(name));
            let ids =
                line.map(|line| line.split(':').skip(2).take(2).filter_map(|id| id.parse().ok()).collect::<Vec<_>>());
            if let Some([user, group]) = ids.as_deref() {
                chown(folder, Some(*user), Some(*group))?;
                return Ok(Self(Some(name)));
            }
        }
        Err(format!("none of the users {UNPRIVILEGED:?} exists, and PostgreSQL does not run as root").into())
    }

    /// A command that runs as them, and is killed when this process ends.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        if let Self(Some(name)) = self {
            command.args(["--reuid", name, "--regid", name, "--clear-groups"]);
        }
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).current_dir("/");
        command
    }
}
