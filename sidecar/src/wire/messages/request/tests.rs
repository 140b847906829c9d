use decision::decide::Dialect;
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use expect_test::{Expect, expect};

use super::*;
use crate::wire::model_request::TurnKind;
use crate::wire::tools::ToolWords as _;

fn run(claimed: &[u32], hint: Option<&str>) -> Run {
    let declaration = |index: &u32| ToolDeclaration {
        index: *index,
        keyword: Keyword::Dated("20250522".to_owned()),
        name: Some("code_execution".to_owned()),
        purpose_hint: None,
    };
    Run {
        dialect: Dialect::Native,
        claimed: claimed.iter().map(declaration).collect(),
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: hint.map(str::to_owned),
        image: None,
        container: None,
    }
}

/// The three bodies, with the tool's definition cut to its name.
fn bodies(body: &str, run: &Run) -> String {
    let prepared = edit(body.as_bytes(), run, None, Foreign::Stays).expect("a request");
    let ours: Vec<(String, String)> = prepared
        .functions
        .definitions()
        .map(|function| (Words::function(&function).to_string(), format!("<{}>", function.name)))
        .collect();
    [TurnKind::First, TurnKind::Later, TurnKind::Closing]
        .map(|kind| {
            let body = String::from_utf8(prepared.request.body(kind).to_vec()).expect("text");
            ours.iter().fold(body, |body, (definition, name)| body.replace(definition, name))
        })
        .join("\n")
}

fn check(body: &str, run: &Run, expected: Expect) {
    expected.assert_eq(&bodies(body, run));
}

#[test]
fn a_tool_that_code_may_call_is_left_to_the_model() {
    let body = |callers: &str| {
        format!(
            r#"{{"messages":[],"tools":[{{"type":"code_execution_20260120","name":"code_execution"}},
                {{"name":"crm","input_schema":{{"type":"object"}},"allowed_callers":{callers}}},{{"name": "raw" }}]}}"#
        )
    };
    let sent = |callers: &str| edit(body(callers).as_bytes(), &run(&[0], None), None, Foreign::Stays);
    let both = sent(r#"["direct","code_execution_20260120"]"#).expect("a request");
    let first = String::from_utf8(both.request.body(TurnKind::First).to_vec()).expect("text");
    assert!(first.contains(r#""allowed_callers":["direct"]"#) && first.contains(r#"{"name": "raw" }"#), "{first}");
    assert_eq!(both.dropped, ["crm.allowed_callers"]);
    assert!(sent(r#"["direct"]"#).expect("a request").dropped.is_empty());
    let refused = sent(r#"["code_execution_20260120"]"#).expect_err("a problem");
    assert_eq!(refused.param.as_deref(), Some("crm.allowed_callers"));
}

#[test]
fn members_and_history_keep_their_bytes_and_ours_go() {
    check(
        r#"{"model":"m","future": {"a" : 1.0, "b":1e2},"max_tokens":5,"container":"otari_cntr_1","max_tool_iterations":3,
            "messages":[ {"role":"user","content":"\u00e9"} ],"tools":[{"type":"code_execution_20250522","name":"code_execution"}]}"#,
        &run(&[0], None),
        expect![[r#"
            {"model":"m","future":{"a" : 1.0, "b":1e2},"max_tokens":5,"tools":[<code_execution>],"messages":[{"role":"user","content":"\u00e9"}]}
            {"model":"m","future":{"a" : 1.0, "b":1e2},"max_tokens":5,"tools":[<code_execution>],"messages":[{"role":"user","content":"\u00e9"}]}
            {"model":"m","future":{"a" : 1.0, "b":1e2},"max_tokens":5,"tools":[<code_execution>],"tool_choice":{"type":"none"},"messages":[{"role":"user","content":"\u00e9"}]}"#]],
    );
}

#[test]
fn every_claimed_declaration_goes_and_a_taken_name_is_avoided() {
    check(
        r#"{"tools":[{"type":"code_execution_20250825","name":"code_execution"},{"name":"code_execution","input_schema":{}},
            {"type":"code_execution"},{"name":"otari_code_execution_1"}],
            "tool_choice":{"type":"tool","name":"code_execution"},"messages":[]}"#,
        &run(&[0, 2], None),
        expect![[r#"
            {"tools":[{"name":"code_execution","input_schema":{}},{"name":"otari_code_execution_1"},<otari_code_execution_2>],"tool_choice":{"type":"tool","name":"code_execution"},"messages":[]}
            {"tools":[{"name":"code_execution","input_schema":{}},{"name":"otari_code_execution_1"},<otari_code_execution_2>],"tool_choice":{"type":"tool","name":"code_execution"},"messages":[]}
            {"tools":[{"name":"code_execution","input_schema":{}},{"name":"otari_code_execution_1"}],"tool_choice":{"type":"tool","name":"code_execution"},"messages":[]}"#]],
    );
}

#[test]
fn bash_may_come_alone_and_a_taken_name_of_each_tool_is_avoided() {
    let with = |tools: &[CodeTool]| Run { tools: tools.to_vec(), ..run(&[1], None) };
    let body = r#"{"tools":[{"name":"bash_code_execution","input_schema":{}},{"type":"code_execution_20250825","name":"code_execution"}],
        "tool_choice":{"type":"tool","name":"code_execution","disable_parallel_tool_use":true},"messages":[]}"#;
    check(
        body,
        &with(&[CodeTool::Bash]),
        expect![[r#"
            {"tools":[{"name":"bash_code_execution","input_schema":{}},<otari_bash_code_execution_1>],"tool_choice":{"type":"tool","name":"otari_bash_code_execution_1","disable_parallel_tool_use":true},"messages":[]}
            {"tools":[{"name":"bash_code_execution","input_schema":{}},<otari_bash_code_execution_1>],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"messages":[]}
            {"tools":[{"name":"bash_code_execution","input_schema":{}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"messages":[]}"#]],
    );
    check(
        body,
        &with(&[CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor]),
        expect![[r#"
            {"tools":[<code_execution>,<otari_bash_code_execution_1>,<text_editor_code_execution>],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"messages":[]}
            {"tools":[{"name":"bash_code_execution","input_schema":{}},<code_execution>,<otari_bash_code_execution_1>,<text_editor_code_execution>],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"messages":[]}
            {"tools":[{"name":"bash_code_execution","input_schema":{}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"messages":[]}"#]],
    );
}

#[test]
fn a_forced_call_of_the_tool_is_forced_once() {
    for choice in [
        r#"{"type":"tool","name":"code_execution","disable_parallel_tool_use":true}"#,
        r#"{"type":"any","disable_parallel_tool_use":true}"#,
    ] {
        let body = format!(r#"{{"tools":[{{"type":"code_execution"}}],"tool_choice":{choice},"messages":[]}}"#);
        let told = bodies(&body, &run(&[0], None));
        let [first, later, closing] = told.lines().collect::<Vec<_>>()[..] else { panic!("three bodies") };
        assert!(first.contains(choice), "{first}");
        assert!(later.contains(r#""tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#), "{later}");
        assert!(closing.contains(r#""tool_choice":{"type":"none"}"#), "{closing}");
    }
}

#[test]
fn the_hint_stands_before_the_system_text_in_each_of_its_shapes() {
    let run = run(&[], Some("sums"));
    let system = |system: &str| {
        let told = bodies(&format!(r#"{{{system}"messages":[]}}"#), &run);
        let first = told.lines().next().unwrap_or_default().to_owned();
        first.split(r#","tools""#).next().unwrap_or_default().to_owned()
    };
    let hint = r"When to use the tools of this gateway:\n- code_execution: sums";
    assert_eq!(system(""), format!(r#"{{"system":"{hint}""#));
    assert_eq!(system(r#""system":"Be kind.","#), format!(r#"{{"system":"{hint}\n\nBe kind.""#));
    let listed = r#"{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}"#;
    assert_eq!(
        system(&format!(r#""system":[{listed}],"#)),
        format!(r#"{{"system":[{{"type":"text","text":"{hint}"}},{listed}]"#)
    );
}

#[test]
fn minted_history_is_folded_and_the_rest_of_it_stays() {
    let body = r#"{"messages":[{"role":"assistant","content":[
        {"type":"server_tool_use","id":"otari_srvtoolu_1","name":"code_execution","input":{"code":"x"}},
        {"type":"code_execution_tool_result","tool_use_id":"otari_srvtoolu_1","content":{"stdout":"1"}},
        {"type":"thinking","thinking":"t","signature":"s"}]}]}"#;
    let prepared = edit(body.as_bytes(), &run(&[], None), None, Foreign::Stays).expect("a request");
    expect![[r#"{"role":"assistant","content":[{"type":"text","text":"I ran this Python code:\n```python\nx\n```\nstdout:\n1"},{"type":"thinking","thinking":"t","signature":"s"}]}"#]]
        .assert_eq(std::str::from_utf8(&prepared.request.history).expect("text"));
}

#[test]
fn the_upstream_name_is_sent_and_the_callers_is_remembered() {
    let prepared =
        edit(br#"{"model":"alias","messages":[]}"#, &run(&[], None), Some("real"), Foreign::Stays).expect("a request");
    assert_eq!(prepared.model, "alias");
    assert!(prepared.request.body(TurnKind::First).starts_with(br#"{"model":"real","#));
}

#[test]
fn what_is_no_request_is_refused_by_name() {
    for (body, param) in
        [("[]", None), (r#"{"messages":1}"#, Some("messages")), (r#"{"messages":[],"tools":1}"#, Some("tools"))]
    {
        let problem = edit(body.as_bytes(), &run(&[], None), None, Foreign::Stays).expect_err("a problem");
        assert_eq!(problem.param.as_deref(), param);
    }
}
