//! The decision table, row by row over HTTP, on the Messages wire: who ran the code, or who refused and how.

use harness::stack::{Setup, Stack};
use serde_json::{Value, json};

use crate::pins::{in_force, put};
use crate::support::{DATED, OWN, ask, block_types, question, ran_here, refused, seen, start, tag, untouched};

/// A model whose provider runs dated keywords itself.
const NATIVE: &str = "claude--";
/// A model that cannot run code, on the Messages wire.
const FOREIGN: &str = "messages--";

/// What a row of the table says.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// The provider got the request as it was.
    Provider,
    /// The gateway ran the code and showed native blocks.
    Here,
    /// The gateway ran the code and showed the text alone.
    HerePlain,
    /// A refusal; no model was asked.
    Refused(u16, &'static str),
}
use Outcome::{Here, HerePlain, Provider, Refused};

const INVALID: Outcome = Refused(400, "invalid_request_error");
const FORBIDDEN: Outcome = Refused(403, "permission_error");

/// Number in the table, declarations, kind of model, header, outcome.
type Row = (u32, &'static [&'static str], &'static str, Option<&'static str>, Outcome);

async fn check(stack: &Stack, rows: &[Row]) {
    for row in rows {
        let (_, tools, model, header, outcome) = *row;
        // Without a code tool the model can only talk; as the provider's own it plays the provider's blocks.
        let scenario = match outcome {
            Provider | Refused(..) if tools.is_empty() => "text",
            Provider => "native",
            Here | HerePlain | Refused(..) => "code-once",
        };
        checked(stack, row, &question(&format!("{model}{scenario}"), &tag(), tools), header, outcome).await;
    }
}

async fn checked(stack: &Stack, row: &impl std::fmt::Debug, body: &Value, header: Option<&str>, outcome: Outcome) {
    let mut call = ask(body);
    if let Some(word) = header {
        call = call.header("x-otari-code-execution", word);
    }
    let answer = stack.send(call).await;
    let tag = body["messages"][0]["content"].as_str().unwrap().rsplit_once(' ').unwrap().1;
    let reached = seen(stack, tag).await;
    let context = format!("{row:?}: {} {}", answer.status, answer.text());
    match outcome {
        Provider => {
            assert_eq!((answer.status, reached.len()), (200, 1), "{context}");
            untouched(&reached[0], "/v1/messages", body.to_string().as_bytes());
        }
        Here => assert!(ran_here(&answer.json()) && reached.len() == 2, "{context}"),
        HerePlain => {
            assert_eq!(block_types(&answer.json()), ["text", "text"], "{context}");
            assert_eq!(reached.len(), 2, "{context}");
        }
        Refused(status, kind) => {
            assert_eq!((answer.status, reached.len()), (status, 0), "{context}");
            refused(&answer, status, kind);
        }
    }
}

#[tokio::test]
async fn with_a_sandbox_and_the_default_auto() {
    let stack = start(Setup::default()).await;
    check(
        &stack,
        &[
            (1, &[], NATIVE, None, Provider),
            (1, &[], FOREIGN, Some("otari"), Provider),
            (2, &[], NATIVE, Some("maybe"), INVALID),
            (3, &[OWN], NATIVE, None, HerePlain),
            (3, &[OWN], FOREIGN, Some("provider"), HerePlain),
            (5, &[DATED], NATIVE, None, Provider),
            (5, &[DATED], NATIVE, Some("  "), Provider),
            (6, &[DATED], FOREIGN, None, Here),
            (6, &["code_execution"], NATIVE, None, Here),
            (6, &["code_interpreter"], NATIVE, None, Here),
            (8, &[DATED], NATIVE, Some("otari"), Here),
            (8, &[DATED], NATIVE, Some(" OtArI "), Here),
            (10, &[DATED], NATIVE, Some("provider"), Provider),
            (10, &[DATED], FOREIGN, Some("provider"), Provider),
            (20, &[DATED, OWN], FOREIGN, None, Here),
            (20, &[OWN, DATED], NATIVE, Some("otari"), Here),
            (21, &[DATED, OWN], FOREIGN, Some("provider"), INVALID),
            (21, &[DATED, OWN], NATIVE, None, INVALID),
        ],
    )
    .await;
    let mut own_function = question("claude--text", &tag(), &[]);
    own_function["tools"] = json!([{"type": "custom", "name": "code_execution", "input_schema": {"type": "object"}}]);
    checked(&stack, &23, &own_function, Some("otari"), Provider).await;
    let mut with_mcp = question("messages--code-once", &tag(), &[DATED]);
    with_mcp["mcp_servers"] = json!([{"type": "url", "name": "x", "url": "https://mcp.example"}]);
    checked(&stack, &24, &with_mcp, None, INVALID).await;
    let mut with_container = question("claude--code-once", &tag(), &[DATED]);
    with_container["container"] = json!("otari_cntr_0123456789abcdef0123456789abcdef");
    checked(&stack, &32, &with_container, Some("provider"), INVALID).await;
}

#[tokio::test]
async fn with_other_defaults() {
    let otari = start(Setup::default().set("code_execution_executor", "otari")).await;
    check(
        &otari,
        &[
            (10, &[DATED], NATIVE, Some("provider"), Provider),
            (11, &[DATED], NATIVE, Some("auto"), Provider),
            (11, &[DATED], FOREIGN, Some("auto"), Here),
            (12, &[DATED], NATIVE, None, Here),
        ],
    )
    .await;
    drop(otari);
    let provider = start(Setup::default().set("code_execution_executor", "provider")).await;
    check(
        &provider,
        &[
            (8, &[DATED], FOREIGN, Some("otari"), Here),
            (11, &[DATED], FOREIGN, Some("auto"), Here),
            (13, &[DATED], FOREIGN, None, Provider),
            (13, &[DATED], NATIVE, None, Provider),
        ],
    )
    .await;
}

#[tokio::test]
async fn without_a_sandbox_keywords_pass_and_no_policy_is_read() {
    let stack = start(Setup::default().set("sandbox", "{backend: none}")).await;
    let rows: &[Row] = &[
        (4, &[OWN], NATIVE, None, INVALID),
        (7, &[DATED], NATIVE, None, Provider),
        (7, &[DATED], FOREIGN, Some("auto"), Provider),
        (9, &[DATED], NATIVE, Some("otari"), INVALID),
        (9, &[DATED], FOREIGN, Some("otari"), INVALID),
        (10, &[DATED], FOREIGN, Some("provider"), Provider),
        (22, &[DATED, OWN], FOREIGN, None, INVALID),
    ];
    check(&stack, rows).await;
    // Row 19: with a policy that would refuse everything, nothing changes.
    let answer = put(&stack, &json!({"enabled": false, "executor": "otari"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    check(&stack, rows).await;
}

#[tokio::test]
async fn with_a_pin() {
    let stack = start(Setup::default().set("code_execution_executor", "provider")).await;
    let probe = || ask(&question("claude--code-once", &tag(), &[DATED]));
    put(&stack, &json!({"enabled": true, "executor": "otari"})).await;
    in_force(&stack, probe(), |answer| ran_here(&answer.json())).await;
    check(
        &stack,
        &[
            (14, &[DATED], NATIVE, None, Here),
            (17, &[DATED], NATIVE, Some("provider"), FORBIDDEN),
            (17, &[DATED], FOREIGN, Some("auto"), FORBIDDEN),
            (18, &[DATED], NATIVE, Some("otari"), Here),
            (3, &[OWN], NATIVE, Some("provider"), HerePlain),
            (1, &[], NATIVE, Some("provider"), Provider),
        ],
    )
    .await;
    put(&stack, &json!({"enabled": true, "executor": "auto"})).await;
    in_force(&stack, probe(), |answer| !ran_here(&answer.json())).await;
    check(&stack, &[(16, &[DATED], NATIVE, None, Provider), (16, &[DATED], FOREIGN, None, Here)]).await;
    put(&stack, &json!({"enabled": false})).await;
    in_force(&stack, probe().header("otari-code-execution", "otari"), |answer| answer.status == 403).await;
    check(
        &stack,
        &[
            (26, &[DATED], FOREIGN, Some("otari"), FORBIDDEN),
            (26, &[OWN], FOREIGN, None, FORBIDDEN),
            (13, &[DATED], FOREIGN, None, Provider),
        ],
    )
    .await;
}
