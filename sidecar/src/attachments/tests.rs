//! On a real database and a real store; documents are read in `tests/it`, where there is a program to read them.

mod limits;

use std::sync::Arc;

use base64::Engine as _;
use decision::config::ModelInput::{Image, Pdf, Text};
use decision::problem::ProblemKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::clock::SystemClock;
use crate::files::{NewFile, Purpose};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";
const PDF: &[u8] = b"%PDF-1.4 and so on";
const ALL: &[ModelInput] = &[Text, Image, Pdf];
const CSV: &[u8] = b"a,b\n1,\"2\"\n";

struct Fixture {
    attachments: Attachments,
    files: Files,
    folder: TempDir,
}

fn ann() -> Identity {
    Identity { user: "ann".to_owned(), workspace: "team".to_owned() }
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::in_folder(folder.path(), Arc::new(SystemClock)).await;
    let limits =
        AttachmentLimits { inline_max_bytes: 1 << 20, inline_max_request_bytes: 3 << 19, text_max_chars: 1000 };
    Fixture {
        attachments: Attachments { files: Some(files.clone()), extractor: None, limits, readings: Readings::default() },
        files,
        folder,
    }
}

impl Fixture {
    async fn store_as(&self, owner: &Identity, name: &str, bytes: &[u8]) -> String {
        let mut upload = self.files.begin(owner, u64::MAX).await.unwrap();
        for piece in bytes.chunks(7001) {
            upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        let new = NewFile {
            filename: name.to_owned(),
            mime_type: "application/octet-stream".to_owned(),
            purpose: Purpose::UserData,
            lifetime_ms: None,
        };
        upload.finish(new).await.unwrap().id
    }

    async fn store(&self, name: &str, bytes: &[u8]) -> String {
        self.store_as(&ann(), name, bytes).await
    }

    async fn resolve(
        &self,
        wire: ApiFormat,
        body: &Value,
        recipient: Recipient,
        inputs: &[ModelInput],
    ) -> Result<Resolved, Problem> {
        let asked = Asked {
            owner: &ann(),
            wire,
            body: body.to_string().into(),
            recipient,
            workspace: None,
            inputs,
            declares_code: false,
        };
        self.attachments.resolve(asked, &mut |_| Ok(())).await.map_err(|error| *error.problem)
    }

    /// The body that a provider gets.
    async fn relayed(&self, wire: ApiFormat, body: Value, inputs: &[ModelInput]) -> Value {
        let resolved = self.resolve(wire, &body, Recipient::Provider, inputs).await.unwrap();
        assert!(resolved.seeds.is_empty() && resolved.hint.is_none());
        serde_json::from_slice(&resolved.body).unwrap()
    }

    /// The body, the names in the workspace, and what is told beside the tools.
    async fn run(&self, wire: ApiFormat, body: Value) -> (Value, Vec<String>, Option<String>) {
        let resolved = self.resolve(wire, &body, Recipient::Run, ALL).await.unwrap();
        let names = resolved.seeds.into_iter().map(|seed| seed.name).collect();
        (serde_json::from_slice(&resolved.body).unwrap(), names, resolved.hint)
    }
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A Messages request with this content.
fn messages(content: Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

fn content(body: &Value) -> &Value {
    &body["messages"][0]["content"]
}

fn document(id: &str) -> Value {
    json!({"type": "document", "source": {"type": "file", "file_id": id}})
}

fn upload(id: &str) -> Value {
    json!({"type": "container_upload", "file_id": id})
}

fn lies(name: &str) -> String {
    format!("[file \"{name}\" lies in the working directory of the code tools]")
}

fn marked(id: &str, name: &str, text: &str) -> String {
    let mark = &id[id.len() - 12..];
    format!("[begin of file \"{name}\", mark {mark}]\n{text}\n[end of file \"{name}\", mark {mark}]")
}

#[tokio::test]
async fn a_provider_that_takes_all_gets_pictures_and_documents_of_its_wire() {
    let fixture = fixture().await;
    let (png, pdf, csv) =
        (fixture.store("a.png", PNG).await, fixture.store("b.pdf", PDF).await, fixture.store("c.csv", CSV).await);
    let body = messages(json!([document(&png), document(&pdf), upload(&csv), {"type": "text", "text": "go"}]));
    let sent = fixture.relayed(ApiFormat::Messages, body, ALL).await;
    let expected = json!([
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64(PNG)}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": base64(PDF)}, "title": "b.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b\n1,\"2\"\n"}, "title": "c.csv"},
        {"type": "text", "text": "go"},
    ]);
    assert_eq!(content(&sent), &expected);

    let file = |id: &str| json!({"type": "file", "file": {"file_id": id}});
    let sent =
        fixture.relayed(ApiFormat::ChatCompletions, messages(json!([file(&png), file(&pdf), file(&csv)])), ALL).await;
    let url = |kind: &str, bytes: &[u8]| format!("data:{kind};base64,{}", base64(bytes));
    let expected = json!([
        {"type": "image_url", "image_url": {"url": url("image/png", PNG)}},
        {"type": "file", "file": {"filename": "b.pdf", "file_data": url("application/pdf", PDF)}},
        {"type": "text", "text": marked(&csv, "c.csv", "a,b\n1,\"2\"\n")},
    ]);
    assert_eq!(content(&sent), &expected);

    let file = |id: &str| json!({"type": "input_file", "file_id": id});
    let sent = fixture
        .relayed(ApiFormat::Responses, json!({"input": [file(&png), {"role": "user", "content": [file(&pdf)]}]}), ALL)
        .await;
    let expected = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url("image/png", PNG), "detail": "auto"}]},
        {"role": "user", "content": [{"type": "input_file", "filename": "b.pdf", "file_data": url("application/pdf", PDF)}]},
    ]);
    assert_eq!(sent["input"], expected);
}

#[tokio::test]
async fn a_model_of_text_alone_gets_text_between_marks_or_is_told_what_it_misses() {
    let fixture = fixture().await;
    let (png, pdf, csv, zip) = (
        fixture.store("a \"b\".png", PNG).await,
        fixture.store("b.pdf", PDF).await,
        fixture.store("c.csv", CSV).await,
        fixture.store("d.bin", b"\0\x01\x02").await,
    );
    let body = messages(json!([document(&png), document(&pdf), document(&csv), upload(&zip)]));
    let sent = fixture.relayed(ApiFormat::Messages, body, &[Text]).await;
    let text = |text: &str| json!({"type": "text", "text": text});
    let expected = json!([
        text(r#"[image "a \"b\".png" was left out: this model takes no images]"#),
        text(r#"[file "b.pdf" could not be read as text]"#),
        text(&marked(&csv, "c.csv", "a,b\n1,\"2\"\n")),
        text(r#"[file "d.bin" could not be read as text]"#),
    ]);
    assert_eq!(content(&sent), &expected);
}

#[tokio::test]
async fn in_a_run_every_file_is_staged_once_and_shown_where_it_is_named() {
    let fixture = fixture().await;
    let (png, csv, other) = (
        fixture.store("a.png", PNG).await,
        fixture.store("data.csv", CSV).await,
        fixture.store("data.csv", b"x").await,
    );
    let body = messages(json!([
        upload(&csv),
        {"type": "image", "source": {"type": "file", "file_id": png}, "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "t", "content": [document(&other)]},
        upload(&csv),
        upload("file_011CForeign"),
    ]));
    let (sent, names, hint) = fixture.run(ApiFormat::Messages, body).await;
    assert_eq!((names, hint), (vec!["data.csv".to_owned(), "a.png".to_owned(), "data-2.csv".to_owned()], None));
    let text = |text: String| json!({"type": "text", "text": text});
    let expected = json!([
        text(lies("data.csv")),
        text(lies("a.png")),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64(PNG)}, "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "t", "content": [
            text(lies("data-2.csv")),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "data-2.csv"},
        ]},
        text(lies("data.csv")),
        upload("file_011CForeign"),
    ]);
    assert_eq!(content(&sent), &expected);
}

#[tokio::test]
async fn files_for_a_container_are_told_beside_the_tools_and_towards_a_provider_come_first() {
    let fixture = fixture().await;
    let (csv, png) = (fixture.store("data.csv", CSV).await, fixture.store("a.png", PNG).await);
    let body = |ids: &[&str]| json!({"input": "hi", "tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ids}}]});
    let (sent, names, hint) = fixture.run(ApiFormat::Responses, body(&[&csv, &png])).await;
    assert_eq!(sent, body(&[&csv, &png]), "the loop takes the tool out");
    assert_eq!(names, ["data.csv", "a.png"]);
    assert_eq!(hint.as_deref(), Some(r#"Files that lie in the working directory: "data.csv", "a.png"."#));

    let sent = fixture.relayed(ApiFormat::Responses, body(&[&csv, "file-foreign", &csv, &png]), ALL).await;
    assert_eq!(sent["tools"][0]["container"]["file_ids"], json!(["file-foreign"]));
    let data = format!("data:application/octet-stream;base64,{}", base64(CSV));
    let expected = json!([
        {"type": "input_file", "filename": "data.csv", "file_data": data},
        {"type": "input_image", "image_url": format!("data:image/png;base64,{}", base64(PNG)), "detail": "auto"},
        {"type": "input_text", "text": "hi"},
    ]);
    assert_eq!(sent["input"][0]["content"], expected);

    let mixed = fixture.resolve(ApiFormat::Responses, &body(&[&csv, "file-foreign"]), Recipient::Run, ALL).await;
    assert_eq!(mixed.unwrap_err().param.as_deref(), Some("tools[0].container.file_ids[1]"));
    let chat = json!({"messages": [], "tools": body(&[&csv])["tools"]});
    let nowhere = fixture.resolve(ApiFormat::ChatCompletions, &chat, Recipient::Provider, ALL).await.unwrap_err();
    assert_eq!(
        (nowhere.kind, nowhere.param.as_deref()),
        (ProblemKind::InvalidRequest, Some("tools[0].container.file_ids[0]"))
    );
}

#[tokio::test]
async fn no_providers_code_runs_without_a_file_that_its_model_cannot_be_shown_either() {
    let fixture = fixture().await;
    let (csv, binary) = (fixture.store("data.csv", CSV).await, fixture.store("model.bin", b"\0\x01\x02").await);
    let ask = async |id: &str, declares_code: bool, recipient: Recipient| {
        let body = messages(json!([upload(id)])).to_string().into();
        let asked = Asked {
            owner: &ann(),
            wire: ApiFormat::Messages,
            body,
            recipient,
            workspace: None,
            inputs: ALL,
            declares_code,
        };
        fixture.attachments.resolve(asked, &mut |_| Ok(())).await.map_err(|error| *error.problem)
    };
    let refused = ask(&binary, true, Recipient::Provider).await.unwrap_err();
    assert_eq!(refused.param.as_deref(), Some("messages[0].content[0].file_id"));
    assert!(refused.message.contains("otari-code-execution: otari"), "{refused:?}");
    ask(&csv, true, Recipient::Provider).await.unwrap();
    ask(&binary, true, Recipient::Run).await.unwrap();
    let told = ask(&binary, false, Recipient::Provider).await.unwrap();
    assert_eq!(told.dropped, ["messages[0].content[0].file_id"]);
}

#[tokio::test]
async fn what_its_owner_cannot_see_is_one_and_the_same_error_wherever_it_is_named() {
    let fixture = fixture().await;
    let other_user = Identity { user: "bob".to_owned(), ..ann() };
    let other_team = Identity { workspace: "other".to_owned(), ..ann() };
    let deleted = fixture.store("gone", b"x").await;
    fixture.files.delete(&ann(), &deleted).await.unwrap();
    let good = fixture.store("good.csv", CSV).await;
    let invisible = [
        fixture.store_as(&other_user, "theirs", b"secret").await,
        fixture.store_as(&other_team, "theirs", b"secret").await,
        deleted,
        "file-otr0123456789abcdef0123456789abcdef".to_owned(),
        "file-otr1".to_owned(),
        "file-otr../../etc/passwd".to_owned(),
        "file-otr\0".to_owned(),
    ];
    for id in invisible {
        for recipient in [Recipient::Run, Recipient::Provider] {
            for (wire, body, param) in [
                (
                    ApiFormat::Messages,
                    messages(json!([document(&good), document(&id)])),
                    "messages[0].content[1].source.file_id",
                ),
                (ApiFormat::Messages, messages(json!([upload(&id)])), "messages[0].content[0].file_id"),
                (
                    ApiFormat::ChatCompletions,
                    messages(json!([{"type": "file", "file": {"file_id": id}}])),
                    "messages[0].content[0].file.file_id",
                ),
                (ApiFormat::Responses, json!({"input": [{"type": "input_image", "file_id": id}]}), "input[0].file_id"),
                (
                    ApiFormat::Responses,
                    json!({"input": "", "tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": [id]}}]}),
                    "tools[0].container.file_ids[0]",
                ),
            ] {
                let problem = fixture.resolve(wire, &body, recipient, ALL).await.unwrap_err();
                assert_eq!((problem.kind, problem.param.as_deref()), (ProblemKind::NotFound, Some(param)), "{id}");
                let shown: String = id.chars().filter(|c| !c.is_control()).collect();
                let expected = match wire {
                    ApiFormat::Messages => format!("File `{shown}` not found."),
                    _ => format!("No such File object: {shown}"),
                };
                assert_eq!(problem.message, expected);
            }
        }
    }
    let off = Attachments { files: None, ..fixture.attachments.clone() };
    let fixture = Fixture { attachments: off, ..fixture };
    let problem = fixture.resolve(ApiFormat::Messages, &messages(json!([document(&good)])), Recipient::Run, ALL).await;
    assert_eq!(problem.unwrap_err().kind, ProblemKind::NotFound, "without files every id is that of none");
}
