//! What the filter tells the sidecar of its decision, so that two versions that decide differently are seen.
//!
//! INVARIANT: nobody acts on it; the sidecar decides by itself.

use super::Env;
use crate::decide::{Decision, Outcome};
use crate::reason::Reason;

/// The value of `x-otari-decision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome's word.
    pub outcome: &'static str,
    /// Why.
    pub reason: Reason,
    /// Version of the snapshot it rests on; `None` when there was none to rest on.
    pub snapshot: Option<u64>,
}

impl Verdict {
    pub(super) fn of(decision: &Decision, env: &Env<'_>) -> Self {
        let snapshot = env.policy.fresh().map(|snapshot| snapshot.version);
        Self { outcome: decision.outcome.word(), reason: decision.reason, snapshot }
    }

    pub(super) fn header(self) -> String {
        let snapshot = self.snapshot.map_or_else(|| NO_SNAPSHOT.to_owned(), |version| version.to_string());
        format!("outcome={} reason={} snapshot={snapshot}", self.outcome, self.reason.code())
    }

    /// Reads a header; `None` when this version would not have written it.
    pub fn parse(header: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(header).ok()?.split(' ');
        let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let (outcome, reason, snapshot) = (field("outcome")?, field("reason")?, field("snapshot")?);
        if fields.next().is_some() {
            return None;
        }
        Some(Self {
            outcome: Outcome::WORDS.into_iter().find(|word| *word == outcome)?,
            reason: Reason::ALL.iter().copied().find(|reason_| reason_.code() == reason)?,
            snapshot: if snapshot == NO_SNAPSHOT { None } else { Some(snapshot.parse().ok()?) },
        })
    }

    /// Whether the sidecar's own decision is the same, or one that only the sidecar could come to: the filter left it
    /// undecided, or the policy's part that is not published refuses the run.
    pub fn agrees(self, outcome: &str, reason: Reason) -> bool {
        let finer = matches!(reason, Reason::ToolsNotServed | Reason::ImageNotAllowed);
        match (self.outcome, outcome) {
            ("undecided", _) => true,
            ("otari", "refuse") if finer => true,
            (filters, own) => filters == own && self.reason == reason,
        }
    }
}

const NO_SNAPSHOT: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for reason in Reason::ALL {
            for (outcome, snapshot) in Outcome::WORDS.into_iter().zip([None, Some(0), Some(7), Some(u64::MAX)]) {
                let verdict = Verdict { outcome, reason: *reason, snapshot };
                assert_eq!(Verdict::parse(verdict.header().as_bytes()), Some(verdict));
            }
        }
        for odd in [
            "",
            "outcome=otari",
            "outcome=otari reason=otari_by_pin",
            "outcome=others reason=otari_by_pin snapshot=1",
            "outcome=otari reason=because snapshot=1",
            "outcome=otari reason=otari_by_pin snapshot=-1",
            "outcome=otari reason=otari_by_pin snapshot=1 more=1",
            "reason=otari_by_pin outcome=otari snapshot=1",
        ] {
            assert_eq!(Verdict::parse(odd.as_bytes()), None, "{odd}");
        }
        assert_eq!(Verdict::parse(b"\xff"), None);
    }

    #[test]
    fn what_only_the_sidecar_can_tell_is_no_disagreement() {
        let verdict = |outcome, reason| Verdict { outcome, reason, snapshot: Some(1) };
        assert!(verdict("undecided", Reason::KeyUnverified).agrees("refuse", Reason::KeyUnknown));
        assert!(verdict("otari", Reason::OtariByPin).agrees("otari", Reason::OtariByPin));
        assert!(verdict("otari", Reason::OtariByPin).agrees("refuse", Reason::ImageNotAllowed));
        assert!(!verdict("otari", Reason::OtariByPin).agrees("refuse", Reason::ExecutionDisabled));
        assert!(!verdict("otari", Reason::OtariByPin).agrees("otari", Reason::OtariByHeader));
        assert!(!verdict("provider", Reason::NoCodeTool).agrees("otari", Reason::OtariNotNative));
    }
}
