//! A run at this gateway: what it consists of, and whether it may start.
//!
//! INVARIANT: a policy only narrows; nothing in a request widens it.

use serde::Serialize;

use super::Input;
use crate::format::ApiFormat;
use crate::policy::{Snapshot, WorkspacePolicy};
use crate::problem::{Origin, Problem, ProblemKind};
use crate::reason::Reason;
use crate::request::{CodeTool, Keyword, ToolDeclaration};
use crate::scan::MAX_ALLOWED;

/// Model calls per request, unless the request asks for another number.
pub const DEFAULT_ITERATIONS: u32 = 10;
/// Most model calls per request.
pub const MAX_ITERATIONS: u32 = 25;
/// Most seconds per execution.
pub const MAX_EXEC_TIMEOUT_S: u32 = 60;

/// How a run shows in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The endpoint's own blocks or items for hosted code execution.
    Native,
    /// Text alone.
    Plain,
}

/// A run at this gateway: all that policy and declarations say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How the run shows in the answer.
    pub dialect: Dialect,
    /// Every code tool of the request, in the order of `tools`; all are replaced by one tool of ours.
    pub claimed: Vec<ToolDeclaration>,
    /// What the model may be given, after the policy; never empty.
    pub tools: Vec<CodeTool>,
    /// Model calls allowed, 1..=[`MAX_ITERATIONS`].
    pub max_iterations: u32,
    /// Seconds per execution, 1..=[`MAX_EXEC_TIMEOUT_S`].
    pub exec_timeout_s: u32,
    /// A declaration's hint, else the policy's.
    pub purpose_hint: Option<String>,
    /// Image of the sandbox session, checked against the operator's list.
    pub image: Option<String>,
    /// Container of ours to continue.
    pub container: Option<String>,
}

impl Run {
    /// Does a `tool_choice`, or an entry of an allow-list, with this type and name mean a claimed declaration?
    /// Then the wire module points it at the tool the model is given. A caller's own function of the same name comes
    /// first: the wire module asks only when there is none.
    pub fn claims(&self, kind: Option<&str>, name: Option<&str>) -> bool {
        // All code tools are claimed, so a code type can mean nothing else.
        if kind.is_some_and(|kind| Keyword::parse(kind).is_some()) {
            return true;
        }
        if !matches!(kind, Some("tool" | "function" | "custom") | None) {
            return false;
        }
        name.is_some_and(|name| {
            name == CodeTool::Python.word()
                || self.claimed.iter().any(|one| match &one.name {
                    Some(own) => own == name,
                    None => one.keyword.text() == name,
                })
        })
    }
}

/// The refusals of a run, then the run itself.
pub(super) fn admit(
    input: &Input<'_>,
    snapshot: &Snapshot,
    policy: &WorkspacePolicy,
) -> Result<Run, (Reason, Problem)> {
    let request = input.request;
    combinable(input)?;
    if !policy.enabled {
        return Err(forbidden(
            Reason::ExecutionDisabled,
            "code execution is off for this workspace: leave the tool out, or have the workspace's policy changed"
                .to_owned(),
        ));
    }
    let tools = tools(&request.declarations, policy.tools.as_deref())?;
    if let Some(image) = policy.image.as_ref().filter(|image| !snapshot.allowed_images.contains(image)) {
        return Err(forbidden(
            Reason::ImageNotAllowed,
            format!(
                "the workspace's policy asks for the sandbox image `{image}`, which the operator does not allow: \
                 have the policy's `image` changed or cleared"
            ),
        ));
    }
    let wanted = request.max_tool_iterations.unwrap_or(DEFAULT_ITERATIONS);
    // The gateway's own tool lends its hint to a keyword that has none.
    let hint = |provider| {
        let mut own = request.declarations.iter().filter(move |one| one.keyword.is_provider() == provider);
        own.find_map(|one| one.purpose_hint.clone())
    };
    Ok(Run {
        dialect: dialect(input),
        claimed: request.declarations.clone(),
        tools,
        max_iterations: wanted.min(policy.max_iterations.unwrap_or(MAX_ITERATIONS)).clamp(1, MAX_ITERATIONS),
        exec_timeout_s: policy.exec_timeout_s.unwrap_or(MAX_EXEC_TIMEOUT_S).clamp(1, MAX_EXEC_TIMEOUT_S),
        purpose_hint: hint(true).or_else(|| hint(false)).or_else(|| policy.purpose_hint.clone()),
        image: policy.image.clone(),
        container: request.own_container.clone(),
    })
}

/// What a request may not bring to a run here.
fn combinable(input: &Input<'_>) -> Result<(), (Reason, Problem)> {
    let request = input.request;
    let refuse = |reason, message: &str, param: &str| Err((reason, Problem::invalid(message).with_param(param)));
    if request.mcp {
        return refuse(
            Reason::McpWithRun,
            "MCP servers cannot be combined with code that runs at this gateway: leave out `mcp_servers` and \
             `mcp_server_ids`, or the code tool",
            "mcp_servers",
        );
    }
    if request.web_search {
        return refuse(
            Reason::WebSearchWithRun,
            "`otari_web_search` cannot be combined with code that runs at this gateway: declare one of them",
            "tools",
        );
    }
    if request.skills {
        return refuse(
            Reason::SkillsWithRun,
            "`container.skills` cannot be loaded into a run at this gateway: leave them out, or have the provider \
             run the code",
            "container.skills",
        );
    }
    if let Some(param) = request.unusable {
        let expected = match param {
            "stream" => "`stream` must be true or false".to_owned(),
            "tool_choice" => format!("`tool_choice` lists more than {MAX_ALLOWED} allowed tools: list fewer"),
            _ => format!("`{param}` must be a whole number from 1 to {MAX_ITERATIONS}"),
        };
        return refuse(Reason::ParameterUnusable, &expected, param);
    }
    match request.max_tool_iterations {
        Some(number) if !(1..=MAX_ITERATIONS).contains(&number) => refuse(
            Reason::ParameterUnusable,
            &format!("`max_tool_iterations` must be a whole number from 1 to {MAX_ITERATIONS}"),
            "max_tool_iterations",
        ),
        _ => Ok(()),
    }
}

/// What the declarations offer, narrowed by the policy.
fn tools(declared: &[ToolDeclaration], allowed: Option<&[String]>) -> Result<Vec<CodeTool>, (Reason, Problem)> {
    let mut tools: Vec<CodeTool> = declared
        .iter()
        .flat_map(|one| one.keyword.tools())
        .copied()
        .filter(|tool| allowed.is_none_or(|allowed| allowed.iter().any(|word| word == tool.word())))
        .collect();
    tools.sort_unstable();
    tools.dedup();
    if tools.is_empty() {
        return Err(forbidden(
            Reason::ToolsNotServed,
            "the workspace's policy allows none of the tools this declaration stands for: have the policy's `tools` \
             changed"
                .to_owned(),
        ));
    }
    Ok(tools)
}

fn dialect(input: &Input<'_>) -> Dialect {
    let declared = input.request.declarations.iter().any(|one| one.keyword.is_provider());
    match input.format {
        ApiFormat::Messages | ApiFormat::Responses if declared => Dialect::Native,
        _ => Dialect::Plain,
    }
}

fn forbidden(reason: Reason, message: String) -> (Reason, Problem) {
    (reason, Problem::new(ProblemKind::PermissionDenied, Origin::Caller, message))
}
