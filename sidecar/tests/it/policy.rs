//! Workspaces and their code-execution policies.

use serde_json::json;

use crate::support::{POLICY, start, start_with};

#[tokio::test]
async fn only_the_master_key_opens_it() {
    let sidecar = start().await;
    for path in [POLICY, "/v1/workspaces"] {
        let ordinary = sidecar.call("GET", path).send().await;
        assert_eq!(ordinary.status, 401, "{path}");
        assert_eq!(sidecar.admin("GET", path).send().await.status, 200, "{path}");
    }
    let unknown = sidecar.admin("GET", "/v1/workspaces/none/code-execution-policy").send().await;
    assert_eq!((unknown.status, unknown.json()["error"]["code"].as_str()), (404, Some("workspace_not_found")));
}

#[tokio::test]
async fn a_policy_is_set_replaced_and_cleared() {
    let sidecar = start_with("sandbox: {backend: none, allowed_images: [small, large]}").await;
    let unset = sidecar.admin("GET", POLICY).send().await.json();
    assert_eq!((&unset["configured"], &unset["enabled"]), (&json!(false), &json!(true)));
    assert_eq!(unset["created_at"], json!(null));
    let full = json!({
        "enabled": true, "executor": " OTARI ", "max_iterations": 25, "exec_timeout_s": 60, "image": "large",
        "default_purpose_hint": "for sums", "tools": ["bash_code_execution", "code_execution"],
    });
    let set = sidecar.admin("PUT", POLICY).json(&full).send().await;
    assert_eq!(set.status, 200);
    let set = set.json();
    assert_eq!((&set["executor"], &set["configured"]), (&json!("otari"), &json!(true)));
    assert_eq!(set["allowed_images"], json!(["small", "large"]));
    assert_eq!(sidecar.admin("GET", POLICY).send().await.json(), set);
    let bare = json!({"enabled": false, "default_purpose_hint": "  "});
    let replaced = sidecar.admin("PUT", POLICY).json(&bare).send().await.json();
    for field in ["executor", "max_iterations", "exec_timeout_s", "image", "default_purpose_hint", "tools"] {
        assert_eq!(replaced[field], json!(null), "{field}");
    }
    assert_eq!(replaced["created_at"], set["created_at"]);
    for _ in 0..2 {
        let cleared = sidecar.admin("DELETE", POLICY).send().await;
        assert_eq!(cleared.status, 200);
        assert_eq!(cleared.json(), sidecar.admin("GET", POLICY).send().await.json());
        assert_eq!(cleared.json()["configured"], json!(false));
    }
}

#[tokio::test]
async fn what_could_never_take_effect_is_refused_by_name() {
    let sidecar = start_with("sandbox: {backend: none, exec_timeout_s: 30}").await;
    let wrong = [
        (json!({}), "enabled"),
        (json!({"enabled": "yes"}), "enabled"),
        (json!({"enabled": true, "executor": "both"}), "executor"),
        (json!({"enabled": true, "executor": 1}), "executor"),
        (json!({"enabled": true, "max_iterations": 0}), "max_iterations"),
        (json!({"enabled": true, "max_iterations": 26}), "max_iterations"),
        (json!({"enabled": true, "max_iterations": 2.5}), "max_iterations"),
        (json!({"enabled": true, "exec_timeout_s": 0}), "exec_timeout_s"),
        (json!({"enabled": true, "exec_timeout_s": 31}), "exec_timeout_s"),
        (json!({"enabled": true, "default_purpose_hint": "x".repeat(2049)}), "default_purpose_hint"),
        (json!({"enabled": true, "image": "any"}), "image"),
        (json!({"enabled": true, "tools": []}), "tools"),
        (json!({"enabled": true, "tools": ["bash_code_execution"]}), "tools"),
        (json!({"enabled": true, "tools": ["code_execution", "telnet"]}), "tools"),
        (json!({"enabled": true, "tools": "code_execution"}), "tools"),
    ];
    for (body, field) in wrong {
        let answer = sidecar.admin("PUT", POLICY).json(&body).send().await;
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.json()["error"]["param"], field, "{body}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(field), "{body}");
    }
    let unknown = sidecar.admin("PUT", POLICY).json(&json!({"enabled": true, "pin": "otari", "max_iterations": 99}));
    let unknown = unknown.send().await;
    let message = unknown.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("`pin`") && message.contains("`max_iterations`"), "both are told: {message}");
    let not_json = sidecar.admin("PUT", POLICY).body("{").send().await;
    assert_eq!(not_json.status, 400);
    let long = sidecar.admin("PUT", POLICY).body(vec![b' '; 70_000]).send().await;
    assert_eq!(long.status, 413);
    assert_eq!(sidecar.admin("GET", POLICY).send().await.json()["configured"], json!(false));
}

#[tokio::test]
async fn workspaces_are_made_once_and_listed_in_order() {
    let sidecar = start().await;
    let make = |id: &str| sidecar.admin("POST", "/v1/workspaces").json(&json!({"id": id})).send();
    assert_eq!(make("team.b").await.status, 201);
    assert_eq!(make("team.a").await.status, 201);
    assert_eq!(make("team.a").await.status, 409);
    for wrong in ["", "a/b", "a b", &"x".repeat(65)] {
        assert_eq!(make(wrong).await.status, 422, "{wrong}");
    }
    let list = sidecar.admin("GET", "/v1/workspaces?after=default").send().await.json();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &list["has_more"]), (vec!["team.a", "team.b"], &json!(false)));
}

#[tokio::test]
async fn without_a_master_key_the_admin_routes_are_off() {
    use sidecar::app::App;
    use sidecar::config::{Config, Environment};

    use crate::support::{Call, config_text, parts};

    let folder = tempfile::tempdir().unwrap();
    let config = Config::parse(&config_text(&folder, ""), &Environment::default()).unwrap();
    let app = App::build(&config, parts()).await.unwrap();
    let secret = std::fs::read_to_string(config.hop_secret_file()).unwrap();
    let socket = folder.path().join("sidecar.sock");
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio_util::task::TaskTracker::new().spawn(app.run(stop.clone().cancelled_owned()));
    let call = Call::new(&socket, "GET", POLICY).header("x-otari-hop", secret.trim()).header("otari-key", "any");
    let answer = call.send().await;
    assert_eq!(answer.status, 403);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("OTARI_MASTER_KEY"));
    stop.cancel();
    running.await.unwrap();
}
