//! A gibibyte in and out through Envoy and the sidecar, and through an Envoy of the same configuration in front of a
//! server that writes and reads nothing but the file. In turns, so that a busy moment hits both.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{hundredth, median, seconds, sink};
use crate::client::Call;
use crate::stack::{Fallible, Part, Setup, Stack, envoy, eventually, free_address};

/// The file's size; the client sends a mebibyte at once.
const FILE_MIB: u16 = 1024;
const PIECE_BYTES: usize = 1 << 20;
/// Times each way.
const ROUNDS: usize = 5;
const BOUNDARY: &str = "a-boundary-that-no-file-holds";

pub(super) async fn run() -> Fallible<Value> {
    let files = "{max_bytes: 2147483648, sweep_interval_sec: 0}";
    let stack = Stack::start(Setup::default().concurrency(1).set("files", files)).await?;
    let other = start_other(&stack).await?;
    let (mut up, mut down, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (ours, answer) = upload(stack.address(), stack.key()).await?;
        let id = answer["id"].as_str().ok_or("no id")?.to_owned();
        let (theirs, _) = upload(other.address, stack.key()).await?;
        up.push(theirs / ours);
        let path = format!("/v1/files/{id}/content");
        // Both have just been written, and are read from the system's memory.
        let ours_down = download(stack.address(), &path, stack.key()).await?;
        let theirs_down = download(other.address, &path, stack.key()).await?;
        down.push(theirs_down / ours_down);
        rates.push((ours, ours_down));
        let gone = Call::new(http::Method::DELETE, format!("/v1/files/{id}")).bearer(stack.key());
        gone.send(stack.address()).await?;
    }
    let mib = |time: f64| (f64::from(FILE_MIB) / time).round();
    Ok(json!({
        "upload_ratio": hundredth(median(up)),
        "download_ratio": hundredth(median(down)),
        "upload_mib_per_s": mib(median(rates.iter().map(|(up, _)| *up).collect())),
        "download_mib_per_s": mib(median(rates.iter().map(|(_, down)| *down).collect())),
    }))
}

/// The Envoy beside the stack's.
struct Other {
    address: SocketAddr,
    _envoy: Part,
}

/// The stack's own configuration on another port, with the sink behind it.
async fn start_other(stack: &Stack) -> Fallible<Other> {
    let address = free_address()?;
    let data = stack.data_dir();
    let text = std::fs::read_to_string(stack.folder().join("envoy.yaml"))?;
    let text = text
        .replace(&stack.address().port().to_string(), &address.port().to_string())
        .replace("sidecar.sock", "sink.sock")
        .replace("model.sock", "model2.sock")
        .replace("admin.sock", "admin2.sock");
    let config = stack.folder().join("envoy2.yaml");
    std::fs::write(&config, text)?;
    sink::serve(&data.join("sink.sock"), data.join("sink"))?;
    let envoy = start_envoy(&config, stack.folder())?;
    let ready = async || Call::get("/v1/files").send(address).await.is_ok();
    if !eventually(std::time::Duration::from_secs(30), ready).await {
        return Err(format!("the other Envoy does not come up:\n{}", envoy.log()).into());
    }
    Ok(Other { address, _envoy: envoy })
}

fn start_envoy(config: &Path, folder: &Path) -> Fallible<Part> {
    let mut command = services::spawner::leashed(&envoy()?);
    command.arg("--config-path").arg(config);
    command.args(["--disable-hot-restart", "--log-level", "warn", "--concurrency", "1"]);
    command.env("SCRIPTED_ANTHROPIC_KEY", "x").env("SCRIPTED_OPENAI_KEY", "x");
    Ok(Part::start("envoy2", command, folder)?)
}

/// Seconds, and the answer.
async fn upload(address: SocketAddr, key: &str) -> Fallible<(f64, Value)> {
    let piece = Bytes::from(vec![7; PIECE_BYTES]);
    let head = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--{BOUNDARY}\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"big.bin\"\r\n\
         content-type: application/octet-stream\r\n\r\n"
    );
    let mut pieces = vec![Bytes::from(head)];
    pieces.extend(std::iter::repeat_n(piece, FILE_MIB.into()));
    pieces.push(format!("\r\n--{BOUNDARY}--\r\n").into());
    let call = Call::new(http::Method::POST, "/v1/files")
        .header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"))
        .bearer(key)
        .chunks(pieces);
    let begun = Instant::now();
    let answer = call.send(address).await?;
    let time = seconds(begun.elapsed());
    if answer.status == 200 { Ok((time, answer.json())) } else { Err(answer.text().into()) }
}

async fn download(address: SocketAddr, path: &str, key: &str) -> Fallible<f64> {
    let begun = Instant::now();
    let answer = Call::get(path).bearer(key).open(address).await?;
    let bytes = answer.discard().await?;
    if bytes >= u64::from(FILE_MIB) << 20 {
        Ok(seconds(begun.elapsed()))
    } else {
        Err(format!("{bytes} bytes came").into())
    }
}
