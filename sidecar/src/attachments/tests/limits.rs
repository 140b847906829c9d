//! What is held of files, and what is refused as too much.

use super::*;

#[tokio::test]
async fn a_body_that_names_nothing_of_ours_is_the_one_that_came() {
    let fixture = fixture().await;
    let url = "http://127.0.0.1:1/file-otr0123456789abcdef0123456789abcdef.png";
    for (wire, body) in [
        (
            ApiFormat::Messages,
            messages(json!([{"type": "image", "source": {"type": "url", "url": url}}, upload("file_011")])),
        ),
        (ApiFormat::ChatCompletions, messages(json!([{"type": "image_url", "image_url": {"url": url}}]))),
        (
            ApiFormat::Responses,
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_url": url}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}]}),
        ),
    ] {
        let came = Bytes::from(body.to_string());
        let asked = Asked {
            owner: &ann(),
            wire,
            body: came.clone(),
            recipient: Recipient::Run,
            workspace: None,
            inputs: ALL,
            declares_code: true,
        };
        let resolved = fixture.attachments.resolve(asked, &mut |_| panic!("nothing is held")).await.unwrap();
        assert_eq!(resolved.body.as_ptr(), came.as_ptr());
        assert!(resolved.seeds.is_empty() && resolved.hint.is_none());
    }
}

#[tokio::test]
async fn what_is_too_much_for_a_request_is_refused_by_its_limit_and_in_a_run_lies_in_the_workspace() {
    let fixture = fixture().await;
    let large = fixture.store("large.png", &[PNG, &vec![7; 1 << 20]].concat()).await;
    let half = fixture.store("half.png", &[PNG, &vec![7; 1 << 19]].concat()).await;
    let fits = fixture.store("fits.png", &[PNG, &vec![7; (1 << 20) - PNG.len()]].concat()).await;
    let long = fixture.store("long.txt", "é".repeat(1001).as_bytes()).await;
    let longer = fixture.store("longer.txt", "e".repeat(4001).as_bytes()).await;
    for (ids, limit, kept) in [
        (vec![&large], "files.inline_max_bytes: 1048576", 0),
        (vec![&fits, &half], "files.inline_max_request_bytes: 1572864", 1),
        (vec![&long], "files.text_max_chars: 1000", 0),
        (vec![&longer], "files.text_max_chars: 1000", 0),
    ] {
        let body = messages(ids.iter().map(|id| document(id)).collect());
        let problem = fixture.resolve(ApiFormat::Messages, &body, Recipient::Provider, ALL).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::PayloadTooLarge);
        assert!(problem.message.contains(limit), "{problem:?}");
        let (sent, names, _) = fixture.run(ApiFormat::Messages, body).await;
        assert_eq!(names.len(), ids.len(), "all of them are staged");
        let blocks = content(&sent).as_array().unwrap();
        assert_eq!(blocks.iter().filter(|block| block["type"] == "image").count(), kept, "{limit}");
        assert_eq!(blocks.len(), ids.len() + kept);
    }
    let exact = fixture.store("exact.txt", "é".repeat(1000).as_bytes()).await;
    fixture.relayed(ApiFormat::Messages, messages(json!([document(&exact), document(&fits)])), ALL).await;
}

#[tokio::test]
async fn bytes_arrive_whole_and_no_more_is_held_than_there_is_room_for() {
    let fixture = fixture().await;
    let bytes: Vec<u8> =
        PNG.iter().copied().chain((0..300_000_u32).map(|at| u8::try_from(at % 253).unwrap())).collect();
    let id = fixture.store("a.png", &bytes).await;
    let body = Bytes::from(messages(json!([document(&id), document(&id)])).to_string());
    let owner = ann();
    let asked = || Asked {
        owner: &owner,
        wire: ApiFormat::Messages,
        body: body.clone(),
        recipient: Recipient::Provider,
        workspace: None,
        inputs: ALL,
        declares_code: false,
    };
    let mut most = 0;
    let mut room = |held| {
        most = most.max(held);
        Ok(())
    };
    let resolved = fixture.attachments.resolve(asked(), &mut room).await.unwrap();
    let sent: Value = serde_json::from_slice(&resolved.body).unwrap();
    for block in content(&sent).as_array().unwrap() {
        let data = block["source"]["data"].as_str().unwrap();
        assert!(STANDARD.decode(data).unwrap() == bytes, "the same bytes");
    }
    assert_eq!(most, (body.len() + resolved.body.len()) as u64, "all that was held was asked for");
    let mut room = |held| if held < most { Ok(()) } else { Err(Problem::bodies_full()) };
    let full = fixture.attachments.resolve(asked(), &mut room).await;
    assert_eq!(*full.unwrap_err().problem, Problem::bodies_full());
}

#[tokio::test]
async fn a_file_whose_bytes_are_gone_fails_the_request_and_tells_nothing_of_the_store() {
    let fixture = fixture().await;
    let id = fixture.store("a.png", PNG).await;
    let store = fixture.folder.path().join("files");
    std::fs::remove_dir_all(&store).unwrap();
    let problem =
        fixture.resolve(ApiFormat::Messages, &messages(json!([document(&id)])), Recipient::Provider, ALL).await;
    let problem = problem.unwrap_err();
    assert_eq!(problem.kind, ProblemKind::Internal);
    assert!(!problem.message.contains('/'), "{problem:?}");
}
