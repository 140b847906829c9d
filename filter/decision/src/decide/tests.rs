//! What holds for every input there is.

use proptest::prelude::*;

use super::{Decision, Input, Outcome, decide};
use crate::config::ProviderKind;
use crate::format::ApiFormat;
use crate::policy::{PolicyView, Preference, Snapshot, WorkspacePolicy};
use crate::reason::Reason;
use crate::request::{Keyword, RequestView, ToolDeclaration};

impl Decision {
    /// The provider gets it.
    pub(crate) fn is_provider(&self) -> bool {
        self.outcome == Outcome::Provider
    }

    fn is_otari(&self) -> bool {
        matches!(self.outcome, Outcome::Otari(_))
    }
}

/// What becomes of this body where the workspace pins code to the gateway and the provider could run it too.
pub(crate) fn pinned_here(request: &RequestView) -> Decision {
    let snapshot = snapshot(Preference::Auto, true, Some(Preference::Otari));
    decide(&Input {
        format: ApiFormat::Messages,
        request,
        header: None,
        provider: Some((ProviderKind::Anthropic, &[ApiFormat::Messages])),
        workspace: "w",
        static_pin: None,
        policy: PolicyView::Fresh(&snapshot),
    })
}

fn snapshot(default: Preference, sandbox: bool, pin: Option<Preference>) -> Snapshot {
    let mut snapshot = Snapshot { default_executor: default, sandbox_available: sandbox, ..Snapshot::default() };
    snapshot.workspaces.insert("w".to_owned(), WorkspacePolicy { pin, ..WorkspacePolicy::default() });
    snapshot
}

fn preference() -> impl Strategy<Value = Preference> {
    prop_oneof![Just(Preference::Auto), Just(Preference::Otari), Just(Preference::Provider)]
}

fn format() -> impl Strategy<Value = ApiFormat> {
    prop_oneof![Just(ApiFormat::Messages), Just(ApiFormat::Responses), Just(ApiFormat::ChatCompletions)]
}

fn kind() -> impl Strategy<Value = ProviderKind> {
    prop_oneof![Just(ProviderKind::Anthropic), Just(ProviderKind::Openai), Just(ProviderKind::OpenaiCompatible)]
}

fn request() -> impl Strategy<Value = RequestView> {
    let keyword = prop_oneof![
        Just(Keyword::Explicit),
        Just(Keyword::Bare),
        Just(Keyword::Interpreter),
        Just(Keyword::Dated("20250825".to_owned())),
    ];
    let container = prop_oneof![3 => Just(None), 1 => Just(Some("otari_cntr_1".to_owned()))];
    let flags = proptest::collection::vec(proptest::bool::weighted(0.1), 4);
    (proptest::collection::vec(keyword, 0..4), container, flags, proptest::option::of(0..30u32)).prop_map(
        |(keywords, own_container, flags, max_tool_iterations)| RequestView {
            declarations: keywords
                .into_iter()
                .zip(0..)
                .map(|(keyword, index)| ToolDeclaration { index, keyword, name: None, purpose_hint: None })
                .collect(),
            own_container,
            mcp: flags[0],
            web_search: flags[1],
            containers_differ: flags[2],
            skills: flags[3],
            max_tool_iterations,
            ..RequestView::default()
        },
    )
}

#[derive(Debug, Clone)]
struct Given {
    request: RequestView,
    header: Option<Preference>,
    pin: Option<Preference>,
    default: Preference,
    sandbox: bool,
    format: ApiFormat,
    kind: Option<ProviderKind>,
}

fn given() -> impl Strategy<Value = Given> {
    let preferences = (proptest::option::of(preference()), proptest::option::of(preference()), preference());
    let place = (proptest::bool::weighted(0.8), format(), proptest::option::of(kind()));
    (request(), preferences, place).prop_map(|(request, (header, pin, default), (sandbox, format, kind))| Given {
        request,
        header,
        pin,
        default,
        sandbox,
        format,
        kind,
    })
}

const ALL_WIRES: &[ApiFormat] = &[ApiFormat::Messages, ApiFormat::Responses, ApiFormat::ChatCompletions];

impl Given {
    fn decide_under(&self, policy: PolicyView<'_>) -> Decision {
        decide(&Input {
            format: self.format,
            request: &self.request,
            header: self.header,
            provider: self.kind.map(|kind| (kind, ALL_WIRES)),
            workspace: "w",
            static_pin: None,
            policy,
        })
    }

    fn decide(&self) -> Decision {
        self.decide_under(PolicyView::Fresh(&snapshot(self.default, self.sandbox, self.pin)))
    }

    fn declares(&self, provider: bool) -> bool {
        self.request.declarations.iter().any(|one| one.keyword.is_provider() == provider)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_asked_for_here_never_goes_to_the_provider(given in given()) {
        let decision = given.decide();
        let declared = !given.request.declarations.is_empty();
        if declared && given.sandbox && given.pin == Some(Preference::Otari) {
            prop_assert!(!decision.is_provider());
        }
        if declared && given.header == Some(Preference::Otari) && given.pin.is_none() {
            prop_assert!(!decision.is_provider());
        }
        if given.declares(false) || given.request.own_container.is_some() {
            prop_assert!(!decision.is_provider());
        }
    }

    #[test]
    fn what_is_asked_of_the_provider_never_runs_here(given in given()) {
        let decision = given.decide();
        let wish = given.pin.or(given.header);
        if given.declares(true) && wish == Some(Preference::Provider) {
            prop_assert!(!decision.is_otari());
        }
        if !given.sandbox || given.request.declarations.is_empty() {
            prop_assert!(!decision.is_otari());
        }
    }

    #[test]
    fn without_a_fresh_snapshot_a_code_tool_is_nobodys_yet(given in given()) {
        for view in [PolicyView::Stale(&Snapshot::default()), PolicyView::Missing] {
            let decision = given.decide_under(view);
            prop_assert!(!decision.is_otari());
            if given.request.declarations.is_empty() {
                prop_assert_eq!(decision, given.decide());
            } else if !given.request.containers_differ {
                prop_assert_eq!(decision.outcome, Outcome::Undecided);
            }
        }
    }

    #[test]
    fn a_run_keeps_its_limits_and_claims_everything(given in given()) {
        if let Outcome::Otari(run) = given.decide().outcome {
            prop_assert!((1..=super::MAX_ITERATIONS).contains(&run.max_iterations));
            prop_assert!((1..=super::MAX_EXEC_TIMEOUT_S).contains(&run.exec_timeout_s));
            prop_assert_eq!(&run.claimed, &given.request.declarations);
            prop_assert!(!run.tools.is_empty());
            prop_assert_eq!(run.container, given.request.own_container);
        }
    }
}

#[test]
fn words_of_a_preference_are_read_as_people_write_them() {
    for (text, expected) in [
        ("auto", Some(Preference::Auto)),
        (" OTARI\t", Some(Preference::Otari)),
        ("Provider", Some(Preference::Provider)),
        ("", None),
        ("  ", None),
        ("gateway", None),
        ("otari,otari", None),
    ] {
        assert_eq!(Preference::parse(text.as_bytes()), expected, "{text:?}");
    }
    assert_eq!(Preference::parse(b"\xffauto"), None);
}

#[test]
fn reasons_have_codes_of_their_own() {
    let mut codes: Vec<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        assert!(reason.words().ends_with('.') && !reason.words().contains('`'), "{}", reason.code());
    }
}
