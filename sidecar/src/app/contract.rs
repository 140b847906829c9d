//! The embedded sandbox on a listener of its own: beside the gateway, or alone.
//!
//! INVARIANT: when `run` returns, nobody is served any more and every session is ended.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::{AppError, Parts, build_sandbox, make_data_dir};
use crate::config::{Config, HttpConfig, ListenAddress, ServeConfig};
use crate::http::listener::{Ending, Listener, ListenerLimits};
use crate::http::{BodyBudget, Contract, ContractTimes};
use crate::ids::IdSource;
use crate::sandbox::process::ProcessSandbox;

/// A sandbox that is about to be served.
#[derive(Debug)]
pub(super) struct Serving {
    listener: Listener,
    limits: ListenerLimits,
    contract: Contract,
    requests: TaskTracker,
}

impl Serving {
    /// Listens; serves nothing yet. Connections, and what must not be broken off, are tasks of `requests`.
    pub(super) async fn build(
        serve: &ServeConfig,
        http: &HttpConfig,
        sandbox: Arc<ProcessSandbox>,
        ids: Arc<dyn IdSource>,
        bodies: BodyBudget,
        requests: TaskTracker,
    ) -> Result<Self, AppError> {
        let listener = Listener::bind(&serve.address)
            .await
            .map_err(|source| AppError::Serve { address: serve.address.clone(), source })?;
        let limits = ListenerLimits {
            max_connections: http.max_connections,
            header_timeout: http.header_timeout,
            stall_timeout: http.body_timeout,
        };
        let times = ContractTimes { silence: http.body_timeout, deadline: http.body_deadline };
        let contract = Contract::new(sandbox, serve.token.clone(), times, bodies, ids, requests.clone());
        Ok(Self { listener, limits, contract, requests })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &ListenAddress {
        self.listener.address()
    }

    /// Serves until told to stop.
    pub(super) async fn serve(self, ending: Ending) {
        self.listener.serve(self.contract.router(), self.limits, ending, self.requests).await;
    }
}

/// The embedded sandbox alone: no database, no Envoy, no keys.
#[derive(Debug)]
pub struct SandboxDaemon {
    sandbox: Arc<ProcessSandbox>,
    serving: Serving,
    drain_timeout: Duration,
    requests: TaskTracker,
}

impl SandboxDaemon {
    /// Proves that this host isolates, and listens; serves nothing yet.
    pub async fn build(config: &Config, parts: Parts) -> Result<Self, AppError> {
        let serve = config.sandbox.serve.as_ref().ok_or(AppError::NothingToServe)?;
        make_data_dir(config)?;
        let sandbox = build_sandbox(config, &parts).await?.embedded.ok_or(AppError::NothingToServe)?;
        let requests = TaskTracker::new();
        let bodies = BodyBudget::new(config.http.max_buffered_bytes, config.http.max_buffered_bytes_per_workspace);
        let serving =
            Serving::build(serve, &config.http, Arc::clone(&sandbox), parts.ids, bodies, requests.clone()).await?;
        Ok(Self { sandbox, serving, drain_timeout: config.http.drain_timeout, requests })
    }

    /// Where it listens.
    pub fn address(&self) -> &ListenAddress {
        self.serving.address()
    }

    /// Serves until `stop` is ready, then lets calls end and ends every session.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let ending = Ending::default();
        let accepting = TaskTracker::new();
        accepting.spawn(self.serving.serve(ending.clone()));
        stop.await;
        drain(&self.requests, &ending, self.drain_timeout).await;
        accepting.close();
        accepting.wait().await;
        self.sandbox.shut().await;
        tracing::info!("stopped");
    }
}

/// Takes no new requests and waits for the open ones; those that do not end in time are given up.
pub(super) async fn drain(requests: &TaskTracker, ending: &Ending, timeout: Duration) {
    tracing::info!(open = requests.len(), "stopping: no new requests");
    ending.stop.cancel();
    requests.close();
    if tokio::time::timeout(timeout, requests.wait()).await.is_err() {
        tracing::warn!(open = requests.len(), "http.drain_timeout_ms is over: open requests are given up");
        ending.abandon.cancel();
        // What is left ends at its next step, for its client is gone.
        drop(tokio::time::timeout(timeout, requests.wait()).await);
    }
}
