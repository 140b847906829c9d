//! What a turn cost, in tokens.
//!
//! INVARIANT: `input` never counts tokens read from or written to a cache; a reader whose wire counts them in takes them out.

use serde_json::{Map, Value};

/// Tokens of one turn, or of all turns of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Prompt tokens, without those from or to a cache.
    pub input: u64,
    /// Prompt tokens read from a cache.
    pub cache_read: u64,
    /// Prompt tokens written to a cache.
    pub cache_write: u64,
    /// Generated tokens.
    pub output: u64,
    /// Those of them that were thoughts, where the wire tells.
    pub reasoning: u64,
    /// The wire's own usage object, kept on the same wire for what the fields above do not name.
    pub raw: Option<Map<String, Value>>,
}

impl Usage {
    /// Adds a turn: numbers are summed wherever they stand, anything else is the newer turn's.
    pub fn add(&mut self, turn: Self) {
        self.input = self.input.saturating_add(turn.input);
        self.cache_read = self.cache_read.saturating_add(turn.cache_read);
        self.cache_write = self.cache_write.saturating_add(turn.cache_write);
        self.output = self.output.saturating_add(turn.output);
        self.reasoning = self.reasoning.saturating_add(turn.reasoning);
        match (&mut self.raw, turn.raw) {
            (Some(total), Some(turn)) => add_objects(total, turn),
            (total @ None, turn) => *total = turn,
            (Some(_), None) => {}
        }
    }
}

fn add_objects(total: &mut Map<String, Value>, turn: Map<String, Value>) {
    for (key, value) in turn {
        match total.get_mut(&key) {
            Some(known) => add_values(known, value),
            None => drop(total.insert(key, value)),
        }
    }
}

fn add_values(total: &mut Value, turn: Value) {
    match (&mut *total, turn) {
        (Value::Object(total), Value::Object(turn)) => add_objects(total, turn),
        (Value::Array(total), Value::Array(turn)) => total.extend(turn),
        (Value::Number(known), Value::Number(more)) => match (known.as_u64(), more.as_u64()) {
            (Some(known), Some(more)) => *total = known.saturating_add(more).into(),
            _ => *total = Value::Number(more),
        },
        // A turn that says null knows nothing; what an earlier one said stands.
        (_, Value::Null) => {}
        (_, turn) => *total = turn,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(raw: &Value) -> Usage {
        Usage { raw: raw.as_object().cloned(), ..Usage::default() }
    }

    #[test]
    fn numbers_add_up_wherever_they_stand_and_words_are_the_newest() {
        let mut total = usage(&json!({"output_tokens": 3, "cache": {"ephemeral": 2}, "tier": "a", "kept": 1}));
        total.add(usage(&json!({"output_tokens": 4, "cache": {"ephemeral": 5}, "tier": "b", "kept": null, "new": 9})));
        let expected = json!({"output_tokens": 7, "cache": {"ephemeral": 7}, "tier": "b", "kept": 1, "new": 9});
        assert_eq!(total.raw.map(Value::Object), Some(expected));
    }

    #[test]
    fn what_one_turn_leaves_out_stands_and_lists_grow() {
        let mut total = usage(&json!({"details": {"reasoning": 3, "audio": 1}, "iterations": [{"output_tokens": 3}]}));
        total.add(usage(&json!({"details": {"reasoning": 4}, "iterations": [{"output_tokens": 4}]})));
        total.add(Usage::default());
        total.add(usage(&json!({"details": {"reasoning": 5, "audio": 2, "new": 6}})));
        let expected = json!({"details": {"reasoning": 12, "audio": 3, "new": 6},
            "iterations": [{"output_tokens": 3}, {"output_tokens": 4}]});
        assert_eq!(total.raw.map(Value::Object), Some(expected));
    }
}
