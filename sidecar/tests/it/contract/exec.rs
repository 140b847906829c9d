//! Calls: their results, block by block, and their limits.

use std::time::Duration;

use serde_json::{Value, json};

use super::{assert_refused, python, serve, serve_with};
use crate::sandbox::life::daemon;
use crate::sandbox::{runs, unique_sleep, until};

fn bash(command: &str) -> Value {
    json!({"tool": "bash_code_execution", "input": {"command": command}})
}

fn edit(input: Value) -> Value {
    json!({"tool": "text_editor_code_execution", "input": input})
}

#[tokio::test]
async fn each_tool_answers_in_its_own_block() {
    let served = serve().await;
    let session = served.session().await;
    let editor = "text_editor_code_execution_tool_result";
    let calls = [
        (
            python("print('out')\nimport sys\nn = sys.stderr.write('err')"),
            "code_execution_tool_result",
            "out\n",
            "err",
            0,
        ),
        (bash("echo out; echo err >&2; exit 3"), "bash_code_execution_tool_result", "out\n", "err\n", 3),
        (
            edit(json!({"command": "create", "path": "a.txt", "file_text": "one\ntwo\n"})),
            editor,
            "`a.txt` was created.\n",
            "",
            0,
        ),
        (edit(json!({"command": "view", "path": "a.txt"})), editor, "one\ntwo\n", "", 0),
        (edit(json!({"command": "view", "path": "a.txt", "view_range": [2, -1]})), editor, "two\n", "", 0),
        (
            edit(json!({"command": "str_replace", "path": "a.txt", "old_str": "two", "new_str": "2"})),
            editor,
            "`a.txt` was edited at line 2.\n",
            "",
            0,
        ),
        (
            edit(json!({"command": "insert", "path": "a.txt", "insert_line": 1, "new_str": "1.5"})),
            editor,
            "`a.txt` was edited at line 2.\n",
            "",
            0,
        ),
        (bash("cat a.txt"), "bash_code_execution_tool_result", "one\n1.5\n2\n", "", 0),
        (
            edit(json!({"command": "undo_edit", "path": "a.txt"})),
            editor,
            "The last edit of `a.txt`, at line 2, was undone.\n",
            "",
            0,
        ),
        (bash("cat a.txt"), "bash_code_execution_tool_result", "one\n2\n", "", 0),
        (edit(json!({"command": "view", "path": "none"})), editor, "", "There is no file or directory `none`.\n", 1),
    ];
    for (mut call, kind, stdout, stderr, return_code) in calls {
        call["tool_use_id"] = json!("srvtoolu_1");
        call["new"] = json!({"deep": [[]]});
        let answer = served.post(&format!("{session}/exec"), &call).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{call}");
        let body = answer.json();
        let block = json!({"type": kind, "tool_use_id": "srvtoolu_1", "content": {
            "type": "code_execution_result", "stdout": stdout, "stderr": stderr, "return_code": return_code, "content": []}});
        assert_eq!((&body["tool_use_id"], &body["result_block"]), (&json!("srvtoolu_1"), &block), "{call}");
        assert!(body["execution_time_ms"].is_u64(), "{body}");
        assert!(body["isolation"].as_str().unwrap().starts_with("namespaces"), "{body}");
        assert_eq!(body["timeout_seconds"], json!(60));
    }
}

#[tokio::test]
async fn a_program_that_fails_is_a_success_and_its_session_goes_on() {
    let served = serve().await;
    let session = served.session().await;
    served.output(&session, "x = 41").await;
    let failed = served.run(&session, "x += 1\n1/0").await;
    assert_eq!(failed.status, 200);
    let content = &failed.json()["result_block"]["content"];
    assert_eq!((&content["type"], &content["return_code"]), (&json!("code_execution_result"), &json!(1)));
    assert!(content["stderr"].as_str().unwrap().contains("ZeroDivisionError"), "{content}");
    assert_eq!(served.output(&session, "x").await, "42\n");
    let silent = served.run(&session, "pass").await.json();
    let nothing = json!({"type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []});
    assert_eq!(silent["result_block"]["content"], nothing);
    // A call without an id gets one.
    let id = silent["tool_use_id"].as_str().unwrap();
    assert!(id.starts_with("otari_srvtoolu_"), "{id}");
    assert_eq!(silent["result_block"]["tool_use_id"], json!(id));
}

#[tokio::test]
async fn figures_are_named_and_can_be_asked_for_by_their_name() {
    let served = serve().await;
    let session = served.session().await;
    // As the real one does what we ask it for.
    let code = "import sys, types
pyplot = types.ModuleType('matplotlib.pyplot')
pyplot.get_fignums = lambda: [1] if pyplot.drawn else []
pyplot.close = lambda which: setattr(pyplot, 'drawn', False)
class Figure:
    def savefig(self, path, **how): n = open(path, 'w').write('drawn')
pyplot.figure = lambda number: Figure()
pyplot.drawn = False
sys.modules['matplotlib.pyplot'] = pyplot";
    served.output(&session, code).await;
    let answer = served.run(&session, "pyplot.drawn = True").await.json();
    let files = answer["result_block"]["content"]["content"].as_array().unwrap();
    assert_eq!(
        files,
        &[json!({"type": "code_execution_output", "file_id": "figure_1.png", "filename": "figure_1.png"})]
    );
    let file = served.get(&format!("{session}/files?path=figure_1.png")).await;
    assert_eq!((file.status, &file.body[..], file.header("content-type")), (200, &b"drawn"[..], Some("image/png")));
}

#[tokio::test]
async fn a_budget_is_cut_to_what_the_server_grants_and_that_is_told() {
    let served = serve_with("exec_timeout_s: 2", "").await;
    let session = served.session().await;
    for (asked, granted) in [(json!(1), 1), (json!(3), 2), (json!(86_400), 2), (json!(null), 2)] {
        let mut call = python("1");
        call["timeout_seconds"] = asked;
        assert_eq!(served.post(&format!("{session}/exec"), &call).await.json()["timeout_seconds"], json!(granted));
    }
    let mut call = python("x = 5\nimport time\nprint('before', flush=True)\ntime.sleep(60)");
    call["timeout_seconds"] = json!(1);
    let content = served.post(&format!("{session}/exec"), &call).await.json()["result_block"]["content"].clone();
    assert_eq!((&content["return_code"], &content["stdout"]), (&json!(124), &json!("before\n")));
    assert!(content["stderr"].as_str().unwrap().contains("time limit of 1 s"), "{content}");
    assert_eq!(served.output(&session, "x").await, "5\n");
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_before_anything_runs() {
    let served = serve_with("max_code_bytes: 1024", "").await;
    let session = served.session().await;
    let exec = format!("{session}/exec");
    let refused = |answer| assert_refused(&answer, 422, "");
    assert_refused(&served.post(&exec, &json!({"tool": "canary", "input": {}})).await, 400, "`tool` must be");
    refused(served.post(&exec, &json!({"tool": "code_execution"})).await);
    refused(served.post(&exec, &json!({"tool": "code_execution", "input": {"code": ""}})).await);
    refused(served.post(&exec, &edit(json!({"command": "create", "path": "a"}))).await);
    refused(served.call("POST", &exec).body("canary").send().await);
    refused(served.call("POST", &exec).send().await);
    let mut impatient = python("canary = 1");
    impatient["timeout_seconds"] = json!(0);
    refused(served.post(&exec, &impatient).await);
    assert_refused(&served.run(&session, &"#".repeat(1025)).await, 422, "the code has 1025 bytes, the limit is 1024");
    // All of it escaped, it still fits.
    assert_eq!(served.output(&session, &format!("{}1", "\u{c}".repeat(1023))).await, "1\n");
    assert_refused(&served.run(&session, &"#".repeat(200_000)).await, 413, "longer than");
    assert_refused(&served.call("POST", &exec).body("#".repeat(200_000)).chunked().send().await, 413, "longer than");
    assert_refused(&served.run("/sessions/otari_sbx_never", "canary").await, 404, "no such session");
    assert_eq!(served.output(&session, "'canary' in globals()").await, "False\n");
}

#[tokio::test]
async fn output_of_any_kind_arrives_whole() {
    let served = serve().await;
    let session = served.session().await;
    let code = "print('\\x00\\x1b[1m\\u2028 東京 \\U0001f600 \\udcff \"\\\\')\nprint('\\x01' * 500_000)";
    let output = served.output(&session, code).await;
    assert_eq!(output, format!("\0\u{1b}[1m\u{2028} 東京 \u{1f600} \\udcff \"\\\n{}\n", "\u{1}".repeat(500_000)));
}

#[tokio::test]
async fn a_session_that_is_hammered_takes_its_turns_and_refuses_what_is_too_much() {
    let served = serve().await;
    let session = served.session().await;
    served.output(&session, "import time\nlog = []").await;
    let calls = (0..60).map(|number| {
        served.run(&session, Box::leak(format!("time.sleep(0.05); log.append({number})").into_boxed_str()))
    });
    let answers = futures_util::future::join_all(calls).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty() && refused.len() <= 28, "{}", refused.len());
    for answer in refused {
        assert_refused(answer, 503, "32 calls running or waiting");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    let ran = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(served.output(&session, "len(log), len(set(log))").await, format!("({ran}, {ran})\n"));
}

#[tokio::test]
async fn a_caller_that_leaves_takes_its_code_along_and_one_that_waits_leaves_the_others_alone() {
    let served = serve().await;
    let session = served.session().await;
    let seconds = unique_sleep();
    // One that only waits for its turn, and leaves.
    let first = served.run(&session, "import time\ntime.sleep(1)");
    let waits = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(tokio::time::timeout(Duration::from_millis(200), served.run(&session, "x = 1")).await);
    };
    assert_eq!(tokio::join!(first, waits).0.status, 200);
    assert_eq!(served.output(&session, "'x' in globals()").await, "False\n");
    // One whose code runs.
    let code = format!("{}\nwhile True: pass", daemon(&seconds));
    tokio::select! {
        answer = served.run(&session, &code) => panic!("an endless loop ended: {answer:?}"),
        () = until("the daemon runs", || runs(&seconds)) => {}
    }
    until("the daemon is gone", || !runs(&seconds)).await;
    assert_refused(&served.run(&session, "1").await, 404, "no such session");
    until("its files are gone", || std::fs::read_dir(served.sessions()).unwrap().count() == 0).await;
}
