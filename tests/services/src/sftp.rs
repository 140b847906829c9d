//! SFTP, as OpenSSH serves it, from Debian's package `openssh-server`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Fallible, folder, free_address, run, spawner, wait_until};

const SSHD: &str = "/usr/sbin/sshd";
/// Where sshd, as root, wants a folder of its own that the package's service would make.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// A running server.
#[derive(Debug)]
pub struct Sftp {
    address: SocketAddr,
    folder: PathBuf,
    user: String,
}

impl Sftp {
    /// The server of this process, started by the first who asks.
    pub fn shared() -> Fallible<&'static Self> {
        static SERVER: OnceLock<Result<Sftp, String>> = OnceLock::new();
        SERVER
            .get_or_init(|| Self::start().map_err(|error| error.to_string()))
            .as_ref()
            .map_err(|error| error.clone().into())
    }

    /// The URL of a new folder, which is made by the first who writes to it.
    pub fn url(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = self.folder.join(format!("blobs-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        format!("sftp://{}@{}{}", self.user, self.address, folder.display())
    }

    /// The key that opens it.
    pub fn key(&self) -> PathBuf {
        self.folder.join("client")
    }

    fn start() -> Fallible<Self> {
        if !Path::new(SSHD).exists() {
            return Err(format!("{SSHD} is missing: run `make services`, or install `openssh-server`").into());
        }
        let (folder, address) = (folder("sftp")?, free_address()?);
        for name in ["host", "client"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
            run(keygen)?;
        }
        let config = folder.join("sshd_config");
        std::fs::write(&config, settings(&folder, address))?;
        let id = Command::new("id").arg("-un").output()?;
        let user = String::from_utf8(id.stdout)?.trim().to_owned();
        if user == "root" {
            std::fs::create_dir_all(PRIVILEGE_SEPARATION)?;
        }
        let log = std::fs::File::create(folder.join("log"))?;
        let mut command = spawner::leashed(Path::new(SSHD));
        command.args(["-D", "-e", "-f"]).arg(config).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = spawner::spawn(command)?;
        wait_until("sshd", &mut child, || std::net::TcpStream::connect(address).is_ok())?;
        Ok(Self { address, folder, user })
    }
}

fn settings(folder: &Path, address: SocketAddr) -> String {
    let (folder, ip, port) = (folder.display(), address.ip(), address.port());
    format!(
        "ListenAddress {ip}\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n\
         MaxStartups 200\nMaxSessions 200\nSubsystem sftp internal-sftp\n"
    )
}
