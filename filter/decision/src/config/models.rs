//! The model table: from a request's model name to the provider that serves it.
//!
//! INVARIANT: first match wins, and a `provider:` or `provider/` prefix yields only to a rule that spells it out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::format::ApiFormat;

/// Providers and the rules that lead to them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTable {
    /// Name → what it speaks.
    pub providers: BTreeMap<String, ProviderInfo>,
    /// In order; the first that matches wins.
    #[serde(default)]
    pub rules: Vec<ModelRule>,
}

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderInfo {
    /// Decides what is native.
    pub kind: ProviderKind,
    /// Wires its models serve; empty: [`ProviderKind::default_wires`].
    #[serde(default)]
    pub wires: Vec<ApiFormat>,
}

/// Whose API a provider is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// Anthropic: runs dated `code_execution_…` on Messages.
    Anthropic,
    /// OpenAI: runs `code_interpreter` on Responses.
    Openai,
    /// Anything else that speaks an OpenAI wire; runs nothing by itself.
    OpenaiCompatible,
}

/// What a model takes besides text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelInput {
    /// Text; every model does.
    Text,
    /// Pictures.
    Image,
    /// PDFs and other documents of its wire.
    Pdf,
}

/// One line of `models:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRule {
    /// Model name; `*` stands for any text.
    pub pattern: String,
    /// Name in [`ModelTable::providers`].
    pub provider: String,
    /// The model's name at the provider, when it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_model: Option<String>,
    /// Wires of these models, when they differ from the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wires: Option<Vec<ApiFormat>>,
    /// What these models take; absent: [`ProviderKind::default_inputs`]. Only the sidecar, which gives files to models,
    /// asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<ModelInput>>,
}

/// Where a model is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRoute<'a> {
    /// Provider's name.
    pub provider: &'a str,
    /// Provider's kind.
    pub kind: ProviderKind,
    /// Wires the model serves, never empty.
    pub wires: &'a [ApiFormat],
    /// The name to send upstream, when it is not the caller's.
    pub upstream_model: Option<String>,
    /// What the model takes.
    pub inputs: &'a [ModelInput],
}

impl ProviderKind {
    /// What such a provider serves unless its configuration says otherwise.
    pub fn default_wires(self) -> &'static [ApiFormat] {
        match self {
            Self::Anthropic => &[ApiFormat::Messages],
            Self::Openai => &[ApiFormat::Responses, ApiFormat::ChatCompletions],
            Self::OpenaiCompatible => &[ApiFormat::ChatCompletions],
        }
    }

    /// What models of such a provider take unless their rule says otherwise.
    pub fn default_inputs(self) -> &'static [ModelInput] {
        match self {
            Self::Anthropic | Self::Openai => &[ModelInput::Text, ModelInput::Image, ModelInput::Pdf],
            Self::OpenaiCompatible => &[ModelInput::Text],
        }
    }
}

impl ModelTable {
    /// The provider of this model, `None` if no rule and no prefix names one.
    pub fn resolve(&self, model: &str) -> Option<ModelRoute<'_>> {
        let prefixed = self.prefixed(model);
        // A catch-all must not swallow `provider:model`; a rule for `openai/gpt-oss-*` may.
        let prefix_bytes = prefixed.map_or(0, |(provider, _)| provider.len().saturating_add(1));
        let by_rule = self
            .rules
            .iter()
            .filter(|rule| rule.head().len() >= prefix_bytes && matches(&rule.pattern, model))
            .find_map(|rule| self.route(&rule.provider, rule.upstream_model.clone(), Some(rule)));
        by_rule.or_else(|| prefixed.and_then(|(provider, rest)| self.route(provider, Some(rest.to_owned()), None)))
    }

    /// The only configured provider, if there is exactly one.
    pub fn only_provider(&self) -> Option<ModelRoute<'_>> {
        let mut names = self.providers.keys();
        match (names.next(), names.next()) {
            (Some(name), None) => self.route(name, None, None),
            _ => None,
        }
    }

    /// What is wrong with the table, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        let lost = self.rules.iter().find(|rule| !self.providers.contains_key(&rule.provider))?;
        Some(format!("models: the rule `{}` names the unknown provider `{}`", lost.pattern, lost.provider))
    }

    fn prefixed<'a, 'm>(&'a self, model: &'m str) -> Option<(&'a str, &'m str)> {
        let (head, rest) = model.split_once([':', '/']).filter(|(_, rest)| !rest.is_empty())?;
        self.providers.get_key_value(head).map(|(name, _)| (name.as_str(), rest))
    }

    fn route<'a>(
        &'a self,
        provider: &str,
        upstream_model: Option<String>,
        rule: Option<&'a ModelRule>,
    ) -> Option<ModelRoute<'a>> {
        let (name, info) = self.providers.get_key_value(provider)?;
        let by_rule = rule.and_then(|rule| rule.wires.as_deref()).unwrap_or_default();
        let own = [by_rule, &info.wires].into_iter().find(|wires| !wires.is_empty());
        Some(ModelRoute {
            provider: name,
            kind: info.kind,
            wires: own.unwrap_or_else(|| info.kind.default_wires()),
            upstream_model,
            inputs: rule.and_then(|rule| rule.inputs.as_deref()).unwrap_or_else(|| info.kind.default_inputs()),
        })
    }
}

impl ModelRule {
    /// The pattern up to its first `*`.
    fn head(&self) -> &str {
        self.pattern.split_once('*').map_or(self.pattern.as_str(), |(head, _)| head)
    }
}

/// Does `text` match `pattern`, in which `*` stands for any text? Linear: the pieces between stars are searched in
/// order, each at its first place.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|head| text.strip_prefix(head)) else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}
