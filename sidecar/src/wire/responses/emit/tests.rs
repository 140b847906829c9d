use decision::decide::Dialect;
use decision::request::CodeTool;

use super::*;
use crate::wire::code_tool::description;
use crate::wire::conversation::{Call, Choice, Function};
use crate::wire::model_request::{Show, TurnKind};

fn run() -> Run {
    Run {
        dialect: Dialect::Native,
        claimed: Vec::new(),
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: Some("for sums".to_owned()),
        image: None,
        container: None,
    }
}

#[test]
fn everything_neutral_has_its_place() {
    let function = Function {
        name: "code_execution".to_owned(),
        description: None,
        schema: Map::from_iter([("type".to_owned(), "object".into())]),
        strict: None,
    };
    let call = Call { id: "c1".to_owned(), name: "code_execution".to_owned(), arguments: "{}".to_owned() };
    let conversation = Conversation {
        model: "m".to_owned(),
        system: Some("Be brief.".to_owned()),
        messages: vec![
            Message::User(vec![
                Part::Text("Look.".to_owned()),
                Part::Image { url: "data:image/png;base64,AA".to_owned(), detail: None },
                Part::Pdf { name: "a.pdf".to_owned(), data: "data:application/pdf;base64,AA".to_owned() },
            ]),
            Message::Assistant { text: "Calling.".to_owned(), calls: vec![call] },
            Message::Result { call_id: "c1".to_owned(), text: "done".to_owned() },
        ],
        functions: vec![function],
        choice: Some(Choice::Code),
        stop: vec!["END".to_owned()],
        max_tokens: Some(9),
        show: Show { reasoning: true, ..Show::default() },
        ..Conversation::default()
    };
    let prepared = emit(conversation, &run(), Some("upstream"));
    assert_eq!(prepared.dropped, ["stop_sequences"]);
    assert_eq!(prepared.functions.names().collect::<Vec<_>>(), ["otari_code_execution_1"]);
    let body: Value = serde_json::from_slice(&prepared.request.body(TurnKind::First)).unwrap();
    let body = format!("{body:#}").replace(description(CodeTool::Python), "[description]");
    insta::assert_snapshot!(body);
    let later: Value = serde_json::from_slice(&prepared.request.body(TurnKind::Later)).unwrap();
    assert_eq!(later["tool_choice"], "auto");
    let closing: Value = serde_json::from_slice(&prepared.request.body(TurnKind::Closing)).unwrap();
    assert_eq!(closing["tools"].as_array().map(Vec::len), Some(1));
}
