//! Azure Blob Storage, as Azurite, Microsoft's own emulator, serves it; comes from npm.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Fallible, answers, free_address, run, spawner, wait_until};

/// The account that Azurite has.
pub const ACCOUNT: &str = "devstoreaccount1";
/// Its key, which all the world knows.
pub const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running server.
#[derive(Debug)]
pub struct Azure {
    address: SocketAddr,
}

impl Azure {
    /// The server of this process, started by the first who asks.
    pub fn shared() -> Fallible<&'static Self> {
        static SERVER: OnceLock<Result<Azure, String>> = OnceLock::new();
        SERVER
            .get_or_init(|| Self::start().map_err(|error| error.to_string()))
            .as_ref()
            .map_err(|error| error.clone().into())
    }

    /// Where it is, the account in the path.
    pub fn endpoint(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.address)
    }

    /// A new, empty container.
    pub fn container(&self) -> Fallible<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("container-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new("node");
        command.arg(js().join("container.mjs")).args([&self.endpoint(), ACCOUNT, ACCOUNT_KEY, &name]);
        run(command)?;
        Ok(name)
    }

    fn start() -> Fallible<Self> {
        let program = js().join("node_modules/azurite/dist/src/blob/main.js");
        if !program.exists() {
            return Err(format!("{} is missing: run `make services`", program.display()).into());
        }
        let address = free_address()?;
        let mut command = spawner::leashed(Path::new("node"));
        command.arg(program).args(["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &address.port().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = spawner::spawn(command)?;
        wait_until("Azurite", &mut child, || answers(address, "GET / HTTP/1.1", "4"))?;
        Ok(Self { address })
    }
}

fn js() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("js")
}
