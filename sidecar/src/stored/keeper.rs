//! Keeps answers, those that come together in one transaction: a transaction costs more than what it writes, and the
//! caller of every answer waits for it.

use std::time::Duration;

use decision::identity::Identity;
use tokio::sync::{mpsc, oneshot};

use crate::repository::{NewResponse, Repository, RepositoryError};
use crate::telemetry::chain;

/// Answers that wait to be kept, or to be taken up by their transaction; who comes then waits for room.
const MAX_WAITING: usize = 256;
/// Answers of one transaction.
const MAX_AT_ONCE: usize = 64;
/// Longest wait of one answer. The transaction it is part of goes on without its caller.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where answers are handed in to be kept.
#[derive(Debug, Clone)]
pub(super) struct Keeper {
    queue: mpsc::Sender<Waiting>,
}

/// An answer, and what is dropped when it is kept or known not to be.
#[derive(Debug)]
struct Waiting {
    answer: (Identity, NewResponse),
    until: oneshot::Sender<()>,
}

impl Keeper {
    /// A keeper, and the task that does its work; it ends when the last clone is gone. No workspace is kept more of than
    /// `workspace_bytes`.
    pub(super) fn new(
        repository: Repository,
        workspace_bytes: i64,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, mut inbox) = mpsc::channel(MAX_WAITING);
        let task = async move {
            let mut waiting = Vec::with_capacity(MAX_AT_ONCE);
            while inbox.recv_many(&mut waiting, MAX_AT_ONCE).await > 0 {
                let (answers, callers): (Vec<_>, Vec<_>) =
                    waiting.drain(..).map(|Waiting { answer, until }| (answer, until)).unzip();
                keep(&repository, &answers, workspace_bytes).await;
                drop(callers);
            }
        };
        (Self { queue }, task)
    }

    /// Returns when the answer is kept, or is known not to be. Why not stands in the log: the answer is good without.
    pub(super) async fn keep(&self, owner: Identity, answer: NewResponse) {
        let (until, dropped) = oneshot::channel();
        let waiting = Waiting { answer: (owner, answer), until };
        let done = async {
            if self.queue.send(waiting).await.is_ok() {
                drop(dropped.await);
            }
        };
        if tokio::time::timeout(PATIENCE, done).await.is_err() {
            tracing::error!("an answer went out before it was kept: the database takes too long");
        }
    }
}

/// All at once; if that cannot be, each alone, so that none is lost for another.
async fn keep(repository: &Repository, answers: &[(Identity, NewResponse)], workspace_bytes: i64) {
    let kept = repository.put_responses(answers, workspace_bytes).await;
    match (kept, answers) {
        (Ok(true), _) => {}
        (kept, [(_, answer)]) => tell(kept, answer),
        (_, several) => {
            for answer in several {
                let alone = std::slice::from_ref(answer);
                tell(repository.put_responses(alone, workspace_bytes).await, &answer.1);
            }
        }
    }
}

/// Says why an answer was not kept, if it was not.
fn tell(kept: Result<bool, RepositoryError>, answer: &NewResponse) {
    match kept {
        Ok(true) => {}
        Ok(false) => tracing::info!(
            response.id = answer.id,
            "an answer was not kept: it has too many items, or its workspace no room (responses.workspace_max_bytes)"
        ),
        Err(error) => tracing::error!(error = chain(&error), response.id = answer.id, "an answer was not kept"),
    }
}
