//! Streams that tell when each of their events was sent, so that whoever reads one knows how long it was on its way.

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::json;

use crate::client::{Call, Target};
use crate::stack::Fallible;

/// What asks the instant model for such a stream.
pub(super) const MARK: &[u8] = b"at a steady pace";
/// Streams at once.
pub(super) const STREAMS: usize = 100;
/// Between two events of a stream: all of them together send 2,000 a second.
const PERIOD: Duration = Duration::from_millis(50);
/// Events of a stream, 6 s long.
const EVENTS: u64 = 120;

/// Nanoseconds since this process first asked.
fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The body of one such stream.
pub(super) fn body() -> UnsyncBoxBody<Bytes, Infallible> {
    let ticks = tokio::time::interval(PERIOD);
    let events = stream::unfold((ticks, 0), |(mut ticks, sent)| async move {
        if sent == EVENTS {
            return None;
        }
        ticks.tick().await;
        let event = format!("event: ping\ndata: {{\"type\": \"ping\", \"at\": {}}}\n\n", now_ns());
        Some((Ok(Frame::data(Bytes::from(event))), (ticks, sent + 1)))
    });
    StreamBody::new(events).boxed_unsync()
}

/// All streams at once from there: how long their events were on their way, in nanoseconds.
pub(super) async fn delays(target: Target, headers: &[(&str, &str)]) -> Fallible<Vec<u64>> {
    let request = json!({
        "model": "instant", "max_tokens": 9, "stream": true,
        "messages": [{"role": "user", "content": String::from_utf8_lossy(MARK)}],
    });
    let one = |number: u64| {
        let call =
            headers.iter().fold(Call::post("/v1/messages", &request), |call, (name, value)| call.header(name, *value));
        let target = target.clone();
        async move {
            // They begin one after the other, so that their events do not come all together.
            tokio::time::sleep(PERIOD * u32::try_from(number)? / u32::try_from(STREAMS)?).await;
            let mut delays = Vec::new();
            let mut stream = call.open(target).await?;
            let mut rest = String::new();
            while let Some(piece) = stream.next().await? {
                let now = now_ns();
                rest.push_str(&String::from_utf8_lossy(&piece));
                while let Some((event, tail)) = rest.split_once("\n\n") {
                    let at = event.rsplit_once(": ").and_then(|(_, at)| at.trim_end_matches('}').parse::<u64>().ok());
                    delays.push(now.saturating_sub(at.ok_or("an event without its time")?));
                    rest = tail.to_owned();
                }
            }
            if u64::try_from(delays.len())? == EVENTS { Fallible::Ok(delays) } else { Err("events are missing".into()) }
        }
    };
    let all = stream::iter(0..u64::try_from(STREAMS)?).map(one).buffer_unordered(STREAMS);
    let delays: Vec<Fallible<Vec<u64>>> = all.collect().await;
    Ok(delays.into_iter().collect::<Fallible<Vec<_>>>()?.concat())
}
