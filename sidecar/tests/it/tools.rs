//! `GET /v1/tools`.

use crate::support::{MASTER, start, start_with};

#[tokio::test]
async fn tools_need_a_key_and_say_what_is_there() {
    let sidecar = start().await;
    let hop = sidecar.hop_secret.clone();
    let no_key = sidecar.bare_call("GET", "/v1/tools").header("x-otari-hop", &hop).send().await;
    assert_eq!(no_key.status, 401);
    let unknown =
        sidecar.bare_call("GET", "/v1/tools").header("x-otari-hop", &hop).header("x-api-key", "otk_no").send();
    assert_eq!(unknown.await.status, 401);
    let admin = sidecar.bare_call("GET", "/v1/tools").header("x-otari-hop", &hop).header("otari-key", MASTER).send();
    assert_eq!(admin.await.status, 200);
    for path in ["/v1/tools", "/api/v1/tools"] {
        let answer = sidecar.call("GET", path).send().await;
        assert_eq!(answer.status, 200);
        let tools = answer.json()["data"].clone();
        assert_eq!(tools[0]["id"], "otari_code_execution");
        assert_eq!(tools[0]["available"], false);
        assert_eq!(tools[0]["accepted_types"], serde_json::json!(["otari_code_execution"]));
        assert_eq!(tools[1]["id"], "otari_web_search");
    }
}

#[tokio::test]
async fn without_identity_tools_are_open() {
    let sidecar = start_with("identity: {mode: none}").await;
    let answer = sidecar.bare_call("GET", "/v1/tools").header("x-otari-hop", &sidecar.hop_secret).send().await;
    assert_eq!(answer.status, 200);
}
