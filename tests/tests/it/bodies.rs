//! Bodies of every size arrive as they were sent, on the way to the provider and on the way through the sidecar.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use harness::client::Call;
use harness::stack::{Setup, Stack};

use crate::support::start;

/// Bodies sent in all.
const BODIES: usize = 500;
/// Sent at the same time.
const AT_ONCE: usize = 8;
/// The largest.
const MAX_BYTES: usize = 40 * 1024 * 1024;
/// Every so many bodies, one is large; the others stay below a megabyte, where Envoy's buffers begin and end.
const LARGE_EVERY: usize = 20;

fn random_numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |limit| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % (limit as u64 + 1)).unwrap_or_default()
    }
}

/// The `number`-th body: its size, and whether it goes through the sidecar, follow from the number.
fn body(number: usize) -> Vec<u8> {
    let mut random = random_numbers(number as u64 + 1);
    let size = match number {
        _ if number.is_multiple_of(LARGE_EVERY) => random(MAX_BYTES),
        _ if number.is_multiple_of(3) => random(3_000),
        _ => random(900_000),
    };
    // What looks like an id of ours is the sidecar's to judge: it finds nothing to resolve, and relays.
    let user = if (number / 2).is_multiple_of(2) { "somebody" } else { "otari_srvtoolu_none" };
    let mut body = format!(
        r#"{{"model":"messages--digest","max_tokens":9,"metadata":{{"user_id":"{user}"}},"messages":[{{"role":"user","content":""#
    );
    let alphabet = ["a", "Z", "0", " ", "\\n", "\\\"", "\\\\", "é", "漢", "\\u00e9", "{", "}", "[", "tools"];
    let block: String = (0..4096).map(|_| alphabet[random(alphabet.len() - 1)]).collect();
    while body.len() < size {
        body.push_str(&block);
    }
    body.push_str(r#""}]}"#);
    body.into_bytes()
}

async fn arrives(stack: &Stack, number: usize) {
    let body = body(number);
    let sent = harness::sha256(&body);
    let length = body.len();
    let call = Call::post_bytes("/v1/messages", "");
    let call = if number.is_multiple_of(2) {
        call.bytes(body)
    } else {
        let mut random = random_numbers(number as u64 + 7);
        let mut rest = Bytes::from(body);
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            let size = 1 + random(if length > 1_000_000 { 200_000 } else { 40_000 });
            chunks.push(rest.split_to(size.min(rest.len())));
        }
        call.chunks(chunks)
    };
    let answer = stack.send(call).await;
    assert_eq!(answer.status, 200, "body {number} of {length} bytes: {}", answer.text());
    assert_eq!(answer.json()["content"][0]["text"], sent, "body {number} of {length} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_bodies_arrive_intact() {
    let stack = start(Setup::default()).await;
    stream::iter(0..BODIES).for_each_concurrent(AT_ONCE, |number| arrives(&stack, number)).await;
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}
