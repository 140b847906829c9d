//! Files in stores on servers, through Envoy: the five routes, expiry and the sweep; and no secret of a store shows.

use std::process::Stdio;
use std::time::Duration;

use harness::client::{Answer, Call};
use harness::stack::{Setup, Stack, binary, eventually};
use http::Method;
use services::azure::{self, Azure};
use services::s3::{self, S3};
use services::sftp::Sftp;
use services::spawner;

use crate::support::start;

const SOON: Duration = Duration::from_secs(30);
/// More than one part.
const LONG: usize = (11 << 20) + 17;

fn upload(fields: &str, content: &[u8]) -> Call {
    let head = format!(
        "{fields}--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\ncontent-type: text/csv\r\n\r\n"
    );
    let body = [head.as_bytes(), content, b"\r\n--b--\r\n"].concat();
    Call::new(Method::POST, "/v1/files").header("content-type", "multipart/form-data; boundary=b").bytes(body)
}

fn id(answer: &Answer) -> String {
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

/// A config with files in a place of its own, and the store's keys in the environment.
fn on_s3(place: &str, endpoint: &str, secret: &str, more: &str) -> Setup {
    let files = format!(
        "{{url: \"s3://{place}\", options: {{endpoint: \"{endpoint}\", region: us-east-1, allow_http: true}}, \
         options_env: {{access_key_id: STORE_KEY, secret_access_key: STORE_SECRET}}{more}}}"
    );
    Setup::default().set("files", &files).env("STORE_KEY", s3::ACCESS_KEY).env("STORE_SECRET", secret)
}

async fn sweep(stack: &Stack, secret: &str) {
    let mut command = spawner::leashed(&binary("otari-sidecar").unwrap());
    command.args(["sweep", "--config"]).arg(stack.folder().join("otari.yaml"));
    command.env("STORE_KEY", s3::ACCESS_KEY).env("STORE_SECRET", secret).stdout(Stdio::null());
    command.env("SCRIPTED_ANTHROPIC_KEY", "x").env("SCRIPTED_OPENAI_KEY", "x");
    let done = tokio::task::spawn_blocking(move || command.status()).await.unwrap().unwrap();
    assert!(done.success());
}

#[tokio::test]
async fn the_five_routes_and_the_sweep_work_on_s3() {
    let server = S3::shared().unwrap();
    let place = server.place().unwrap();
    let stack = start(on_s3(&place, &server.endpoint(), s3::SECRET_KEY, "")).await;
    let content: Vec<u8> = (0..LONG).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let file = id(&stack.send(upload("", &content)).await);
    let path = format!("/api/v1/files/{file}");
    assert_eq!(stack.send(Call::get(&path)).await.json()["bytes"], LONG);
    let whole = stack.send(Call::get(format!("{path}/content"))).await;
    assert!(whole.status == 200 && whole.body == content);
    let part = stack.send(Call::get(format!("{path}/content")).header("range", "bytes=7000000-7000009")).await;
    assert_eq!((part.status, &part.body[..]), (206, &content[7_000_000..7_000_010]));
    let list = stack.send(Call::get("/v1/files")).await.json();
    assert_eq!(list["data"][0]["id"], file.as_str());

    assert_eq!(stack.send(Call::new(Method::DELETE, &path)).await.status, 200);
    for path in [path.clone(), format!("{path}/content")] {
        assert_eq!(stack.send(Call::get(path)).await.status, 404);
    }
    let blobs = async || server.objects(&place).unwrap().iter().filter(|name| name.len() == 32).count();
    assert!(eventually(SOON, async || blobs().await == 0).await, "the blob goes with the file");

    // Its time cannot be waited for, so it is set back.
    let soon = "--b\r\ncontent-disposition: form-data; name=\"expires_after[anchor]\"\r\n\r\ncreated_at\r\n\
                --b\r\ncontent-disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n3600\r\n";
    let answer = stack.send(upload(soon, b"gone soon")).await;
    let (expiring, json) = (id(&answer), answer.json());
    assert_eq!(json["expires_at"].as_i64().unwrap() - json["created_at"].as_i64().unwrap(), 3600, "to the second");
    let kept = id(&stack.send(upload("", b"kept")).await);
    let path = format!("/v1/files/{expiring}/content");
    assert_eq!(stack.send(Call::get(&path)).await.body, "gone soon");
    harness::file_rows::sqlite(
        &stack.data_dir(),
        &format!("UPDATE files SET sweep_at_ms = 1000 WHERE id = '{expiring}';"),
    )
    .unwrap();
    assert_eq!(stack.send(Call::get(&path)).await.status, 404, "before any sweep");
    assert_eq!(blobs().await, 2);
    sweep(&stack, s3::SECRET_KEY).await;
    assert_eq!(blobs().await, 1);
    assert_eq!(stack.send(Call::get(format!("/v1/files/{kept}/content"))).await.body, "kept");
}

/// A store that refuses whoever comes with this secret.
struct Refusing {
    name: &'static str,
    files: String,
    env: Vec<(&'static str, String)>,
    secret: &'static str,
    /// The secret is found wrong before anything is asked of the store: it does not start.
    at_start: bool,
}

/// Every store on a server, each with a secret that is wrong.
fn refusing(folder: &std::path::Path) -> Vec<Refusing> {
    let (s3, azure, sftp) = (S3::shared().unwrap(), Azure::shared().unwrap(), Sftp::shared().unwrap());
    let place = s3.place().unwrap();
    let google = |oauth: &str| {
        format!("{{\"private_key\": \"canary-of-google\", \"private_key_id\": \"x\", \"client_email\": \"x\"{oauth}}}")
    };
    let of_google = format!(
        "{{url: \"gs://{place}\", options: {{base_url: \"{}\", allow_http: true}}, \
         options_env: {{service_account_key: STORE_SECRET}}}}",
        s3.endpoint()
    );
    let key = folder.join("wrong-key");
    std::fs::write(&key, "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary-of-sftp\n-----END OPENSSH PRIVATE KEY-----\n")
        .unwrap();
    let private = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    std::fs::set_permissions(&key, private).unwrap();
    vec![
        Refusing {
            name: "s3",
            files: format!(
                "{{url: \"s3://{place}\", options: {{endpoint: \"{}\", region: us-east-1, allow_http: true}}, \
                 options_env: {{access_key_id: STORE_KEY, secret_access_key: STORE_SECRET}}}}",
                s3.endpoint()
            ),
            env: vec![("STORE_KEY", s3::ACCESS_KEY.to_owned()), ("STORE_SECRET", "canary-of-s3".to_owned())],
            secret: "canary-of-s3",
            at_start: false,
        },
        Refusing {
            name: "google",
            files: of_google.clone(),
            env: vec![("STORE_SECRET", google(", \"disable_oauth\": true"))],
            secret: "canary-of-google",
            at_start: false,
        },
        Refusing {
            name: "google, whose key is none",
            files: of_google,
            env: vec![("STORE_SECRET", google(""))],
            secret: "canary-of-google",
            at_start: true,
        },
        Refusing {
            name: "azure",
            files: format!(
                "{{url: \"az://{}\", options: {{endpoint: \"{}\", allow_http: true, account_name: {}}}, \
                 options_env: {{account_key: STORE_SECRET}}}}",
                azure.container().unwrap(),
                azure.endpoint(),
                azure::ACCOUNT
            ),
            env: vec![("STORE_SECRET", "Y2FuYXJ5LW9mLWF6dXJlLg==".to_owned())],
            secret: "Y2FuYXJ5LW9mLWF6dXJlLg==",
            at_start: false,
        },
        Refusing {
            name: "sftp",
            files: format!(
                "{{url: \"{}\", options: {{key: \"{}\", known_hosts_strategy: accept}}}}",
                sftp.url(),
                key.display()
            ),
            env: Vec::new(),
            secret: "canary-of-sftp",
            at_start: false,
        },
    ]
}

#[tokio::test]
async fn a_store_that_refuses_its_secret_shows_it_in_no_log_no_answer_and_no_check() {
    let folder = tempfile::tempdir().unwrap();
    for Refusing { name, files, env, secret, at_start } in refusing(folder.path()) {
        let setup = env.iter().fold(Setup::default().set("files", &files), |setup, (key, value)| setup.env(key, value));
        if at_start {
            let problem = Stack::start(setup).await.expect_err("it does not start").to_string();
            assert!(!problem.contains(secret) && problem.contains("files.url"), "{name}: {problem}");
            continue;
        }
        let stack = start(setup).await;
        let refused = stack.send(upload("", &vec![7; LONG])).await;
        assert_eq!((refused.status, refused.json()["error"]["type"].as_str()), (500, Some("server_error")), "{name}");
        let small = stack.send(upload("", b"1")).await;
        assert_eq!(small.status, 500, "{name}: {}", small.text());
        let list = stack.send(Call::get("/v1/files")).await;
        assert!(list.json()["data"].as_array().unwrap().is_empty(), "{name}: {}", list.text());
        let mut command = spawner::leashed(&binary("otari-sidecar").unwrap());
        command.args(["check-config", "--config"]).arg(stack.folder().join("otari.yaml"));
        command.env("SCRIPTED_ANTHROPIC_KEY", "x").env("SCRIPTED_OPENAI_KEY", "x").envs(env.clone());
        let checked = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stderr));
        let log = stack.sidecar().log();
        assert!(log.contains("the store failed") || log.contains("file store failed"), "{name}: {log}");
        let said = [checked.stdout, checked.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        for (place, text) in [("log", &log), ("answer", &refused.text()), ("answer", &small.text()), ("check", &said)] {
            assert!(!text.contains(secret), "{name}: {secret} is in the {place}: {text}");
        }
        assert!(!refused.text().contains("://"), "{name}: {}", refused.text());
    }
}
