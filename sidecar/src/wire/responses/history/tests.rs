use super::*;

fn folded(input: &Value) -> Result<(Value, BTreeSet<String>), Problem> {
    let text = input.to_string();
    let raw: &RawValue = serde_json::from_str(&text).unwrap();
    fold(raw, Foreign::Stays).map(|folded| (serde_json::from_str(&folded.input).unwrap(), folded.dropped))
}

fn text_of(input: &Value, position: usize) -> String {
    folded(input).unwrap().0[position]["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_code_call_becomes_a_message_in_its_place() {
    let item = json!({"type": "code_interpreter_call", "id": "otari_ci_1", "status": "completed", "code": "print(2)",
        "container_id": "otari_cntr_1", "outputs": [{"type": "logs", "logs": "2\n"}]});
    let input = json!([{"role": "user", "content": "a"}, item, {"role": "user", "content": "b"}]);
    let (list, dropped) = folded(&input).unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(3));
    assert_eq!((&list[1]["type"], &list[1]["role"]), (&json!("message"), &json!("assistant")));
    assert!(dropped.is_empty());
    let text = text_of(&input, 1);
    assert!(text.contains("print(2)") && text.contains("logs:\n2"), "{text}");
    assert!(!text.contains("status"), "{text}");
}

#[test]
fn a_failed_one_says_so_and_missing_members_are_no_matter() {
    for item in [
        json!({"type": "code_interpreter_call", "id": "otari_ci_1", "status": "failed", "code": "1/0"}),
        json!({"type": "code_interpreter_call", "id": "otari_ci_1", "status": "failed", "code": null, "outputs": null}),
    ] {
        let text = text_of(&json!([item]), 0);
        assert!(text.ends_with("status: failed"), "{text}");
    }
    assert_eq!(
        text_of(&json!([{"type": "code_interpreter_call", "id": "otari_ci_1"}]), 0),
        "I ran code in the sandbox."
    );
}

#[test]
fn others_keep_their_bytes() {
    let text =
        r#"[ {"type":"code_interpreter_call","id":"ci_1", "x" : 1.0}, {"role":"user","content":"otari_ci_ ?"} ]"#;
    let raw: &RawValue = serde_json::from_str(text).unwrap();
    let folded = fold(raw, Foreign::Stays).unwrap().input;
    assert!(folded.contains(r#"{"type":"code_interpreter_call","id":"ci_1", "x" : 1.0}"#), "{folded}");
    assert!(folded.contains(r#"{"role":"user","content":"otari_ci_ ?"}"#), "{folded}");
    let untouched: &RawValue = serde_json::from_str(r#"[ {"role":"user"} ]"#).unwrap();
    assert!(matches!(fold(untouched, Foreign::Stays).unwrap().input, Cow::Borrowed(_)));
}

#[test]
fn items_of_ours_leave_their_ids_behind() {
    let message = json!({"type": "message", "id": format!("{}1", ids::MESSAGE), "role": "assistant", "content": []});
    let thought = json!({"type": "reasoning", "id": format!("{}1", ids::REASONING), "summary": []});
    let call = json!({"type": "function_call", "id": format!("{}1", ids::FUNCTION_CALL), "call_id": "c", "name": "f"});
    let (list, _) = folded(&json!([message, thought, call])).unwrap();
    let expected = json!([
        {"type": "message", "role": "assistant", "content": []},
        {"type": "function_call", "call_id": "c", "name": "f"},
    ]);
    assert_eq!(list, expected);
}

#[test]
fn a_providers_items_in_an_answer_of_ours_are_untied_and_others_stay() {
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"});
    let code = json!({"type": "code_interpreter_call", "id": "otari_ci_1", "code": "1"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "1"});
    let untied = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let (list, _) = folded(&json!([thought, call, output, thought, code, call, output, thought, call])).unwrap();
    let list = list.as_array().unwrap();
    assert_eq!(list[..3], [thought.clone(), call.clone(), output.clone()]);
    assert_eq!(list[3]["type"], "message");
    assert_eq!(list[4..], [untied, output, thought, call]);
}

#[test]
fn a_reference_to_code_goes_by_name_and_one_to_words_is_refused() {
    for reference in [json!({"id": "otari_ci_1", "type": "item_reference"}), json!({"id": "otari_ci_1", "type": null})]
    {
        let (list, dropped) = folded(&json!([reference])).unwrap();
        assert_eq!((list, dropped), (json!([]), BTreeSet::from(["input[0]".to_owned()])));
    }
    let problem = folded(&json!([{"id": format!("{}1", ids::MESSAGE)}])).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some("input[0]"));
    assert!(problem.message.contains("`store`"), "{}", problem.message);
}

#[test]
fn files_that_code_wrote_are_named_again_and_no_provider_sees_a_citation_of_ours() {
    let outputs = json!([
        {"type": "logs", "logs": "2"}, {"type": "file", "filename": "out/a.csv", "file_id": "file-otr1"},
        {"type": "image", "url": "data:image/png;base64,UE5H", "file_id": "file-otr2"},
        {"type": "image", "url": "data:image/png;base64,UE5H"},
    ]);
    let item = json!({"type": "code_interpreter_call", "id": "otari_ci_1", "code": "2", "outputs": outputs});
    let text = text_of(&json!([item]), 0);
    assert!(text.ends_with("file: out/a.csv (file_id: file-otr1)\nfile: an image (file_id: file-otr2)"), "{text}");
    let citation = |id: &str| {
        json!({"type": "container_file_citation", "container_id": "otari_cntr_1", "file_id": id, "filename": "a.csv",
            "start_index": 0, "end_index": 0})
    };
    let other = json!({"type": "url_citation", "url": "https://example.com"});
    let message = |text: &str, annotations: Value| {
        let part = json!({"type": "output_text", "text": text, "annotations": annotations, "logprobs": []});
        json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [part]})
    };
    // A provider's own message, alone: its id stays.
    let cited = message("Done.", json!([citation("cfile_otr1"), other, citation("cfile_otr2"), citation("cfile_9")]));
    let (list, dropped) = folded(&json!([cited])).unwrap();
    let expected = message(
        "Done.\nfile: a.csv (file_id: file-otr1)\nfile: a.csv (file_id: file-otr2)",
        json!([other, citation("cfile_9")]),
    );
    assert_eq!((&list[0], dropped.len()), (&expected, 0));
    let told = message("It is file-otr1.", json!([citation("cfile_otr1")]));
    assert_eq!(folded(&json!([told])).unwrap().0[0], message("It is file-otr1.", json!([])));
    let foreign = message("cfile_otr", json!([other]));
    assert_eq!(folded(&json!([foreign])).unwrap().0[0], foreign);
}
