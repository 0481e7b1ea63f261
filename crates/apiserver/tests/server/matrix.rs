//! Every row of the resource table, every verb: nobody gets in without credentials, nobody acts without rights.

use std::fs;
use std::path::{Path, PathBuf};

use ferry_apiserver::{Body, Peer};
use ferry_registry::{Resource, ResourceTable};
use http::Request;
use http_body_util::{BodyExt, Full};

use super::Fixture;

/// What everyone who is somebody may do: ask about themselves.
const ABOUT_ONESELF: [&str; 3] = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];

/// What tells about the inside of the server, for those who run it.
const INSIDE: [&str; 13] = [
    "/metrics/slis",
    "/statusz",
    "/flagz",
    "/debug/pprof",
    "/debug/pprof/heap",
    "/debug/flags/v",
    "/debug/flight",
    "/debug/flight/pods/default/some",
    "/debug/verdicts/default/some",
    "/debug/api_priority_and_fairness/dump_requests",
    "/debug/api_priority_and_fairness/dump_priority_levels",
    "/livez/ping/more",
    "/ferry/v1/anything",
];

async fn code(fixture: &Fixture, token: Option<&str>, method: &str, path: &str) -> u16 {
    let body: Body = Full::default().map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = fixture.server.handle(request.body(body).expect("a request"), Peer::default()).await;
    response.status().as_u16()
}

fn method(verb: &str) -> &'static str {
    match verb {
        "get" | "list" | "watch" => "GET",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        _ => "DELETE",
    }
}

/// The requests that a row answers: method and path, once for each verb, of the row itself and of its subresources.
fn requests(row: &Resource) -> Vec<(&'static str, String)> {
    let gvk = &row.gvk;
    let root = if gvk.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}", gvk.api_version()) };
    let scope = if row.namespaced { "/namespaces/default" } else { "" };
    let collection = format!("{root}{scope}/{}", row.plural);
    let named = format!("{collection}/some");
    let mut all = Vec::new();
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"] {
        if row.has_verb(verb) {
            let path = match verb {
                "watch" => format!("{collection}?watch=1"),
                "list" | "create" | "deletecollection" => collection.clone(),
                _ => named.clone(),
            };
            all.push((method(verb), path));
        }
    }
    for subresource in &row.subresources {
        for verb in &subresource.verbs {
            all.push((method(verb), format!("{named}/{}", subresource.name)));
        }
        for verb in ["GET", "POST"] {
            all.push((verb, format!("{named}/{}", subresource.name)));
        }
    }
    all
}

#[tokio::test]
async fn every_row_and_verb_is_behind_the_pipeline() {
    let fixture = Fixture::new().await;
    let table = ResourceTable::builtin();
    let mut checked = 0;
    for row in table.rows() {
        for (method, path) in requests(row) {
            let what = format!("{method} {path}");
            assert_eq!(code(&fixture, Some("wrong"), method, &path).await, 401, "{what} with a wrong token");
            assert_eq!(code(&fixture, None, method, &path).await, 403, "{what} without credentials");
            if !ABOUT_ONESELF.contains(&&*row.plural) {
                assert_eq!(code(&fixture, Some(&fixture.bob), method, &path).await, 403, "{what} without rights");
            }
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked} requests");
    fixture.stop().await;
}

#[tokio::test]
async fn paths_that_are_no_resources_are_behind_it_too() {
    let fixture = Fixture::new().await;
    let open = ["/healthz", "/livez", "/readyz", "/version"];
    let closed =
        ["/", "/api", "/apis", "/api/v1", "/apis/apps/v1", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks"];
    for path in open.iter().chain(&closed).chain(&["/ferry/v1/secrets/rotate", "/nowhere", "/logs"]).chain(&INSIDE) {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            assert_eq!(code(&fixture, Some("wrong"), method, path).await, 401, "{method} {path}");
            let anonymous = code(&fixture, None, method, path).await;
            if method != "GET" || !open.contains(path) {
                assert_eq!(anonymous, 403, "{method} {path} without credentials");
            } else {
                assert_eq!(anonymous, 200, "{method} {path}");
            }
        }
    }
    for path in ["/metrics", "/ferry/v1/secrets/rotate", "/logs"].iter().chain(&INSIDE) {
        for method in ["GET", "POST"] {
            assert_eq!(code(&fixture, Some(&fixture.bob), method, path).await, 403, "{method} {path} without rights");
        }
    }
    fixture.stop().await;
}

/// Handlers are called by the pipeline alone, and there after the decision of the authorizers.
#[test]
fn no_handler_is_called_around_the_pipeline() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for path in sources(&root) {
        let text = fs::read_to_string(&path).expect("a source");
        let place = path.strip_prefix(&root).expect("below").to_string_lossy().into_owned();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let calls_a_handler = ["verbs::", "subresources::", "nonresource::"].iter().any(|module| {
                line.contains(&format!("{module}handle("))
                    || (line.contains(module)
                        && (line.contains("::handle(") || line.contains("::connect(") || line.contains("::answered(")))
            });
            // Modules may call their own parts.
            let own = place.starts_with("subresources/") && !line.contains("verbs::");
            if calls_a_handler && place != "pipeline.rs" && !own {
                wrong.push(format!("{place}: {}", line.trim()));
            }
            let enters = line.contains("pipeline::handle(");
            if enters
                && !["lib.rs", "transport/inprocess.rs", "transport/listen.rs", "controlplane/bootstrap.rs"]
                    .contains(&place.as_str())
            {
                wrong.push(format!("{place} enters the pipeline: {}", line.trim()));
            }
            if line.contains("pipeline::run(") {
                wrong.push(format!("{place} enters the pipeline in the middle: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let pipeline = fs::read_to_string(root.join("pipeline.rs")).expect("the pipeline");
    let at = |text: &str| pipeline.find(text).unwrap_or_else(|| panic!("{text} is not in the pipeline"));
    let order = [
        at("authentication.authenticate("),
        at("audit::begin("),
        at("impersonation.resolve("),
        at("fairness::enter("),
        at("authorization.authorize("),
        at("ferry_auth::forbidden("),
    ];
    assert!(order.is_sorted(), "the stages are not in their order");
    for handler in [
        "nonresource::handle(",
        "subresources::connect(",
        "subresources::handle(",
        "subresources::answered(",
        "verbs::get::handle(",
    ] {
        assert!(at(handler) > order[5], "{handler} comes before the decision");
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
    all
}
