//! Reads the answers of a contract-v1 server.
//!
//! INVARIANT: an error names the field that is missing or of a wrong type, never what stood there.

use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::{ExecutionResult, SandboxError, SessionGrant, SessionId, broken};
use crate::sandbox::{EditorReport, ProducedFile, ToolInput};

/// Entries of one result that are looked at.
const MAX_FILES: usize = 256;
/// Longest session id that is taken; it travels in every address.
const MAX_ID_BYTES: usize = 256;

/// The answer to `CreateSession`.
pub(super) fn session(bytes: &[u8]) -> Result<SessionGrant, SandboxError> {
    let answer = parse(bytes)?;
    let id = match answer.get("session_id").and_then(Value::as_str) {
        // A name of dots alone would climb out of its place in an address.
        Some(id) if id.len() <= MAX_ID_BYTES && id.bytes().any(|byte| byte != b'.') => SessionId(id.to_owned()),
        _ => return Err(missing("session_id")),
    };
    let time = |name: &str| answer.get(name).and_then(Value::as_f64).and_then(in_seconds);
    Ok(SessionGrant { id, idle_timeout: time("idle_timeout_seconds"), max_lifetime: time("max_lifetime_seconds") })
}

/// A time that a server need not tell; one that makes no sense is not told.
fn in_seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero())
}

/// The answer to `Execute`.
pub(super) fn execution(bytes: &[u8], input: &ToolInput) -> Result<ExecutionResult, SandboxError> {
    let answer = parse(bytes)?;
    text(&answer, "tool_use_id", "tool_use_id")?;
    let block = object(&answer, "result_block", "result_block")?;
    let kind = text(block, "type", "result_block.type")?;
    if kind.ends_with("_tool_result_error") {
        return Err(broken("`result_block.type` is an error block, which the contract does not have"));
    }
    text(block, "tool_use_id", "result_block.tool_use_id")?;
    let content = object(block, "content", "result_block.content")?;
    let kind = optional(content, "type", "result_block.content.type", Value::as_str)?;
    if kind.is_some_and(|kind| kind.ends_with("_error")) {
        return Err(broken("`result_block.content.type` is an error, which the contract does not have"));
    }
    let code = |value: &Value| value.as_i64().and_then(|code| i32::try_from(code).ok());
    let return_code = optional(content, "return_code", "result_block.content.return_code", code)?;
    Ok(ExecutionResult {
        stdout: stream(content, "stdout", "result_block.content.stdout")?,
        stderr: stream(content, "stderr", "result_block.content.stderr")?,
        return_code: return_code.unwrap_or_default(),
        files: files(content)?,
        editor: answer.get("editor_report").and_then(|report| editor_report(report, input)),
    })
}

/// What our own server tells of an edit beside the contract; what makes no sense is not told.
fn editor_report(report: &Value, input: &ToolInput) -> Option<EditorReport> {
    let ToolInput::TextEditor(command) = input else { return None };
    EditorReport::deserialize(report).ok().filter(|report| command.can_end_in(report))
}

fn files(content: &Map<String, Value>) -> Result<Vec<ProducedFile>, SandboxError> {
    const NAME: &str = "result_block.content.content";
    let Some(entries) = optional(content, "content", NAME, Value::as_array)? else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries.iter().take(MAX_FILES) {
        let entry = entry.as_object().ok_or_else(|| missing(NAME))?;
        // A block of a type the contract did not have when this was written is not ours to understand.
        if entry.get("type").and_then(Value::as_str) != Some("code_execution_output") {
            continue;
        }
        text(entry, "file_id", "result_block.content.content[].file_id")?;
        let name = text(entry, "filename", "result_block.content.content[].filename")?;
        files.push(ProducedFile { name: name.to_owned() });
    }
    Ok(files)
}

fn parse(bytes: &[u8]) -> Result<Map<String, Value>, SandboxError> {
    // The parser's own message would quote the text.
    serde_json::from_slice(bytes).map_err(|_| broken("its answer is not a JSON object"))
}

fn object<'a>(from: &'a Map<String, Value>, key: &str, name: &str) -> Result<&'a Map<String, Value>, SandboxError> {
    from.get(key).and_then(Value::as_object).ok_or_else(|| missing(name))
}

fn text<'a>(from: &'a Map<String, Value>, key: &str, name: &str) -> Result<&'a str, SandboxError> {
    from.get(key).and_then(Value::as_str).ok_or_else(|| missing(name))
}

fn stream(from: &Map<String, Value>, key: &str, name: &str) -> Result<String, SandboxError> {
    Ok(optional(from, key, name, Value::as_str)?.unwrap_or_default().to_owned())
}

/// A member of the payload, each of which has a default in the contract: it may be missing or null, not of another type.
fn optional<'a, T>(
    from: &'a Map<String, Value>,
    key: &str,
    name: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, SandboxError> {
    match from.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| missing(name)),
    }
}

fn missing(name: &str) -> SandboxError {
    broken(format!("`{name}` of its answer is missing or of a wrong type"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{execution, session};
    use crate::sandbox::{EditorCommand, EditorReport, ExecutionResult, ProducedFile, SandboxError, ToolInput};

    fn good() -> Value {
        json!({
            "tool_use_id": "t1",
            "result_block": {
                "type": "code_execution_tool_result",
                "tool_use_id": "t1",
                "content": {"type": "code_execution_result", "stdout": "o", "stderr": "e", "return_code": 3, "content": [
                    {"type": "code_execution_output", "file_id": "f1", "filename": "a.txt"},
                ]},
            },
            "execution_time_ms": 5,
        })
    }

    fn run(value: &Value) -> Result<ExecutionResult, SandboxError> {
        execution(value.to_string().as_bytes(), &ToolInput::Python { code: String::new() })
    }

    #[test]
    fn a_whole_answer_is_read_and_may_grow() {
        let files = vec![ProducedFile { name: "a.txt".to_owned() }];
        let expected =
            ExecutionResult { stdout: "o".to_owned(), stderr: "e".to_owned(), return_code: 3, files, editor: None };
        assert_eq!(run(&good()).unwrap(), expected);

        let mut grown = good();
        grown["new"] = json!([1]);
        grown["result_block"]["type"] = json!("holographic_tool_result");
        grown["result_block"]["content"]["new"] = json!({});
        grown["result_block"]["content"]["content"].as_array_mut().unwrap().push(json!({"type": "hologram"}));
        assert_eq!(run(&grown).unwrap(), expected);

        // Each member of the payload has a default.
        for payload in
            [json!({}), json!({"type": null, "stdout": null, "stderr": null, "return_code": null, "content": null})]
        {
            let mut silent = good();
            silent["result_block"]["content"] = payload;
            assert_eq!(run(&silent).unwrap(), ExecutionResult::default());
        }
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_is_quoted() {
        for path in [
            "/tool_use_id",
            "/result_block",
            "/result_block/type",
            "/result_block/tool_use_id",
            "/result_block/content",
            "/result_block/content/type",
            "/result_block/content/stdout",
            "/result_block/content/stderr",
            "/result_block/content/return_code",
            "/result_block/content/content",
            "/result_block/content/content/0/file_id",
            "/result_block/content/content/0/filename",
        ] {
            let (parent, key) = path.rsplit_once('/').unwrap();
            let mut removed = good();
            removed.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
            let mut wrong = good();
            *wrong.pointer_mut(path).unwrap() = json!(["canary"]);
            if path.ends_with("/content/content") {
                *wrong.pointer_mut(path).unwrap() = json!({"canary": 1});
            }
            // Only what has a default may be missing.
            let is_payload = parent == "/result_block/content";
            for value in [Some(wrong), (!is_payload).then_some(removed)].into_iter().flatten() {
                let error = run(&value).unwrap_err().to_string();
                assert!(error.contains(key), "{path}: {error}");
                assert!(!error.contains("canary"), "{error}");
            }
        }
        for text in ["", "canary", "[]", "{\"a\":"] {
            let error = execution(text.as_bytes(), &view()).unwrap_err().to_string();
            assert!(error.contains("not a JSON object") && !error.contains("canary"), "{error}");
        }
    }

    fn view() -> ToolInput {
        ToolInput::TextEditor(EditorCommand::View { path: "a".to_owned(), range: None })
    }

    #[test]
    fn what_an_edit_came_to_is_read_if_it_can_have_come_to_that() {
        let told = |report: Value, input: &ToolInput| {
            let mut answer = good();
            answer["editor_report"] = report;
            execution(answer.to_string().as_bytes(), input).unwrap().editor
        };
        assert_eq!(told(json!({"listed": {"entries": 2}}), &view()), Some(EditorReport::Listed { entries: 2 }));
        for senseless in [
            Value::Null,
            json!("canary"),
            json!({"listed": {"entries": -1}}),
            json!({"listed": {"entries": 1, "new": 1}}),
            json!({"created": {"is_file_update": true}}),
        ] {
            assert_eq!(told(senseless, &view()), None);
        }
        assert_eq!(told(json!({"listed": {"entries": 2}}), &ToolInput::Python { code: String::new() }), None);
    }

    #[test]
    fn an_error_block_is_a_breach() {
        let mut outer = good();
        outer["result_block"]["type"] = json!("code_execution_tool_result_error");
        let mut inner = good();
        inner["result_block"]["content"]["type"] = json!("code_execution_tool_result_error");
        assert!(run(&outer).is_err());
        assert!(run(&inner).is_err());
    }

    #[test]
    fn a_session_needs_a_usable_id() {
        let id = |value: Value| session(value.to_string().as_bytes()).map(|granted| granted.id.0);
        assert_eq!(id(json!({"session_id": "s1", "new": 1})).unwrap(), "s1");
        for value in [json!({}), json!({"session_id": 1}), json!({"session_id": ""}), json!({"session_id": ".."})] {
            assert!(id(value).unwrap_err().to_string().contains("session_id"));
        }
        assert!(id(json!({"session_id": "s".repeat(257)})).is_err());
    }

    #[test]
    fn how_long_a_session_lives_is_read_if_it_is_told() {
        let granted = |idle: Value, lifetime: Value| {
            let answer = json!({"session_id": "s1", "idle_timeout_seconds": idle, "max_lifetime_seconds": lifetime});
            let granted = session(answer.to_string().as_bytes()).unwrap();
            (granted.idle_timeout, granted.max_lifetime)
        };
        let some = |seconds: f64| Some(Duration::from_secs_f64(seconds));
        assert_eq!(granted(json!(300), json!(1.5)), (some(300.0), some(1.5)));
        for senseless in [Value::Null, json!(0), json!(-1), json!(1e300), json!("300"), json!({})] {
            assert_eq!(granted(senseless, json!(1)), (None, some(1.0)));
        }
        assert_eq!(session(br#"{"session_id": "s1"}"#).unwrap().idle_timeout, None);
    }
}
