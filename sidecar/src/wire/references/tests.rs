use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const OURS: &str = "file-otr0123456789abcdef0123456789abcdef";

fn find(wire: ApiFormat, body: &str) -> References {
    References::find(wire, body.as_bytes()).unwrap()
}

/// The body with every part replaced by this.
fn replaced(wire: ApiFormat, body: &str, said: Option<&str>, shown: Shown<'_>) -> String {
    let found = find(wire, body);
    let mut splice = crate::wire::splice::Splice::new(body.as_bytes(), 0);
    for place in found.places(true) {
        let out = splice.replace(&place.range);
        let spelled = match place.what {
            What::Part(part) => part.spell(wire, body.as_bytes(), said, shown),
            What::Ids(kept) => Spelled { before: kept.to_owned(), after: String::new() },
            What::Opening(before, after) => {
                let new = spell_new(wire, shown);
                Spelled { before: format!("{before}{}", new.before), after: format!("{}{after}", new.after) }
            }
        };
        out.extend_from_slice(spelled.before.as_bytes());
        if matches!(shown, Shown::Image { .. } | Shown::Pdf { .. } | Shown::File { .. }) && !spelled.after.is_empty() {
            out.extend_from_slice(b"AA==");
        }
        out.extend_from_slice(spelled.after.as_bytes());
    }
    let text = String::from_utf8(splice.finish()).unwrap();
    serde_json::from_str::<&RawValue>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    text
}

fn named(found: &References) -> Vec<(&str, bool)> {
    found.parts.iter().map(|part| (part.param.as_str(), part.is_upload)).collect()
}

#[test]
fn every_place_of_the_messages_wire_is_found() {
    let file = json!({"type": "file", "file_id": OURS});
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "file-otr1 in a text"},
        {"role": "user", "content": [
            {"type": "image", "source": file},
            {"type": "text", "text": OURS},
            {"type": "document", "title": OURS, "source": {"type": "file", "file_id": "file_011CO"}},
            {"type": "document", "source": {"type": "url", "url": "http://127.0.0.1/", "file_id": OURS}},
            {"type": "container_upload", "file_id": OURS},
            {"type": "tool_result", "tool_use_id": OURS, "content": [{"type": "document", "source": file}]},
            {"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": file}]}},
        ]},
        {"role": "assistant", "content": [
            {"type": "code_execution_tool_result", "content": {"content": [{"type": "code_execution_output", "file_id": OURS}]}},
        ]},
    ], "metadata": {"user_id": OURS}});
    let body = body.to_string();
    let found = find(ApiFormat::Messages, &body);
    let expected = [
        ("messages[1].content[0].source.file_id", false),
        ("messages[1].content[4].file_id", true),
        ("messages[1].content[5].content[0].source.file_id", false),
        ("messages[1].content[6].source.content[0].source.file_id", false),
    ];
    assert_eq!(named(&found), expected);
    assert!(found.parts.iter().all(|part| part.id == OURS));
}

#[test]
fn every_place_of_the_other_wires_is_found() {
    let body = json!({"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"file_id": OURS}},
        {"type": "file", "file": {"file_id": "file-abc"}},
        {"type": "image_url", "image_url": {"file_id": OURS}},
        {"type": "image_url", "image_url": {"url": OURS}},
        {"type": "image_url", "file_id": OURS},
        {"type": "text", "text": "t", "file_id": OURS},
    ]}]});
    let body = body.to_string();
    let expected = [
        ("messages[0].content[0].file.file_id", false),
        ("messages[0].content[2].image_url.file_id", false),
        ("messages[0].content[4].file_id", false),
    ];
    assert_eq!(named(&find(ApiFormat::ChatCompletions, &body)), expected);

    let inside = format!("c{}", OURS.replacen('-', "_", 1));
    let body = json!({"input": [
        {"role": "user", "content": [{"type": "input_image", "file_id": OURS}, {"type": "input_file", "file_id": inside}]},
        {"type": "input_file", "file_id": OURS},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "file_id": OURS}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t",
            "annotations": [{"type": "container_file_citation", "file_id": inside}]}]},
        {"type": "item_reference", "id": OURS},
    ]});
    let body = body.to_string();
    let found = find(ApiFormat::Responses, &body);
    let expected = [
        ("input[0].content[0].file_id", false),
        ("input[0].content[1].file_id", false),
        ("input[1].file_id", false),
        ("input[2].output[0].file_id", false),
    ];
    assert_eq!(named(&found), expected);
    assert!(found.parts.iter().all(|part| part.id == OURS), "the name in a container means the file: {found:?}");
}

#[test]
fn an_id_is_read_as_json_is_and_foreign_ones_are_none() {
    let body = |id: &str| format!(r#"{{"input":[{{"type":"input_file","file_id":"{id}"}}]}}"#);
    let count = |id: &str| find(ApiFormat::Responses, &body(id)).parts.len();
    assert_eq!(count(r"fi\u006ce-o\u0074r1"), 1);
    assert_eq!(count("file-otr"), 1, "malformed, and ours to refuse");
    for foreign in ["file-abc", "file_011", "xfile-otr1", "FILE-OTR1", ""] {
        assert_eq!(count(foreign), 0, "{foreign}");
    }
    let strange = [
        r#"{"input":"file-otr1"}"#,
        r#"{"input":{"file_id":"file-otr1"}}"#,
        r#"{"input":[["file-otr1"],"file-otr2"]}"#,
    ];
    for body in strange {
        assert!(find(ApiFormat::Responses, body).is_empty(), "{body}");
    }
}

#[test]
fn a_request_names_only_so_many() {
    let part = json!({"type": "input_file", "file_id": OURS});
    let body = |count: usize| json!({"input": [{"role": "user", "content": vec![part.clone(); count]}]}).to_string();
    assert_eq!(find(ApiFormat::Responses, &body(MAX_REFERENCES)).parts.len(), MAX_REFERENCES);
    let problem = References::find(ApiFormat::Responses, body(MAX_REFERENCES + 1).as_bytes()).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some("input[0].content[128].file_id"));
    assert!(problem.message.contains("128"), "{problem:?}");
}

fn check(wire: ApiFormat, body: &str, said: Option<&str>, shown: Shown<'_>, expected: Expect) {
    expected.assert_eq(&replaced(wire, &body.replace("OURS", OURS), said, shown));
}

const IMAGE: Shown<'_> = Shown::Image { media_type: "image/png" };
const PDF: Shown<'_> = Shown::Pdf { name: "a \"b\".pdf" };
const TEXT: Shown<'_> = Shown::Document { name: "a.csv", text: "1,2", marked: "[begin]1,2[end]" };

#[test]
fn messages_blocks_keep_what_the_caller_said_of_them() {
    let wire = ApiFormat::Messages;
    let image = r#"{ "messages" : [{"content": [ {"cache_control":{"type" : "ephemeral"},"type":"image","source":{"type":"file","file_id":"OURS"}} ] }], "x": 1.0}"#;
    check(
        wire,
        image,
        None,
        IMAGE,
        expect![[
            r#"{ "messages" : [{"content": [ {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="},"cache_control":{"type" : "ephemeral"}} ] }], "x": 1.0}"#
        ]],
    );
    check(
        wire,
        image,
        Some("named"),
        Shown::Nothing,
        expect![[
            r#"{ "messages" : [{"content": [ {"type":"text","text":"named","cache_control":{"type" : "ephemeral"}} ] }], "x": 1.0}"#
        ]],
    );
    let document = r#"{"messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"OURS"},"title":"My title","citations":{"enabled":true},"context":"c"}]}]}"#;
    check(
        wire,
        document,
        Some("named"),
        PDF,
        expect![[
            r#"{"messages":[{"content":[{"type":"text","text":"named"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="},"title":"My title","citations":{"enabled":true},"context":"c"}]}]}"#
        ]],
    );
    check(
        wire,
        document,
        None,
        IMAGE,
        expect![[
            r#"{"messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}]}"#
        ]],
    );
    let upload = r#"{"messages":[{"content":[{"type":"container_upload","file_id":"OURS"}]}]}"#;
    check(
        wire,
        upload,
        None,
        TEXT,
        expect![[
            r#"{"messages":[{"content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"1,2"},"title":"a.csv"}]}]}"#
        ]],
    );
    check(
        wire,
        upload,
        None,
        PDF,
        expect![[
            r#"{"messages":[{"content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="},"title":"a \"b\".pdf"}]}]}"#
        ]],
    );
}

#[test]
fn parts_of_chat_completions_become_parts_with_the_content() {
    let wire = ApiFormat::ChatCompletions;
    let file =
        r#"{"messages":[{"content":[{"type":"text","text":"look"}, {"type":"file","file":{"file_id":"OURS"}}]}]}"#;
    check(
        wire,
        file,
        None,
        PDF,
        expect![[
            r#"{"messages":[{"content":[{"type":"text","text":"look"}, {"type":"file","file":{"filename":"a \"b\".pdf","file_data":"data:application/pdf;base64,AA=="}}]}]}"#
        ]],
    );
    check(
        wire,
        file,
        Some("named"),
        TEXT,
        expect![[
            r#"{"messages":[{"content":[{"type":"text","text":"look"}, {"type":"text","text":"named"},{"type":"text","text":"[begin]1,2[end]"}]}]}"#
        ]],
    );
    let image = r#"{"messages":[{"content":[{"type":"image_url","image_url":{"file_id":"OURS","detail":"low"}}]}]}"#;
    check(
        wire,
        image,
        None,
        IMAGE,
        expect![[
            r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}}]}]}"#
        ]],
    );
}

#[test]
fn bare_items_of_responses_become_messages() {
    let wire = ApiFormat::Responses;
    let bare = r#"{"input":[{"type":"input_image","file_id":"OURS"},{"role":"user","content":[{"type":"input_file","file_id":"OURS","detail":"high"}]}]}"#;
    check(
        wire,
        bare,
        None,
        IMAGE,
        expect![[
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"}]},{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"high"}]}]}"#
        ]],
    );
    check(
        wire,
        bare,
        Some("named"),
        PDF,
        expect![[
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"named"},{"type":"input_file","filename":"a \"b\".pdf","file_data":"data:application/pdf;base64,AA=="}]},{"role":"user","content":[{"type":"input_text","text":"named"},{"type":"input_file","filename":"a \"b\".pdf","file_data":"data:application/pdf;base64,AA==","detail":"high"}]}]}"#
        ]],
    );
}

#[test]
fn ids_for_a_container_leave_its_list_and_their_files_come_first_in_the_input() {
    let wire = ApiFormat::Responses;
    let tool =
        r#""tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["OURS","file-x","OURS"]}}]"#;
    let shown = Shown::File { name: "a.bin", media_type: "x/\"y" };
    check(
        wire,
        &format!(r#"{{"input":"hi \ud800",{tool}}}"#),
        None,
        shown,
        expect![[
            r#"{"input":[{"role":"user","content":[{"type":"input_file","filename":"a.bin","file_data":"data:x/\"y;base64,AA=="},{"type":"input_text","text":"hi \ud800"}]}],"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-x"]}}]}"#
        ]],
    );
    check(
        wire,
        &format!(r#"{{{tool},"input":[{{"role":"assistant","content":"a"}},{{"role":"user","content":"b"}}]}}"#),
        None,
        IMAGE,
        expect![[
            r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-x"]}}],"input":[{"role":"assistant","content":"a"},{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"},{"type":"input_text","text":"b"}]}]}"#
        ]],
    );
    check(
        wire,
        &format!(r#"{{{tool},"input":[{{"role":"user","content":[{{"type":"input_file","file_id":"OURS"}}]}}]}}"#),
        None,
        Shown::Text("t"),
        expect![[
            r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-x"]}}],"input":[{"role":"user","content":[{"type":"input_text","text":"t"},{"type":"input_text","text":"t"}]}]}"#
        ]],
    );
    check(
        wire,
        &format!(r#"{{{tool},"input":[]}}"#),
        None,
        Shown::Text("t"),
        expect![[
            r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-x"]}}],"input":[{"role":"user","content":[{"type":"input_text","text":"t"}]}]}"#
        ]],
    );
    let body = format!(r#"{{"messages":[],{tool}}}"#).replace("OURS", OURS);
    let found = find(ApiFormat::ChatCompletions, &body);
    assert!(!found.can_show_containers());
    let list = &found.containers[0];
    assert_eq!(
        list.ids.iter().map(|(_, param)| param.as_str()).collect::<Vec<_>>(),
        ["tools[0].container.file_ids[0]", "tools[0].container.file_ids[2]"]
    );
    assert_eq!(list.foreign.as_deref(), Some("tools[0].container.file_ids[1]"));
    let other = body.replace("code_interpreter", "file_search");
    assert!(find(ApiFormat::ChatCompletions, &other).is_empty());
}

/// JSON of any shape, in which ids of ours stand in texts and under any name.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("1.50".to_owned()),
        Just(format!("\"{OURS}\"")),
        Just(format!("\"see {OURS}\"")),
        Just(r#""\u0066\ud800 \"""#.to_owned()),
        Just(format!(r#"{{"type":"input_file","file_id":"{OURS}"}}"#)),
        Just(format!(r#"{{ "type" : "image","source":{{"type":"file","file_id":"{OURS}"}}}}"#)),
        Just(format!(r#"{{"type":"file","file":{{"file_id" : "{OURS}"}} }}"#)),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let name = prop_oneof![
            Just("content"),
            Just("output"),
            Just("type"),
            Just("source"),
            Just("role"),
            Just("file_id"),
            Just("é"),
            Just("container"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|list| format!("[ {} ]", list.join(" ,"))),
            prop::collection::vec((name, inner), 0..5).prop_map(|members| {
                let members: Vec<String> = members.iter().map(|(name, value)| format!("{name:?} :{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_replaced_all_else_keeps_its_bytes(history in json_text(), tools in json_text(), more in json_text()) {
        for (wire, member) in [
            (ApiFormat::Messages, "messages"),
            (ApiFormat::ChatCompletions, "messages"),
            (ApiFormat::Responses, "input"),
        ] {
            let body = format!(r#"{{ "{member}": [{{"role":"user","content":{history}}},{more}] ,"tools":{tools}, "{OURS}":1}}"#);
            let found = find(wire, &body);
            let places = found.places(true);
            let mut kept = Vec::new();
            let mut done = 0;
            for place in &places {
                prop_assert!(done <= place.range.start && place.range.end <= body.len());
                kept.push(&body[done..place.range.start]);
                done = place.range.end;
            }
            kept.push(&body[done..]);
            // What is left of the replaced body, when the replacements are taken out of it again.
            let text = replaced(wire, &body, None, Shown::Text("\u{1}"));
            let mut rest = text.as_str();
            for piece in kept {
                let at = rest.find(piece);
                prop_assert!(at.is_some(), "{piece} is gone from {text}");
                rest = &rest[at.unwrap() + piece.len()..];
            }
            prop_assert_eq!(rest, "");
            if found.is_empty() {
                prop_assert_eq!(text, body);
            }
        }
    }
}
