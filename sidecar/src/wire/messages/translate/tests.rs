use decision::decide::Dialect;
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::wire::chat_completions;
use crate::wire::model_request::TurnKind;

fn run() -> Run {
    let declaration = ToolDeclaration {
        index: 0,
        keyword: Keyword::Dated("20250522".to_owned()),
        name: Some("code_execution".to_owned()),
        purpose_hint: None,
    };
    Run {
        dialect: Dialect::Native,
        claimed: vec![declaration],
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: None,
        image: None,
        container: None,
    }
}

const DECLARED: &str = "code_execution_20250522";

/// The chat request, without the tool's definition, and what was dropped.
fn check(mut body: Value, expected: Expect) {
    let declared = json!({"type": DECLARED, "name": "code_execution"});
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    body["tools"] = [vec![declared], tools].concat().into();
    let prepared = chat_completions::emit(parse(body.to_string().as_bytes(), &run()).expect("a request"), &run(), None);
    let mut sent: Value = serde_json::from_slice(&prepared.request.body(TurnKind::First)).expect("JSON");
    let tools = sent["tools"].as_array_mut().expect("a list");
    assert_eq!(tools.pop().expect("a tool")["function"]["name"], "code_execution");
    if tools.is_empty() {
        sent.as_object_mut().expect("an object").remove("tools");
    }
    let dropped = prepared.dropped.join(", ");
    expected.assert_eq(&format!("{sent:#}\ndropped: {dropped}"));
}

fn refused(content: Value) -> String {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": [content]}]});
    let problem = parse(body.to_string().as_bytes(), &run()).expect_err("a problem");
    problem.param.unwrap_or_default()
}

#[test]
fn settings() {
    check(
        json!({
            "model": "m", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stream": true,
            "stop_sequences": ["END"], "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 1},
            "service_tier": "auto", "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be brief."}],
            "messages": [],
        }),
        expect![[r#"
            {
              "model": "m",
              "max_tokens": 5,
              "temperature": 0.5,
              "top_p": 0.9,
              "stop": [
                "END"
              ],
              "user": "u",
              "response_format": {
                "type": "json_schema",
                "json_schema": {
                  "name": "answer",
                  "schema": {
                    "type": "object"
                  },
                  "strict": true
                }
              },
              "stream": true,
              "stream_options": {
                "include_usage": true
              },
              "messages": [
                {
                  "role": "system",
                  "content": "Be kind.\n\nBe brief."
                }
              ],
              "tool_choice": "required",
              "parallel_tool_calls": false
            }
            dropped: thinking, top_k"#]],
    );
}

/// Everything a history can hold: thinking, other providers' calls, ours, and the client's.
fn long_history() -> Value {
    json!({"model": "m", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "let me look"},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u", "encrypted_content": "zzz"}]},
            {"type": "server_tool_use", "id": "srvtoolu_2", "name": "bash_code_execution", "input": {"command": "ls"}},
            {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_2", "content": {"stdout": "x", "return_code": 0}},
            {"type": "server_tool_use", "id": "otari_srvtoolu_3", "name": "code_execution", "input": {"code": "1"}},
            {"type": "code_execution_tool_result", "tool_use_id": "otari_srvtoolu_3", "content": {"stdout": "1", "return_code": 0}},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "text", "text": "here"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": "boom"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [
                {"type": "text", "text": "seen"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ]},
        ]},
    ]})
}

#[test]
fn history() {
    check(
        long_history(),
        expect![[r#"
            {
              "model": "m",
              "messages": [
                {
                  "role": "user",
                  "content": "a\n\nb"
                },
                {
                  "role": "assistant",
                  "content": "let me look\n\nI used web_search with {\"query\":\"q\"}.\nresult:\n[{\"url\":\"u\"}]\n\nI ran this command:\n```bash\nls\n```\nstdout:\nx\nreturn code: 0\n\nI ran this Python code:\n```python\n1\n```\nstdout:\n1\nreturn code: 0",
                  "tool_calls": [
                    {
                      "id": "toolu_1",
                      "type": "function",
                      "function": {
                        "name": "f",
                        "arguments": "{\"x\":1}"
                      }
                    },
                    {
                      "id": "toolu_2",
                      "type": "function",
                      "function": {
                        "name": "g",
                        "arguments": "{}"
                      }
                    }
                  ]
                },
                {
                  "role": "tool",
                  "tool_call_id": "toolu_1",
                  "content": "[tool error] boom"
                },
                {
                  "role": "tool",
                  "tool_call_id": "toolu_2",
                  "content": "seen\n(more of this result follows in the next message)"
                },
                {
                  "role": "user",
                  "content": [
                    {
                      "type": "image_url",
                      "image_url": {
                        "url": "data:image/png;base64,AAAA"
                      }
                    },
                    {
                      "type": "text",
                      "text": "here"
                    }
                  ]
                }
              ]
            }
            dropped: thinking"#]],
    );
}

#[test]
fn pictures_and_documents() {
    check(
        json!({"model": "m", "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
            {"type": "document", "title": "P", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}]}, "citations": {"enabled": true}},
            {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]},
        ]}]}),
        expect![[r#"
            {
              "model": "m",
              "messages": [
                {
                  "role": "user",
                  "content": [
                    {
                      "type": "image_url",
                      "image_url": {
                        "url": "https://example.com/a.png"
                      }
                    },
                    {
                      "type": "text",
                      "text": "[document: T]\nwords"
                    },
                    {
                      "type": "file",
                      "file": {
                        "filename": "P.pdf",
                        "file_data": "data:application/pdf;base64,JVBE"
                      }
                    },
                    {
                      "type": "text",
                      "text": "inner"
                    },
                    {
                      "type": "text",
                      "text": "[search result: t, s]\nfound"
                    }
                  ]
                }
              ]
            }
            dropped: citations"#]],
    );
}

#[test]
fn tools() {
    check(
        json!({"model": "m", "messages": [], "tool_choice": {"type": "tool", "name": "f"}, "tools": [
            {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}, "strict": true},
            {"type": "custom", "name": "bare", "allowed_callers": ["code_execution_20260120"]},
            {"type": "web_search_20250305", "name": "web_search"},
        ]}),
        expect![[r#"
            {
              "model": "m",
              "tools": [
                {
                  "type": "function",
                  "function": {
                    "name": "f",
                    "description": "d",
                    "parameters": {
                      "type": "object",
                      "properties": {}
                    },
                    "strict": true
                  }
                },
                {
                  "type": "function",
                  "function": {
                    "name": "bare",
                    "parameters": {
                      "type": "object",
                      "properties": {}
                    }
                  }
                }
              ],
              "tool_choice": {
                "type": "function",
                "function": {
                  "name": "f"
                }
              },
              "messages": []
            }
            dropped: tools[2].allowed_callers, tools[3].type=web_search_20250305"#]],
    );
}

#[test]
fn what_the_model_would_miss_is_refused_by_name() {
    let file = json!({"type": "file", "file_id": "file_1"});
    assert_eq!(refused(json!({"type": "image", "source": file})), "messages[0].content[0].source");
    assert_eq!(refused(json!({"type": "document", "source": file})), "messages[0].content[0].source");
    assert_eq!(
        refused(json!({"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}})),
        "messages[0].content[0].source"
    );
    assert_eq!(refused(json!({"type": "container_upload", "file_id": "file_1"})), "messages[0].content[0].type");
    assert_eq!(refused(json!("text")), "messages[0].content[0]");
}

#[test]
fn a_choice_of_a_tool_that_is_not_there_is_refused() {
    let body = json!({"messages": [], "tool_choice": {"type": "tool", "name": "nobody"}});
    let problem = parse(body.to_string().as_bytes(), &run()).expect_err("a problem");
    assert_eq!(problem.param.as_deref(), Some("tool_choice.name"));
}

#[test]
fn the_forced_tool_is_forced_once_and_gone_at_the_end() {
    let body = json!({
        "model": "m", "messages": [], "tool_choice": {"type": "tool", "name": "code_execution"},
        "tools": [{"type": DECLARED, "name": "code_execution"}],
    });
    let conversation = parse(body.to_string().as_bytes(), &run()).expect("a request");
    let prepared = chat_completions::emit(conversation, &run(), None);
    let choice = |kind| {
        let body: Value = serde_json::from_slice(&prepared.request.body(kind)).expect("JSON");
        (body["tools"].is_array(), body["tool_choice"].clone())
    };
    let forced = json!({"type": "function", "function": {"name": "code_execution"}});
    assert_eq!(choice(TurnKind::First), (true, forced));
    assert_eq!(choice(TurnKind::Later), (true, json!("auto")));
    assert_eq!(choice(TurnKind::Closing), (false, Value::Null));
}

#[test]
fn each_server_gets_the_token_limit_under_the_name_it_reads() {
    for (model, field) in [
        ("qwen3:8b", "max_tokens"),
        ("gpt-oss:20b", "max_tokens"),
        ("openai/gpt-oss-120b", "max_tokens"),
        ("olmo-2", "max_tokens"),
        ("gpt-5.1", "max_completion_tokens"),
        ("openai/o4-mini", "max_completion_tokens"),
    ] {
        let body = json!({"model": model, "max_tokens": 5, "messages": []});
        let conversation = parse(body.to_string().as_bytes(), &run()).expect("a request");
        let body = chat_completions::emit(conversation, &run(), None).request.body(TurnKind::First);
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body[field], 5, "{model}");
    }
}
