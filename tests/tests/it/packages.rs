//! The packages people expect of a code interpreter, as `make packages` installs them, through the whole product.

use std::path::{Path, PathBuf};

use harness::client::Call;
use harness::stack::Setup;
use serde_json::{Value, json};

use crate::attachments::upload;
use crate::support::{DATED, ask, question, start, tag};

/// The interpreter of sessions that `make run` starts.
fn interpreter() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(".tools/sandbox/full/.installed");
    let path = std::fs::read_to_string(&installed);
    path.unwrap_or_else(|error| panic!("{}: {error}: run `make packages`", installed.display())).trim().into()
}

#[tokio::test]
async fn a_table_comes_back_as_a_workbook_and_a_chart() {
    let sandbox = format!("{{python: \"{}\"}}", interpreter().display());
    let stack = start(Setup::default().set("sandbox", &sandbox)).await;
    let health = stack.send(Call::get("/healthz")).await.json();
    let detail = health["sandbox"]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("numpy, pandas, matplotlib"), "{health}");

    let table = "month,region,amount\n2026-01-01,North,10\n2026-01-01,South,12\n2026-02-01,North,20\n";
    let file = upload(&stack, "sales.csv", table).await;
    let mut request = question("messages--code-packages", &tag(), &[DATED]);
    request["messages"][0]["content"] = json!([
        {"type": "text", "text": "What do we sell where?"},
        {"type": "container_upload", "file_id": file},
    ]);
    let answer = stack.send(ask(&request)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let message = answer.json();
    let blocks = message["content"].as_array().unwrap();
    let results: Vec<&Value> = blocks.iter().filter(|block| block["type"] == "code_execution_tool_result").collect();
    let [result] = results[..] else { panic!("{message}") };
    let result = &result["content"];
    assert_eq!((&result["return_code"], &result["stderr"]), (&json!(0), &json!("")), "{message}");
    assert_eq!(result["stdout"], "totals {'North': 30, 'South': 12}\n");

    let mut made = Vec::new();
    for output in result["content"].as_array().unwrap() {
        let id = output["file_id"].as_str().unwrap();
        let about = stack.send(Call::get(format!("/v1/files/{id}"))).await.json();
        let content = stack.send(Call::get(format!("/v1/files/{id}/content"))).await;
        assert_eq!(content.status, 200, "{}", content.text());
        made.push((about["filename"].as_str().unwrap().to_owned(), content.body));
    }
    made.sort();
    let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["figure_1.png", "report.xlsx"]);
    assert!(made[0].1.starts_with(b"\x89PNG") && made[1].1.starts_with(b"PK"));
    // A chart in a workbook is a part of its archive, of which the names stand there in plain.
    assert!(made[1].1.windows(20).any(|part| part.starts_with(b"xl/charts/chart1.xml")));
}
