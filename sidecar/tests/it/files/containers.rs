//! Files by the names that answers on the Responses wire cite them by.

use serde_json::{Value, json};

use super::form::Form;
use super::{VENDORS, Vendor, ids, tenants};
use crate::support::{Sidecar, start};

const CONTAINER: &str = "otari_cntr_0123456789abcdef0123456789abcdef";

/// A new file: its id, and its name in a container.
async fn stored(sidecar: &Sidecar) -> (String, String) {
    let file = Vendor::OpenAi.store(sidecar, "a b é.csv", b"0123456789").await;
    let id = file["id"].as_str().unwrap().to_owned();
    let name = id.replace("file-otr", "cfile_otr");
    (id, name)
}

fn path(container: &str, name: &str) -> String {
    format!("/v1/containers/{container}/files/{name}")
}

#[tokio::test]
async fn a_cited_file_is_described_downloaded_and_deleted_by_its_name_in_the_container() {
    let sidecar = start().await;
    let (id, name) = stored(&sidecar).await;
    let file = Vendor::OpenAi.get(&sidecar, &format!("/v1/files/{id}")).await.json();
    let path = path(CONTAINER, &name);
    let described = Vendor::OpenAi.get(&sidecar, &path).await;
    let expected = json!({
        "id": name,
        "object": "container.file",
        "container_id": CONTAINER,
        "created_at": file["created_at"],
        "bytes": 10,
        "path": "/mnt/data/a b é.csv",
        "source": "user",
    });
    assert_eq!((described.status, described.json()), (200, expected));
    assert_eq!(Vendor::OpenAi.get(&sidecar, &path.replace("/v1/", "/api/v1/")).await.json(), described.json());
    let content = format!("{path}/content");
    let (here, there) = (
        Vendor::OpenAi.get(&sidecar, &content).await,
        Vendor::OpenAi.get(&sidecar, &format!("/v1/files/{id}/content")).await,
    );
    assert_eq!((here.status, &here.body[..]), (200, &b"0123456789"[..]));
    for header in ["content-type", "content-length", "content-disposition", "etag", "x-content-type-options"] {
        assert_eq!(here.header(header), there.header(header));
    }
    let part = sidecar.call("GET", &content).header("range", "bytes=2-3").send().await;
    assert_eq!((part.status, &part.body[..]), (206, &b"23"[..]));
    let deleted = sidecar.call("DELETE", &path).send().await;
    let expected = json!({"id": name, "object": "container.file.deleted", "deleted": true});
    assert_eq!((deleted.status, deleted.json()), (200, expected));
    assert_eq!(Vendor::OpenAi.get(&sidecar, &format!("/v1/files/{id}")).await.status, 404);
    assert_eq!(ids(&Vendor::OpenAi.get(&sidecar, "/v1/files").await.json()), Vec::<&str>::new());
}

#[tokio::test]
async fn whatever_is_not_the_callers_is_the_same_404() {
    let sidecar = tenants("").await;
    let of = |user: &str, team: &str, method: &str, path: &str| {
        sidecar.call(method, path).header("x-user", user).header("x-team", team)
    };
    let file = Form::default().named("a", b"theirs").on(of("ann", "red", "POST", "/v1/files")).send().await.json();
    let theirs = file["id"].as_str().unwrap().replace("file-otr", "cfile_otr");
    let content = of("ann", "red", "GET", &format!("{}/content", path(CONTAINER, &theirs))).send().await;
    assert_eq!(content.body, "theirs");
    let unknown = "cfile_otr0123456789abcdef0123456789abcdef";
    let as_a_file = theirs.replace("cfile_otr", "file-otr");
    let others = [
        ("bob", "red", &*theirs),
        ("ann", "blue", &*theirs),
        ("ann", "red", unknown),
        ("ann", "red", &*as_a_file),
        ("ann", "red", "cfile_otr1"),
        ("ann", "red", "cfile_otr%00"),
        ("ann", "red", "%FF"),
        ("ann", "red", "..%2F..%2Ffiles"),
    ];
    for (user, team, name) in others {
        for (method, end) in [("GET", ""), ("GET", "/content"), ("HEAD", "/content"), ("DELETE", "")] {
            for vendor in VENDORS {
                let call = vendor.speak(of(user, team, method, &format!("{}{end}", path(CONTAINER, name))));
                let answer = call.send().await;
                if method == "HEAD" {
                    assert_eq!(answer.status, 404, "{name}");
                    continue;
                }
                let kind = if vendor == Vendor::OpenAi { "invalid_request_error" } else { "not_found_error" };
                let (message, param) = vendor.refused(&answer, 404, kind);
                assert!(message.contains("not found"), "{message}");
                if vendor == Vendor::OpenAi {
                    assert_eq!(param, json!("file_id"));
                }
            }
        }
    }
    // A container of ours may be over: its files are not. What is none of ours has no files here.
    let over = "otari_cntr_ffffffffffffffffffffffffffffffff";
    assert_eq!(of("ann", "red", "GET", &path(over, &theirs)).send().await.status, 200);
    for container in ["cntr_68a", "otari_cntr_1", "otari_cntr_%00", "otari_cntr_0123456789ABCDEF0123456789abcdef"] {
        let answer = of("ann", "red", "GET", &path(container, &theirs)).send().await;
        let (message, param) = Vendor::OpenAi.refused(&answer, 404, "invalid_request_error");
        assert!(message.starts_with("Container with id '") && message.ends_with("' not found."), "{message}");
        assert_eq!(param, json!("container_id"));
    }
    let nobody = sidecar.call("GET", &path(CONTAINER, &theirs)).send().await;
    assert_eq!(nobody.status, 401);
    let method = of("ann", "red", "POST", &path(CONTAINER, &theirs)).send().await;
    assert_eq!((method.status, &method.json()["error"]["param"]), (405, &Value::Null));
}
