//! The scanner against a DOM, against itself under every cut, and against nonsense.

use proptest::prelude::*;
use serde_json::Value;

use super::{MAX_ALLOWED, ScanError, ScanErrorKind, Scanner};
use crate::request::{Keyword, NamedTool, RequestView, ToolChoice, ToolDeclaration};

mod generated;
mod reference;

fn scan(body: &[u8]) -> Result<RequestView, ScanError> {
    scan_cut(body, &[])
}

/// Feeds the body cut at these places.
fn scan_cut(body: &[u8], cuts: &[usize]) -> Result<RequestView, ScanError> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    places.push(body.len());
    places.sort_unstable();
    let mut scanner = Scanner::new();
    let mut from = 0;
    for to in places {
        scanner.feed(&body[from..to]);
        from = to;
    }
    assert_eq!(scanner.scanned(), u64::try_from(body.len()).unwrap());
    scanner.finish()
}

#[test]
fn every_single_cut_gives_the_same_view() {
    let body = r#" {"model":"cl\u0061ude","stream":true,"max_tool_iterations":12,"x":[1.5e-3,{"y":"\ud83d\ude00é\\\""}],
        "tools":[{"type":"c\u006fde_execution","name":"né\n"},{"type":"code_interpreter","container":"otari_cntr_1"}],
        "tool_choice":{"type":"function","function":{"name":"a\/b"}},"messages":["file-otr1","otari_\u0063i_9"]} "#;
    let whole = scan(body.as_bytes());
    let view = whole.clone().unwrap();
    assert_eq!(view.model.as_deref(), Some("claude"));
    assert!(view.stream && view.own_file_ids && view.minted_history);
    assert_eq!(view.max_tool_iterations, Some(12));
    assert_eq!(view.own_container.as_deref(), Some("otari_cntr_1"));
    assert_eq!(
        view.declarations,
        [
            ToolDeclaration { index: 0, keyword: Keyword::Bare, name: Some("né\n".to_owned()), purpose_hint: None },
            ToolDeclaration { index: 1, keyword: Keyword::Interpreter, name: None, purpose_hint: None },
        ]
    );
    let tool = NamedTool { kind: Some("function".to_owned()), name: Some("a/b".to_owned()) };
    assert_eq!(view.tool_choice, Some(ToolChoice { tool, allowed: Vec::new() }));
    for cut in 0..body.len() {
        assert_eq!(scan_cut(body.as_bytes(), &[cut]), whole, "cut at {cut}");
    }
    for cut in 0..body.len() {
        let prefix = scan(&body.as_bytes()[..cut]);
        assert!(prefix.is_err() || cut + 1 >= body.len(), "cut off at {cut}");
    }
}

#[test]
fn errors_point_at_the_byte_at_fault() {
    for (body, offset) in [
        (&b"{\"a\":1,}"[..], 7),
        (b"{\"a\xff\":1}", 3),
        (b"{\"a\xe2\x82x\":1}", 5),
        (b"{\"a\nb\":1}", 3),
        (b"{\"model\":\"\\ud83dx\"}", 16),
        (b"{\"a\":\"\\q\"}", 7),
        (b"{\"a\":1", 6),
        (b"{\"model\":\"a\",\"model\":\"b\"}", 20),
        (b"{\"model\":7}", 9),
        (b"", 0),
    ] {
        let whole = scan(body).unwrap_err();
        assert_eq!(whole.offset, offset, "{}", String::from_utf8_lossy(body));
        for cut in 0..body.len() {
            assert_eq!(scan_cut(body, &[cut]), Err(whole.clone()), "{} cut at {cut}", String::from_utf8_lossy(body));
        }
    }
}

#[test]
fn allow_lists_have_a_limit() {
    let body = |entries: usize| {
        let list = vec![r#"{"type":"function","name":"f"}"#; entries].join(",");
        format!(r#"{{"model":"m","tool_choice":{{"type":"allowed_tools","tools":[{list}]}}}}"#)
    };
    let view = scan(body(MAX_ALLOWED).as_bytes()).unwrap();
    assert_eq!(view.tool_choice.map(|choice| choice.allowed.len()), Some(MAX_ALLOWED));
    let view = scan(body(MAX_ALLOWED + 1).as_bytes()).unwrap();
    assert_eq!(view.tool_choice.map(|choice| choice.allowed.len()), Some(MAX_ALLOWED));
    assert_eq!(view.unusable, Some("tool_choice"));
}

#[test]
fn a_failed_scanner_ignores_the_rest() {
    let mut scanner = Scanner::new();
    scanner.feed(b"[");
    assert!(scanner.failed());
    scanner.feed(b"{}");
    assert_eq!(scanner.scanned(), 3);
    assert_eq!(scanner.finish().map_err(|error| error.kind), Err(ScanErrorKind::NotAnObject));
}

/// Changes to a text: at a place, delete, insert or overwrite a byte, or repeat a stretch.
fn mutations() -> impl Strategy<Value = Vec<(u8, usize, u8)>> {
    proptest::collection::vec((0..4u8, any::<usize>(), prop_oneof![any::<u8>(), structural()]), 0..4)
}

fn structural() -> impl Strategy<Value = u8> {
    proptest::sample::select(br#"{}[]":,\u0tn "#.to_vec())
}

fn mutate(text: &str, mutations: &[(u8, usize, u8)]) -> Vec<u8> {
    let mut body = text.as_bytes().to_vec();
    for &(what, place, byte) in mutations {
        let at = place % (body.len() + 1);
        match what {
            0 if at < body.len() => drop(body.remove(at)),
            1 => body.insert(at, byte),
            2 if at < body.len() => body[at] = byte,
            _ => {
                let end = (at + usize::from(byte)).min(body.len());
                let stretch = body[at..end].to_vec();
                body.splice(at..at, stretch);
            }
        }
    }
    body
}

#[test]
fn a_key_or_type_that_folds_to_one_we_read_is_refused() {
    for (body, place) in [
        (r#"{"Tools": []}"#, "Tools"),
        (r#"{"tool\u017f": []}"#, "tool\u{17f}"),
        (r#"{"\u212aey": 1, "TOOL_CHOICE": 1}"#, "TOOL_CHOICE"),
        (r#"{"tools": [{"Type": "code_execution"}]}"#, "tools[0].Type"),
        (r#"{"tools": [{}, {"type": " Code_Execution_20250825"}]}"#, "tools[1].type"),
    ] {
        match scan(body.as_bytes()).map_err(|error| error.kind) {
            Err(ScanErrorKind::Misspelled { param, .. }) => assert_eq!(param, place),
            other => panic!("{body}: {other:?}"),
        }
    }
    for body in
        [r#"{"metadata": {"Tools": 1}, "tool": 1}"#, r#"{"tools": [{"type": "Custom", "input_schema": {"Type": 1}}]}"#]
    {
        assert!(scan(body.as_bytes()).is_ok(), "{body}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_dom(request in generated::request(), style in any::<u8>()) {
        let text = request.text(style);
        let dom: Value = serde_json::from_str(&text).unwrap();
        let seen = scan(text.as_bytes());
        let seen = seen.ok().map(reference::comparable);
        prop_assert_eq!(seen, reference::view(&dom).map(reference::comparable), "{}", text);
    }

    #[test]
    fn cuts_change_nothing(
        request in generated::request(),
        style in any::<u8>(),
        changes in mutations(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
        twice in any::<bool>(),
    ) {
        let request = if twice { request.with_a_key_twice() } else { request };
        let body = mutate(&request.text(style), &changes);
        prop_assert_eq!(scan_cut(&body, &cuts), scan(&body));
    }

    #[test]
    fn survives_any_bytes(body in proptest::collection::vec(any::<u8>(), 0..200), cut in any::<usize>()) {
        prop_assert_eq!(scan_cut(&body, &[cut]), scan(&body));
    }

    #[test]
    fn survives_any_structure(body in proptest::collection::vec(structural(), 0..60), cut in any::<usize>()) {
        let seen = scan(&body);
        prop_assert_eq!(scan_cut(&body, &[cut]), seen.clone());
        // Whatever a strict parser takes as an object, we do, but for keys that stand twice.
        if serde_json::from_slice::<Value>(&body).is_ok_and(|dom| dom.is_object()) {
            prop_assert!(seen.is_ok(), "{}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn a_declaration_a_dom_sees_is_never_overlooked(
        request in generated::request(),
        style in any::<u8>(),
        changes in mutations(),
    ) {
        let body = mutate(&request.text(style), &changes);
        let Ok(dom) = serde_json::from_slice::<Value>(&body) else { return Ok(()) };
        let Ok(view) = scan(&body) else { return Ok(()) };
        if let Some(expected) = reference::view(&dom) {
            prop_assert_eq!(&view.model, &expected.model);
            prop_assert_eq!(&view.declarations, &expected.declarations);
            prop_assert_eq!(view.needs_sidecar(), expected.needs_sidecar());
        }
        if reference::declares_code(&dom) {
            prop_assert!(!crate::decide::tests::pinned_here(&view).is_provider(), "{}", String::from_utf8_lossy(&body));
        }
    }
}
