use super::*;
use crate::wire::conversation::Call;
use crate::wire::model_request::CallResult;
use crate::wire::past::Place;

fn memory(limits: MemoryLimits) -> Memory {
    Memory::new(limits)
}

fn place(n: u8) -> Place {
    Place::of_digest([n; 32])
}

/// A run whose result is so long.
fn run(bytes: usize) -> PastRun {
    let call = Call { id: "call_1".to_owned(), name: "code_execution".to_owned(), arguments: "{}".to_owned() };
    PastRun { result: CallResult { call_id: call.id.clone(), text: "x".repeat(bytes), is_error: false }, call }
}

fn keep(memory: &Memory, workspace: &str, n: u8, bytes: usize) {
    memory.keep(workspace, place(n), vec![format!("id{n}")], vec![run(bytes)]);
}

fn knows(memory: &Memory, workspace: &str, n: u8) -> bool {
    memory.of(workspace).find(&HashSet::from([format!("id{n}")]), &place(n)).is_some()
}

/// What of the answers 0 to 9 is known.
fn known(memory: &Memory, workspace: &str) -> Vec<u8> {
    (0..10).filter(|n| knows(memory, workspace, *n)).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_found_by_another_workspace_at_another_place_or_by_another_id() {
    let memory = memory(MemoryLimits::default());
    keep(&memory, "a", 1, 1);
    assert!(knows(&memory, "a", 1));
    assert!(!knows(&memory, "b", 1));
    assert!(memory.of("a").find(&HashSet::from(["id1".to_owned()]), &place(2)).is_none());
    assert!(memory.of("a").find(&HashSet::from(["id2".to_owned()]), &place(1)).is_none());
}

#[tokio::test(start_paused = true)]
async fn ids_count_for_what_they_take_however_short_they_are() {
    let memory = memory(MemoryLimits { max_workspace_bytes: 20_000, ..MemoryLimits::default() });
    memory.keep("a", place(1), vec![String::new(); 1000], vec![run(1)]);
    assert!(memory.of("a").find(&HashSet::from([String::new()]), &place(1)).is_none());
    memory.keep("a", place(1), vec![String::new(); 100], vec![run(1)]);
    assert!(memory.of("a").find(&HashSet::from([String::new()]), &place(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_stays_and_what_is_not_goes_with_its_age() {
    let memory = memory(MemoryLimits { max_age: Duration::from_secs(80), ..MemoryLimits::default() });
    keep(&memory, "a", 1, 1);
    keep(&memory, "a", 2, 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(knows(&memory, "a", 1));
    tokio::time::advance(Duration::from_secs(21)).await;
    assert_eq!(known(&memory, "a"), [1]);
    assert_eq!(memory.drawers.lock().unwrap().answers, 1);
    tokio::time::advance(Duration::from_secs(90)).await;
    assert!(!knows(&memory, "somebody", 1));
    let drawers = memory.drawers.lock().unwrap();
    assert_eq!((drawers.answers, drawers.bytes, drawers.by_workspace.len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_workspace_over_its_share_loses_its_own_oldest() {
    let few = MemoryLimits { max_workspace_answers: 2, ..MemoryLimits::default() };
    let small = MemoryLimits { max_workspace_bytes: 2500, ..MemoryLimits::default() };
    for limits in [few, small] {
        let memory = memory(limits);
        keep(&memory, "quiet", 0, 900);
        for n in 1..6 {
            keep(&memory, "loud", n, 900);
        }
        assert_eq!(known(&memory, "loud"), [4, 5], "{limits:?}");
        assert_eq!(known(&memory, "quiet"), [0], "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_is_full_whoever_has_most_gives_way() {
    let few = MemoryLimits { max_answers: 4, ..MemoryLimits::default() };
    let small = MemoryLimits { max_bytes: 4900, ..MemoryLimits::default() };
    for limits in [few, small] {
        let memory = memory(limits);
        keep(&memory, "quiet", 0, 900);
        for n in 1..8 {
            keep(&memory, "loud", n, 900);
        }
        keep(&memory, "late", 9, 900);
        assert_eq!(known(&memory, "quiet"), [0], "{limits:?}");
        assert_eq!(known(&memory, "late"), [9], "{limits:?}");
        assert_eq!(known(&memory, "loud"), [6, 7], "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_larger_than_a_share_is_not_kept_and_pushes_nothing_out() {
    let memory = memory(MemoryLimits { max_workspace_bytes: 2000, ..MemoryLimits::default() });
    keep(&memory, "a", 1, 100);
    keep(&memory, "a", 2, 2001);
    assert_eq!(known(&memory, "a"), [1]);
}
