//! Files as JSON, in the shapes of both vendors (wire.md sections 2.2, 2.3 and 5).

use decision::format::Vocabulary;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::{Shape, token_after};
use crate::files::{FileRecord, Page, Purpose};

/// Where containers of OpenAI's keep their files.
const DIRECTORY: &str = "/mnt/data/";

/// One file.
pub(super) fn file(file: &FileRecord, vocabulary: Vocabulary) -> Value {
    match vocabulary {
        Vocabulary::OpenAi => json!({
            "id": file.id,
            "object": "file",
            "bytes": file.size_bytes,
            "created_at": seconds(file.created_at_ms),
            "expires_at": file.expires_at_ms.map(seconds),
            "filename": file.filename,
            "purpose": file.purpose.as_str(),
            // Nothing is done with a file after its upload, and clients wait for a word that says so.
            "status": "processed",
            "status_details": null,
        }),
        Vocabulary::Anthropic => json!({
            "id": file.id,
            "type": "file",
            "filename": file.filename,
            "mime_type": file.mime_type,
            "size_bytes": file.size_bytes,
            "created_at": time(file.created_at_ms),
            "expires_at": file.expires_at_ms.map(time),
            "downloadable": true,
        }),
    }
}

/// One file as it lies in a container on the OpenAI wire. `id`: its name there.
pub(in crate::http) fn in_container(file: &FileRecord, id: &str, container: &str) -> Value {
    json!({
        "id": id,
        "object": "container.file",
        "container_id": container,
        "created_at": seconds(file.created_at_ms),
        "bytes": file.size_bytes,
        "path": format!("{DIRECTORY}{}", file.filename),
        "source": if file.purpose == Purpose::CodeExecutionOutput { "assistant" } else { "user" },
    })
}

/// A file that was deleted out of a container.
pub(in crate::http) fn deleted_in_container(id: &str) -> Value {
    json!({"id": id, "object": "container.file.deleted", "deleted": true})
}

/// A deleted file.
pub(super) fn deleted(id: &str, vocabulary: Vocabulary) -> Value {
    match vocabulary {
        Vocabulary::OpenAi => json!({"id": id, "object": "file", "deleted": true}),
        Vocabulary::Anthropic => json!({"id": id, "type": "file_deleted"}),
    }
}

/// A page of a list.
pub(super) fn page(page: &Page, shape: Shape) -> Value {
    let (first, last) = (page.files.first().map(|file| &file.id), page.files.last().map(|file| &file.id));
    let files = |vocabulary| page.files.iter().map(|one| file(one, vocabulary)).collect::<Vec<_>>();
    match shape {
        Shape::OpenAi => json!({
            "object": "list",
            "data": files(Vocabulary::OpenAi),
            "first_id": first,
            "last_id": last,
            "has_more": page.has_more,
        }),
        Shape::Cursors => json!({
            "data": files(Vocabulary::Anthropic),
            "first_id": first,
            "last_id": last,
            "has_more": page.has_more,
        }),
        Shape::Pages => json!({
            "data": files(Vocabulary::Anthropic),
            "next_page": last.filter(|_| page.has_more).map(|id| token_after(id)),
        }),
    }
}

fn seconds(milliseconds: i64) -> i64 {
    milliseconds.div_euclid(1000)
}

/// RFC 3339 with microseconds, as Anthropic's service writes it.
fn time(milliseconds: i64) -> Option<String> {
    let time = Timestamp::from_millisecond(milliseconds).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

#[cfg(test)]
mod tests {
    use decision::identity::Identity;

    use super::*;

    fn record(id: &str, expires_at_ms: Option<i64>) -> FileRecord {
        FileRecord {
            id: id.to_owned(),
            owner: Identity { user: "ada".to_owned(), workspace: "lab".to_owned() },
            filename: "a \"b\".csv".to_owned(),
            mime_type: "text/csv".to_owned(),
            purpose: Purpose::UserData,
            size_bytes: 5_000_000_000,
            sha256: "00".to_owned(),
            created_at_ms: 1_764_489_600_007,
            expires_at_ms,
        }
    }

    #[test]
    fn a_file_has_every_member_its_vendor_promises() {
        let lasting = file(&record("file-1", None), Vocabulary::OpenAi).to_string();
        assert_eq!(
            lasting,
            r#"{"id":"file-1","object":"file","bytes":5000000000,"created_at":1764489600,"expires_at":null,"filename":"a \"b\".csv","purpose":"user_data","status":"processed","status_details":null}"#
        );
        let expiring = file(&record("file-1", Some(1_764_493_200_007)), Vocabulary::Anthropic).to_string();
        assert_eq!(
            expiring,
            r#"{"id":"file-1","type":"file","filename":"a \"b\".csv","mime_type":"text/csv","size_bytes":5000000000,"created_at":"2025-11-30T08:00:00.007000Z","expires_at":"2025-11-30T09:00:00.007000Z","downloadable":true}"#
        );
        assert_eq!(file(&record("f", Some(1_999)), Vocabulary::OpenAi)["expires_at"], 1);
        assert_eq!(file(&record("f", None), Vocabulary::Anthropic)["expires_at"], Value::Null);
    }

    #[test]
    fn a_deleted_file_says_so_in_both_shapes() {
        let text = |vocabulary| deleted("file-1", vocabulary).to_string();
        assert_eq!(text(Vocabulary::OpenAi), r#"{"id":"file-1","object":"file","deleted":true}"#);
        assert_eq!(text(Vocabulary::Anthropic), r#"{"id":"file-1","type":"file_deleted"}"#);
    }

    #[test]
    fn a_page_tells_where_it_begins_and_ends_and_whether_more_follow() {
        let files = vec![record("file-b", None), record("file-a", None)];
        for has_more in [true, false] {
            let some = Page { files: files.clone(), has_more };
            let next = if has_more { json!("page_ZmlsZS1h") } else { Value::Null };
            for shape in [Shape::OpenAi, Shape::Cursors] {
                let page = page(&some, shape);
                assert_eq!((&page["first_id"], &page["last_id"]), (&json!("file-b"), &json!("file-a")));
                assert_eq!((&page["has_more"], page["data"].as_array().unwrap().len()), (&json!(has_more), 2));
            }
            assert_eq!(page(&some, Shape::Pages)["next_page"], next);
        }
        let none = Page { files: Vec::new(), has_more: false };
        let text = |shape| page(&none, shape).to_string();
        assert_eq!(
            text(Shape::OpenAi),
            r#"{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}"#
        );
        assert_eq!(text(Shape::Cursors), r#"{"data":[],"first_id":null,"last_id":null,"has_more":false}"#);
        assert_eq!(text(Shape::Pages), r#"{"data":[],"next_page":null}"#);
    }
}
