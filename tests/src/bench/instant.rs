//! A model and a contract-v1 sandbox that cost nothing: fixed answers, chosen by a look at the request.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use decision::format::ApiFormat;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::pace;
use crate::stack::Fallible;

/// Type of a stream; one without a body of its own is paced.
const EVENTS: &str = "text/event-stream";
/// What the code is said to print.
const OUTPUT: &str = "the answer is 42";
/// What the model says at last.
const CLOSING: &str = "It printed the answer.";

/// A request on this wire that declares the code tool.
pub(super) fn code_request(wire: ApiFormat, model: &str, stream: bool) -> Bytes {
    let history = json!([{"role": "user", "content": "Compute it."}]);
    bytes(&match wire {
        // A declaration that means Python alone, on every wire: the rates are of the same work.
        ApiFormat::Messages => json!({
            "model": model, "max_tokens": 1024, "stream": stream, "messages": history,
            "tools": [{"type": "code_execution_20250522", "name": "code_execution"}],
        }),
        ApiFormat::ChatCompletions => json!({
            "model": model, "max_tokens": 1024, "stream": stream, "messages": history,
            "tools": [{"type": "code_interpreter"}],
        }),
        ApiFormat::Responses => json!({
            "model": model, "max_output_tokens": 1024, "stream": stream, "input": history,
            "include": ["code_interpreter_call.outputs"],
            "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
        }),
    })
}

/// A streamed request without tools. Our own id in it brings it to the sidecar in the product; here it goes there anyway.
pub(super) fn plain_request() -> Bytes {
    bytes(&json!({
        "model": "instant", "max_tokens": 1024, "stream": true,
        "messages": [{"role": "user", "content": "Just talk."}],
    }))
}

/// The answer shows the model's closing words, which it says when it has read the code's output.
pub(super) fn is_code_answer(body: &[u8]) -> bool {
    memmem::find(body, CLOSING.as_bytes()).is_some()
}

/// The stream came to its end.
pub(super) fn is_plain_answer(body: &[u8]) -> bool {
    memmem::find(body, CLOSING.as_bytes()).is_some() && memmem::find(body, b"message_stop").is_some()
}

/// Starts the model.
pub(super) async fn model() -> Fallible<SocketAddr> {
    serve(|_, path, body| {
        let asks_for_code =
            memmem::find(body, b"\"tools\"").is_some() && memmem::find(body, OUTPUT.as_bytes()).is_none();
        let streamed = memmem::find(body, b"\"stream\":true").is_some();
        if path.ends_with("/chat/completions") {
            return (200, "application/json", bytes(&chat(asks_for_code)));
        }
        if path.ends_with("/responses") {
            return (200, "application/json", bytes(&response(asks_for_code)));
        }
        if memmem::find(body, pace::MARK).is_some() {
            return (200, EVENTS, Bytes::new());
        }
        let message = message(asks_for_code);
        if streamed { (200, EVENTS, events(&message)) } else { (200, "application/json", bytes(&message)) }
    })
    .await
}

/// Starts the sandbox.
pub(super) async fn sandbox() -> Fallible<SocketAddr> {
    serve(|method, path, _| match (method, path.ends_with("/exec")) {
        (&Method::DELETE, _) => (204, "application/json", Bytes::new()),
        // It has no files, which the contract leaves open.
        (&Method::GET, _) => (501, "application/json", bytes(&json!({"detail": "no files here"}))),
        (_, true) => (
            200,
            "application/json",
            bytes(&json!({
                "tool_use_id": "call",
                "result_block": {"type": "code_execution_tool_result", "tool_use_id": "call", "content": {
                    "type": "code_execution_result", "stdout": OUTPUT, "stderr": "", "return_code": 0, "content": []}},
            })),
        ),
        _ => (201, "application/json", bytes(&json!({"session_id": "session"}))),
    })
    .await
}

fn message(asks_for_code: bool) -> Value {
    let content = if asks_for_code {
        json!([{"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "code_execution", "input": {"code": "print('the answer is', 42)"}}])
    } else {
        json!([{"type": "text", "text": CLOSING}])
    };
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "instant", "content": content,
        "stop_reason": if asks_for_code { "tool_use" } else { "end_turn" }, "stop_sequence": null,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    })
}

/// The same message as the stream a server makes of it.
fn events(message: &Value) -> Bytes {
    let mut head = message.clone();
    head["content"] = json!([]);
    head["stop_reason"] = Value::Null;
    let mut out = event(&json!({"type": "message_start", "message": head}));
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        let (start, delta) = if block["type"] == "text" {
            (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block["text"]}))
        } else {
            let start = json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}});
            (start, json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}))
        };
        out += &event(&json!({"type": "content_block_start", "index": index, "content_block": start}));
        out += &event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
        out += &event(&json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": message["stop_reason"], "stop_sequence": null});
    out += &event(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 10}}));
    out += &event(&json!({"type": "message_stop"}));
    Bytes::from(out)
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

fn chat(asks_for_code: bool) -> Value {
    let message = if asks_for_code {
        json!({"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "call_1", "type": "function",
            "function": {"name": "code_execution", "arguments": "{\"code\": \"print('the answer is', 42)\"}"}}]})
    } else {
        json!({"role": "assistant", "content": CLOSING})
    };
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "instant",
        "choices": [{"index": 0, "message": message, "finish_reason": if asks_for_code { "tool_calls" } else { "stop" }}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
    })
}

fn response(asks_for_code: bool) -> Value {
    let text = |text: &str| {
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
    };
    let output = if asks_for_code {
        json!([text("Let me see."), {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed",
            "name": "code_execution", "arguments": "{\"code\": \"print('the answer is', 42)\"}"}])
    } else {
        json!([text(CLOSING)])
    };
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "instant", "output": output,
        "error": null, "incomplete_details": null, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 20},
    })
}

fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

type Answer = (u16, &'static str, Bytes);

/// Serves `answer` on a port of the system's choice until the process ends.
async fn serve(answer: fn(&Method, &str, &[u8]) -> Answer) -> Fallible<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let accept = async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream.set_nodelay(true));
            let service = service_fn(move |request: Request<Incoming>| async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let (status, kind, body) = answer(&head.method, head.uri.path(), &body);
                let body =
                    if body.is_empty() && kind == EVENTS { pace::body() } else { Full::new(body).boxed_unsync() };
                let mut response = Response::new(body);
                *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
                response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
                Ok::<_, Infallible>(response)
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            background(async move { drop(connection.await) });
        }
    };
    background(accept);
    Ok(address)
}

/// The stand-ins live as long as the measuring process.
fn background(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
