//! What files cost: bytes through Envoy against a server that does nothing but write and read them, and how lists and the
//! sweep bear a million rows.

mod lists;
mod sink;
mod sweep;
mod transfers;

use std::time::Duration;

use serde_json::{Value, json};

use crate::stack::Fallible;

/// Measures the release build beside this program. `rows`: how many files stand for very many. `part`: which of
/// `transfers`, `lists` and `sweep` is measured alone.
pub async fn run(rows: u32, part: Option<&str>) -> Fallible<Value> {
    Ok(match part {
        None => json!({
            "transfers": transfers::run().await?, "lists": lists::run(rows).await?, "sweep": sweep::run(rows).await?
        }),
        Some("transfers") => transfers::run().await?,
        Some("lists") => lists::run(rows).await?,
        Some("sweep") => sweep::run(rows).await?,
        Some(other) => return Err(format!("no part `{other}`: write transfers, lists or sweep").into()),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn hundredth(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
