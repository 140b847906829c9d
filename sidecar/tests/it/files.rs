//! The five files routes over the real router, SQLite and a store in a folder.

mod access;
mod broken;
mod containers;
mod download;
mod expiry;
mod form;
mod list;
mod tenants;
mod upload;

use serde_json::Value;

use crate::support::{Answer, Call, Sidecar, start_with};
use form::Form;

/// Whose words a call speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    OpenAi,
    Anthropic,
}

const VENDORS: [Vendor; 2] = [Vendor::OpenAi, Vendor::Anthropic];

/// A sidecar that knows callers by two headers, so that a test has as many as it likes.
pub(crate) async fn tenants(lines: &str) -> Sidecar {
    let identity = "identity: {mode: header, user_header: x-user, workspace_header: x-team}";
    start_with(&format!("{identity}\n{lines}")).await
}

impl Vendor {
    fn call(self, sidecar: &Sidecar, method: &str, path: &str) -> Call {
        self.speak(sidecar.call(method, path))
    }

    fn speak(self, call: Call) -> Call {
        match self {
            Self::OpenAi => call,
            Self::Anthropic => call.header("anthropic-version", "2023-06-01"),
        }
    }

    async fn upload(self, sidecar: &Sidecar, form: Form) -> Answer {
        form.on(self.call(sidecar, "POST", "/v1/files")).send().await
    }

    /// Uploads these bytes under this name; gives the file.
    async fn store(self, sidecar: &Sidecar, name: &str, content: &[u8]) -> Value {
        let answer = self.upload(sidecar, Form::default().named(name, content)).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        answer.json()
    }

    async fn get(self, sidecar: &Sidecar, path: &str) -> Answer {
        self.call(sidecar, "GET", path).send().await
    }

    /// Asserts an error in this vendor's shape, with the request's id where its clients look; gives message and the
    /// parameter at fault.
    #[track_caller]
    fn refused(self, answer: &Answer, status: u16, kind: &str) -> (String, Value) {
        let body = answer.json();
        assert_eq!(answer.status, status, "{body}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let id = answer.header("request-id").unwrap();
        assert_eq!(answer.header("x-request-id"), Some(id));
        let error = &body["error"];
        assert_eq!(error["type"], kind, "{body}");
        let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        match self {
            Self::OpenAi => {
                assert_eq!(members(&body), ["error"]);
                assert_eq!(members(error), ["message", "type", "param", "code"]);
            }
            Self::Anthropic => {
                assert_eq!(members(&body), ["type", "error", "request_id"]);
                assert_eq!((body["type"].as_str(), body["request_id"].as_str()), (Some("error"), Some(id)));
            }
        }
        (error["message"].as_str().unwrap().to_owned(), error["param"].clone())
    }
}

/// The ids of a list, in order.
fn ids(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|file| file["id"].as_str().unwrap()).collect()
}

/// Blobs in the store, whole or not; beside their folders it keeps a mark of its own.
fn blobs(sidecar: &Sidecar) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![sidecar.config.data_dir.join("files")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "otari-file-store") {
                found.push(path);
            }
        }
    }
    found
}

/// Waits until the store and both lists are empty.
async fn nothing_is_left(sidecar: &Sidecar) {
    let empty = async {
        while !blobs(sidecar).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(20), empty).await;
    assert!(waited.is_ok(), "{:?}", blobs(sidecar));
    for vendor in VENDORS {
        assert_eq!(ids(&vendor.get(sidecar, "/v1/files").await.json()), Vec::<&str>::new());
    }
}
