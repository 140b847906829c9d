mod properties;

use decision::problem::ProblemKind;
use proptest::prelude::*;

use super::*;
use crate::wire::event::{CodeFiles, Opened};

fn settings(max_turns: u32) -> Settings {
    let limits = Limits { max_calls_per_turn: 3, ..Limits::default() };
    Settings { functions: functions(), max_turns, max_calls: usize::MAX, limits }
}

/// All three tools, bash under another name.
fn functions() -> Functions {
    let run = decision::decide::Run {
        dialect: decision::decide::Dialect::Native,
        claimed: Vec::new(),
        tools: vec![CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: None,
        image: None,
        container: None,
    };
    Functions::of(&run, ["bash_code_execution"].into_iter())
}

/// One block of a scripted turn.
#[derive(Debug, Clone)]
enum Block {
    Text(String),
    Code(String),
    Bash(String),
    View(String),
    Garbage(String),
    Client(String),
}

#[derive(Debug, Clone)]
struct Turn {
    blocks: Vec<Block>,
    stop: Stop,
}

fn a_block() -> impl Strategy<Value = Block> {
    prop_oneof![
        "[a-z ]{0,12}".prop_map(Block::Text),
        "[a-z\"\\\\\né]{1,12}".prop_map(|code| Block::Code(format!("x{code}"))),
        "[a-z\"\\\\\né]{1,12}".prop_map(|command| Block::Bash(format!("x{command}"))),
        "[a-z/\"]{0,12}".prop_map(Block::View),
        "[a-z{}\":]{0,12}".prop_map(Block::Garbage),
        "[a-z]{1,6}".prop_map(Block::Client),
    ]
}

fn a_turn() -> impl Strategy<Value = Turn> {
    let stop = prop_oneof![4 => Just(Stop::ToolUse), 1 => Just(Stop::EndTurn), 1 => Just(Stop::MaxTokens)];
    (prop::collection::vec(a_block(), 0..6), stop).prop_map(|(blocks, stop)| Turn { blocks, stop })
}

fn events(turn: &Turn, piece: usize) -> Vec<TurnEvent> {
    let mut out = vec![TurnEvent::Opened(Opened::default())];
    for (position, block) in turn.blocks.iter().enumerate() {
        let (kind, text) = match block {
            Block::Text(text) => (BlockKind::Text, text.clone()),
            Block::Code(code) => (call("code_execution", position), serde_json::json!({"code": code}).to_string()),
            Block::Bash(command) => {
                (call("otari_bash_code_execution_1", position), serde_json::json!({"command": command}).to_string())
            }
            Block::View(path) => (
                call("text_editor_code_execution", position),
                serde_json::json!({"command": "view", "path": path, "unknown": path}).to_string(),
            ),
            Block::Garbage(text) => (call("code_execution", position), text.clone()),
            Block::Client(text) => (call("lookup", position), format!("{{\"q\":\"{text}\"}}")),
        };
        let is_text = kind == BlockKind::Text;
        out.push(TurnEvent::start(kind));
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(piece) {
            let piece: String = piece.iter().collect();
            out.push(TurnEvent::delta(if is_text { Delta::Text(piece) } else { Delta::Arguments(piece) }));
        }
        out.push(TurnEvent::stop());
    }
    let usage = Usage { input: 3, output: 5, ..Usage::default() };
    out.push(TurnEvent::Ended(Ended { stop: turn.stop.clone(), usage, raw: None }));
    out
}

fn call(name: &str, position: usize) -> BlockKind {
    BlockKind::Call { id: format!("model_{position}"), name: name.to_owned() }
}

/// Everything a run put out, and how many model calls it took.
struct Run {
    outputs: Vec<Output>,
    turns: u32,
}

/// Plays turns until the loop is over; the last one is repeated for as long as the loop asks.
fn play(turns: &[Turn], max_turns: u32, piece: usize) -> Run {
    play_with(settings(max_turns), turns, piece, 0)
}

/// The calls of a turn end in another order than they were begun in: which, says `order`.
fn play_with(settings: Settings, turns: &[Turn], piece: usize, order: usize) -> Run {
    let max_turns = settings.max_turns;
    let mut machine = ToolLoop::new(settings);
    let mut run = Run { outputs: Vec::new(), turns: 0 };
    let mut started = Vec::new();
    loop {
        let turn = turns.get(run.turns as usize).or(turns.last()).expect("a turn");
        run.turns += 1;
        assert!(run.turns <= max_turns + 1, "more model calls than allowed");
        let mut inputs: std::collections::VecDeque<Input> = events(turn, piece).into_iter().map(Input::Event).collect();
        inputs.push_front(Input::TurnOpened);
        inputs.push_back(Input::TurnClosed);
        let mut again = false;
        let mut ended = Vec::new();
        loop {
            let input = match inputs.pop_front() {
                Some(input) => input,
                None if ended.is_empty() => break,
                None => ended.remove(order % ended.len()),
            };
            let mut outputs = Vec::new();
            machine = machine.handle(input, &mut outputs);
            for output in outputs {
                match &output {
                    Output::StartTool { call, input, id: _ } => {
                        started.push(*call);
                        let stdout = format!("{input:?}");
                        let outcome = CodeOutcome::Ran {
                            stdout,
                            stderr: String::new(),
                            return_code: 0,
                            files: CodeFiles::default(),
                        };
                        ended.push(Input::ToolFinished { call: *call, outcome: outcome.clone() });
                        // A second answer must change nothing.
                        ended.push(Input::ToolFinished { call: *call, outcome });
                    }
                    Output::OpenTurn(_) => again = true,
                    _ => {}
                }
                run.outputs.push(output);
            }
        }
        if !again {
            assert!(machine.is_over(), "stuck");
            return run;
        }
    }
}

fn code(text: &str) -> Block {
    Block::Code(text.to_owned())
}

#[test]
fn each_tool_is_known_by_its_name_and_shown_as_it_is_run() {
    let blocks = vec![code("a"), Block::Bash("ls".to_owned()), Block::View("a.txt".to_owned())];
    let run = play(&[turn(Stop::ToolUse, blocks), turn(Stop::EndTurn, vec![])], 5, 2);
    let starts: Vec<CodeTool> = run
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::Emit(ClientEvent::CodeStart { tool, .. }) => Some(*tool),
            _ => None,
        })
        .collect();
    assert_eq!(starts, [CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor]);
    let shown = |wanted: usize| {
        let deltas = run.outputs.iter().filter_map(|output| match output {
            Output::Emit(ClientEvent::CodeDelta { call, text }) if *call == wanted => Some(text.as_str()),
            _ => None,
        });
        deltas.collect::<Vec<&str>>()
    };
    assert_eq!((shown(0).concat(), shown(1).concat()), ("a".to_owned(), "ls".to_owned()));
    assert_eq!(shown(2), [r#"{"command":"view","path":"a.txt"}"#]);
    let inputs: Vec<&CodeInput> = run
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::StartTool { input, .. } => Some(input),
            _ => None,
        })
        .collect();
    let view = CodeInput::View { path: "a.txt".to_owned(), lines: None };
    assert_eq!(inputs, [&CodeInput::Python("a".to_owned()), &CodeInput::Bash("ls".to_owned()), &view]);
}

fn turn(stop: Stop, blocks: Vec<Block>) -> Turn {
    Turn { blocks, stop }
}

#[test]
fn at_the_cap_pending_calls_run_and_one_call_without_the_tool_closes_the_answer() {
    let run = play(&[turn(Stop::ToolUse, vec![code("a")])], 2, 100);
    let closing: Vec<bool> = run
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::OpenTurn(next) => Some(next.closing),
            _ => None,
        })
        .collect();
    assert_eq!(closing, [false, true]);
    let ran = run.outputs.iter().filter(|output| matches!(output, Output::StartTool { .. })).count();
    assert_eq!(ran, 2, "the closing answer's call is not run");
    assert!(matches!(run.outputs.last(), Some(Output::Finish(ended)) if ended.stop == Stop::EndTurn));
}

#[test]
fn in_a_mixed_turn_our_calls_run_and_the_client_gets_its_own() {
    let run = play(&[turn(Stop::ToolUse, vec![code("a"), Block::Client("b".to_owned())])], 5, 100);
    assert_eq!(run.turns, 1);
    assert!(run.outputs.iter().any(|output| matches!(output, Output::StartTool { .. })));
    assert!(matches!(run.outputs.last(), Some(Output::Finish(ended)) if ended.stop == Stop::ToolUse));
}

#[test]
fn a_call_cut_by_the_token_limit_is_answered_and_not_run() {
    let run = play(&[turn(Stop::MaxTokens, vec![Block::Garbage("{\"code\": \"pri".to_owned())])], 5, 100);
    assert!(!run.outputs.iter().any(|output| matches!(output, Output::StartTool { .. })));
    let is_refused = |output: &Output| {
        matches!(
            output,
            Output::Emit(ClientEvent::CodeResult {
                call: 0,
                outcome: CodeOutcome::Failed(CodeFailure::InvalidInput(_)),
            })
        )
    };
    assert!(run.outputs.iter().any(is_refused));
    assert!(matches!(run.outputs.last(), Some(Output::Finish(ended)) if ended.stop == Stop::MaxTokens));
}

#[test]
fn a_complete_call_in_a_turn_that_does_not_wait_for_it_is_answered_and_not_run() {
    for stop in [Stop::MaxTokens, Stop::EndTurn] {
        let run = play(&[turn(stop.clone(), vec![code("a")])], 5, 100);
        assert_eq!(run.turns, 1, "{stop:?}");
        assert!(!run.outputs.iter().any(|output| matches!(output, Output::StartTool { .. })), "{stop:?}");
        let outcome = CodeOutcome::Failed(CodeFailure::Unavailable);
        let results: Vec<&Output> = run
            .outputs
            .iter()
            .filter(|output| matches!(output, Output::Emit(ClientEvent::CodeResult { .. })))
            .collect();
        assert_eq!(results, [&Output::Emit(ClientEvent::CodeResult { call: 0, outcome })]);
        assert!(matches!(run.outputs.last(), Some(Output::Finish(ended)) if ended.stop == stop));
    }
}

#[test]
fn calls_over_the_limit_are_refused_one_by_one() {
    let four = vec![code("a"), code("b"), code("c"), code("d")];
    let run = play(&[turn(Stop::ToolUse, four), turn(Stop::EndTurn, vec![])], 5, 100);
    let failed = CodeOutcome::Failed(CodeFailure::TooMany);
    assert!(run.outputs.contains(&Output::Emit(ClientEvent::CodeResult { call: 3, outcome: failed })));
    let ran = run.outputs.iter().filter(|output| matches!(output, Output::StartTool { .. })).count();
    assert_eq!(ran, 3);
}

#[test]
fn the_clients_limit_of_calls_holds_over_all_turns_and_closes_the_answer() {
    let two = turn(Stop::ToolUse, vec![code("a"), code("b")]);
    let run = play_with(Settings { max_calls: 3, ..settings(9) }, &[two], 100, 0);
    let ran = run.outputs.iter().filter(|output| matches!(output, Output::StartTool { .. })).count();
    assert_eq!((ran, run.turns), (3, 3));
    let failed = CodeOutcome::Failed(CodeFailure::TooMany);
    assert!(run.outputs.contains(&Output::Emit(ClientEvent::CodeResult { call: 3, outcome: failed })));
    assert!(matches!(run.outputs.last(), Some(Output::Finish(_))));
}

#[test]
fn a_connection_that_fails_after_the_models_last_word_stops_no_code() {
    let mut outputs = Vec::new();
    let mut machine = ToolLoop::new(settings(3)).handle(Input::TurnOpened, &mut outputs);
    for event in events(&turn(Stop::ToolUse, vec![code("a")]), 3) {
        machine = machine.handle(Input::Event(event), &mut outputs);
    }
    outputs.clear();
    machine = machine.handle(Input::TurnFailed(cut_off()), &mut outputs);
    assert!(outputs.is_empty() && !machine.is_over(), "{outputs:?}");
    let outcome =
        CodeOutcome::Ran { stdout: String::new(), stderr: String::new(), return_code: 0, files: CodeFiles::default() };
    machine = machine.handle(Input::ToolFinished { call: 0, outcome }, &mut outputs);
    assert!(matches!(outputs.last(), Some(Output::OpenTurn(_))), "{outputs:?}");
    // Before its last word it is the end.
    outputs.clear();
    machine = machine.handle(Input::TurnFailed(cut_off()), &mut outputs);
    assert!(matches!(outputs.last(), Some(Output::Fail(_))) && machine.is_over(), "{outputs:?}");
}

#[test]
fn a_turn_that_waits_for_a_call_that_it_never_made_is_an_end() {
    let ended = |blocks: Vec<Block>| match play(&[turn(Stop::ToolUse, blocks)], 5, 100).outputs.pop() {
        Some(Output::Finish(ended)) => ended.stop,
        other => panic!("{other:?}"),
    };
    assert_eq!(ended(vec![Block::Text("a".to_owned())]), Stop::EndTurn);
    assert_eq!(ended(vec![Block::Client("a".to_owned())]), Stop::ToolUse);
    // What nobody here knows may be a call.
    let mut outputs = Vec::new();
    let mut machine = ToolLoop::new(settings(3)).handle(Input::TurnOpened, &mut outputs);
    let unknown = [TurnEvent::start(BlockKind::Other), TurnEvent::stop()];
    for event in unknown.into_iter().chain(events(&turn(Stop::ToolUse, Vec::new()), 1).into_iter().skip(1)) {
        machine = machine.handle(Input::Event(event), &mut outputs);
    }
    assert!(machine.is_over());
    assert!(matches!(outputs.last(), Some(Output::Finish(ended)) if ended.stop == Stop::ToolUse), "{outputs:?}");
}

#[test]
fn an_answer_that_breaks_off_is_the_upstreams_failure() {
    let mut outputs = Vec::new();
    let machine = ToolLoop::new(settings(3)).handle(Input::TurnOpened, &mut outputs);
    let machine = machine.handle(Input::TurnClosed, &mut outputs);
    assert!(machine.is_over());
    assert!(matches!(outputs.as_slice(), [Output::Fail(problem)] if problem.kind == ProblemKind::UpstreamFailed));
}
