//! What somebody with few rights cannot do, and nobody else by a trick of theirs.

use serde_json::{Value, json};

use super::limited::{APPLY, JSON, call, grant, rule};
use crate::Alone;
use crate::alone::{Apiserver, runtime, text as text_of};

pub const ALONE: &[Alone] = &[
    ("hostile::rights::nothing_is_created_without_the_right", nothing_is_created_without_the_right),
    ("hostile::rights::a_reader_opens_no_session_in_a_pod", a_reader_opens_no_session_in_a_pod),
    ("hostile::rights::a_certificate_request_names_one", a_certificate_request_names_one),
    ("hostile::rights::a_namespace_opens_nothing_beside_it", a_namespace_opens_nothing_beside_it),
    ("hostile::rights::a_misspelt_rule_is_refused", a_misspelt_rule_is_refused),
    ("hostile::rights::who_cannot_be_read_is_not_the_administrator", who_cannot_be_read_is_not_the_administrator),
];

fn nothing_is_created_without_the_right() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let (admin, mallory) = (server.client().await, server.mallory().await);
        let writes = ["get", "update", "patch"];
        let all = |verbs: &[&str]| json!([rule("", &["configmaps", "limitranges"], verbs)]);
        grant(&admin, all(&writes)).await;
        let map = "/api/v1/namespaces/default/configmaps/new";
        let range = "/api/v1/namespaces/default/limitranges/new";
        let new_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
        let new_range =
            json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "new"}, "spec": {"limits": []}});
        let attempts =
            [("PATCH", map, APPLY, &new_map), ("PATCH", range, APPLY, &new_range), ("PUT", range, JSON, &new_range)];
        for (method, path, kind, object) in attempts {
            for query in ["fieldManager=m", "fieldManager=m&dryRun=All"] {
                let (code, answer) = call(&mallory, method, &format!("{path}?{query}"), &[kind], object).await;
                assert_eq!(code, 403, "{method} {path}: {answer}");
                let message = answer["message"].as_str().unwrap();
                assert!(message.contains(r#"User "mallory" cannot create resource"#), "{message}");
            }
            assert_eq!(call(&admin, "GET", path, &[], &Value::Null).await.0, 404, "{path}");
        }
        // With the right it works, and what is there is changed without it.
        grant(&admin, all(&["get", "update", "patch", "create"])).await;
        for (method, path, kind, object) in attempts {
            let (code, answer) = call(&mallory, method, &format!("{path}?fieldManager=m"), &[kind], object).await;
            assert!(matches!(code, 200 | 201), "{method} {path}: {answer}");
        }
        grant(&admin, all(&writes)).await;
        for (method, path, kind, object) in attempts {
            let force = if method == "PATCH" { "&force=true" } else { "" };
            let path = format!("{path}?fieldManager=m{force}");
            let (code, answer) = call(&mallory, method, &path, &[kind], object).await;
            assert_eq!(code, 200, "{method} {path}: {answer}");
        }
    });
}

fn a_reader_opens_no_session_in_a_pod() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &["--disable-admission-plugins=ServiceAccount"]);
    runtime().block_on(async {
        let (admin, mallory) = (server.client().await, server.mallory().await);
        let pods = "/api/v1/namespaces/default/pods";
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(call(&admin, "POST", pods, &[JSON], &pod).await.0, 201);
        let sessions = ["pods/exec", "pods/attach", "pods/portforward"];
        let upgrade: [(&str, &[u8]); 5] = [
            ("connection", b"Upgrade"),
            ("upgrade", b"websocket"),
            ("sec-websocket-version", b"13"),
            ("sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", b"v5.channel.k8s.io"),
        ];
        for (verbs, want) in [(&["get"][..], 403), (&["create"], 403), (&["get", "create"], 400)] {
            grant(&admin, json!([rule("", &sessions, verbs)])).await;
            for session in ["exec?command=sh&stdout=true", "attach?stdout=true", "portforward?ports=80"] {
                let (code, answer) =
                    call(&mallory, "GET", &format!("{pods}/p/{session}"), &upgrade, &Value::Null).await;
                assert_eq!(code, want, "{session} with {verbs:?}: {answer}");
                let message = answer["message"].as_str().unwrap();
                let why = if want == 400 { "does not have a host assigned" } else { r#"User "mallory" cannot"# };
                assert!(message.contains(why), "{session} with {verbs:?}: {message}");
            }
        }
        // A kubelet opens the same sessions, and trusts the API server.
        let of_node = "/api/v1/nodes/n/proxy/exec/default/p/c?command=sh&output=1";
        for (verbs, headers, want) in [
            (&["get"][..], &upgrade[..], 403),
            (&["create"], &upgrade, 403),
            (&["get", "create"], &upgrade, 404),
            (&["get"], &[], 404),
        ] {
            grant(&admin, json!([rule("", &["nodes/proxy"], verbs)])).await;
            let (code, answer) = call(&mallory, "GET", of_node, headers, &Value::Null).await;
            assert_eq!(code, want, "{of_node} with {verbs:?}: {answer}");
        }
    });
}

fn who_cannot_be_read_is_not_the_administrator() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let admin = server.client().await;
        let whoami = async |headers: &[(&str, &[u8])]| {
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            let headers = [&[JSON], headers].concat();
            let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let (code, answer) = call(&admin, "POST", path, &headers, &review).await;
            (code, answer.pointer("/status/userInfo/username").and_then(Value::as_str).unwrap_or_default().to_owned())
        };
        let jane: (&str, &[u8]) = ("impersonate-user", b"jane");
        assert_eq!(whoami(&[]).await, (201, "admin".into()));
        assert_eq!(whoami(&[("impersonate-user", "jörg".as_bytes())]).await, (201, "jörg".into()));
        assert_eq!(whoami(&[jane, ("impersonate-extra-a%2fb", b"x")]).await, (201, "jane".into()));
        let latin: &[u8] = b"j\xf6rg";
        for headers in [
            &[("impersonate-user", latin)][..],
            &[jane, ("impersonate-group", latin)],
            &[jane, ("impersonate-uid", latin)],
            &[jane, ("impersonate-extra-a", latin)],
            &[jane, ("impersonate-extra-%ff", b"a")],
            &[("impersonate-group", b"developers")],
            &[("impersonate-uid", b"1")],
            &[("impersonate-extra-a", b"a")],
        ] {
            assert_eq!(whoami(headers).await, (400, String::new()), "{headers:?}");
        }
    });
}

/// A request of node `a`, as DER: what is read first is not what is read last when `also` is a name too.
fn node_request(also: Option<&str>) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:a");
    if let Some(also) = also {
        // A second common name, which the maker of requests takes for something else.
        params.distinguished_name.push(rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]), also);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    params.serialize_request(&key).unwrap().der().to_vec()
}

fn a_certificate_request_names_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        use base64::Engine;
        let (admin, mallory) = (server.client().await, server.mallory().await);
        let requests = "certificatesigningrequests";
        grant(&admin, json!([rule("certificates.k8s.io", &[requests], &["create"])])).await;
        let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let pem =
            |label: &str, der: &[u8]| format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", encode(der));
        let ask = async |text: &str| {
            let object = json!({"metadata": {"generateName": "r-"}, "spec": {
                "request": encode(text.as_bytes()), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["client auth", "digital signature"],
            }});
            let path = format!("/apis/certificates.k8s.io/v1/{requests}");
            let (code, answer) = call(&mallory, "POST", &path, &[JSON], &object).await;
            (code, answer["message"].as_str().unwrap_or_default().to_owned())
        };
        const LABEL: &str = "CERTIFICATE REQUEST";
        let (own, other) = (node_request(None), node_request(Some("system:kube-controller-manager")));
        assert_eq!(ask(&pem(LABEL, &own)).await.0, 201);
        // Signed for one name, and changed to another of the same length.
        let mut changed = own.clone();
        let place = changed.windows(13).position(|part| part == b"system:node:a").unwrap();
        changed[place + 12] = b'b';
        for (text, why) in [
            (pem(LABEL, &other), "the subject has 2 common names"),
            (pem(LABEL, &own) + &pem(LABEL, &other), "nothing after it"),
            (pem(LABEL, &own) + "Subject: CN=system:node:b", "nothing after it"),
            (pem("CERTIFICATE", &own) + &pem(LABEL, &other), "PEM block type must be CERTIFICATE REQUEST"),
            (pem("NEW CERTIFICATE REQUEST", &own), "PEM block type must be CERTIFICATE REQUEST"),
            (pem("X509 CRL", &own), "PEM block type must be CERTIFICATE REQUEST"),
            (pem(LABEL, &[&own[..], &other].concat()), "trailing data"),
            (pem(LABEL, &changed), "verification"),
        ] {
            let (code, message) = ask(&text).await;
            assert!(code == 422 && message.contains(why), "{code} {message}: {text}");
        }
    });
}

/// Rights in one namespace say nothing of what is in none, whatever path it is asked for by.
fn a_namespace_opens_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let (admin, mallory) = (server.client().await, server.mallory().await);
        let paths = json!({"nonResourceURLs": ["/debug/*"], "verbs": ["get"]});
        grant(&admin, json!([paths])).await;
        // An administrator of the namespace, and of nothing else.
        let api = "rbac.authorization.k8s.io";
        let binding = json!({"metadata": {"name": "own"}, "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": api, "kind": "User", "name": "mallory"}]});
        let path = format!("/apis/{api}/v1/namespaces/default/rolebindings");
        assert_eq!(call(&admin, "POST", &path, &[JSON], &binding).await.0, 201);
        let map = json!({"metadata": {"name": "mine"}});
        assert_eq!(call(&mallory, "POST", "/api/v1/namespaces/default/configmaps", &[JSON], &map).await.0, 201);
        for (path, want) in [
            ("/api/v1/namespaces/default/configmaps/mine", 200),
            ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles/mallory", 404),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles/mallory", 403),
            ("/api/v1/namespaces/default/nodes/n", 404),
            ("/api/v1/namespaces/default/namespaces/kube-system", 404),
            ("/api/v1/configmaps/mine", 404),
            ("/api/v1/namespaces/kube-system/configmaps/mine", 403),
            ("/api/v1/namespaces/kube-system", 403),
            ("/api/v1/namespaces/default", 200),
        ] {
            let (code, answer) = call(&mallory, "GET", &format!("/debug/flight{path}"), &[], &Value::Null).await;
            assert_eq!(code, want, "/debug/flight{path}: {answer}");
        }
    });
}

fn a_misspelt_rule_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let of = |kind: &str, more: Value| {
        let mut file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        file.to_string()
    };
    let issuer = json!({"url": "https://issuer.example", "audiences": ["a"]});
    let username = json!({"username": {"claim": "sub", "prefix": ""}});
    let secret = "c2VjcmV0IGlzIHNlY3VyZSBhbmQgbG9uZyBlbm91Z2g=";
    for (flag, text, why) in [
        (
            "authentication-config",
            // Whoever is not of the company gets in as well.
            of("AuthenticationConfiguration", json!({"jwt": [{"issuer": issuer, "claimMappings": username,
                "claimValidationRule": [{"claim": "hd", "requiredValue": "example.com"}]}]})),
            r#"unknown field "jwt[0].claimValidationRule""#,
        ),
        (
            "authentication-config",
            of("AuthenticationConfiguration", json!({"jwt": [{"issuer": issuer, "claimMappings": username,
                "claimValidationRules": {"claim": "hd", "requiredValue": "example.com"}}]})),
            "jwt[0].claimValidationRules: must be a list",
        ),
        (
            "authentication-config",
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: false}\nanonymous: {enabled: true}\n".to_owned(),
            "anonymous",
        ),
        (
            "authorization-config",
            of("AuthorizationConfiguration", json!({"authorizers": [{"type": "RBAC", "name": "r", "webhok": {}}]})),
            r#"unknown field "authorizers[0].webhok""#,
        ),
        (
            "admission-control-config-file",
            of("AdmissionConfiguration", json!({"plugins": [{"name": "PodSecurity", "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
                "defaults": {"enforced": "restricted"}}}]})),
            r#"unknown field "defaults.enforced""#,
        ),
        (
            "admission-control-config-file",
            of("AdmissionConfiguration", json!({"plugins": [{"name": "PodSecurty", "configuration": {}}]})),
            "is no admission plug-in",
        ),
        (
            "admission-control-config-file",
            of("AdmissionConfiguration", json!({"plugins": [{"name": "ResourceQuota", "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration"}}]})),
            "takes no configuration here",
        ),
        (
            "encryption-provider-config",
            of("EncryptionConfiguration", json!({"resources": [{"resources": ["secrets"], "providers": [
                {"aesgcm": {"keys": [{"name": "k", "secret": secret, "secert": ""}]}}]}]})),
            r#"unknown field "resources[0].providers[0].aesgcm.keys[0].secert""#,
        ),
        (
            "audit-policy-file",
            json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None", "user": ["a"]}]}).to_string(),
            r#"unknown field "rules[0].user""#,
        ),
    ] {
        let file = folder.path().join("configuration.yaml");
        std::fs::write(&file, &text).unwrap();
        let data = folder.path().join("data");
        let log = folder.path().join("audit.log");
        let flags = [format!("--audit-log-path={}", text_of(&log)), format!("--{flag}={}", text_of(&file))];
        let server = Apiserver::start(&data, &flags.each_ref().map(String::as_str));
        let message = server.refusal();
        assert!(message.contains(why), "{flag}: {message}");
    }
}
