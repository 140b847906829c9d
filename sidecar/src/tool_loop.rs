//! Stand-in until branch `loop` is merged: the contract's signatures, and a refusal.

mod limits;

use std::sync::Arc;

use bytes::Bytes;
use decision::decide::Run;
use decision::format::ApiFormat;
use decision::problem::{Origin, Problem, ProblemKind};
use futures_util::stream::BoxStream;
use http::{HeaderMap, StatusCode};

use crate::clock::Clock;
use crate::ids::IdSource;
use crate::sandbox::Reaper;
use crate::upstream::ModelClient;

pub use limits::Limits;

/// One request that runs code here.
#[derive(Debug)]
#[expect(missing_docs, reason = "stand-in")]
pub struct CodeTurn {
    pub request_id: String,
    pub caller: ApiFormat,
    pub model_wire: ApiFormat,
    pub provider: String,
    pub upstream_model: Option<String>,
    pub forward_headers: HeaderMap,
    pub body: Bytes,
    pub run: Run,
    pub stream: bool,
}

/// Runs code turns.
#[derive(Debug)]
#[expect(missing_docs, reason = "stand-in")]
pub struct Engine {
    pub models: ModelClient,
    pub reaper: Option<Reaper>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub limits: Limits,
    pub tasks: tokio_util::task::TaskTracker,
}

/// An answer.
#[expect(missing_docs, missing_debug_implementations, reason = "stand-in")]
pub struct LoopReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ReplyBody,
}

/// Its body.
#[expect(missing_docs, missing_debug_implementations, reason = "stand-in")]
pub enum ReplyBody {
    Whole(Bytes),
    Stream(BoxStream<'static, Bytes>),
}

impl Engine {
    /// Runs a turn.
    #[expect(clippy::unused_async, reason = "stand-in")]
    pub async fn serve(self: &Arc<Self>, _turn: CodeTurn) -> Result<LoopReply, Problem> {
        Err(Problem::new(ProblemKind::Internal, Origin::Gateway, "the tool loop is not built in"))
    }
}
