use decision::decide::Dialect;
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::wire::model_request::TurnKind;
use crate::wire::{chat_completions, messages, responses};

fn run(position: usize) -> Run {
    let declaration = ToolDeclaration {
        index: u32::try_from(position).expect("few tools"),
        keyword: Keyword::Interpreter,
        name: None,
        purpose_hint: None,
    };
    Run {
        dialect: Dialect::Plain,
        claimed: vec![declaration],
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: None,
        image: None,
        container: None,
    }
}

/// The request with a code tool behind its own tools.
fn complete(mut request: Value) -> (Value, Run) {
    let mut tools = request["tools"].as_array().cloned().unwrap_or_default();
    let position = tools.len();
    tools.push(json!({"type": "code_interpreter"}));
    request["tools"] = tools.into();
    if request["messages"].is_null() {
        request["messages"] = json!([]);
    }
    (request, run(position))
}

/// The request as a Messages model gets it first, without our tool, and what was dropped.
fn check(request: Value, expected: Expect) {
    let (request, run) = complete(request);
    let conversation = parse(request.to_string().as_bytes(), &run).expect("a request");
    let prepared = messages::emit(conversation, &run, None);
    let mut body: Value = serde_json::from_slice(&prepared.request.body(TurnKind::First)).expect("JSON");
    let tools = body["tools"].as_array_mut().expect("tools");
    let ours = tools.pop().expect("a tool of ours");
    assert_eq!(ours["name"], "code_execution");
    let mut lines = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        match value {
            Value::Array(list) => lines.extend(list.iter().map(|entry| format!("{name}[] {entry}"))),
            _ => lines.push(format!("{name}: {value}")),
        }
    }
    lines.push(format!("dropped: {}", prepared.dropped.join(", ")));
    expected.assert_eq(&lines.join("\n"));
}

fn refusal(request: Value) -> String {
    let (request, run) = complete(request);
    let problem = parse(request.to_string().as_bytes(), &run).expect_err("a refusal");
    let param = problem.param.unwrap_or_default();
    assert!(problem.message.contains(&param), "{}: {param}", problem.message);
    param
}

#[test]
fn people_and_the_system_say_text_pictures_and_documents() {
    check(
        json!({"model": "m", "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "one", "name": "ann"},
            {"role": "user", "content": [
                {"type": "text", "text": "two"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
            ]},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        ]}),
        expect![[r#"
            model: "m"
            max_tokens: 8192
            system: "Be brief.\n\nBe kind."
            messages[] {"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"},{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"},"title":"a.pdf"}]}
            dropped: image.detail, messages.name, place of a system message"#]],
    );
}

#[test]
fn the_assistant_calls_and_is_answered() {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "lookup", "arguments": arguments}});
    check(
        json!({"model": "m", "messages": [
            {"role": "assistant", "content": null, "reasoning_content": "hm", "refusal": null,
                "tool_calls": [call("c1", "{\"q\": 1}"), call("c2", ""), call("c3", "oops")]},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "go on"},
            {"role": "assistant", "content": [{"type": "text", "text": "yes"}, {"type": "refusal", "refusal": "no"}]},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c4", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
            ]},
        ]}),
        expect![[r#"
            model: "m"
            max_tokens: 8192
            messages[] {"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"lookup","input":{"q":1}},{"type":"tool_use","id":"c2","name":"lookup","input":{}},{"type":"tool_use","id":"c3","name":"lookup","input":{"arguments":"oops"}}]}
            messages[] {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"found"},{"type":"tool_result","tool_use_id":"c2","content":"a\n\nb"},{"type":"text","text":"go on"}]}
            messages[] {"role":"assistant","content":[{"type":"text","text":"yes\n\nno"},{"type":"tool_use","id":"c4","name":"shell","input":{"input":"ls"}}]}
            dropped: messages.reasoning_content"#]],
    );
}

#[test]
fn settings() {
    check(
        json!({"model": "m", "max_tokens": 1, "max_completion_tokens": 50, "temperature": 1.5, "top_p": 0.9, "stop": "END",
            "user": "u", "stream": true, "stream_options": {"include_usage": true}, "seed": 7, "reasoning_effort": "low",
            "logprobs": false, "top_logprobs": 0, "store": false, "modalities": ["text"], "n": 1, "session_label": "x",
            "parallel_tool_calls": false, "logit_bias": {"1": 2}, "frequency_penalty": 0.5, "presence_penalty": 0,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}}),
        expect![[r#"
            model: "m"
            max_tokens: 50
            temperature: 1.0
            top_p: 0.9
            stop_sequences[] "END"
            metadata: {"user_id":"u"}
            output_config: {"format":{"type":"json_schema","schema":{"type":"object"}}}
            stream: true
            tool_choice: {"type":"auto","disable_parallel_tool_use":true}
            dropped: frequency_penalty, logit_bias, reasoning_effort, seed, temperature>1"#]],
    );
    check(
        json!({"stop": ["a", "b"], "safety_identifier": "s", "response_format": {"type": "json_object"}}),
        expect![[r#"
            model: ""
            max_tokens: 8192
            stop_sequences[] "a"
            stop_sequences[] "b"
            metadata: {"user_id":"s"}
            dropped: response_format"#]],
    );
    check(
        json!({"temperature": 0.5, "response_format": {"type": "text"}}),
        expect![[r#"
            model: ""
            max_tokens: 8192
            temperature: 0.5
            dropped: "#]],
    );
}

#[test]
fn functions_and_the_choice_among_them() {
    let lookup = json!({"type": "function", "function": {"name": "lookup", "description": "Looks up", "strict": true,
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}});
    let other = json!({"type": "function", "function": {"name": "other", "strict": null}});
    let custom = json!({"type": "custom", "custom": {"name": "shell"}});
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    check(
        json!({"tools": [lookup, other, custom], "tool_choice": named("lookup")}),
        expect![[r#"
            model: ""
            max_tokens: 8192
            tools[] {"name":"lookup","description":"Looks up","input_schema":{"type":"object","properties":{"q":{"type":"string"}}},"strict":true}
            tools[] {"name":"other","input_schema":{"type":"object","properties":{}}}
            tool_choice: {"type":"tool","name":"lookup"}
            dropped: tools[2].type=custom"#]],
    );
    let choice = |choice: Value| {
        let (request, run) = complete(json!({"tools": [lookup, other], "tool_choice": choice}));
        let conversation = parse(request.to_string().as_bytes(), &run).expect("a request");
        let functions: Vec<String> = conversation.functions.into_iter().map(|function| function.name).collect();
        (conversation.choice, functions.join(" "))
    };
    let both = || "lookup other".to_owned();
    assert_eq!(choice(Value::Null), (None, both()));
    assert_eq!(choice(json!("auto")), (Some(Choice::Auto), both()));
    assert_eq!(choice(json!("none")), (Some(Choice::None), both()));
    assert_eq!(choice(json!("required")), (Some(Choice::Any), both()));
    assert_eq!(choice(json!({"type": "code_interpreter"})), (Some(Choice::Code), both()));
    assert_eq!(choice(named("code_execution")), (Some(Choice::Code), both()));
    let allowed =
        |mode: &str, tools: Value| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}});
    let code = json!({"type": "code_interpreter"});
    assert_eq!(choice(allowed("required", json!([named("other"), code]))), (Some(Choice::Any), "other".to_owned()));
    assert_eq!(choice(allowed("auto", json!([code]))), (Some(Choice::Auto), String::new()));
    for (one, param) in [
        (named("nobody"), "tool_choice"),
        (json!("always"), "tool_choice"),
        (allowed("auto", json!([named("other")])), "tool_choice.allowed_tools.tools"),
        (allowed("auto", json!([named("nobody"), code])), "tool_choice.allowed_tools.tools"),
        (allowed("auto", json!("all")), "tool_choice.allowed_tools.tools"),
    ] {
        assert_eq!(refusal(json!({"tools": [lookup, other], "tool_choice": one})), param);
    }
}

#[test]
fn what_another_wire_cannot_say_is_refused_by_name() {
    for (member, value) in [
        ("audio", json!({"voice": "alloy"})),
        ("modalities", json!(["text", "audio"])),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(3)),
        ("web_search_options", json!({})),
        ("n", json!(2)),
        ("functions", json!([])),
        ("messages", json!("hi")),
    ] {
        let mut request = json!({});
        request[member] = value;
        assert_eq!(refusal(request), member);
    }
    let message = |message: Value| refusal(json!({"messages": [message]}));
    let part = |part: Value| message(json!({"role": "user", "content": [part]}));
    assert_eq!(part(json!({"type": "input_audio", "input_audio": {}})), "messages[0].content[0].type");
    assert_eq!(part(json!({"type": "file", "file": {"file_id": "file-1"}})), "messages[0].content[0].file");
    assert_eq!(
        part(json!({"type": "file", "file": {"file_data": "data:text/csv;base64,AA"}})),
        "messages[0].content[0].file"
    );
    assert_eq!(
        part(json!({"type": "image_url", "image_url": {"url": "file:///a"}})),
        "messages[0].content[0].image_url.url"
    );
    assert_eq!(part(json!("text")), "messages[0].content[0]");
    assert_eq!(message(json!({"role": "function", "name": "f", "content": "x"})), "messages[0].role");
    assert_eq!(message(json!({"role": "someone", "content": "x"})), "messages[0].role");
    assert_eq!(message(json!({"role": "assistant", "function_call": {"name": "f"}})), "messages[0].function_call");
    assert_eq!(message(json!({"role": "tool", "content": "x"})), "messages[0].tool_call_id");
    assert_eq!(message(json!({"role": "user", "content": 1})), "messages[0].content");
    assert_eq!(message(json!("hi")), "messages[0]");
}

#[test]
fn the_form_of_an_answer_is_carried_between_both_openai_wires_as_it_is() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    for form in [
        json!({"name": "weather", "description": "What it is like.", "schema": schema, "strict": true}),
        json!({"name": "weather", "schema": schema, "strict": false}),
        json!({"name": "weather", "schema": schema}),
    ] {
        let mut flat = json!({"type": "json_schema"});
        flat.as_object_mut().expect("an object").extend(form.as_object().expect("an object").clone());
        let nested = json!({"type": "json_schema", "json_schema": form});
        let (request, run) = complete(json!({"model": "m", "response_format": nested}));
        let conversation = parse(request.to_string().as_bytes(), &run).expect("a request");
        let sent = responses::emit(conversation, &run, None).request.body(TurnKind::First);
        let sent: Value = serde_json::from_slice(&sent).expect("JSON");
        assert_eq!(sent["text"]["format"], flat);
        let request =
            json!({"model": "m", "input": "a", "text": {"format": flat}, "tools": [{"type": "code_interpreter"}]});
        let conversation = responses::parse(request.to_string().as_bytes(), &run).expect("a request");
        let sent = chat_completions::emit(conversation, &run, None).request.body(TurnKind::First);
        let sent: Value = serde_json::from_slice(&sent).expect("JSON");
        assert_eq!(sent["response_format"], nested);
    }
}
