use decision::decide::Dialect;
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use expect_test::{Expect, expect};

use super::*;
use crate::wire::model_request::{Show, TurnKind};
use crate::wire::tools::ToolWords as _;

fn run(claimed: &[u32], hint: Option<&str>) -> Run {
    let declaration =
        |index: &u32| ToolDeclaration { index: *index, keyword: Keyword::Interpreter, name: None, purpose_hint: None };
    Run {
        dialect: Dialect::Plain,
        claimed: claimed.iter().map(declaration).collect(),
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: hint.map(str::to_owned),
        image: None,
        container: None,
    }
}

fn prepared(body: &str, run: &Run) -> Result<Prepared, Problem> {
    edit(body.as_bytes(), run, None)
}

fn names(prepared: &Prepared) -> Vec<&str> {
    prepared.functions.names().collect()
}

/// The three bodies, with the tool's definition cut to its name.
fn check(body: &str, run: &Run, expected: Expect) {
    let prepared = prepared(body, run).expect("a request");
    let ours: Vec<(String, String)> = prepared
        .functions
        .definitions()
        .map(|function| (Words::function(&function).to_string(), format!("<{}>", function.name)))
        .collect();
    let bodies = [TurnKind::First, TurnKind::Later, TurnKind::Closing].map(|kind| {
        let body = String::from_utf8(prepared.request.body(kind).to_vec()).expect("text");
        ours.iter().fold(body, |body, (definition, name)| body.replace(definition, name))
    });
    expected.assert_eq(&bodies.join("\n"));
}

/// The choice that the model is given, each time.
fn choices(tools: &str, choice: &str) -> String {
    let body = format!(r#"{{"tools":[{tools}{{"type":"code_interpreter"}}],"tool_choice":{choice},"messages":[]}}"#);
    let claimed = u32::from(!tools.is_empty());
    let prepared = prepared(&body, &run(&[claimed], None)).expect("a request");
    let choices = [TurnKind::First, TurnKind::Later, TurnKind::Closing].map(|kind| {
        let body: Value = serde_json::from_slice(&prepared.request.body(kind)).expect("JSON");
        body.get("tool_choice").map_or_else(|| "-".to_owned(), Value::to_string)
    });
    choices.join("\n")
}

fn check_choice(tools: &str, choice: &str, expected: Expect) {
    expected.assert_eq(&choices(tools, choice));
}

const LOOKUP: &str = r#"{"type":"function","function":{"name":"lookup"}},"#;

#[test]
fn members_and_history_keep_their_bytes_and_ours_go() {
    check(
        r#"{"model":"m","future": {"a" : 1.0, "b":1e2},"otari_include":["code_execution"],"container":"otari_cntr_1","n":1,
            "max_tool_iterations":3,"messages":[ {"role":"user","content":"\u00e9"} ],"tools":[{"type":"code_interpreter"}]}"#,
        &run(&[0], None),
        expect![[r#"
            {"model":"m","future":{"a" : 1.0, "b":1e2},"n":1,"tools":[<code_execution>],"messages":[{"role":"user","content":"\u00e9"}]}
            {"model":"m","future":{"a" : 1.0, "b":1e2},"n":1,"tools":[<code_execution>],"messages":[{"role":"user","content":"\u00e9"}]}
            {"model":"m","future":{"a" : 1.0, "b":1e2},"n":1,"messages":[{"role":"user","content":"\u00e9"}]}"#]],
    );
}

#[test]
fn tools_of_any_other_type_keep_their_bytes_and_the_providers_name_of_the_model_is_used() {
    let others = r#"{"type":"namespace", "tools":[1.0]},{"type":"custom","custom":{"name":"code_execution"}}"#;
    let body = format!(r#"{{"model":"demo","messages":[],"tools":[{others},{{"type":"code_interpreter"}}]}}"#);
    let prepared = edit(body.as_bytes(), &run(&[2], None), Some("upstream")).expect("a request");
    let sent = String::from_utf8(prepared.request.body(TurnKind::Closing).to_vec()).expect("text");
    assert_eq!(sent, format!(r#"{{"model":"upstream","tools":[{others}],"messages":[]}}"#));
    assert_eq!((&*prepared.model, names(&prepared)), ("demo", vec!["otari_code_execution_1"]));
}

#[test]
fn the_usage_of_a_stream_is_always_asked_for_and_shown_to_who_wants_it() {
    let body = |options: &str| {
        format!(
            r#"{{"stream":true{options},"messages":[],"tools":[{LOOKUP}{{"type":"code_interpreter"}}],"parallel_tool_calls":false}}"#
        )
    };
    check(
        &body(r#","stream_options":{"include_obfuscation":false}"#),
        &run(&[1], None),
        expect![[r#"
        {"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true},"tools":[{"type":"function","function":{"name":"lookup"}},<code_execution>],"parallel_tool_calls":false,"messages":[]}
        {"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true},"tools":[{"type":"function","function":{"name":"lookup"}},<code_execution>],"parallel_tool_calls":false,"messages":[]}
        {"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true},"tools":[{"type":"function","function":{"name":"lookup"}}],"parallel_tool_calls":false,"messages":[]}"#]],
    );
    let shown = |options: &str| prepared(&body(options), &run(&[1], None)).expect("a request").show;
    assert_eq!(shown(""), Show::default());
    assert_eq!(shown(r#","stream_options":{"include_usage":true}"#), Show { usage: true, ..Show::default() });
    assert_eq!(shown(r#","stream_options":{"include_usage":false}"#), Show::default());
}

#[test]
fn a_choice_that_names_a_claimed_declaration_is_forced_once_and_means_our_function() {
    for choice in [
        r#"{"type":"code_interpreter"}"#,
        r#""code_interpreter""#,
        r#"{"type":"function","function":{"name":"code_execution"}}"#,
        r#"{"type":"function","function":{"name":"code_interpreter"}}"#,
    ] {
        let named = r#"{"type":"function","function":{"name":"code_execution"}}"#;
        assert_eq!(choices("", choice), format!("{named}\n\"auto\"\n-"), "{choice}");
    }
    check_choice(
        "",
        r#""required""#,
        expect![[r#"
        "required"
        "auto"
        -"#]],
    );
    check_choice(
        LOOKUP,
        r#""required""#,
        expect![[r#"
        "required"
        "auto"
        "auto""#]],
    );
    check_choice(
        LOOKUP,
        r#"{"type":"function","function":{"name":"lookup"}}"#,
        expect![[r#"
        {"type":"function","function":{"name":"lookup"}}
        {"type":"function","function":{"name":"lookup"}}
        {"type":"function","function":{"name":"lookup"}}"#]],
    );
    check_choice(
        LOOKUP,
        "null",
        expect![[r"
        -
        -
        -"]],
    );
}

#[test]
fn a_callers_own_function_of_the_name_stays_its_own() {
    let own = r#"{"type":"function","function":{"name":"code_execution"}},"#;
    check_choice(
        own,
        r#"{"type":"function","function":{"name":"code_execution"}}"#,
        expect![[r#"
        {"type":"function","function":{"name":"code_execution"}}
        {"type":"function","function":{"name":"code_execution"}}
        {"type":"function","function":{"name":"code_execution"}}"#]],
    );
    let body = format!(r#"{{"messages":[],"tools":[{own}{{"type":"code_interpreter"}}]}}"#);
    assert_eq!(names(&prepared(&body, &run(&[1], None)).expect("a request")), ["otari_code_execution_1"]);
}

#[test]
fn an_allow_list_names_our_function_once_and_loses_it_for_the_last_call() {
    let list = |mode: &str, tools: &str| {
        format!(r#"{{"type":"allowed_tools","allowed_tools":{{"mode":"{mode}","tools":[{tools}]}}}}"#)
    };
    let lookup = LOOKUP.trim_end_matches(',');
    let both = format!(
        r#"{LOOKUP}{{"type":"code_interpreter"}},{{"type":"function","function":{{"name":"code_execution"}}}}"#
    );
    check_choice(
        LOOKUP,
        &list("required", &both),
        expect![[r#"
        {"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"lookup"}},{"type":"function","function":{"name":"code_execution"}}]}}
        {"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"lookup"}},{"type":"function","function":{"name":"code_execution"}}]}}
        {"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"lookup"}}]}}"#]],
    );
    check_choice(
        LOOKUP,
        &list("required", lookup),
        expect![[r#"
        {"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"lookup"}}]}}
        {"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"lookup"}}]}}
        {"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"lookup"}}]}}"#]],
    );
    check_choice(
        LOOKUP,
        &list("auto", r#"{"type":"code_interpreter"}"#),
        expect![[r#"
        {"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"code_execution"}}]}}
        {"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"code_execution"}}]}}
        "none""#]],
    );
}

#[test]
fn several_tools_are_forced_by_giving_no_others_once() {
    let all = [CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor];
    let run = Run { tools: all.to_vec(), ..run(&[1], Some("sums")) };
    let body = format!(
        r#"{{"tools":[{LOOKUP}{{"type":"code_execution_20250825"}}],"tool_choice":{{"type":"code_execution_20250825"}},"messages":[]}}"#
    );
    check(
        &body,
        &run,
        expect![[r#"
            {"tools":[<code_execution>,<bash_code_execution>,<text_editor_code_execution>],"tool_choice":"required","messages":[{"role":"system","content":"When to use the tools of this gateway:\n- code_execution, bash_code_execution, text_editor_code_execution: sums"}]}
            {"tools":[{"type":"function","function":{"name":"lookup"}},<code_execution>,<bash_code_execution>,<text_editor_code_execution>],"tool_choice":"auto","messages":[{"role":"system","content":"When to use the tools of this gateway:\n- code_execution, bash_code_execution, text_editor_code_execution: sums"}]}
            {"tools":[{"type":"function","function":{"name":"lookup"}}],"tool_choice":"auto","messages":[{"role":"system","content":"When to use the tools of this gateway:\n- code_execution, bash_code_execution, text_editor_code_execution: sums"}]}"#]],
    );
}

#[test]
fn the_hint_stands_behind_the_first_system_text() {
    let hinted = |messages: &str| {
        let body = format!(r#"{{"messages":{messages},"tools":[{{"type":"code_interpreter"}}]}}"#);
        let history = prepared(&body, &run(&[0], Some("sums"))).expect("a request").request.history;
        String::from_utf8(history).expect("text")
    };
    let user = r#"{"role":"user", "content":"hi"}"#;
    expect![[r#"{"role":"user", "content":"hi"}, {"content":"Be brief.\n\nWhen to use the tools of this gateway:\n- code_execution: sums","role":"system","name":"a"}"#]].assert_eq(&hinted(&format!(r#"[{user}, {{"content":"Be brief.","role":"system","name":"a"}}]"#)));
    expect![[r#"{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"When to use the tools of this gateway:\n- code_execution: sums"}]},{"role":"user", "content":"hi"}"#]]
        .assert_eq(&hinted(&format!(r#"[{{"role":"developer","content":[{{"type":"text","text":"a"}}]}},{user}]"#)));
    expect![[r#"{"role":"system","content":"When to use the tools of this gateway:\n- code_execution: sums"},{"role":"user", "content":"hi"}"#]].assert_eq(&hinted(&format!("[ {user} ]")));
    expect![[r#"{"role":"system","content":"When to use the tools of this gateway:\n- code_execution: sums"}"#]]
        .assert_eq(&hinted("[]"));
}

#[test]
fn what_no_run_can_honour_is_refused_by_name() {
    let refused = |member: &str| {
        let body = format!(r#"{{"messages":[],"tools":[{{"type":"code_interpreter"}}],{member}}}"#);
        let problem = prepared(&body, &run(&[0], None)).expect_err("a refusal");
        (problem.param.unwrap_or_default(), problem.message)
    };
    for (member, param) in [
        (r#""n":2"#, "n"),
        (r#""functions":[]"#, "functions"),
        (r#""function_call":"auto""#, "function_call"),
        (r#""otari_include":["code_execution","files"]"#, "otari_include"),
        (r#""otari_include":"code_execution""#, "otari_include"),
    ] {
        let (found, message) = refused(member);
        assert!(found == param && message.contains(param), "{member}: {found}: {message}");
    }
    for member in [r#""n":null"#, r#""n":1"#, r#""functions":null"#, r#""otari_include":[]"#, r#""otari_include":null"#]
    {
        let body = format!(r#"{{"messages":[],"tools":[{{"type":"code_interpreter"}}],{member}}}"#);
        assert_eq!(prepared(&body, &run(&[0], None)).expect("a request").show, Show::default(), "{member}");
    }
}

#[test]
fn a_body_of_another_shape_is_refused_by_name() {
    let param = |body: &str| prepared(body, &run(&[0], None)).expect_err("a refusal").param;
    assert_eq!(param("[]"), None);
    assert_eq!(param(r#"{"tools":[]}"#).as_deref(), Some("messages"));
    assert_eq!(param(r#"{"messages":"hi"}"#).as_deref(), Some("messages"));
    assert_eq!(param(r#"{"messages":[],"tools":{}}"#).as_deref(), Some("tools"));
}
