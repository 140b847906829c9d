//! What documents were read as, kept for the next request that names them: a conversation names its files in every turn.
//!
//! INVARIANT: no more characters are held than [`MAX_BYTES`] in all. A reading is found by the id of its file alone, whose
//! content never changes, and only by who has looked that file up for its owner.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of all texts together.
const MAX_BYTES: usize = 32 << 20;
/// What a reading takes beside its text.
const ENTRY_BYTES: usize = 256;

/// What a document was read as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Its text.
    Text(Arc<str>),
    /// A longer text than a model is shown.
    TooLong,
    /// No text.
    Nothing,
}

/// The readings of documents, by the ids of their files; the ones used last. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Readings(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// With the turn in which each was last used.
    by_id: HashMap<String, (Reading, u64)>,
    by_turn: BTreeMap<u64, String>,
    turn: u64,
    bytes: usize,
}

impl Reading {
    fn bytes(&self) -> usize {
        let text = if let Self::Text(text) = self { text.len() } else { 0 };
        text.saturating_add(ENTRY_BYTES)
    }
}

impl Readings {
    /// What is known of a file.
    pub(super) fn get(&self, id: &str) -> Option<Reading> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (reading, _) = kept.take(id)?;
        kept.put(id, reading.clone());
        Some(reading)
    }

    /// Keeps what a file was read as; the ones that were not used for longest make room.
    pub(super) fn keep(&self, id: &str, reading: Reading) {
        if reading.bytes() > MAX_BYTES {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take(id);
        kept.put(id, reading);
        while kept.bytes > MAX_BYTES {
            let Some((_, oldest)) = kept.by_turn.first_key_value() else { return };
            let oldest = oldest.clone();
            kept.take(&oldest);
        }
    }
}

impl Kept {
    fn take(&mut self, id: &str) -> Option<(Reading, u64)> {
        let (reading, turn) = self.by_id.remove(id)?;
        self.by_turn.remove(&turn);
        self.bytes = self.bytes.saturating_sub(reading.bytes());
        Some((reading, turn))
    }

    fn put(&mut self, id: &str, reading: Reading) {
        self.turn = self.turn.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(reading.bytes());
        self.by_turn.insert(self.turn, id.to_owned());
        self.by_id.insert(id.to_owned(), (reading, self.turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readings_used_last_are_kept_and_no_more_than_fit() {
        let readings = Readings::default();
        let text = |bytes: usize| Reading::Text("x".repeat(bytes).into());
        let third = MAX_BYTES / 3;
        for id in ["a", "b"] {
            readings.keep(id, text(third));
        }
        assert_eq!(readings.get("a"), Some(text(third)));
        readings.keep("c", text(third));
        assert_eq!((readings.get("b"), readings.get("a")), (None, Some(text(third))), "`a` was used since");
        readings.keep("a", Reading::TooLong);
        readings.keep("huge", text(MAX_BYTES + 1));
        assert_eq!((readings.get("huge"), readings.get("a")), (None, Some(Reading::TooLong)));
        let kept = readings.0.lock().unwrap();
        assert_eq!(kept.bytes, text(third).bytes() + Reading::TooLong.bytes());
        assert_eq!((kept.by_id.len(), kept.by_turn.len()), (2, 2));
    }

    #[test]
    fn readings_without_a_text_have_a_limit_too() {
        let readings = Readings::default();
        for number in 0..MAX_BYTES / ENTRY_BYTES + 10 {
            readings.keep(&number.to_string(), Reading::Nothing);
        }
        assert_eq!(readings.0.lock().unwrap().by_id.len(), MAX_BYTES / ENTRY_BYTES);
        assert_eq!(readings.get("9"), None);
    }
}
