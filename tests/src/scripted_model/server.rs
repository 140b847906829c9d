//! The HTTP side of the scripted model.
//!
//! INVARIANT: when a client leaves, the answer in progress is dropped at once and recorded as left.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use decision::format::ApiFormat;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::answer::{Answer, Piece};
use super::conversation::Conversation;
use super::record::{OpenRecord, Records};
use super::scenario::{HttpError, Library};
use super::{chat_completions, messages, responses};

/// Longest request body that is read; more than the gateway's own cap, so that the gateway is the one to refuse.
const MAX_BODY_BYTES: usize = 128 * 1024 * 1024;
/// Where tests read and reset the records.
const RECORDS_PATH: &str = "/__scripted/requests";

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A scripted model on a socket of its own.
#[derive(Debug)]
pub struct ScriptedModel {
    listener: TcpListener,
    library: Arc<Library>,
    records: Records,
}

impl ScriptedModel {
    /// Binds the address; port 0 lets the system choose.
    pub async fn bind(address: SocketAddr, library: Library) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, library: Arc::new(library), records: Records::default() })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the future is dropped.
    pub async fn serve(self) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok((socket, _)) = self.listener.accept().await else { continue };
            // Small events must not wait for the client's acknowledgement of the last one.
            drop(socket.set_nodelay(true));
            let (library, records) = (Arc::clone(&self.library), self.records.clone());
            let service = service_fn(move |request| respond(request, Arc::clone(&library), records.clone()));
            connections
                .spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            while connections.try_join_next().is_some() {}
        }
    }
}

async fn respond(
    request: Request<Incoming>,
    library: Arc<Library>,
    records: Records,
) -> Result<Response<Body>, io::Error> {
    let (head, body) = request.into_parts();
    if head.uri.path() == RECORDS_PATH {
        if head.method == Method::DELETE {
            records.reset();
        }
        return Ok(json_response(StatusCode::OK, records.to_json().into()));
    }
    let (body, sha256) = read(body).await?;
    let open = records.add(&head, &body, &sha256);
    let wire = match head.uri.path() {
        path if path.ends_with("/chat/completions") => ApiFormat::ChatCompletions,
        path if path.ends_with("/messages") => ApiFormat::Messages,
        path if path.ends_with("/responses") => ApiFormat::Responses,
        _ => {
            open.answered();
            return Ok(json_response(StatusCode::NOT_FOUND, r#"{"error":{"message":"no such path"}}"#.into()));
        }
    };
    let prepared = serde_json::from_slice::<Value>(&body)
        .map_err(|error| format!("the body is not JSON: {error}"))
        .and_then(|body| prepare(wire, &body, &sha256, &library));
    match prepared {
        Ok((answer, _)) if answer.error.is_some() => refuse(answer, open).await,
        Ok((answer, true)) => Ok(streamed(wire, &answer, open)),
        Ok((answer, false)) => whole(wire, &answer, open).await,
        Err(problem) => {
            open.answered();
            let body = match wire {
                ApiFormat::Messages => messages::error(&problem),
                ApiFormat::ChatCompletions | ApiFormat::Responses => chat_completions::error(&problem),
            };
            Ok(json_response(StatusCode::BAD_REQUEST, body.to_string().into()))
        }
    }
}

fn prepare(wire: ApiFormat, body: &Value, sha256: &str, library: &Library) -> Result<(Answer, bool), String> {
    let conversation = Conversation::read(wire, body)?;
    let scenario = library.find(&conversation.model).ok_or_else(|| {
        let names: Vec<&str> = library.names().collect();
        format!("no scenario for model {:?}; there are {}", conversation.model, names.join(", "))
    })?;
    let answer = Answer::prepare(scenario, &conversation, body, sha256)?;
    Ok((answer, conversation.stream))
}

async fn read(mut body: Incoming) -> Result<(Bytes, String), io::Error> {
    let mut bytes = BytesMut::new();
    let mut hash = Sha256::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(io::Error::other)?.into_data() else { continue };
        if bytes.len().saturating_add(data.len()) > MAX_BODY_BYTES {
            return Err(io::Error::other("the request body is over the scripted model's limit"));
        }
        hash.update(&data);
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.freeze(), crate::hex(&hash.finalize())))
}

async fn refuse(answer: Answer, open: OpenRecord) -> Result<Response<Body>, io::Error> {
    play(&answer.interruptions()).await?;
    let Some(HttpError { status, body, headers }) = answer.error else {
        return Err(io::Error::other("an error turn without an error"));
    };
    let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
    let mut response = json_response(StatusCode::from_u16(status).map_err(io::Error::other)?, body);
    for (name, value) in &headers {
        let name = header::HeaderName::try_from(name).map_err(io::Error::other)?;
        response.headers_mut().insert(name, value.parse().map_err(io::Error::other)?);
    }
    open.answered();
    Ok(response)
}

async fn whole(wire: ApiFormat, answer: &Answer, open: OpenRecord) -> Result<Response<Body>, io::Error> {
    let body = match wire {
        ApiFormat::Messages => messages::whole(answer),
        ApiFormat::ChatCompletions => chat_completions::whole(answer),
        ApiFormat::Responses => responses::whole(answer),
    };
    play(&answer.interruptions()).await?;
    open.answered();
    Ok(json_response(StatusCode::OK, body.to_string().into()))
}

/// Waits, breaks or hangs, for an answer that goes out in one piece.
async fn play(pieces: &[Piece]) -> Result<(), io::Error> {
    for piece in pieces {
        match piece {
            Piece::Bytes(_) => {}
            Piece::Wait(duration) => tokio::time::sleep(*duration).await,
            Piece::Cut => return Err(cut()),
            Piece::Hang => std::future::pending::<()>().await,
        }
    }
    Ok(())
}

fn streamed(wire: ApiFormat, answer: &Answer, open: OpenRecord) -> Response<Body> {
    let pieces = match wire {
        ApiFormat::Messages => messages::stream(answer),
        ApiFormat::ChatCompletions => chat_completions::stream(answer),
        ApiFormat::Responses => responses::stream(answer),
    };
    let frames = stream::unfold((VecDeque::from(pieces), Some(open)), |(mut pieces, mut open)| async move {
        loop {
            let Some(piece) = pieces.pop_front() else {
                if let Some(open) = open.take() {
                    open.answered();
                }
                return None;
            };
            match piece {
                Piece::Bytes(bytes) => return Some((Ok(Frame::data(bytes)), (pieces, open))),
                Piece::Wait(duration) => tokio::time::sleep(duration).await,
                Piece::Cut => {
                    // Lets the connection send what was said so far.
                    tokio::task::yield_now().await;
                    if let Some(open) = open.take() {
                        open.answered();
                    }
                    return Some((Err(cut()), (VecDeque::new(), None)));
                }
                Piece::Hang => std::future::pending::<()>().await,
            }
        }
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let event_stream = header::HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, event_stream);
    response
}

fn json_response(status: StatusCode, body: Bytes) -> Response<Body> {
    let body = Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the scenario cuts the connection")
}
