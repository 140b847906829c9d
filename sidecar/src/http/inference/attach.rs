//! The files of ours that a request names, on their way to its model.

use decision::config::ModelInput;
use decision::exchange::Forward;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::super::fetch::Fetched;
use super::super::{Refusal, Services};
use super::undecided;
use crate::attachments::{Asked, AttachmentError, Recipient, Resolved, Workspace};
use crate::containers::Claim;
use crate::files::{FileRecord, Staged};
use crate::stored::Named;

/// In a mesh, of a model that our table does not have: the caller is taken at its word about what it takes.
const ALL_INPUTS: &[ModelInput] = &[ModelInput::Text, ModelInput::Image, ModelInput::Pdf];

/// A request with its files.
#[derive(Debug)]
pub(super) struct Given {
    /// Its body, and what is held of it.
    pub(super) body: Fetched,
    /// What goes into the workspace of a run.
    pub(super) seeds: Vec<Staged>,
    /// What the model of a run must be told of them beside its tools.
    pub(super) hint: Option<String>,
    /// Where files stood that the model cannot read.
    pub(super) dropped: Vec<String>,
}

impl Workspace for Claim {
    fn has(&self, name: &str) -> bool {
        Self::has(self, name)
    }

    fn holds<'a>(&'a self, name: &'a str, file: &'a FileRecord) -> BoxFuture<'a, bool> {
        Self::holds(self, name, file.size_bytes, &file.sha256).boxed()
    }
}

/// Gives a request the files it names. `named`: what it said before history was put into its body, which may name some
/// too; that is held beside the body. `container`: what a run goes on with.
pub(super) async fn give(
    services: &Services,
    forward: &Forward,
    body: Fetched,
    named: &Named,
    recipient: Recipient,
    container: Option<&Claim>,
) -> Result<Given, Refusal> {
    let Some(wire) = forward.format.filter(|_| named.is_some() || forward.request.own_file_ids) else {
        return Ok(Given { body, seeds: Vec::new(), hint: None, dropped: Vec::new() });
    };
    // Files have an owner, and so must who asks for them.
    let owner = forward.identity.as_ref().ok_or_else(undecided)?;
    let Fetched { bytes, mut share } = body;
    let inputs = forward.model.as_ref().map_or(ALL_INPUTS, |model| &model.inputs);
    let workspace = container.map(|claim| claim as &dyn Workspace);
    let declares_code = !forward.request.declarations.is_empty();
    let asked = Asked { owner, wire, body: bytes, recipient, workspace, inputs, declares_code };
    let beside = named.input.as_ref().map_or(0, String::len) as u64;
    let mut room = |bytes: u64| share.grow(bytes.saturating_add(beside));
    let resolved = services.attachments.resolve(asked, &mut room).await;
    let Resolved { body, seeds, hint, dropped } = resolved.map_err(|error| refused(error, forward))?;
    Ok(Given { body: Fetched { bytes: body, share }, seeds, hint, dropped })
}

fn refused(error: AttachmentError, forward: &Forward) -> Refusal {
    let refusal = Refusal::in_vocabulary(*error.problem, forward.vocabulary);
    match error.cause {
        Some(cause) => refusal.caused_by(cause),
        None => refusal,
    }
}
