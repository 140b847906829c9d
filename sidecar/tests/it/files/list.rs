//! Lists: every file once, in pages that each vendor's clients can walk, and no parameter that counts for nothing.

use serde_json::{Value, json};

use super::form::Form;
use super::{VENDORS, Vendor, ids};
use crate::support::{Answer, Call, Sidecar, start};

const BETA: &str = "files-api-2025-04-14";

/// The three shapes of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    OpenAi,
    Cursors,
    Pages,
}

const SHAPES: [Shape; 3] = [Shape::OpenAi, Shape::Cursors, Shape::Pages];

impl Shape {
    fn vendor(self) -> Vendor {
        if self == Self::OpenAi { Vendor::OpenAi } else { Vendor::Anthropic }
    }

    fn call(self, sidecar: &Sidecar, query: &str) -> Call {
        let call = self.vendor().call(sidecar, "GET", &format!("/v1/files{query}"));
        if self == Self::Cursors { call.header("anthropic-beta", &format!("other-2025-01-01,{BETA}")) } else { call }
    }

    async fn list(self, sidecar: &Sidecar, query: &str) -> Value {
        let answer = self.call(sidecar, query).send().await;
        assert_eq!(answer.status, 200, "{query} {:?}", answer.body);
        answer.json()
    }

    #[track_caller]
    fn refused(self, answer: &Answer) -> String {
        self.vendor().refused(answer, 400, "invalid_request_error").0
    }

    /// The query for the page after this one; `None` after the last.
    fn next(self, page: &Value) -> Option<String> {
        let more = page["has_more"] == true;
        match self {
            Self::OpenAi => more.then(|| format!("after={}", page["last_id"].as_str().unwrap())),
            Self::Cursors => more.then(|| format!("after_id={}", page["last_id"].as_str().unwrap())),
            Self::Pages => page["next_page"].as_str().map(|token| format!("page={token}")),
        }
    }

    /// Walks through all pages of this size.
    async fn walk(self, sidecar: &Sidecar, limit: usize, rest: &str) -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.list(sidecar, &format!("?limit={limit}&{cursor}{rest}")).await;
            pages.push(ids(&page).into_iter().map(str::to_owned).collect());
            assert!(pages.len() < 100, "{pages:?}");
            match self.next(&page) {
                Some(next) => cursor = next,
                None => return pages,
            }
        }
    }
}

/// Uploads so many files, the oldest first.
async fn some(sidecar: &Sidecar, count: usize) -> Vec<String> {
    let mut made = Vec::new();
    for number in 0..count {
        let file = Vendor::OpenAi.store(sidecar, &format!("{number}.txt"), b"1").await;
        made.push(file["id"].as_str().unwrap().to_owned());
    }
    made
}

fn sizes(pages: &[Vec<String>]) -> Vec<usize> {
    pages.iter().map(Vec::len).collect()
}

#[tokio::test]
async fn every_shape_walks_through_every_file_once_newest_first() {
    let sidecar = start().await;
    let mut made = some(&sidecar, 7).await;
    let oldest_first = Shape::OpenAi.walk(&sidecar, 3, "&order=asc").await;
    assert_eq!(oldest_first.concat(), made);
    made.reverse();
    for shape in SHAPES {
        for (limit, expected) in [(1, vec![1; 7]), (3, vec![3, 3, 1]), (7, vec![7]), (8, vec![7])] {
            let pages = shape.walk(&sidecar, limit, "").await;
            assert_eq!((sizes(&pages), pages.concat()), (expected, made.clone()), "{shape:?} {limit}");
        }
    }
    // The defaults of both vendors are larger.
    for shape in SHAPES {
        assert_eq!(ids(&shape.list(&sidecar, "?beta=true").await), made);
    }
}

#[tokio::test]
async fn each_vendor_reads_its_own_shape_of_a_page() {
    let sidecar = start().await;
    let members = |page: &Value| page.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    for (shape, empty) in [
        (Shape::OpenAi, json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false})),
        (Shape::Cursors, json!({"data": [], "first_id": null, "last_id": null, "has_more": false})),
        (Shape::Pages, json!({"data": [], "next_page": null})),
    ] {
        let page = shape.list(&sidecar, "").await;
        assert_eq!((members(&page), &page), (members(&empty), &empty));
    }
    let made = some(&sidecar, 3).await;
    for shape in SHAPES {
        let page = shape.list(&sidecar, "?limit=2").await;
        if shape == Shape::Pages {
            assert!(page["next_page"].as_str().unwrap().starts_with("page_"), "{page}");
        } else {
            assert_eq!(page["has_more"], true);
            assert_eq!((&page["first_id"], &page["last_id"]), (&json!(made[2]), &json!(made[1])));
        }
        let path = format!("/v1/files/{}", made[2]);
        assert_eq!(page["data"][0], shape.vendor().get(&sidecar, &path).await.json());
    }
}

#[tokio::test]
async fn a_walk_goes_on_when_the_file_it_stands_at_is_deleted() {
    let sidecar = start().await;
    let made = some(&sidecar, 6).await;
    for (at, shape) in SHAPES.into_iter().enumerate() {
        let left = made.len() - at;
        let first = shape.list(&sidecar, "?limit=2").await;
        let last = ids(&first)[1].to_owned();
        let deleted = sidecar.call("DELETE", &format!("/v1/files/{last}")).send().await;
        assert_eq!(deleted.status, 200);
        let rest = shape.list(&sidecar, &format!("?limit=100&{}", shape.next(&first).unwrap())).await;
        assert_eq!(ids(&rest).len(), left - 2, "{shape:?}");
        assert!(!ids(&rest).contains(&&*last) && !ids(&rest).contains(&ids(&first)[0]));
    }
}

#[tokio::test]
async fn a_page_before_a_file_holds_the_nearest_and_keeps_the_order() {
    let sidecar = start().await;
    let mut made = some(&sidecar, 6).await;
    made.reverse();
    let before = async |id: &str| Shape::Cursors.list(&sidecar, &format!("?limit=2&before_id={id}")).await;
    let nearest = before(&made[4]).await;
    assert_eq!((ids(&nearest), &nearest["has_more"]), (vec![&*made[2], &made[3]], &json!(true)));
    let rest = before(&made[2]).await;
    assert_eq!((ids(&rest), &rest["has_more"]), (vec![&*made[0], &made[1]], &json!(false)));
    let none = before(&made[0]).await;
    assert_eq!((ids(&none), &none["first_id"]), (Vec::new(), &Value::Null));
}

#[tokio::test]
async fn a_filtered_list_has_full_pages_and_knows_its_end() {
    let sidecar = start().await;
    let mut wanted = Vec::new();
    for number in 0..30 {
        let purpose = if number % 3 == 0 { "batch" } else { "vision" };
        let form = Form::default().field("purpose", purpose).named("a", b"1");
        let file = Vendor::OpenAi.upload(&sidecar, form).await.json();
        if purpose == "batch" {
            wanted.insert(0, file["id"].as_str().unwrap().to_owned());
        }
    }
    let pages = Shape::OpenAi.walk(&sidecar, 3, "&purpose=batch").await;
    assert_eq!((sizes(&pages), pages.concat()), (vec![3, 3, 3, 1], wanted));
    for nothing in ["fine-tune", "code_execution_output", "assistants_output"] {
        let none = Shape::OpenAi.list(&sidecar, &format!("?purpose={nothing}")).await;
        assert_eq!((ids(&none), &none["has_more"]), (Vec::new(), &json!(false)));
    }
}

#[tokio::test]
async fn a_bad_parameter_is_refused_by_its_name_and_never_bent() {
    let sidecar = start().await;
    some(&sidecar, 1).await;
    for (shape, queries) in [
        (Shape::OpenAi, &["limit=10001", "order=up", "purpose=asistants", "after_id=x", "page=x", "ids[]=x"][..]),
        (Shape::Cursors, &["limit=1001", "page=page_x", "ids[]=x", "after=x", "order=asc", "scope_id=x"]),
        (Shape::Pages, &["limit=1001", "after_id=x", "before_id=x", "page=x", "page=page_x", "purpose=batch"]),
    ] {
        for query in queries.iter().chain(&["limit=0", "limit=-1", "limit=abc", "limit=", "limit=1&limit=2"]) {
            let answer = shape.call(&sidecar, &format!("?{query}")).send().await;
            let name = query.split('=').next().unwrap();
            assert!(shape.refused(&answer).contains(&format!("`{name}`")), "{query}: {:?}", answer.body);
            if shape == Shape::OpenAi {
                assert_eq!(answer.json()["error"]["param"], name);
            }
        }
    }
    for limit in [1, 1000] {
        for shape in SHAPES {
            shape.list(&sidecar, &format!("?limit={limit}")).await;
        }
    }
    Shape::OpenAi.list(&sidecar, "?limit=10000").await;
}

#[tokio::test]
async fn a_cursor_that_names_no_file_is_a_404_and_a_token_that_is_none_a_400() {
    let sidecar = start().await;
    for cursor in ["file-otr00000000000000000000000000000000", "file-theirs", "", "%00", "%FF"] {
        for (shape, name, kind) in [
            (Shape::OpenAi, "after", "invalid_request_error"),
            (Shape::Cursors, "after_id", "not_found_error"),
            (Shape::Cursors, "before_id", "not_found_error"),
        ] {
            let answer = shape.call(&sidecar, &format!("?{name}={cursor}")).send().await;
            shape.vendor().refused(&answer, 404, kind);
        }
    }
    // Of the right form, but of no file.
    for token in ["page_ZmlsZS1vdHIwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMA", "page_", "page_AA"] {
        let answer = Shape::Pages.call(&sidecar, &format!("?page={token}")).send().await;
        assert!(Shape::Pages.refused(&answer).contains("`page`"));
    }
}

#[tokio::test]
async fn ids_are_looked_up_together_and_what_is_not_there_is_left_out() {
    let sidecar = start().await;
    let made = some(&sidecar, 3).await;
    let ask = |ids: &[&str]| {
        let query: Vec<_> = ids.iter().map(|id| format!("ids%5B%5D={id}")).collect();
        Shape::Pages.call(&sidecar, &format!("?{}", query.join("&"))).send()
    };
    let found = ask(&[&made[2], "file-theirs", &made[0], &made[2], "%00"]).await.json();
    assert_eq!((ids(&found), &found["next_page"]), (vec![&*made[2], &made[0]], &Value::Null));
    let many: Vec<String> = (0..101).map(|number| format!("file-otr{number:032x}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(ids(&ask(&many[..100]).await.json()), Vec::<&str>::new());
    assert!(Shape::Pages.refused(&ask(&many).await).contains("`ids[]`"));
    for other in ["limit=2", "page=page_x"] {
        let answer = Shape::Pages.call(&sidecar, &format!("?ids[]=x&{other}")).send().await;
        let name = other.split('=').next().unwrap();
        assert!(Shape::Pages.refused(&answer).contains(&format!("`{name}`")));
    }
}

#[tokio::test]
async fn a_page_of_a_hundred_files_holds_what_is_said_of_them_and_no_content() {
    let sidecar = start().await;
    let content = vec![b'x'; 2000];
    for number in 0..100 {
        Vendor::OpenAi.store(&sidecar, &format!("{number}.txt"), &content).await;
    }
    for vendor in VENDORS {
        let page = vendor.get(&sidecar, "/v1/files?limit=100").await;
        assert_eq!(ids(&page.json()).len(), 100);
        assert!(page.body.len() < 64 << 10, "{}", page.body.len());
        assert!(!page.body.windows(100).any(|window| window == &content[..100]));
    }
}
