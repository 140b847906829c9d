//! Stand-in until branch `loop` is merged.

/// Anthropic Messages.
pub mod messages {
    /// Folds nothing yet.
    pub fn fold_minted(_body: &mut serde_json::Value) -> bool {
        false
    }
}
