use decision::decide::Dialect;
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use serde_json::json;

use super::*;
use crate::wire::conversation::{Call, Message, Part};

fn run(claimed: &[u32]) -> Run {
    let declaration =
        |index: &u32| ToolDeclaration { index: *index, keyword: Keyword::Interpreter, name: None, purpose_hint: None };
    Run {
        dialect: Dialect::Native,
        claimed: claimed.iter().map(declaration).collect(),
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: None,
        image: None,
        container: None,
    }
}

fn parsed(request: &Value) -> Conversation {
    parse(request.to_string().as_bytes(), &run(&[0])).unwrap()
}

fn refused(request: &Value) -> String {
    parse(request.to_string().as_bytes(), &run(&[0])).unwrap_err().param.unwrap_or_default()
}

fn messages(input: Value) -> Vec<Message> {
    parsed(&json!({"input": input})).messages
}

fn user(text: &str) -> Message {
    Message::User(vec![Part::Text(text.to_owned())])
}

fn assistant(text: &str, calls: &[(&str, &str)]) -> Message {
    let call = |(id, arguments): &(&str, &str)| Call {
        id: (*id).to_owned(),
        name: "f".to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Message::Assistant { text: text.to_owned(), calls: calls.iter().map(call).collect() }
}

fn result(call_id: &str, text: &str) -> Message {
    Message::Result { call_id: call_id.to_owned(), text: text.to_owned() }
}

#[test]
fn a_text_is_the_users() {
    assert_eq!(messages(json!("Hello.")), [user("Hello.")]);
}

#[test]
fn what_the_model_did_between_two_results_is_one_message() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": format!("r{id}")});
    let input = json!([
        {"role": "user", "content": "a"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call("1"),
        {"type": "code_interpreter_call", "id": "otari_ci_1", "code": "2+2", "outputs": null},
        call("2"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
        output("1"),
        output("2"),
        {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
    ]);
    let conversation = parsed(&json!({"input": input}));
    let told = "I ran this Python code:\n```python\n2+2\n```\n\nWait.";
    let expected =
        [user("a"), assistant(told, &[("1", "{}"), ("2", "{}")]), result("1", "r1"), result("2", "r2"), user("b")];
    assert_eq!(conversation.messages, expected);
    assert!(conversation.dropped.contains("reasoning"));
}

#[test]
fn system_text_at_the_beginning_joins_the_instructions() {
    let input = json!([
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "Be quick."},
    ]);
    let conversation = parsed(&json!({"input": input, "instructions": "Be brief."}));
    assert_eq!(conversation.system.as_deref(), Some("Be brief.\n\nBe kind."));
    assert_eq!(conversation.messages, [user("a"), Message::System("Be quick.".to_owned())]);
}

#[test]
fn pictures_and_documents_are_carried_and_files_nobody_has_are_refused() {
    let pdf = "data:application/pdf;base64,AA";
    let input = json!([{"role": "user", "content": [
        {"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "AA"},
    ]}]);
    let parts = vec![
        Part::Image { url: "https://example.org/a.png".to_owned(), detail: Some("auto".to_owned()) },
        Part::Pdf { name: "a.pdf".to_owned(), data: pdf.to_owned() },
    ];
    assert_eq!(messages(input), [Message::User(parts)]);
    let by_id = |part: Value| refused(&json!({"input": [{"role": "user", "content": [part]}]}));
    assert_eq!(by_id(json!({"type": "input_image", "file_id": "file-1"})), "input[0].content[0]");
    assert_eq!(by_id(json!({"type": "input_file", "file_url": "https://example.org"})), "input[0].content[0]");
    assert_eq!(by_id(json!({"type": "input_audio"})), "input[0].content[0]");
}

#[test]
fn a_picture_in_a_result_follows_it() {
    let output = json!([{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "u"}]);
    let told = messages(json!([
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": output},
    ]));
    assert_eq!(told[1], result("1", "see\n\n(more of this result follows in the next message)"));
    assert_eq!(told[2], Message::User(vec![Part::Image { url: "u".to_owned(), detail: None }]));
}

#[test]
fn what_another_providers_tools_did_is_told_and_references_are_refused() {
    let foreign = json!([
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [{"type": "logs", "logs": "2"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "cats"}},
    ]);
    let [Message::Assistant { text, calls }] = &messages(foreign)[..] else { panic!("one message") };
    assert!(calls.is_empty() && text.contains("logs:\n2") && text.contains("cats"), "{text}");
    assert!(!text.contains("ws_1"), "{text}");
    assert_eq!(refused(&json!({"input": [{"type": "item_reference", "id": "msg_1"}]})), "input[0]");
    assert_eq!(refused(&json!({"input": [{"type": "compaction", "encrypted_content": "x"}]})), "input[0].type");
}

#[test]
fn settings_are_carried_named_or_refused() {
    let conversation = parsed(&json!({
        "input": "a", "model": "m", "stream": true, "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.9,
        "parallel_tool_calls": false, "user": "u", "store": true, "truncation": "auto", "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"}, "top_logprobs": 2,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}, "verbosity": "low"},
        "include": ["code_interpreter_call.outputs", "message.output_text.logprobs"],
        "tools": [{"type": "code_interpreter"}, {"type": "web_search"},
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
    }));
    assert_eq!((conversation.max_tokens, conversation.stream), (Some(7), true));
    assert_eq!((conversation.parallel_calls, conversation.user.as_deref()), (Some(false), Some("u")));
    let effort = conversation.reasoning_effort.as_ref().map(|(_, effort)| effort.as_str());
    assert_eq!((effort, conversation.show.reasoning), (Some("low"), true));
    let form =
        AnswerSchema { name: "x".to_owned(), description: None, schema: json!({"type": "object"}), strict: None };
    assert_eq!(conversation.answer_schema, Some(form));
    assert_eq!(conversation.functions.len(), 1);
    let dropped: Vec<&str> = conversation.dropped.iter().map(String::as_str).collect();
    let expected = [
        "include=message.output_text.logprobs",
        "store",
        "text.verbosity",
        "tools[1].type=web_search",
        "top_logprobs",
        "truncation",
    ];
    assert_eq!(dropped, expected);
    assert_eq!(refused(&json!({"input": "a", "prompt": {"id": "pmpt_1"}})), "prompt");
    assert_eq!(refused(&json!({})), "input");
}

#[test]
fn choices_are_turned_to_the_tool_the_model_has() {
    let asked = |choice: Value| {
        let tools = json!([{"type": "code_interpreter"}, {"type": "function", "name": "f"},
            {"type": "function", "name": "g"}]);
        json!({"input": "a", "tools": tools, "tool_choice": choice})
    };
    assert_eq!(parsed(&asked(json!({"type": "code_interpreter"}))).choice, Some(Choice::Code));
    assert_eq!(parsed(&asked(json!("required"))).choice, Some(Choice::Any));
    let own = json!({"type": "function", "name": "f"});
    assert_eq!(parsed(&asked(own.clone())).choice, Some(Choice::Function("f".to_owned())));
    assert_eq!(refused(&asked(json!({"type": "function", "name": "x"}))), "tool_choice");
    assert_eq!(refused(&asked(json!({"type": "web_search"}))), "tool_choice");
    let allowed = |tools: Value| asked(json!({"type": "allowed_tools", "mode": "required", "tools": tools}));
    let narrowed = parsed(&allowed(json!([{"type": "code_interpreter"}, own])));
    assert_eq!((narrowed.choice, narrowed.functions.len()), (Some(Choice::Any), 1));
    assert_eq!(refused(&allowed(json!([own]))), "tool_choice.tools");
}
