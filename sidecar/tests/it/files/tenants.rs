//! Who sees which files: nobody those of another, and nobody without a name.

use http::header::{HeaderName, HeaderValue};
use proptest::prelude::*;
use serde_json::Value;

use super::form::Form;
use super::{VENDORS, Vendor, ids, tenants};
use crate::support::{Answer, Call, Sidecar, start, start_with};

/// A user in a workspace.
type Tenant = (&'static str, &'static str);

const TENANTS: [Tenant; 6] =
    [("ann", "red"), ("ann", "blue"), ("bob", "red"), ("bob", "blue"), ("cyd", "red"), ("cyd", "blue")];

fn call(sidecar: &Sidecar, (user, team): Tenant, method: &str, path: &str) -> Call {
    let call = sidecar.bare_call(method, path).header("x-otari-hop", &sidecar.hop_secret);
    call.header("x-user", user).header("x-team", team)
}

async fn upload(sidecar: &Sidecar, tenant: Tenant, content: &[u8]) -> String {
    let form = Form::default().named("a.txt", content);
    let answer = form.on(call(sidecar, tenant, "POST", "/v1/files")).send().await;
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn nobody_sees_a_file_of_another_user_or_workspace_in_any_way() {
    let sidecar = tenants("").await;
    let mut files = Vec::new();
    for tenant in TENANTS {
        files.push((tenant, upload(&sidecar, tenant, tenant.0.as_bytes()).await));
    }
    for tenant in TENANTS {
        let own = &files.iter().find(|(owner, _)| *owner == tenant).unwrap().1;
        for vendor in VENDORS {
            let list = vendor.speak(call(&sidecar, tenant, "GET", "/v1/files")).send().await.json();
            assert_eq!(ids(&list), [own]);
        }
        for (_, other) in files.iter().filter(|(owner, _)| *owner != tenant) {
            let unknown = "file-otr00000000000000000000000000000000";
            for (method, rest) in [("GET", ""), ("GET", "/content"), ("HEAD", "/content"), ("DELETE", "")] {
                let ask = async |id: &str| {
                    let path = format!("/v1/files/{id}{rest}");
                    call(&sidecar, tenant, method, &path).send().await
                };
                let (theirs, nobodys) = (ask(other).await, ask(unknown).await);
                assert_eq!((theirs.status, nobodys.status), (404, 404));
                let text = |answer: &Answer| String::from_utf8_lossy(&answer.body).into_owned();
                assert_eq!(text(&theirs).replace(other, "ID"), text(&nobodys).replace(unknown, "ID"));
            }
            let cursor = call(&sidecar, tenant, "GET", &format!("/v1/files?after={other}")).send().await;
            Vendor::OpenAi.refused(&cursor, 404, "invalid_request_error");
            let anthropic = |query: String| Vendor::Anthropic.speak(call(&sidecar, tenant, "GET", &query)).send();
            let looked_up = anthropic(format!("/v1/files?ids[]={other}&ids[]={own}")).await.json();
            assert_eq!(ids(&looked_up), [own]);
        }
        let content = call(&sidecar, tenant, "GET", &format!("/v1/files/{own}/content")).send().await;
        assert_eq!(content.body, tenant.0);
    }
}

/// What a tenant does; files by the order in which they were uploaded, whoever did.
#[derive(Debug, Clone)]
enum Deed {
    Upload(usize),
    Read(usize, prop::sample::Index),
    Delete(usize, prop::sample::Index),
    List(usize, Option<prop::sample::Index>),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let (tenant, file) = (0..TENANTS.len(), any::<prop::sample::Index>());
    let deed = prop_oneof![
        3 => tenant.clone().prop_map(Deed::Upload),
        3 => (tenant.clone(), file.clone()).prop_map(|(tenant, file)| Deed::Read(tenant, file)),
        2 => (tenant.clone(), file.clone()).prop_map(|(tenant, file)| Deed::Delete(tenant, file)),
        1 => (tenant, proptest::option::of(file)).prop_map(|(tenant, after)| Deed::List(tenant, after)),
    ];
    proptest::collection::vec(deed, 1..60)
}

/// What everybody did so far.
#[derive(Default)]
struct World {
    /// Id and owner of every file that was ever there, oldest first.
    made: Vec<(String, usize)>,
    deleted: Vec<String>,
}

impl World {
    fn has(&self, tenant: usize, id: &str) -> bool {
        self.made.iter().any(|(made, owner)| made == id && *owner == tenant)
            && !self.deleted.iter().any(|gone| gone == id)
    }

    /// Newest first, behind this one.
    fn list(&self, tenant: usize, after: Option<&str>) -> Vec<&str> {
        let all = self.made.iter().rev().map(|(id, _)| id.as_str());
        all.skip_while(|id| after.is_some_and(|after| *id != after))
            .skip(usize::from(after.is_some()))
            .filter(|id| self.has(tenant, id))
            .collect()
    }

    async fn act(&mut self, sidecar: &Sidecar, deed: Deed) {
        let content = |id: &str, tenant: usize| format!("{}/{} {id}", TENANTS[tenant].0, TENANTS[tenant].1);
        let named = |file: &prop::sample::Index| file.get(&self.made).0.clone();
        match deed {
            Deed::Upload(tenant) => {
                let number = self.made.len().to_string();
                let id = upload(sidecar, TENANTS[tenant], content(&number, tenant).as_bytes()).await;
                self.made.push((id, tenant));
            }
            _ if self.made.is_empty() => {}
            Deed::Read(tenant, file) => {
                let (id, number) = (named(&file), file.index(self.made.len()).to_string());
                let path = format!("/v1/files/{id}/content");
                let answer = call(sidecar, TENANTS[tenant], "GET", &path).send().await;
                if self.has(tenant, &id) {
                    assert_eq!((answer.status, answer.body), (200, content(&number, tenant).into()));
                } else {
                    assert_eq!(answer.status, 404);
                }
            }
            Deed::Delete(tenant, file) => {
                let id = named(&file);
                let answer = call(sidecar, TENANTS[tenant], "DELETE", &format!("/v1/files/{id}")).send().await;
                assert_eq!(answer.status, if self.has(tenant, &id) { 200 } else { 404 });
                if answer.status == 200 {
                    self.deleted.push(id);
                }
            }
            Deed::List(tenant, after) => {
                let after = after.map(|file| named(&file));
                let query = after.as_ref().map(|id| format!("?after={id}")).unwrap_or_default();
                let answer = call(sidecar, TENANTS[tenant], "GET", &format!("/v1/files{query}")).send().await;
                let is_own = |id: &String| self.made.contains(&(id.clone(), tenant));
                if after.as_ref().is_none_or(is_own) {
                    assert_eq!(ids(&answer.json()), self.list(tenant, after.as_deref()));
                } else {
                    assert_eq!(answer.status, 404);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn whatever_six_tenants_do_each_sees_its_own_files_and_no_byte_of_others(deeds in deeds()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let sidecar = tenants("").await;
            let mut world = World::default();
            for deed in deeds {
                world.act(&sidecar, deed).await;
            }
            drop(sidecar.stopped().await);
        });
    }
}

#[tokio::test]
async fn what_is_not_there_is_one_404_whatever_the_id_looks_like() {
    let sidecar = start().await;
    for id in ["file-theirs", "x", "%00", "a%2F..%2Fb%3Fx", "%FF", "%E6%B5%8B", "..", "file-otr", &"a".repeat(5000)] {
        for vendor in VENDORS {
            let kind = if vendor == Vendor::OpenAi { "invalid_request_error" } else { "not_found_error" };
            for (method, rest) in [("GET", ""), ("GET", "/content"), ("DELETE", "")] {
                let answer = vendor.call(&sidecar, method, &format!("/v1/files/{id}{rest}")).send().await;
                let (message, param) = vendor.refused(&answer, 404, kind);
                assert!(message.len() < 100, "{message}");
                assert!(param == if vendor == Vendor::OpenAi { "id".into() } else { Value::Null });
            }
        }
    }
}

#[tokio::test]
async fn without_a_known_key_nothing_is_served() {
    let sidecar = start().await;
    for (method, path) in [
        ("POST", "/v1/files"),
        ("GET", "/v1/files"),
        ("GET", "/v1/files/file-x"),
        ("DELETE", "/v1/files/file-x"),
        ("GET", "/v1/files/file-x/content"),
    ] {
        for vendor in VENDORS {
            let bare = || {
                let call = sidecar.bare_call(method, path).header("x-otari-hop", &sidecar.hop_secret);
                vendor.speak(Form::default().named("a", b"1").on(call))
            };
            for answer in [
                bare().send().await,
                bare().header("x-api-key", "sk-somebody").send().await,
                bare().header("authorization", "Bearer gw-nobody").send().await,
            ] {
                vendor.refused(&answer, 401, "authentication_error");
            }
            let twice = vendor.call(&sidecar, method, path).header("authorization", "Bearer gw-nobody").send().await;
            vendor.refused(&twice, 400, "invalid_request_error");
        }
    }
}

#[tokio::test]
async fn a_mesh_that_names_nobody_or_two_is_not_served() {
    let sidecar = tenants("").await;
    let call = |names: &[(&str, &str)]| {
        let call = sidecar.bare_call("GET", "/v1/files").header("x-otari-hop", &sidecar.hop_secret);
        names.iter().fold(call, |call, (name, value)| call.header(name, value)).send()
    };
    let (ann, red) = (("x-user", "ann"), ("x-team", "red"));
    assert_eq!(call(&[ann, red]).await.status, 200);
    for names in [&[ann][..], &[red], &[], &[("x-user", " "), red]] {
        Vendor::OpenAi.refused(&call(names).await, 401, "authentication_error");
    }
    for names in [&[ann, ann, red][..], &[ann, red, ("x-team", "blue")]] {
        Vendor::OpenAi.refused(&call(names).await, 400, "invalid_request_error");
    }
}

#[tokio::test]
async fn with_one_tenant_files_need_no_key() {
    let sidecar = start_with("identity: {mode: none}").await;
    let call = sidecar.bare_call("GET", "/v1/files").header("x-otari-hop", &sidecar.hop_secret);
    assert_eq!(call.send().await.status, 200);
}

#[tokio::test]
async fn any_header_of_anthropics_makes_a_caller_anthropics() {
    let sidecar = start().await;
    let is_anthropic = async |name: &'static str, value: &str| {
        let name = HeaderName::from_static(name);
        let value = HeaderValue::from_str(value).unwrap();
        let answer = sidecar.call("GET", "/v1/files/x").header(name.as_str(), value.to_str().unwrap()).send().await;
        answer.json()["type"] == "error"
    };
    assert!(is_anthropic("anthropic-version", "2026-10-21").await);
    assert!(is_anthropic("anthropic-version", "").await);
    assert!(is_anthropic("anthropic-beta", "no-longer-known-2024-01-01").await);
    assert!(!is_anthropic("x-api-key", "").await);
}

#[tokio::test]
async fn a_method_or_path_that_is_none_is_told_in_the_callers_words() {
    let sidecar = start().await;
    for vendor in VENDORS {
        for (method, path) in [
            ("PUT", "/v1/files"),
            ("DELETE", "/v1/files"),
            ("POST", "/v1/files/file-x"),
            ("PATCH", "/v1/files/file-x"),
            ("POST", "/v1/files/file-x/content"),
        ] {
            let answer = vendor.call(&sidecar, method, path).send().await;
            vendor.refused(&answer, 405, "invalid_request_error");
        }
        let kind = if vendor == Vendor::OpenAi { "invalid_request_error" } else { "not_found_error" };
        for path in ["/v1/files/file-x/contents", "/v1/files/file-x/content/y", "/v1/containers"] {
            vendor.refused(&vendor.call(&sidecar, "GET", path).send().await, 404, kind);
        }
        let odd = vendor.call(&sidecar, "GET", "/v1/files/").send().await;
        vendor.refused(&odd, 400, "invalid_request_error");
    }
}
