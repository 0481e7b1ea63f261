//! The console: who its cookie speaks for, over real HTTP.

use std::path::Path;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::alone::{Apiserver, BYSTANDER, TOKEN, runtime, succeeds, text};

/// What goes over the wire when somebody opens the console for the first time.
const LARGEST: usize = 250 << 10;

async fn call(client: &kube::Client, method: Method, path: &str, headers: &[(&str, &str)]) -> (Response<()>, String) {
    let request =
        headers.iter().fold(Request::builder().method(method).uri(path), |r, (name, value)| r.header(*name, *value));
    let answer = client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(parts, ()), String::from_utf8_lossy(&body).into_owned())
}

fn cookie(answer: &Response<()>) -> String {
    let set = answer.headers()["set-cookie"].to_str().unwrap();
    for word in ["__Host-ferry-console=", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(word), "{set}");
    }
    set.split(';').next().unwrap().to_owned()
}

/// The code of a link that `ferry console` prints.
fn link(kubeconfig: &Path) -> String {
    succeeds(&["console", "--kubeconfig", text(kubeconfig)]).trim().to_owned()
}

pub fn a_cookie_speaks_for_the_pages_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        drop(server.client().await);
        let kubeconfig = folder.path().join("kubeconfig");
        server.write_kubeconfig(&kubeconfig);
        let browser = server.anonymous().await;
        let (host, port) = server.address();
        let origin = format!("https://{host}:{port}");

        // Anybody gets the pages, and nothing else.
        let (page, body) = call(&browser, Method::GET, "/console/", &[]).await;
        assert_eq!((page.status().as_u16(), body.contains("main.js")), (200, true));
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("default-src 'none'")
                && policy.contains("frame-ancestors 'none'")
                && !policy.contains("unsafe")
        );
        assert_eq!(page.headers()["x-content-type-options"], "nosniff");
        for path in [
            "/console/feed",
            "/console/why/api/v1/namespaces/default",
            "/console/history/api/v1/namespaces/default",
            "/console/none",
        ] {
            assert_eq!(call(&browser, Method::GET, path, &[]).await.0.status(), 401, "{path}");
        }
        assert_eq!(call(&browser, Method::POST, "/console/session", &[]).await.0.status(), 401);
        let mut size = 0;
        let mut names = vec!["".to_owned(), "style.css".into(), "mark.svg".into(), "main.js".into()];
        let mut next = 0;
        while next < names.len() {
            let path = format!("/console/{}", names[next]);
            let (_, plain) = call(&browser, Method::GET, &path, &[]).await;
            for found in plain.split("\"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                if !names.iter().any(|known| known == found) {
                    names.push(found.to_owned());
                }
            }
            let (head, _) = call(&browser, Method::GET, &path, &[("accept-encoding", "gzip")]).await;
            assert_eq!(
                (head.status().as_u16(), head.headers().get("content-encoding").is_some()),
                (200, true),
                "{path}"
            );
            size += head.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap();
            next += 1;
        }
        assert!(names.len() > 10 && size < LARGEST, "{size} bytes in {} files", names.len());

        // A link signs in once.
        let link = link(&kubeconfig);
        let code = link.strip_prefix(&format!("{origin}/console/#code=")).expect("a link").to_owned();
        let code = ("x-ferry-console-code", code.as_str());
        let (foreign, _) =
            call(&browser, Method::POST, "/console/session", &[code, ("origin", "https://evil.example")]).await;
        assert_eq!(foreign.status(), 403);
        let (began, body) = call(&browser, Method::POST, "/console/session", &[code, ("origin", &origin)]).await;
        assert_eq!(began.status(), 201, "{body}");
        let who: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(who["user"], "admin");
        let (again, body) = call(&browser, Method::POST, "/console/session", &[code]).await;
        assert_eq!((again.status().as_u16(), body.contains("was used")), (401, true), "{body}");

        // The cookie is good beside its key and from the pages, and nowhere else.
        let cookie = cookie(&began);
        let (cookie, key) = (("cookie", cookie.as_str()), ("x-ferry-console", who["key"].as_str().unwrap()));
        let (own, foreign) = (("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site"));
        let pods = "/api/v1/namespaces/default/pods";
        for (method, headers, want) in [
            (Method::GET, &[cookie, key, own][..], 200),
            (Method::GET, &[cookie], 403),
            (Method::GET, &[key], 403),
            (Method::GET, &[cookie, ("x-ferry-console", "guessed")], 401),
            (Method::GET, &[cookie, key, foreign], 403),
            (Method::DELETE, &[cookie, foreign], 403),
            (Method::DELETE, &[cookie, key, ("origin", "https://evil.example")], 403),
            (Method::DELETE, &[cookie, key, own, ("origin", &origin)], 200),
        ] {
            let (answer, body) = call(&browser, method.clone(), pods, headers).await;
            assert_eq!(answer.status().as_u16(), want, "{method} {headers:?}: {body}");
        }
        let upgrade =
            [cookie, key, ("upgrade", "websocket"), ("connection", "upgrade"), ("origin", "https://evil.example")];
        assert_eq!(call(&browser, Method::GET, &format!("{pods}?watch=1"), &upgrade).await.0.status(), 403);
        assert_eq!(call(&browser, Method::POST, "/console/code", &[cookie, key]).await.0.status(), 400);
        let (why, body) = call(&browser, Method::GET, "/console/why/api/v1/namespaces/default", &[cookie, key]).await;
        assert_eq!((why.status().as_u16(), body.contains("\"findings\"")), (200, true), "{body}");

        // Who may do nothing signs in, and is told what they may not.
        let token = format!("Bearer {BYSTANDER}-token");
        let (began, body) = call(&browser, Method::POST, "/console/session", &[("authorization", &token)]).await;
        let who: Value = serde_json::from_str(&body).unwrap();
        let theirs = self::cookie(&began);
        let (theirs, their_key) = (("cookie", theirs.as_str()), ("x-ferry-console", who["key"].as_str().unwrap()));
        let (refused, body) = call(&browser, Method::GET, pods, &[theirs, their_key]).await;
        assert_eq!((refused.status().as_u16(), body.contains("cannot list resource")), (403, true), "{body}");
        for path in
            ["/console/feed", "/console/history/api/v1/namespaces/default", "/console/why/api/v1/namespaces/default"]
        {
            let (refused, body) = call(&browser, Method::GET, path, &[theirs, their_key]).await;
            assert_eq!(refused.status(), 403, "{path}: {body}");
        }
        assert_eq!(call(&browser, Method::GET, pods, &[theirs, key]).await.0.status(), 401, "the key of another");

        // A session ends when it is told to; wrong credentials begin none.
        let (ended, _) = call(&browser, Method::DELETE, "/console/session", &[cookie, key]).await;
        assert_eq!(ended.status(), 204);
        assert_eq!(call(&browser, Method::GET, pods, &[cookie, key]).await.0.status(), 401);
        let wrong = [("authorization", "Bearer wrong")];
        assert_eq!(call(&browser, Method::POST, "/console/session", &wrong).await.0.status(), 401);
        let both = [("authorization", &*format!("Bearer {TOKEN}")), ("impersonate-user", "somebody")];
        assert_eq!(call(&browser, Method::POST, "/console/session", &both).await.0.status(), 400);
    });
}

pub fn without_the_console_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &["--console=false"]);
    runtime().block_on(async {
        let admin = server.client().await;
        for path in ["/console/", "/console/session", "/console/main.js"] {
            assert_eq!(call(&admin, Method::GET, path, &[]).await.0.status(), 404, "{path}");
        }
    });
}
