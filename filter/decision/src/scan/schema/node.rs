//! The tables: containers the schema reads, keys that matter in them, limits of their texts.
//!
//! INVARIANT: no key stands twice in a row of [`keys`], and no row has more than 16.

use super::super::{MAX_CONTAINER, MAX_HINT, MAX_NAME, MAX_TYPE};

/// A container the schema reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Root,
    /// `tools`.
    Tools,
    /// An entry of `tools`.
    Tool,
    /// `container`, top-level or in a tool.
    Container,
    /// A list of which only matters whether it is empty.
    Flagged(Flag),
    /// `tool_choice`.
    Choice,
    /// `tool_choice.allowed_tools`.
    AllowedTools,
    /// `tool_choice.tools` or `tool_choice.allowed_tools.tools`.
    AllowedList,
    /// An entry of that list.
    Allowed,
    /// `function`, `tool` or `custom` in a choice or an entry of its list.
    Named {
        in_list: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    Mcp,
    Skills,
    StoredPrompt,
}

/// A place whose value matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Slot {
    /// The top-level value.
    #[default]
    Root,
    /// A value that does not matter.
    Free,
    /// A value that does not matter under a key that must not stand twice.
    Once,
    Model,
    Stream,
    MaxToolIterations,
    Tools,
    Tool,
    ToolType,
    ToolName,
    ToolHint,
    Container,
    ContainerId,
    Flagged(Flag),
    FlaggedEntry(Flag),
    Choice,
    AllowedTools,
    AllowedList,
    Allowed,
    /// `type` of a choice or of an entry of its list.
    ChoiceType {
        in_list: bool,
    },
    ChoiceName {
        in_list: bool,
    },
    Named {
        in_list: bool,
    },
}

/// The keys that matter in an object.
pub(super) const fn keys(node: Node) -> &'static [(&'static str, Slot)] {
    match node {
        Node::Root => &[
            ("model", Slot::Model),
            ("stream", Slot::Stream),
            ("tools", Slot::Tools),
            ("tool_choice", Slot::Choice),
            ("container", Slot::Container),
            ("mcp_servers", Slot::Flagged(Flag::Mcp)),
            ("mcp_server_ids", Slot::Flagged(Flag::Mcp)),
            ("max_tool_iterations", Slot::MaxToolIterations),
            ("prompt", Slot::Flagged(Flag::StoredPrompt)),
            ("messages", Slot::Once),
            ("input", Slot::Once),
        ],
        Node::Tool => &[
            ("type", Slot::ToolType),
            ("name", Slot::ToolName),
            ("purpose_hint", Slot::ToolHint),
            ("container", Slot::Container),
        ],
        Node::Container => &[("id", Slot::ContainerId), ("skills", Slot::Flagged(Flag::Skills))],
        Node::Choice => &[
            ("type", Slot::ChoiceType { in_list: false }),
            ("name", Slot::ChoiceName { in_list: false }),
            ("function", Slot::Named { in_list: false }),
            ("tool", Slot::Named { in_list: false }),
            ("custom", Slot::Named { in_list: false }),
            ("allowed_tools", Slot::AllowedTools),
            ("tools", Slot::AllowedList),
        ],
        Node::AllowedTools => &[("tools", Slot::AllowedList)],
        Node::Allowed => &[
            ("type", Slot::ChoiceType { in_list: true }),
            ("name", Slot::ChoiceName { in_list: true }),
            ("function", Slot::Named { in_list: true }),
            ("tool", Slot::Named { in_list: true }),
            ("custom", Slot::Named { in_list: true }),
        ],
        Node::Named { in_list: false } => &[("name", Slot::ChoiceName { in_list: false })],
        Node::Named { in_list: true } => &[("name", Slot::ChoiceName { in_list: true })],
        Node::Tools | Node::Flagged(_) | Node::AllowedList => &[],
    }
}

/// Fails to compile when a row is longer than `most`.
pub(super) const fn check_rows(most: u32) {
    let nodes = [
        Node::Root,
        Node::Tools,
        Node::Tool,
        Node::Container,
        Node::Flagged(Flag::Mcp),
        Node::Choice,
        Node::AllowedTools,
        Node::AllowedList,
        Node::Allowed,
        Node::Named { in_list: false },
        Node::Named { in_list: true },
    ];
    let mut rest = nodes.as_slice();
    while let [node, after @ ..] = rest {
        let mut row = keys(*node);
        let mut room = most;
        while let [_, others @ ..] = row {
            assert!(room > 0, "a row has more keys than a frame has bits");
            room = room.saturating_sub(1);
            row = others;
        }
        rest = after;
    }
}

pub(super) fn text_limit(slot: Slot) -> Option<usize> {
    match slot {
        Slot::ToolType | Slot::ChoiceType { .. } => Some(MAX_TYPE),
        Slot::ToolName | Slot::ChoiceName { .. } => Some(MAX_NAME),
        Slot::ToolHint => Some(MAX_HINT),
        Slot::Container | Slot::ContainerId => Some(MAX_CONTAINER),
        _ => None,
    }
}

/// A key's place in the request, for messages.
pub(super) fn path(node: Node, entries: u32, key: &str) -> String {
    match node {
        Node::Tool => format!("tools[{}].{key}", entries.saturating_sub(1)),
        Node::Container => format!("container.{key}"),
        Node::Choice => format!("tool_choice.{key}"),
        Node::AllowedTools | Node::Allowed | Node::Named { .. } => format!("tool_choice…{key}"),
        _ => key.to_owned(),
    }
}
