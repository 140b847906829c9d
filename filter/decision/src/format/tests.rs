use proptest::prelude::*;

use super::path::{MAX_ODD, decode_fully};
use super::{ApiFormat, Endpoint, Vocabulary, classify};
use crate::config::default_roots;

fn check(path: &str, expected: Endpoint) {
    assert_eq!(classify(path.as_bytes(), &default_roots()), expected, "{path}");
}

fn misspelled(path: &[u8]) -> Option<String> {
    match classify(path, &default_roots()) {
        Endpoint::Misspelled(Some(place)) => Some(place.spelling(&default_roots())),
        _ => None,
    }
}

#[test]
fn an_endpoint_has_one_spelling() {
    check("/v1/messages", Endpoint::Inference(ApiFormat::Messages));
    check("/api/v1/messages", Endpoint::Inference(ApiFormat::Messages));
    check("/v1/messages?beta=true", Endpoint::Inference(ApiFormat::Messages));
    check("/v1/messages?a=%20/../b#", Endpoint::Inference(ApiFormat::Messages));
    check("/v1/chat/completions", Endpoint::Inference(ApiFormat::ChatCompletions));
    check("/v1/responses", Endpoint::Inference(ApiFormat::Responses));
    for path in [
        r"/v1\messages",
        r"/v1\\messages",
        "/v1//../messages",
        "/v1/x//../messages",
        "/v1/..//v1/messages",
        "/v1//messages",
        "//v1/messages",
        "///v1/messages",
        "/v1/messages/",
        "/v1/messages/?x",
        "/v1/messages/.",
        "/v1/messages/x/..",
        "/v1/./messages",
        "/v1/x/../messages",
        "/../v1/messages",
        "/v1/files/../messages",
        "/v1/files//../../v1/messages",
        r"/v1/..\v1/messages",
        "/v1/%6dessages",
        "/v1/%6Dessages",
        "/v1/%256dessages",
        "/v1/%25252525252525256dessages",
        "/v1/%%36%64essages",
        "/v1/%25%36%64essages",
        "/v1%2fmessages",
        "/v1%5cmessages",
        "/v1/%2e%2e/v1/messages",
        "/v1/messages;x",
        "/v1/messages;x/y",
        "/v1;x/messages",
        "/v1/x/..;/messages",
        "/v1/messages%3bx",
        "/v1/messages%3fbeta=true",
        "/v1/messages%23",
        "/v1/messages#top",
        "/v1/messages%20",
        "/v1/messages+",
        "/v1/messages%00",
        "/v1/messages%00.json",
        "/v1/mess%09ages",
        "/v1/mess%0d%0aages",
        "/v1/%%096dessages",
        "/v1/messages\t",
        "/V1/Messages",
        "/v1/Messages",
        "/API/v1/messages",
        "v1/messages",
        "http://host/v1/messages",
        "//host/v1/messages",
        "/../base/v1/messages",
        "/x/../base/v1/messages",
    ] {
        assert_eq!(misspelled(path.as_bytes()).as_deref(), Some("/v1/messages"), "{path}");
    }
    assert_eq!(misspelled(b"/v1/chat//completions").as_deref(), Some("/v1/chat/completions"));
}

#[test]
fn files_and_control_by_whole_segments() {
    for path in ["/v1/messages/batches", "/api/v1/batches", "/v1/threads/t/runs", "/v1/assistants?limit=1"] {
        check(path, Endpoint::Uninspected);
    }
    assert!(matches!(classify(b"/v1/messages//batches", &default_roots()), Endpoint::Misspelled(_)));
    let count = Endpoint::TokenCount(ApiFormat::Messages);
    check("/api/v1/messages/count_tokens?beta=true", count);
    assert_eq!((count.format(), Vocabulary::of(count, |_| false)), (None, Vocabulary::Anthropic));
    check("/v1/files", Endpoint::Files);
    check("/v1/files/file-otr1/content", Endpoint::Files);
    check("/v1/files/File-X.y~z", Endpoint::Files);
    check("/api/v1/containers/c/files/f", Endpoint::Files);
    check("/v1/tools", Endpoint::Control);
    check("/v1/workspaces/w/code-execution-policy", Endpoint::Control);
    check("/v1/settings", Endpoint::Control);
    check("/otari", Endpoint::Control);
    check("/otari/internal/snapshot", Endpoint::Control);
    check("/healthz", Endpoint::Control);
    check("/healthz/filter", Endpoint::Control);
    for path in ["/v1/filesystem", "/v1/toolsets", "/otariana", "/healthz2", "/files"] {
        check(path, Endpoint::Other);
    }
    for (path, spelling) in [
        (r"/v1\files", "/v1/files"),
        ("/v1/files/", "/v1/files"),
        ("/v1/files/a%2fb", "/v1/files"),
        ("/v1/files/../x", "/v1/files"),
        ("/v1/files/%2e%2e/x", "/v1/files"),
        ("/v1/x/../files/%2e%2e/y", "/v1/files"),
        ("/v1/x/%2e%2e/files", "/v1/files"),
        ("/v1/Files/a", "/v1/files"),
        ("//otari/internal/snapshot", "/otari"),
        ("/otari//internal/snapshot", "/otari"),
        ("/otari/%69nternal/snapshot", "/otari"),
        ("/healthz/../otari/internal/snapshot", "/otari"),
        ("/healthz%2ffilter", "/healthz"),
    ] {
        assert_eq!(misspelled(path.as_bytes()).as_deref(), Some(spelling), "{path}");
    }
}

#[test]
fn where_both_vendors_have_the_path_anthropics_headers_tell_who_asks() {
    let files = classify(b"/v1/files", &default_roots());
    let odd = classify(b"/v1/files/a%2fb", &default_roots());
    assert!(files.is_files() && odd.is_files() && !classify(b"/v1/messages", &default_roots()).is_files());
    for (sent, expected) in [
        ("anthropic-version", Vocabulary::Anthropic),
        ("anthropic-beta", Vocabulary::Anthropic),
        ("x-api-key", Vocabulary::OpenAi),
    ] {
        assert_eq!(Vocabulary::of(files, |name| name == sent), expected);
        assert_eq!(Vocabulary::of(odd, |name| name == sent), expected);
    }
    let chat = classify(b"/v1/chat/completions", &default_roots());
    assert_eq!(Vocabulary::of(chat, |_| true), Vocabulary::OpenAi);
}

#[test]
fn what_nobody_reads_as_an_endpoint_is_other() {
    for path in [
        "/v1/messages/count_tokens/x",
        "/v1/responses/resp_1",
        "/v1/models/org%2Fmodel",
        "/v1/models/org%2Ffiles",
        "/v1/models/a+b;c",
        "/v1/models?of=/v1/messages",
        "/v1/chat",
        "/v1/mess%61ge",
        "/v1messages",
        "/messages",
        "/a/v1/messages",
        "/v1/\u{0}",
        "/v1/messages%",
        "/v1/messages%0",
        "*",
        "/",
        "",
    ] {
        check(path, Endpoint::Other);
    }
    assert_eq!(classify(b"/v1/\xff", &default_roots()), Endpoint::Other);
}

#[test]
fn what_is_too_long_to_tell_is_nobodys() {
    let long = |segment: &str| format!("/v1/{}", segment.repeat(MAX_ODD / segment.len()));
    check(&long("a"), Endpoint::Other);
    check(&long("%61"), Endpoint::Misspelled(None));
    check(&format!("/v1/a?{}", long("%61")), Endpoint::Other);
}

#[test]
fn roots_come_from_the_configuration() {
    let roots = ["/llm".to_owned(), String::new(), "/LLM".to_owned()];
    assert_eq!(classify(b"/llm/messages", &roots), Endpoint::Inference(ApiFormat::Messages));
    assert_eq!(classify(b"/LLM/messages", &roots), Endpoint::Inference(ApiFormat::Messages));
    assert_eq!(classify(b"/messages", &roots), Endpoint::Inference(ApiFormat::Messages));
    assert_eq!(classify(b"/v1/messages", &roots), Endpoint::Other);
    assert!(matches!(classify(b"/Llm/messages", &roots), Endpoint::Misspelled(_)));
}

#[test]
fn escapes_come_off_until_none_is_left() {
    for (text, expected) in
        [("", ""), ("%", "%"), ("%2", "%2"), ("%zz", "%zz"), ("%61", "a"), ("%2561", "a"), ("%25%36%31", "a")]
    {
        assert_eq!(decode_fully(text.as_bytes()), expected.as_bytes(), "{text}");
    }
}

const PATHS: &[&[&str]] = &[
    &["v1", "messages"],
    &["api", "v1", "messages"],
    &["v1", "chat", "completions"],
    &["v1", "responses"],
    &["v1", "files", "file-1"],
    &["v1", "workspaces", "w"],
    &["otari", "internal", "snapshot"],
    &["healthz"],
];
const ENDS: &[&str] = &["", "", "/", "/.", "/x/..", ";x", "?x", "#x", " ", "\t", "\0x", "/;", " /x"];

/// What some server would undo, at a slash of the path.
fn slash() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("/".to_owned()),
        1 => Just(r"\".to_owned()),
        1 => Just("//".to_owned()),
        1 => Just("/./".to_owned()),
        1 => Just("/x/../".to_owned()),
        1 => Just(";p=1/".to_owned()),
        1 => Just("/y/..;q/".to_owned()),
    ]
}

/// And at its end.
fn end() -> impl Strategy<Value = String> {
    proptest::sample::select(ENDS).prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    /// The inverse of all readings: whatever is done to an endpoint's path that a server might undo, it is no `Other`.
    #[test]
    fn no_disguise_of_an_endpoint_is_other(
        segments in proptest::sample::select(PATHS),
        slashes in proptest::collection::vec(slash(), 4),
        end in end(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8), 0..12),
    ) {
        let plain: String = segments.iter().flat_map(|segment| ["/", segment]).collect();
        let mut path: Vec<u8> = segments.iter().zip(&slashes).flat_map(|(one, slash)| [slash, *one].concat().into_bytes())
            .chain(end.bytes()).collect();
        for (at, change) in changes {
            let at = at.index(path.len());
            match change {
                0 => path[at] = path[at].to_ascii_uppercase(),
                1 => path.splice(at..=at, format!("%{:02X}", path[at]).into_bytes()).for_each(drop),
                2 => path.splice(at..=at, format!("%{:02x}", path[at]).into_bytes()).for_each(drop),
                _ => path.splice(at..at, *b"%0a").for_each(drop),
            }
        }
        let endpoint = classify(&path, &default_roots());
        let text = String::from_utf8_lossy(&path);
        prop_assert_ne!(endpoint, Endpoint::Other, "{}", text);
        let spelled = text.split('?').next() == Some(&plain);
        prop_assert!(spelled || !matches!(endpoint, Endpoint::Inference(_)), "{}", text);
        prop_assert!(!spelled || !matches!(endpoint, Endpoint::Misspelled(_)), "{}", text);
    }

    #[test]
    fn any_bytes_are_answered(path: Vec<u8>) {
        classify(&path, &default_roots());
    }
}
