//! The sweep of a sidecar over very many expired files with their blobs, and what uploads to it notice of that.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::lists::{Prepared, Sidecar, of_envoy};
use super::{hundredth, seconds};
use crate::stack::Fallible;

/// How long uploads are measured alone.
const ALONE: Duration = Duration::from_secs(6);
/// The sidecar's first sweep comes so long after its start.
const SWEEP: Duration = Duration::from_secs(15);
/// Clients that upload, one file after the other.
const CLIENTS: usize = 4;
/// Bytes of each upload.
const UPLOAD_BYTES: usize = 64 * 1024;
/// Bytes of an expired file.
const BLOB: &[u8] = b"0123456789";
/// What spreads numbers over the store's folders, as random ids are spread.
const SPREAD: u64 = 2_654_435_761;

pub(super) async fn run(rows: u32) -> Fallible<Value> {
    let folder = tempfile::tempdir()?;
    let prepared = Prepared::new(folder.path(), "sweep", "sqlite", SWEEP.as_secs())?;
    make_blobs(&prepared.data, rows)?;
    prepared.sql(&expired_rows(rows))?;
    let sidecar = prepared.serve(0).await?;
    let sweep = Instant::now() + SWEEP;
    let before = uploads(&sidecar, async { tokio::time::sleep(ALONE).await }).await?;
    tokio::time::sleep_until(sweep.into()).await;
    let began = Instant::now();
    let ended = async {
        while !has_swept(&sidecar).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let during = uploads(&sidecar, ended).await?;
    let time = seconds(began.elapsed());
    let after = uploads(&sidecar, async { tokio::time::sleep(ALONE).await }).await?;
    let alone = f64::midpoint(before, after);
    Ok(json!({
        "rows": rows,
        "rows_per_s": (f64::from(rows) / time).round(),
        "uploads_per_s_alone": alone.round(),
        "uploads_per_s_during": during.round(),
        "uploads_ratio": hundredth(during / alone),
    }))
}

/// Whether a sweep has ended.
async fn has_swept(sidecar: &Sidecar) -> bool {
    let Ok(mut client) = sidecar.client().await else { return false };
    let answer = client.send(of_envoy(crate::client::Call::get("/otari/metrics"))).await;
    answer.is_ok_and(|answer| answer.text().lines().any(|line| line.starts_with("sidecar_sweeps_total")))
}

/// Uploads a second, until `end` is ready.
async fn uploads(sidecar: &Sidecar, end: impl Future<Output = ()>) -> Fallible<f64> {
    let began = Instant::now();
    let count = std::sync::atomic::AtomicU32::new(0);
    let client = async || -> Fallible<()> {
        let mut connection = sidecar.client().await?;
        loop {
            let answer = connection.send(of_envoy(upload())).await?;
            if answer.status != 200 {
                return Err(answer.text().into());
            }
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let clients = futures_util::future::try_join_all((0..CLIENTS).map(|_| client()));
    tokio::select! {
        failed = clients => drop(failed?),
        () = end => {}
    }
    Ok(f64::from(count.into_inner()) / seconds(began.elapsed()))
}

fn upload() -> crate::client::Call {
    let head = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\r\n";
    let body = [head.as_bytes(), &vec![7; UPLOAD_BYTES], b"\r\n--b--\r\n"].concat();
    crate::client::Call::new(http::Method::POST, "/v1/files")
        .header("content-type", "multipart/form-data; boundary=b")
        .bytes(Bytes::from(body))
}

/// The digits of a file's id.
fn digits(number: u64) -> String {
    format!("{:08x}{number:024x}", number.wrapping_mul(SPREAD) & 0xffff_ffff)
}

fn make_blobs(data: &Path, rows: u32) -> Fallible<()> {
    let files = data.join("files");
    for shard in 0..=0xff_u32 {
        std::fs::create_dir_all(files.join(format!("{shard:02x}")))?;
    }
    for number in 1..=u64::from(rows) {
        let digits = digits(number);
        let shard = digits.get(..2).unwrap_or_default();
        std::fs::write(files.join(shard).join(&digits), BLOB)?;
    }
    Ok(())
}

/// The same ids as rows of files that expired long ago.
fn expired_rows(rows: u32) -> String {
    format!(
        "INSERT INTO files (id, user_id, workspace_id, state, filename, mime_type, purpose, size_bytes, sha256, \
         created_at_ms, sweep_at_ms) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows}) \
         SELECT printf('file-otr%08x%024x', (n * {SPREAD}) & 4294967295, n), 'default', 'default', 'stored', 'a.bin', \
         'text/csv', 'user_data', 10, 'x', 1000 + n, 2000 + n FROM c; \
         INSERT INTO file_usage (workspace_id, size_bytes, files) VALUES ('default', {rows}0, {rows}) \
         ON CONFLICT (workspace_id) DO UPDATE SET size_bytes = {rows}0, files = {rows};"
    )
}
