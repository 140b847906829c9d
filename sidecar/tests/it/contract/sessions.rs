//! Sessions: opened, told of, ended.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::{Served, all_of, assert_refused, serve, serve_with};
use crate::sandbox::until;

#[tokio::test]
async fn a_session_is_opened_told_of_and_ended() {
    let served = serve().await;
    for body in ["", "{}", "null", r#"{"image": "python:3", "new": {"a": [1]}, "idle_timeout_seconds": null}"#] {
        let opened = served.call("POST", "/sessions").body(body).send().await;
        assert_eq!(opened.status, 201, "{body}: {:?}", opened.body);
        let handle = opened.json();
        let id = handle["session_id"].as_str().unwrap();
        assert!(id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{id}");
        assert_eq!((&handle["idle_timeout_seconds"], &handle["max_lifetime_seconds"]), (&json!(1200), &json!(7200)));
        let (created, active) = (handle["created_at"].as_f64().unwrap(), handle["last_activity_at"].as_f64().unwrap());
        assert!(created > 1.7e9 && active >= created, "{handle}");
        let path = format!("/sessions/{id}");
        served.output(&path, "1").await;
        let told = served.get(&path).await;
        assert_eq!(
            (told.status, &told.json()["session_id"], &told.json()["created_at"]),
            (200, &json!(id), &json!(created))
        );
        assert!(told.json()["last_activity_at"].as_f64().unwrap() >= active);
        for _ in 0..2 {
            let ended = served.delete(&path).await;
            assert_eq!((ended.status, ended.body.len()), (204, 0));
        }
        assert_refused(&served.get(&path).await, 404, "no such session");
        assert_refused(&served.run(&path, "canary").await, 404, "no such session");
    }
    assert_eq!(served.alive().await, 0);
    assert_eq!(std::fs::read_dir(served.sessions()).unwrap().count(), 0);
}

#[tokio::test]
async fn hints_lower_what_is_in_force_and_never_raise_it() {
    let served = serve_with("session_idle_s: 100, session_lifetime_s: 200", "").await;
    for (idle, lifetime, granted) in
        [(json!(30), json!(60), (30, 60)), (json!(30.0), json!(null), (30, 200)), (json!(101), json!(1e12), (100, 200))]
    {
        let hints = json!({"idle_timeout_seconds": idle, "max_lifetime_seconds": lifetime});
        let handle = served.post("/sessions", &hints).await.json();
        assert_eq!(
            (handle["idle_timeout_seconds"].as_u64(), handle["max_lifetime_seconds"].as_u64()),
            (Some(granted.0), Some(granted.1))
        );
    }
    for (name, value) in [
        ("idle_timeout_seconds", json!(0)),
        ("idle_timeout_seconds", json!(-5)),
        ("max_lifetime_seconds", json!("canary")),
        ("max_lifetime_seconds", json!(1.5)),
    ] {
        assert_refused(&served.post("/sessions", &json!({name: value})).await, 422, &format!("`{name}`"));
    }
    for body in ["canary", "[]", "{\"idle_timeout_seconds\": 1", "{\"a\": 1, \"a\": 2}"] {
        assert_refused(&served.call("POST", "/sessions").body(body).send().await, 422, "JSON object");
    }
    assert_eq!(served.alive().await, 3);
}

#[tokio::test]
async fn a_session_whose_time_is_over_is_gone() {
    let served = serve_with("", "").await;
    let handle = served.post("/sessions", &json!({"idle_timeout_seconds": 1})).await.json();
    let path = format!("/sessions/{}", handle["session_id"].as_str().unwrap());
    assert_eq!(served.get(&path).await.status, 200);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_refused(&served.run(&path, "1").await, 404, "no such session");
    until("its files are gone", || std::fs::read_dir(served.sessions()).unwrap().count() == 0).await;
}

#[tokio::test]
async fn a_full_server_says_when_to_come_back() {
    let served = serve_with("max_sessions: 1", "").await;
    let session = served.session().await;
    let refused = served.post("/sessions", &json!({})).await;
    assert_refused(&refused, 503, "every session is taken");
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() > 0);
    served.delete(&session).await;
    served.session().await;
}

#[tokio::test]
async fn the_contract_stands_behind_any_base_path_and_nothing_else_does() {
    let served = serve().await;
    for prefix in ["/", "/base/path", "/base/path/"] {
        let opened = served.post(&format!("{prefix}/sessions"), &json!({})).await;
        assert_eq!(opened.status, 201, "{prefix}");
        let session = format!("{prefix}/sessions/{}", opened.json()["session_id"].as_str().unwrap());
        assert_eq!(served.output(&session, "6*7").await, "42\n");
        assert_eq!(served.get(&format!("{session}/files/list?path=.")).await.status, 200);
        assert_eq!(served.delete(&format!("{session}/")).await.status, 204);
    }
    for path in ["/", "/v1/messages", "/healthz", "/otari/metrics", "/sessions/a/b/c"] {
        assert_refused(&served.get(path).await, 404, "no such path");
    }
    for (method, path, allowed) in [
        ("GET", "/sessions", "POST"),
        ("PUT", "/sessions/a", "GET, DELETE"),
        ("GET", "/sessions/a/exec", "POST"),
        ("DELETE", "/sessions/a/files", "GET, POST"),
        ("POST", "/sessions/a/files/list", "GET"),
        ("POST", "/health", "GET"),
    ] {
        let refused = served.call(method, path).send().await;
        assert_eq!(refused.header("allow"), Some(allowed), "{method} {path}");
        assert_refused(&refused, 405, allowed);
    }
}

#[tokio::test]
async fn health_tells_how_full_it_is() {
    let served = serve_with("max_sessions: 7", "").await;
    served.session().await;
    let health = served.get("/health").await;
    assert_eq!(health.status, 200);
    let body = health.json();
    assert_eq!((&body["status"], &body["session_count"], &body["max_sessions"]), (&json!("ok"), &json!(1), &json!(7)));
    assert!(body["isolation"].as_str().unwrap().starts_with("namespaces"), "{body}");
}

#[tokio::test]
async fn a_stop_lets_calls_end_and_ends_every_session() {
    let served = serve().await;
    let session = served.session().await;
    let running = served.run(&session, "open('begun', 'w').close()\nimport time\ntime.sleep(1)\nprint('done')");
    let stopping = async {
        until("the call runs", || workspaces(&served).iter().any(|path| path.join("begun").exists())).await;
        served.stop.cancel();
    };
    let (answer, ()) = tokio::join!(running, stopping);
    assert_eq!((answer.status, &answer.json()["result_block"]["content"]["stdout"]), (200, &json!("done\n")));
    let folder = served.stopped().await;
    assert_eq!(std::fs::read_dir(folder.path().join("data/sandbox/sessions")).unwrap().count(), 0);
    assert!(!folder.path().join("contract.sock").exists());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let served = serve_with("", "http: {drain_timeout_ms: 100}").await;
    let session = served.session().await;
    let body = super::python("open('begun', 'w').close()\nwhile True: pass").to_string();
    let head = format!("POST {session}/exec HTTP/1.1\r\ncontent-length: {}", body.len());
    let mut stream = served.raw(&head).await;
    stream.write_all(body.as_bytes()).await.unwrap();
    until("the call runs", || workspaces(&served).iter().any(|path| path.join("begun").exists())).await;
    let folder = served.stopped().await;
    assert_eq!(all_of(&mut stream).await, "");
    assert_eq!(std::fs::read_dir(folder.path().join("data/sandbox/sessions")).unwrap().count(), 0);
}

fn workspaces(served: &Served) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(served.sessions()).unwrap().map(|entry| entry.unwrap().path()).collect()
}
