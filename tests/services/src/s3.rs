//! S3, as SeaweedFS serves it: a server that people run, which checks signatures. Comes from PyPI, program and all.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Fallible, answers, doorman, folder, free_addresses, installed, spawner, tell, wait_until};

/// Who may do everything.
pub const ACCESS_KEY: &str = "an-access-key";
/// The secret of that key.
pub const SECRET_KEY: &str = "a-secret-key-that-no-log-shows";

/// The bucket that takes signatures.
const BUCKET: &str = "bucket";
/// The bucket that is open to all, for tests of a client that brings no signature of this kind.
const OPEN_BUCKET: &str = "open";
/// Where its parts listen; the first two are of interest to us.
const PORTS: [&str; 8] = [
    "s3.port",
    "filer.port",
    "s3.port.grpc",
    "filer.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
];

/// A running server.
#[derive(Debug)]
pub struct S3 {
    address: SocketAddr,
    /// The file system that buckets are folders of.
    filer: SocketAddr,
}

impl S3 {
    /// The server of this process, started by the first who asks.
    pub fn shared() -> Fallible<&'static Self> {
        static SERVER: OnceLock<Result<S3, String>> = OnceLock::new();
        SERVER
            .get_or_init(|| Self::start().map_err(|error| error.to_string()))
            .as_ref()
            .map_err(|error| error.clone().into())
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where whoever asks is nobody, whatever they say of themselves: see [`Self::open_place`].
    pub fn open_endpoint(&self) -> Fallible<String> {
        Ok(format!("http://{}", doorman::open(self.address)?))
    }

    /// A bucket, and a prefix in it under which there is nothing.
    pub fn place(&self) -> Fallible<String> {
        self.place_in(BUCKET)
    }

    /// The same in a bucket that is open to all.
    pub fn open_place(&self) -> Fallible<String> {
        self.place_in(OPEN_BUCKET)
    }

    /// The names of all objects of a place whose keys are `FOLDER/NAME`, or a name alone, without their folders.
    pub fn objects(&self, place: &str) -> Fallible<Vec<String>> {
        let mut names = Vec::new();
        for name in self.entries(place)? {
            // Ours are named by two digits.
            if name.len() == 2 { names.extend(self.entries(&format!("{place}/{name}"))?) } else { names.push(name) }
        }
        Ok(names)
    }

    fn entries(&self, folder: &str) -> Fallible<Vec<String>> {
        let line = format!("GET /buckets/{folder}/?limit=100000 HTTP/1.1\r\naccept: application/json");
        let answer = tell(self.filer, &line, "")?;
        let paths = answer.split("\"FullPath\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        Ok(paths.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect())
    }

    // A bucket of its own for everybody would be a set of volumes for everybody.
    fn place_in(&self, bucket: &str) -> Fallible<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let answer = tell(self.filer, &format!("POST /buckets/{bucket}/ HTTP/1.1"), "")?;
        // Made, or there already.
        if answer.starts_with("HTTP/1.1 201") || answer.starts_with("HTTP/1.1 409") {
            Ok(format!("{bucket}/place-{}", COUNT.fetch_add(1, Ordering::Relaxed)))
        } else {
            Err(answer.into())
        }
    }

    fn start() -> Fallible<Self> {
        let program = installed("seaweedfs/bin/weed")?;
        let folder = folder("s3")?;
        let config = folder.join("s3.json");
        std::fs::write(&config, identities())?;
        let ports = free_addresses(PORTS.len())?;
        let [address, filer, ..] = ports[..] else { return Err("too few ports".into()) };
        let mut command = spawner::leashed(&program);
        // It tells its makers how it is used unless it is told not to.
        command.args(["server", "-ip=127.0.0.1", "-master.telemetry=false", "-filer", "-s3", "-volume.max=100"]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=256"]);
        command.arg(format!("-dir={}", folder.display())).arg(format!("-s3.config={}", config.display()));
        for (name, port) in PORTS.iter().zip(&ports) {
            command.arg(format!("-{name}={}", port.port()));
        }
        for name in ["s3", "filer"] {
            command.arg(format!("-{name}.localSocket={}", folder.join(format!("{name}.sock")).display()));
        }
        let log = std::fs::File::create(folder.join("log"))?;
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = spawner::spawn(command)?;
        wait_until("SeaweedFS", &mut child, || answers(address, "GET / HTTP/1.1", ""))?;
        Ok(Self { address, filer })
    }
}

fn identities() -> String {
    let open = ["Read", "Write", "List"].map(|action| format!("\"{action}:{OPEN_BUCKET}\"")).join(", ");
    format!(
        r#"{{"identities": [
            {{"name": "otari", "actions": ["Admin"],
              "credentials": [{{"accessKey": "{ACCESS_KEY}", "secretKey": "{SECRET_KEY}"}}]}},
            {{"name": "anonymous", "actions": [{open}]}}]}}"#
    )
}
