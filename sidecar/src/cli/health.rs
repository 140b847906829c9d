//! `health`: asks the sidecar itself, for a container's health check.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::CommandError;
use crate::config::ListenAddress;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer read.
const ANSWER_MAX_BYTES: u64 = 16 << 10;
const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Succeeds when the sidecar says that it is ready.
pub(super) async fn ask(address: &ListenAddress) -> Result<(), CommandError> {
    let answer = match tokio::time::timeout(PATIENCE, exchange(address)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(CommandError::Refused(format!("nothing answers at {address}: {error}"))),
        Err(_) => return Err(CommandError::Refused(format!("no answer from {address} within {PATIENCE:?}"))),
    };
    if answer.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Err(CommandError::Refused(format!("the sidecar is not ready: {body}")))
}

async fn exchange(address: &ListenAddress) -> io::Result<String> {
    match address {
        ListenAddress::Unix(path) => talk(UnixStream::connect(path).await?).await,
        ListenAddress::Tcp(address) => talk(TcpStream::connect(address).await?).await,
    }
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    stream.write_all(REQUEST).await?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}
