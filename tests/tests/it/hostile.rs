//! Requests made to confuse: the right answer, never the other executor, and a VM that lives on.

use harness::client::{Call, raw};
use harness::stack::{Setup, Stack, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{DATED, ask, question, ran_here, refused, seen, shared, start, tag, untouched};

/// Requests of the long run.
const HOSTILE_REQUESTS: usize = 10_000;
/// At once.
const CLIENTS: usize = 8;
/// For Envoy to notice what a client did.
const ROOM_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

fn post(stack: &Stack, body: impl Into<bytes::Bytes>) -> Call {
    Call::post_bytes("/v1/messages", body).bearer(stack.key())
}

#[tokio::test]
async fn a_decision_key_given_twice_is_refused() {
    let (stack, tag) = (shared().await, tag());
    let tools = format!(r#"[{{"type":"{DATED}","name":"code_execution"}}]"#);
    for (first, second) in [
        (r#""tools":[]"#.to_owned(), format!(r#""tools":{tools}"#)),
        (format!(r#""tools":{tools}"#), r#""tools":[]"#.to_owned()),
        (format!(r#""tools":{tools}"#), r#""to\u006fls":[]"#.to_owned()),
        (r#""model":"text""#.to_owned(), format!(r#""tools":{tools}"#)),
        (r#""stream":true"#.to_owned(), r#""stream":false"#.to_owned()),
    ] {
        let model = if first.contains("model") { "" } else { r#""stream2":0,"# };
        let body = format!(
            r#"{{"model":"claude--text",{model}{first},"max_tokens":9,"messages":[{{"role":"user","content":"{tag}"}}],{second}}}"#
        );
        let answer = post(&stack, body.clone()).send(stack.address()).await.unwrap();
        let message = refused(&answer, 400, "invalid_request_error");
        assert!(
            message.contains("twice") || message.contains("duplicate") || message.contains("once"),
            "{body}: {message}"
        );
    }
    assert!(seen(&stack, &tag).await.is_empty());
}

#[tokio::test]
async fn escapes_do_not_hide_a_keyword() {
    let (stack, tag) = (shared().await, tag());
    for (key, kind) in [
        ("type", r"\u0063ode_execution_20250825"),
        (r"t\u0079pe", DATED),
        (r"\u0074\u0079\u0070\u0065", r"code\u005fexecution_2025\u003025"),
    ] {
        let body = format!(
            r#"{{"model":"messages--code-once","max_tokens":99,"t\u006fols":[{{"name":"code_execution","{key}":"{kind}"}}],
            "messages":[{{"role":"user","content":"{tag}"}}]}}"#
        );
        let answer = post(&stack, body).send(stack.address()).await.unwrap();
        assert!(ran_here(&answer.json()), "{key} {kind}: {}", answer.text());
    }
}

#[tokio::test]
async fn keywords_that_are_no_declaration_change_nothing() {
    let (stack, tag) = (shared().await, tag());
    let declaration = json!({"type": DATED, "name": "code_execution"});
    let mut requests = vec![question("messages--text", &tag, &[]); 4];
    requests[0]["messages"][0]["content"] = json!(format!("{tag} \"tools\":[{declaration}]"));
    requests[1]["metadata"] = json!({"tools": [declaration], "user_id": "x"});
    requests[2]["tools"] = json!([{"name": "f", "input_schema": {"type": "object", "tools": [declaration]}}]);
    requests[3]["system"] = json!([{"type": "text", "text": declaration.to_string()}]);
    for request in &requests {
        let answer = stack.send(ask(request)).await;
        assert_eq!(answer.status, 200, "{request}: {}", answer.text());
        assert!(!ran_here(&answer.json()));
    }
    let records = seen(&stack, &tag).await;
    for (record, request) in records.iter().zip(&requests) {
        untouched(record, "/v1/messages", request.to_string().as_bytes());
    }
    assert_eq!(records.len(), requests.len());
}

#[tokio::test]
async fn tools_after_twenty_megabytes_of_messages_are_found() {
    let stack = shared().await;
    let filler = "a \\\"tools\\\": é ".repeat(20 * 1024 * 1024 / 16);
    let body = format!(
        r#"{{"model":"messages--code-once","max_tokens":99,"messages":[{{"role":"user","content":"{filler}"}}],"tools":[{{"type":"{DATED}","name":"code_execution"}}]}}"#
    );
    let answer = post(&stack, body).send(stack.address()).await.unwrap();
    assert!(ran_here(&answer.json()), "{}", answer.text());
}

#[tokio::test]
async fn a_body_over_the_cap_is_a_413_in_the_callers_words() {
    let stack = start(Setup::default().set("max_body_bytes", "1048576")).await;
    let filler = "x".repeat(1024 * 1024);
    let mut request = question("claude--text", &tag(), &[DATED]);
    request["messages"][0]["content"] = json!(filler);
    let body = request.to_string();
    let head = |path: &str| {
        let key = stack.key();
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    // Told by its length, a body is refused before it has arrived.
    let said = raw(stack.address(), head("/v1/messages").as_bytes()).await.unwrap();
    assert!(
        said.starts_with("HTTP/1.1 413 ") && said.contains("request_too_large") && said.contains("1048576"),
        "{said}"
    );
    let openai = raw(stack.address(), head("/v1/chat/completions").as_bytes()).await.unwrap();
    assert!(openai.starts_with("HTTP/1.1 413 ") && openai.contains(r#"{"error":{"message":"#), "{openai}");
    let chunks: Vec<bytes::Bytes> = body.as_bytes().chunks(60_000).map(bytes::Bytes::copy_from_slice).collect();
    let chunked = Call::post_bytes("/v1/messages", "").chunks(chunks).bearer(stack.key());
    // A peer that refuses in mid-body may close before it has read all of it; what matters is that nobody was asked.
    if let Ok(answer) = chunked.send(stack.address()).await {
        refused(&answer, 413, "request_too_large");
    }
    assert_eq!(stack.received().await.unwrap().len(), 0);
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}

#[tokio::test]
async fn bodies_that_do_not_end_leave_room_for_others() {
    let limits = [("max_body_bytes", "1048576"), ("http", "{max_buffered_bytes: 1048576}")];
    let setup = limits.into_iter().fold(Setup::default().concurrency(1), |setup, (key, value)| setup.set(key, value));
    let stack = start(setup).await;
    // Without a snapshot the filter would leave it to the sidecar to hold them.
    let knows = async || stack.send(Call::get("/healthz/filter")).await.json()["snapshot_version"].is_u64();
    assert!(eventually(ROOM_WITHIN, knows).await);
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-length: 1000000\r\n\r\n",
        stack.key()
    );
    let mut unfinished = tokio::net::TcpStream::connect(stack.address()).await.unwrap();
    unfinished.write_all(format!("{head}{}", " ".repeat(700_000)).as_bytes()).await.unwrap();
    let mut large = question("claude--text", &tag(), &[]);
    large["messages"][0]["content"] = json!("x".repeat(600_000));
    let full = eventually(ROOM_WITHIN, async || stack.send(ask(&large)).await.status == 529);
    assert!(full.await, "the unfinished body does not count");
    let refusal = stack.send(ask(&large)).await;
    refused(&refusal, 529, "overloaded_error");
    assert_eq!(refusal.header("retry-after"), Some("1"));
    assert_eq!(
        stack.send(ask(&question("claude--text", &tag(), &[]))).await.status,
        200,
        "there is room for a small one"
    );
    drop(unfinished);
    let freed = eventually(ROOM_WITHIN, async || stack.send(ask(&large)).await.status == 200);
    assert!(freed.await, "a body given up goes on counting");
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}

#[tokio::test]
async fn a_body_that_trickles_into_envoy_has_a_deadline_there() {
    // One worker: another might not know the key yet, and leave the request to the sidecar.
    let stack = start(Setup::default().concurrency(1).set("http", "{body_deadline_ms: 300}")).await;
    let knows = async || stack.send(Call::get("/healthz/filter")).await.json()["snapshot_version"].is_u64();
    assert!(eventually(ROOM_WITHIN, knows).await);
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-length: 1000000\r\n\r\n",
        stack.key()
    );
    let (mut reading, mut writing) = tokio::net::TcpStream::connect(stack.address()).await.unwrap().into_split();
    writing.write_all(head.as_bytes()).await.unwrap();
    let trickle = async {
        while writing.write_all(b" ").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    let read = async { while !answer.ends_with(b"}") && reading.read_buf(&mut answer).await.unwrap() > 0 {} };
    let answered = async {
        tokio::select! { () = trickle => {}, () = read => {} }
    };
    tokio::time::timeout(ROOM_WITHIN, answered).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("http.body_deadline_ms"), "{answer}");
    let timeouts = stack.stats("http.public.downstream_rq_timeout").await.unwrap();
    assert_eq!(timeouts.values().sum::<u64>(), 0, "it was the filter");
}

#[tokio::test]
async fn underscores_in_header_names_pass_unless_they_spell_ours() {
    let (stack, tag) = (shared().await, tag());
    let request = question("claude--text", &tag, &[]);
    let call =
        ask(&request).header("session_id", "s-1").header("x_otari_route", "sidecar").header("x-otari_hop", "guess");
    assert_eq!(stack.send(call).await.status, 200);
    let record = seen(&stack, &tag).await.remove(0);
    untouched(&record, "/v1/messages", request.to_string().as_bytes());
    assert!(record.headers.contains(&("session_id".to_owned(), "s-1".to_owned())), "{:?}", record.headers);
}

#[tokio::test]
async fn an_empty_or_broken_body_is_a_400() {
    let stack = shared().await;
    for body in ["", " ", "{", "[]", "null", "\"a\"", "{\"model\":}", "{} {}", "{\"model\":\"text\"}x", "\u{feff}{}"] {
        let answer = post(&stack, body).send(stack.address()).await.unwrap();
        refused(&answer, 400, "invalid_request_error");
    }
    let invalid_utf8 = b"{\"mod\xffel\":\"text\"}".to_vec();
    refused(&post(&stack, invalid_utf8).send(stack.address()).await.unwrap(), 400, "invalid_request_error");
    let deep = format!("{{\"model\":\"text\",\"tools\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    refused(&post(&stack, deep).send(stack.address()).await.unwrap(), 400, "invalid_request_error");
}

#[tokio::test]
async fn compressed_bodies_are_a_415() {
    let (stack, tag) = (shared().await, tag());
    for encoding in ["gzip", "br", "identity, gzip"] {
        let call = ask(&question("claude--text", &tag, &[])).header("content-encoding", encoding);
        refused(&stack.send(call).await, 415, "invalid_request_error");
    }
    let plain = ask(&question("claude--text", &tag, &[])).header("content-encoding", "identity");
    assert_eq!(stack.send(plain).await.status, 200);
}

#[tokio::test]
async fn trailers_do_not_slip_past_the_decision() {
    let (stack, tag) = (shared().await, tag());
    let body = question("code-once", &tag, &[DATED]).to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-type: \
         application/json\r\ntransfer-encoding: chunked\r\ntrailer: x-otari-route\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n\
         {second}\r\n0\r\nx-otari-route: provider\r\nx-otari-provider: anthropic\r\n\r\n",
        stack.key(),
        first.len(),
        second.len(),
    );
    let answer = raw(stack.address(), request.as_bytes()).await.unwrap();
    assert!(answer.contains("otari_srvtoolu_") && answer.contains("sum 5050"), "{answer}");
}

#[tokio::test]
async fn http2_requests_are_decided_too_trailers_or_not() {
    let stack = shared().await;
    for trailers in [&[][..], &[("x-otari-route", "provider"), ("x-otari-provider", "anthropic")]] {
        let (first, second) = (tag(), tag());
        let claimed = ask(&question("code-once", &first, &[DATED])).bearer(stack.key());
        let answer = claimed.send_http2(stack.address(), trailers).await.unwrap();
        assert!(ran_here(&answer.json()), "{trailers:?}: {}", answer.text());
        let request = question("claude--text", &second, &[DATED]);
        let passed = ask(&request).bearer(stack.key()).send_http2(stack.address(), trailers).await.unwrap();
        assert_eq!(passed.status, 200, "{trailers:?}: {}", passed.text());
        untouched(&seen(&stack, &second).await[0], "/v1/messages", request.to_string().as_bytes());
        let empty = Call::post_bytes("/v1/messages", "").bearer(stack.key());
        refused(&empty.send_http2(stack.address(), trailers).await.unwrap(), 400, "invalid_request_error");
    }
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}

#[tokio::test]
async fn a_body_split_anywhere_is_the_same_body() {
    let stack = shared().await;
    let keyword = r#""\u0074ype":"code_execution_20250825""#;
    let body = format!(
        r#"{{"model":"claude--claimed","max_tokens":9,"messages":[{{"role":"user","content":"é\"]}}"}}],"tools":[{{"name":"code_execution",{keyword}}}]}}"#
    );
    for at in 1..body.len() {
        let (first, second) = body.as_bytes().split_at(at);
        let chunks = vec![bytes::Bytes::copy_from_slice(first), bytes::Bytes::copy_from_slice(second)];
        // The model talks only if the keyword was found and claimed.
        let call = Call::post_bytes("/v1/messages", "").chunks(chunks).bearer(stack.key());
        let answer = call.header("otari-code-execution", "otari").send(stack.address()).await.unwrap();
        assert_eq!(answer.json()["content"][0]["text"], "Claimed.", "split at {at}: {}", answer.text());
    }
}

/// A small generator, so that a failing run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// A request that somebody who wants to trap the filter could send.
fn hostile(random: &mut Random, key: &str) -> Vec<u8> {
    let valid = format!(
        r#"{{"model":"claude--text","max_tokens":9,"tools":[{{"type":"{DATED}","name":"code_execution"}}],"messages":[{{"role":"user","content":"é"}}]}}"#
    );
    let mut body = valid.into_bytes();
    for _ in 0..random.below(6) {
        let at = random.below(body.len());
        let garbage: &[&[u8]] = &[
            b"\"",
            b"\\",
            b"\\u",
            b"\\ud800",
            b"\\udc00\\ud800",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\0",
            b"\xff\xfe",
            b"1e999",
            b"-",
            b"\"tools\":",
            b"null",
            b"\xc3",
            b"/*",
            b"NaN",
            b"\r\n",
            b"\"\\u0000\"",
        ];
        match random.below(4) {
            0 => body.truncate(at),
            1 => drop(body.splice(at..at, random.pick(garbage).iter().copied())),
            2 => body[at] = u8::try_from(random.below(256)).unwrap(),
            _ => body.extend_from_slice(&body.clone()),
        }
        if body.is_empty() {
            break;
        }
    }
    let method = random.pick(&["POST", "POST", "POST", "GET", "PUT", "HEAD", "OPTIONS"]);
    let paths = [
        "/v1/messages",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1//messages/",
        "/v1/messages%00",
        "/%",
        "//",
        "/v1/%2e%2e/v1/messages?%",
    ];
    let path = random.pick(&paths);
    let odd_headers = [
        "",
        "otari-code-execution: \u{e9}\r\n",
        "x-otari-code-execution:\r\n",
        "otari-key: \u{ff}\r\notari-key: b\r\n",
        "x-otari-route: sidecar\r\n",
        "content-encoding: gzip\r\n",
        "content-type: text/plain\r\n",
        "x-otari-provider: \t\r\n",
        "expect: 100-continue\r\n",
        "x-api-key: \u{80}\r\n",
    ];
    let odd = random.pick(&odd_headers);
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {key}\r\n{odd}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(&body);
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_hostile_requests_trap_nothing() {
    let stack = start(Setup::default()).await;
    let seed = u64::from(std::process::id()) | 1;
    let clients = (0..CLIENTS).map(|client| {
        let (address, key) = (stack.address(), stack.key());
        async move {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client as u64) | 1);
            for number in 0..HOSTILE_REQUESTS / CLIENTS {
                let request = hostile(&mut random, key);
                let answer = raw(address, &request).await;
                let shown = String::from_utf8_lossy(&request);
                let answer = answer.unwrap_or_else(|error| panic!("seed {seed}, {client}/{number}: {error}: {shown}"));
                assert!(answer.starts_with("HTTP/1.1 "), "seed {seed}, {client}/{number}: {shown}\n{answer}");
                // A trapped VM answers 503 without a body.
                assert!(!answer.starts_with("HTTP/1.1 503"), "seed {seed}, {client}/{number}: {shown}\n{answer}");
            }
        }
    });
    futures_util::future::join_all(clients).await;
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
    let alive = stack.send(ask(&question("code-once", &tag(), &[DATED]))).await;
    assert!(ran_here(&alive.json()), "{}", alive.text());
    assert_eq!(Call::get("/healthz/filter").send(stack.address()).await.unwrap().status, 200);
}
