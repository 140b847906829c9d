//! Files: listed, read, put in; and the places that are no files.

use serde_json::{Value, json};

use super::{FORM_TYPE, Served, assert_refused, form, serve, serve_with};

async fn names(served: &Served, session: &str, query: &str) -> Vec<String> {
    let list = served.get(&format!("{session}/files/list{query}")).await;
    assert_eq!(list.status, 200, "{query}: {:?}", list.body);
    let list = list.json();
    list["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_file_comes_out_as_it_went_in() {
    let served = serve().await;
    let session = served.session().await;
    let long: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).take(5_000_001).collect();
    for (path, content) in [
        ("a b é.csv", &b"x,y\n"[..]),
        ("deep/er/long.bin", &long),
        ("empty", b""),
        ("./d/../e.png", b"\0\xff--edge\r\n"),
    ] {
        let put = served.put(&session, path, content).await;
        assert_eq!(put.status, 201, "{path}: {:?}", put.body);
        let kept = if path == "./d/../e.png" { "e.png" } else { path };
        assert_eq!(put.json(), json!({"path": kept, "size_bytes": content.len()}));
        let query: String = form_urlencoded::Serializer::new(String::new()).append_pair("path", path).finish();
        let got = served.get(&format!("{session}/files?{query}")).await;
        assert_eq!((got.status, got.body.len()), (200, content.len()), "{path}");
        assert!(got.body == content, "{path}");
        assert_eq!(got.header("content-length"), Some(content.len().to_string().as_str()));
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
        assert!(got.header("content-disposition").unwrap().starts_with("attachment; "), "{:?}", got.headers);
    }
    let code = "import os\nprint(open('a b é.csv').read(), os.path.getsize('deep/er/long.bin'))\nn = open('made.txt', 'w').write('by code')";
    assert_eq!(served.output(&session, code).await, "x,y\n 5000001\n");
    assert_eq!(served.get(&format!("{session}/files?path=/workspace/made.txt")).await.body, "by code");
    let list = served.get(&format!("{session}/files/list?path=.&new=1")).await.json();
    assert_eq!(list["left_out"], json!(0));
    let files: Vec<(&str, u64, &Value)> = list["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["size_bytes"].as_u64().unwrap(), &file["mime_type"]))
        .collect();
    let expected = [
        ("a b é.csv", 4, &json!("text/csv")),
        ("deep/er/long.bin", 5_000_001, &json!("application/octet-stream")),
        ("e.png", 10, &json!("image/png")),
        ("empty", 0, &Value::Null),
        ("made.txt", 7, &json!("text/plain")),
    ];
    assert_eq!(files, expected);
}

#[tokio::test]
async fn a_form_may_come_in_any_order_and_without_a_path() {
    let served = serve().await;
    let session = served.session().await;
    let content = vec![7u8; 1 << 20];
    for (parts, kept) in [
        (&[("file", Some("x"), &content[..]), ("path", None, &b"behind/it"[..])][..], "behind/it"),
        (&[("file", Some("C:\\dir\\named.bin"), b"1")], "named.bin"),
        (&[("file", Some("up/../named too"), b"1")], "named too"),
        (&[("file", Some(".."), b"1")], "upload.bin"),
        (&[("file", None, b"1"), ("path", None, b"")], "upload.bin"),
        (&[("new", None, b"1"), ("file", Some("more"), b"1"), ("new", Some("x"), b"2")], "more"),
    ] {
        let put = served.form(&session, parts).send().await;
        assert_eq!((put.status, &put.json()["path"]), (201, &json!(kept)), "{kept}");
        let chunked = served.form(&session, parts).chunked().send().await;
        assert_eq!(chunked.status, 201, "{kept}");
    }
    assert_eq!(served.get(&format!("{session}/files?path=behind/it")).await.body.len(), content.len());
    // Nothing else was written.
    assert_eq!(names(&served, &session, "").await, ["behind/it", "more", "named too", "named.bin", "upload.bin"]);
    for parts in [
        &[("path", None, &b"a"[..])][..],
        &[],
        &[("file", Some("a"), b"1"), ("file", Some("b"), b"2")],
        &[("file", Some("a"), b"1"), ("path", None, b"a"), ("path", None, b"b")],
        &[("file", Some("a"), b"1"), ("path", None, b".")],
        &[("file", Some("a"), b"1"), ("path", None, b"d/")],
        &[("file", Some("a"), b"1"), ("path", None, b"a\0b")],
    ] {
        assert_refused(&served.form(&session, parts).send().await, 422, "");
    }
    let no_form = served.post(&format!("{session}/files"), &json!({"file": "canary"})).await;
    assert_refused(&no_form, 400, "multipart/form-data");
    let cut = form(&[("file", Some("a"), b"1")]);
    let path = format!("{session}/files");
    let cut = served.call("POST", &path).header("content-type", FORM_TYPE).body(cut[..cut.len() - 6].to_vec());
    assert_refused(&cut.send().await, 400, "malformed");
    assert_eq!(names(&served, &session, "").await.len(), 5);
}

#[tokio::test]
async fn a_file_is_written_over_unless_the_caller_minds() {
    let served = serve().await;
    let session = served.session().await;
    served.put(&session, "a", b"one").await;
    assert_eq!(served.put(&session, "a", b"second").await.status, 201);
    let careful = served.form(&session, &[("path", None, b"a"), ("file", Some("x"), b"third")]);
    assert_refused(&careful.header("if-none-match", "*").send().await, 403, "something else is there");
    assert_eq!(served.get(&format!("{session}/files?path=a")).await.body, "second");
    // A link is taken away, not followed, and a directory stays.
    let code = "import os\nn = open('target', 'w').write('kept')\nos.symlink('target', 'link'); os.mkdir('directory'); os.mkfifo('pipe')";
    served.output(&session, code).await;
    assert_eq!(served.put(&session, "link", b"new").await.status, 201);
    assert_eq!(served.put(&session, "pipe", b"new").await.status, 201);
    assert_refused(&served.put(&session, "directory", b"new").await, 403, "something else is there");
    assert_refused(&served.put(&session, "a/below", b"new").await, 403, "something else is there");
    assert_eq!(
        served.output(&session, "os.path.islink('link'), open('target').read(), open('pipe').read()").await,
        "(False, 'kept', 'new')\n"
    );
}

#[tokio::test]
async fn a_list_is_of_a_directory_and_all_below_it() {
    let served = serve().await;
    let session = served.session().await;
    for path in ["top", "d/one", "d/e/two", "dd/three", ".hidden/x", "d/.file"] {
        assert_eq!(served.put(&session, path, b"1").await.status, 201);
    }
    served.output(&session, "import os\nos.mkdir('empty'); os.symlink('/etc', 'out'); os.mkfifo('pipe')").await;
    let all = ["d/.file", "d/e/two", "d/one", "dd/three", "top"];
    for query in ["", "?path=", "?path=.", "?path=/workspace", "?path=d/.."] {
        assert_eq!(names(&served, &session, query).await, all, "{query}");
    }
    assert_eq!(names(&served, &session, "?path=d").await, ["d/.file", "d/e/two", "d/one"]);
    assert_eq!(names(&served, &session, "?path=./d/e/").await, ["d/e/two"]);
    assert_eq!(names(&served, &session, "?path=top").await, ["top"]);
    assert_eq!(names(&served, &session, "?path=empty").await, [] as [&str; 0]);
    for path in ["none", "d/none", "out", "pipe", "top/x"] {
        assert_refused(&served.get(&format!("{session}/files/list?path={path}")).await, 404, "no such directory");
    }
    served.output(&session, "n = open(b'n\\xff', 'w').write('1')").await;
    let list = served.get(&format!("{session}/files/list")).await.json();
    assert_eq!((list["files"].as_array().unwrap().len(), &list["left_out"]), (5, &json!(1)));
}

#[tokio::test]
async fn a_change_is_seen_though_code_sets_the_clock_back() {
    let served = serve().await;
    let session = served.session().await;
    let stamp = async || {
        let list = served.get(&format!("{session}/files/list?path=a")).await;
        let text = String::from_utf8(list.body.to_vec()).unwrap();
        let number = text.split("\"modified_at\":").nth(1).unwrap().split(['}', ',']).next().unwrap().to_owned();
        assert!(number.parse::<f64>().unwrap() > 1.7e9 && number.contains('.'), "{number}");
        number
    };
    served.output(&session, "import os\nn = open('a', 'w').write('one'); s = os.stat('a')").await;
    let first = stamp().await;
    assert_eq!(stamp().await, first);
    served.output(&session, "n = open('a', 'w').write('two'); os.utime('a', ns=(s.st_atime_ns, s.st_mtime_ns))").await;
    assert_ne!(stamp().await, first);
}

#[tokio::test]
async fn what_is_no_file_of_the_workspace_is_not_given_out() {
    let served = serve().await;
    let session = served.session().await;
    let other = served.session().await;
    served.put(&other, "secret", b"canary").await;
    let code =
        "import os\nos.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'out'); os.mkfifo('pipe'); os.mkdir('d')";
    served.output(&session, code).await;
    let get = async |path: &str| served.get(&format!("{session}/files?path={path}")).await;
    for path in [
        "../x",
        "..",
        "%2e%2e/x",
        "/etc/passwd",
        "a/../../x",
        "/workspace/../etc/passwd",
        "../../../../etc/passwd",
        "/",
    ] {
        assert_refused(&get(path).await, 403, "out of");
        assert_refused(&served.get(&format!("{session}/files/list?path={path}")).await, 403, "out of");
        let path = path.replace("%2e", ".");
        assert_refused(&served.put(&session, &path, b"1").await, 403, "out of");
    }
    for path in ["none", "link", "out/passwd", "pipe", "secret", "d/none"] {
        assert_refused(&get(path).await, 404, "no such file");
    }
    for path in ["d", "d/", ".", "/workspace", ""] {
        assert_refused(&get(path).await, 400, "directory");
    }
    assert_refused(&served.get(&format!("{session}/files")).await, 422, "`path` is missing");
    for path in ["a&path=b", "%ff", "a%00b", &"n".repeat(300)] {
        assert_refused(&get(path).await, 422, "");
    }
    // Through a link, nothing goes in either.
    assert_refused(&served.put(&session, "out/x", b"1").await, 403, "something else is there");
    for path in ["/files?path=a", "/files/list"] {
        assert_refused(&served.get(&format!("/sessions/never{path}")).await, 404, "no such session");
    }
    assert_refused(&served.put("/sessions/never", "a", b"1").await, 404, "no such session");
}

#[tokio::test]
async fn a_file_that_is_too_large_is_refused_and_not_cut() {
    let served = serve_with("max_file_bytes: 100000, workspace_bytes: 150000", "").await;
    let session = served.session().await;
    let (fits, long) = (vec![1u8; 100_000], vec![1u8; 100_001]);
    assert_eq!(served.put(&session, "fits", &fits).await.status, 201);
    for file in [&long, &vec![1u8; 1 << 20]] {
        assert_refused(&served.put(&session, "long", file).await, 413, "100000 bytes");
        let undeclared = served.form(&session, &[("file", Some("long"), file)]).chunked().send().await;
        assert_refused(&undeclared, 413, "100000 bytes");
    }
    // One that fits by itself, and not beside the other.
    assert_refused(&served.put(&session, "more", &fits).await, 413, "there is room for");
    assert_eq!(names(&served, &session, "").await, ["fits"]);
    let incoming = served.folder.path().join("data/sandbox/incoming");
    assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0);
}
