use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

const ALL: [Shape; 3] = [Shape::OpenAi, Shape::Cursors, Shape::Pages];

fn page(query: &str, shape: Shape) -> ListQuery {
    match read(query, shape) {
        Ok(Question::Page(page)) => page,
        other => panic!("{query}: {other:?}"),
    }
}

/// The parameter that a query is refused for.
fn refused(query: &str, shape: Shape) -> String {
    let problem = read(query, shape).expect_err(query);
    let param = problem.param.unwrap();
    assert!(problem.message.starts_with(&format!("`{param}` ")), "{}", problem.message);
    param
}

#[test]
fn the_beta_decides_between_anthropics_two_lists_wherever_it_stands() {
    let headers = |lines: &[&str]| {
        let name = HeaderName::from_static(header::ANTHROPIC_BETA);
        lines.iter().map(|line| (name.clone(), HeaderValue::from_str(line).unwrap())).collect::<HeaderMap>()
    };
    for (lines, expected) in [
        (&[][..], Shape::Pages),
        (&["files-api-2025-04-14"], Shape::Cursors),
        (&["code-execution-2025-05-22, files-api-2025-04-14"], Shape::Cursors),
        (&["one", "two,files-api-2025-04-14 ,three"], Shape::Cursors),
        (&["files-api-2025-04-140", "xfiles-api-2025-04-14"], Shape::Pages),
    ] {
        assert_eq!(Shape::of(Vocabulary::Anthropic, &headers(lines)), expected, "{lines:?}");
        assert_eq!(Shape::of(Vocabulary::OpenAi, &headers(lines)), Shape::OpenAi);
    }
}

#[test]
fn every_shape_has_its_vendors_defaults() {
    for (shape, limit) in [(Shape::OpenAi, 10_000), (Shape::Cursors, 20), (Shape::Pages, 20)] {
        let usual = ListQuery { order: Order::Descending, cursor: None, limit, purpose: None };
        for query in ["", "beta=true", "&&", "unheard_of=1"] {
            assert_eq!(page(query, shape), usual, "{query}");
        }
    }
}

#[test]
fn every_parameter_of_a_shape_is_honoured() {
    let query = page("after=file-1&limit=3&order=asc&purpose=fine-tune", Shape::OpenAi);
    let after = Some(Cursor::After("file-1".to_owned()));
    let expected =
        ListQuery { order: Order::Ascending, cursor: after.clone(), limit: 3, purpose: Some(Purpose::FineTune) };
    assert_eq!(query, expected);
    assert_eq!(page("purpose=code_execution_output", Shape::OpenAi).purpose, Some(Purpose::CodeExecutionOutput));
    assert_eq!(read("purpose=batch_output", Shape::OpenAi), Ok(Question::Nothing));
    assert_eq!(page("after_id=file%2D1", Shape::Cursors).cursor, after);
    assert_eq!(page("before_id=x&limit=1000", Shape::Cursors).cursor, Some(Cursor::Before("x".to_owned())));
    assert_eq!(page(&format!("page={}", token_after("file-1")), Shape::Pages).cursor, after);
    let ids = read("ids%5B%5D=b&ids[]=a&ids%5B%5D=b", Shape::Pages);
    assert_eq!(ids, Ok(Question::Ids(vec!["b".to_owned(), "a".to_owned()])));
}

#[test]
fn a_limit_is_a_number_within_the_vendors_bounds_and_never_bent() {
    for (shape, largest) in [(Shape::OpenAi, 10_000), (Shape::Cursors, 1000), (Shape::Pages, 1000)] {
        assert_eq!(page(&format!("limit={largest}"), shape).limit, largest);
        assert_eq!(page("limit=1", shape).limit, 1);
        let more = (largest + 1).to_string();
        for odd in ["0", "-1", &more, "abc", "", "1.5", "+5", "%205", "99999999999999999999"] {
            assert_eq!(refused(&format!("limit={odd}"), shape), "limit", "{odd}");
        }
    }
}

#[test]
fn what_would_be_ignored_is_refused_by_name() {
    for (shape, queries) in [
        (Shape::OpenAi, &["after_id=x", "before_id=x", "before=x", "page=x", "ids[]=x", "ids=x", "scope_id=x"][..]),
        (Shape::Cursors, &["page=x", "ids[]=x", "after=x", "order=asc", "purpose=vision", "scope_id=x"]),
        (Shape::Pages, &["after_id=x", "before_id=x", "after=x", "ids=x", "order=asc", "purpose=vision", "scope_id=x"]),
    ] {
        for query in queries {
            let name = query.split('=').next().unwrap();
            assert_eq!(refused(query, shape), name);
        }
    }
    for (query, shape, param) in [
        ("order=up", Shape::OpenAi, "order"),
        ("order=", Shape::OpenAi, "order"),
        ("purpose=asistants", Shape::OpenAi, "purpose"),
        ("purpose=", Shape::OpenAi, "purpose"),
        ("after=x&after=y", Shape::OpenAi, "after"),
        ("after_id=x&before_id=y", Shape::Cursors, "before_id"),
        ("ids[]=x&limit=2", Shape::Pages, "limit"),
        ("ids[]=x&page=page_", Shape::Pages, "page"),
    ] {
        assert_eq!(refused(query, shape), param, "{query}");
    }
    for shape in ALL {
        assert_eq!(refused("limit=1&limit=1", shape), "limit");
    }
}

#[test]
fn a_hundred_different_ids_are_the_most() {
    let ids = |count: usize| (0..count).map(|id| format!("ids[]={id}&ids[]={id}")).collect::<Vec<_>>().join("&");
    let Ok(Question::Ids(hundred)) = read(&ids(100), Shape::Pages) else { panic!() };
    assert_eq!(hundred.len(), 100);
    assert_eq!(refused(&ids(101), Shape::Pages), "ids[]");
}

#[test]
fn a_token_that_is_none_is_refused() {
    for token in ["", "page_*", "page_YQ==", "x", "cGFnZV8", "page_%FF", "page__w"] {
        assert_eq!(refused(&format!("page={token}"), Shape::Pages), "page", "{token}");
    }
}

proptest! {
    #[test]
    fn a_token_leads_back_to_its_file(id in any::<String>()) {
        let token = token_after(&id);
        prop_assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
        prop_assert_eq!(id_of_token(&token), Ok(id));
    }

    #[test]
    fn no_query_makes_the_reader_stumble(query in "[a-z_=&%\\[\\]0-9\u{0}-\u{ff}]{0,60}") {
        for shape in ALL {
            if let Ok(Question::Page(page)) = read(&query, shape) {
                prop_assert!((1..=10_000).contains(&page.limit));
            }
        }
    }
}
