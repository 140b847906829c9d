//! Callers that mean harm, or are slow.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{FORM_TYPE, Served, TOKEN, all_of, assert_refused, python, serve, serve_with};
use crate::sandbox::until;

#[tokio::test]
async fn nothing_is_done_for_a_caller_without_the_token() {
    let served = serve_with("serve_token_env: SANDBOX_TOKEN", "").await;
    let right = format!("Bearer {TOKEN}");
    let opened = served.call("POST", "/sessions").header("authorization", &right).send().await;
    assert_eq!(opened.status, 201);
    let session = format!("/sessions/{}", opened.json()["session_id"].as_str().unwrap());
    let operations = [
        ("POST", "/sessions".to_owned()),
        ("GET", session.clone()),
        ("DELETE", session.clone()),
        ("POST", format!("{session}/exec")),
        ("POST", format!("{session}/files")),
        ("GET", format!("{session}/files?path=a")),
        ("GET", format!("{session}/files/list")),
        ("GET", "/sessions/never".to_owned()),
        ("PATCH", "/never".to_owned()),
    ];
    let wrong = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(TOKEN.to_owned()),
        Some(format!("Basic {TOKEN}")),
        Some(format!("Bearer {}", &TOKEN[..TOKEN.len() - 1])),
        Some(format!("Bearer {TOKEN}0")),
        Some(format!("Bearer {TOKEN}, Bearer {TOKEN}")),
        Some(format!("Bearer {}", TOKEN.to_uppercase())),
    ];
    for (method, path) in &operations {
        for header in &wrong {
            let mut call = served.call(method, path).json(&python("1"));
            if let Some(header) = header {
                call = call.header("authorization", header);
            }
            let refused = call.send().await;
            assert_refused(&refused, 401, "Authorization: Bearer");
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
            assert!(!String::from_utf8_lossy(&refused.body).contains(TOKEN));
        }
    }
    let twice = served.call("GET", &session).header("authorization", &right).header("authorization", &right);
    assert_refused(&twice.send().await, 401, "");
    for header in [right.clone(), format!("bearer {TOKEN}"), format!("BEARER   {TOKEN} ")] {
        assert_eq!(served.call("GET", &session).header("authorization", &header).send().await.status, 200, "{header}");
    }
    // That it is alive is all that a stranger hears.
    assert_eq!(served.get("/health").await.json(), json!({"status": "ok"}));
    let known = served.call("GET", "/health").header("authorization", &right).send().await.json();
    assert_eq!(known["session_count"], json!(1));
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_to_come_back_and_hear_that_it_is_alive() {
    let served = serve_with("", "http: {max_connections: 1}").await;
    let taken = served.raw("GET /health HTTP/1.1").await;
    let refused = served.post("/sessions", &json!({})).await;
    assert_refused(&refused, 503, "as many connections");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(served.get("/health").await.status, 200);
    drop(taken);
    until_opened(&served).await;
}

/// Waits until a session can be opened.
async fn until_opened(served: &Served) {
    while served.post("/sessions", &json!({})).await.status != 201 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn json_that_is_huge_or_deep_costs_nothing() {
    let served = serve().await;
    let session = served.session().await;
    let exec = format!("{session}/exec");
    let deep = "[".repeat(1_000_000);
    for body in [deep.clone(), format!("{{\"a\":{deep}"), format!("{{\"input\":{deep}}}"), "{\"a\":".repeat(100_000)] {
        assert_refused(&served.call("POST", &exec).body(body).send().await, 422, "JSON object");
    }
    let nested = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let tolerated = format!(r#"{{"tool":"code_execution","new":{nested},"input":{{"code":"6*7","new":{nested}}}}}"#);
    assert_eq!(served.call("POST", &exec).body(tolerated).send().await.status, 200);
    let ones = format!("{{\"a\":[{}1]}}", "1,".repeat(1_000_000));
    assert_refused(&served.call("POST", &exec).body(ones).send().await, 422, "`tool`");
    let members: Vec<String> = (0..100_000).map(|number| format!("\"m{number}\":1,")).collect();
    let members = members.concat();
    assert_refused(&served.call("POST", &exec).body(format!("{{{members}\"a\":1}}")).send().await, 422, "members");
    assert_refused(&served.call("POST", &exec).body("x".repeat(20 << 20)).send().await, 413, "longer than");
    assert_refused(&served.call("POST", "/sessions").body(" ".repeat(1 << 20)).send().await, 413, "longer than");
    assert_eq!(served.output(&session, "6*7").await, "42\n");
}

#[tokio::test]
async fn ten_thousand_requests_for_sessions_that_never_were_change_nothing() {
    let served = serve().await;
    let session = served.session().await;
    let lanes = (0..20).map(|lane| {
        let served = &served;
        async move {
            for number in 0..125 {
                let path = format!("/sessions/otari_sbx_{lane}{number:031}");
                let answers = [
                    served.run(&path, "1").await,
                    served.get(&path).await,
                    served.get(&format!("{path}/files?path=a")).await,
                    served.put(&path, "a", b"canary").await,
                ];
                for answer in answers {
                    assert_refused(&answer, 404, "no such session");
                }
            }
        }
    });
    futures_util::future::join_all(lanes).await;
    assert_eq!(served.alive().await, 1);
    assert_eq!(served.output(&session, "6*7").await, "42\n");
}

#[tokio::test]
async fn a_reader_that_stands_still_is_given_up_and_holds_no_session() {
    let served = serve_with("session_idle_s: 1", "http: {body_timeout_ms: 300, drain_timeout_ms: 5000}").await;
    let session = served.session().await;
    served.output(&session, "n = open('big', 'wb').write(bytes(50 << 20))").await;
    let mut stream = served.raw(&format!("GET {session}/files?path=big HTTP/1.1")).await;
    let mut head = [0; 64];
    stream.read_exact(&mut head).await.unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200"));
    // The session stays for as long as it is read, and goes soon after that.
    until("the session is ended", || std::fs::read_dir(served.sessions()).unwrap().count() == 0).await;
    let rest = all_of(&mut stream).await;
    assert!(rest.len() < 50 << 20, "{}", rest.len());
}

#[tokio::test]
async fn a_reader_that_takes_for_ever_is_broken_off() {
    let served = serve_with("", "http: {body_deadline_ms: 500}").await;
    let session = served.session().await;
    served.output(&session, "n = open('big', 'wb').write(bytes(50 << 20))").await;
    let mut open = served.call("GET", &format!("{session}/files?path=big")).open().await;
    assert_eq!(open.status, 200);
    let mut bytes = 0;
    let end = loop {
        match open.piece().await {
            Ok(Some(piece)) => bytes += piece.len(),
            end => break end,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(end.is_err() && bytes < 50 << 20, "{bytes}");
}

#[tokio::test]
async fn an_upload_that_stalls_holds_nobody_up_and_leaves_nothing() {
    let served = serve_with("", "http: {body_timeout_ms: 1500}").await;
    let session = served.session().await;
    let head = format!("POST {session}/files HTTP/1.1\r\ncontent-type: {FORM_TYPE}\r\ncontent-length: 100000");
    let part = "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"slow\"\r\n\r\nsome";
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let mut stream = served.raw(&head).await;
        stream.write_all(part.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Its session's code runs meanwhile, and other files come and go.
    assert_eq!(served.output(&session, "6*7").await, "42\n");
    assert_eq!(served.put(&session, "other", b"1").await.status, 201);
    // One leaves, the others are told that they took too long.
    drop(stalled.pop());
    for mut stream in stalled {
        let answer = all_of(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("took too long"), "{answer}");
    }
    let list = served.get(&format!("{session}/files/list")).await.json();
    assert_eq!(list["files"].as_array().unwrap().len(), 1, "{list}");
    let incoming = served.folder.path().join("data/sandbox/incoming");
    assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0);
}

#[tokio::test]
async fn bodies_that_never_come_are_told_so() {
    let served = serve_with("", "http: {body_timeout_ms: 300}").await;
    let session = served.session().await;
    for path in ["/sessions".to_owned(), format!("{session}/exec")] {
        let mut stream = served.raw(&format!("POST {path} HTTP/1.1\r\ncontent-length: 10")).await;
        let answer = all_of(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("took too long"), "{answer}");
    }
    assert_eq!(served.alive().await, 1);
}

#[tokio::test]
async fn a_caller_that_leaves_while_its_session_is_opened_leaves_none() {
    let served = serve().await;
    for _ in 0..10 {
        drop(served.raw("POST /sessions HTTP/1.1\r\ncontent-length: 0").await);
    }
    // They are opened, and end.
    until("some were opened", || std::fs::read_dir(served.sessions()).unwrap().count() > 0).await;
    until("they are ended", || std::fs::read_dir(served.sessions()).unwrap().count() == 0).await;
    assert_eq!(served.alive().await, 0);
}
