//! Odd requests and the answers that clients of upstream's server know.

use super::*;

/// One request: method, path, media type, body; then the code and what the message or the text begins with.
type Case<'a> = (&'a str, &'a str, &'a str, &'a str, u16, &'a str);

async fn check(fixture: &Fixture, cases: &[Case<'_>]) {
    for (method, path, media, body, code, said) in cases {
        let (got, answer) = fixture.call(&fixture.admin, method, path, media, *body).await;
        let text = answer.get("message").unwrap_or(&answer);
        let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
        assert!((got, text.starts_with(said)) == (*code, true), "{method} {path} {body}: {got} {text}");
    }
}

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The page behind the object `a`, of whatever moment.
const NEXT: &str = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9";

#[tokio::test]
async fn odd_requests_are_answered_as_upstream_does() {
    let fixture = Fixture::new().await;
    let not_allowed = "the server does not allow this method on the requested resource";
    let one = format!("{MAPS}/one");
    let tried = format!("{MAPS}?dryRun=All");
    let applied = format!("{MAPS}/two?fieldManager=m");
    let strictly = format!("{one}?fieldManager=m&fieldValidation=Strict");
    check(
        &fixture,
        &[
            ("POST", MAPS, JSON, r#"{"metadata":{"name":"one","finalizers":["a.b/c"]},"data":{"a":"b"}}"#, 201, "{"),
            // Paths.
            ("POST", "/api/v1/watch/configmaps", JSON, "{}", 405, not_allowed),
            ("DELETE", "/apis/apps/v1/watch/deployments", JSON, "", 405, not_allowed),
            (
                "GET",
                "/api/v1/watch",
                JSON,
                "",
                500,
                "Internal Server Error: \"/api/v1/watch\": failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch",
            ),
            ("POST", "/api/v1/bindings", JSON, "{}", 404, "the server could not find the requested resource"),
            ("GET", &format!("{MAPS}/.."), JSON, "", 400, "Name parameter invalid: \"..\": may not be '..'"),
            ("DELETE", &format!("{MAPS}/."), JSON, "", 400, "Name parameter invalid: \".\": may not be '.'"),
            // Bodies.
            (
                "POST",
                MAPS,
                PROTOBUF,
                "k8s\0",
                400,
                "the object provided is unrecognized (must be of type ConfigMap): empty body (6b387300)",
            ),
            ("DELETE", &format!("{one}?dryRun=All"), PROTOBUF, "k8s\0", 400, "empty body"),
            (
                "DELETE",
                &one,
                JSON,
                r#"{"apiVersion":"v1","kind":"Status"}"#,
                400,
                "converting (v1.Status) to (v1.DeleteOptions): unknown conversion",
            ),
            ("POST", MAPS, JSON, r#"{"metadata":{"name":"x","resourceVersion":"5"}}"#, 500, "resourceVersion should not"),
            ("POST", &tried, JSON, r#"{"metadata":{"name":"x","resourceVersion":"5"}}"#, 201, "{"),
            // What is not kept, and what is behind nothing.
            ("GET", "/api/v1/componentstatuses/etcd-0", JSON, "", 200, "{"),
            ("GET", "/api/v1/componentstatuses/x", JSON, "", 404, "componentstatus \"x\" not found"),
            ("GET", "/api/v1/namespaces/default/services/x/proxy/", JSON, "", 503, "no endpoints available for service"),
            ("GET", "/api/v1/namespaces//configmaps", JSON, "", 200, "{"),
            ("POST", "/api/v1/namespaces//configmaps", JSON, r#"{"metadata":{"name":"x"}}"#, 422, "ConfigMap \"x\" is invalid"),
            ("GET", "/metrics/slis", JSON, "", 200, "# HELP kubernetes_healthcheck"),
            ("GET", "/debug/flags/v", JSON, "", 406, "unsupported http method"),
            // Versions and pages.
            (
                "GET",
                &format!("{MAPS}?continue={NEXT}&resourceVersion=x"),
                JSON,
                "",
                400,
                "specifying resource version is not allowed when using continue",
            ),
            (
                "GET",
                &format!("{MAPS}?continue=eyJydiI6IjUifQ"),
                JSON,
                "",
                400,
                "invalid continue token: continue key is not valid: json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            // Applies.
            (
                "PATCH",
                &applied,
                APPLY,
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two","uid":"x"}}"#,
                409,
                "Operation cannot be fulfilled on configmaps \"two\": uid mismatch: the provided object specified uid x, and no existing object was found",
            ),
            (
                "PATCH",
                &applied,
                APPLY,
                r#"{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"name":"two"}}"#,
                400,
                "invalid object type: /, Kind=",
            ),
            (
                "PATCH",
                &strictly,
                APPLY,
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\nzz: 1\nzz: 2\n",
                500,
                "failed to create typed patch object (/one; /v1, Kind=ConfigMap): .zz: field not declared in schema",
            ),
            (
                "PATCH",
                &strictly,
                APPLY,
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {x: '1', x: '2'}\n",
                400,
                "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"x\" already set in map",
            ),
            // Strategic merges.
            (
                "PATCH",
                &one,
                STRATEGIC,
                r#"{"metadata":{"finalizers":[5]}}"#,
                500,
                "list element types are not identical: [[a.b/c] [5]]",
            ),
            (
                "PATCH",
                &one,
                STRATEGIC,
                r#"{"data":{"$patch":5}}"#,
                500,
                "unknown patch type: %!s(int64=5) in map: map[$patch:5]",
            ),
            (
                "PATCH",
                &one,
                STRATEGIC,
                r#"{"metadata":{"$setElementOrder/nope":["x"]}}"#,
                500,
                "unable to find api field in struct ObjectMeta for the json field \"nope\"",
            ),
            (
                "PATCH",
                &one,
                STRATEGIC,
                r#"{"metadata":{"$setElementOrder/finalizers":null}}"#,
                500,
                "expected a []interface {}, but received a %!s(<nil>)",
            ),
            (
                "PATCH",
                &one,
                STRATEGIC,
                r#"{"data":{"a":5}}"#,
                422,
                " \"\" is invalid: patch: Invalid value: \"map[data:map[a:5]]\": cannot convert int64 to string",
            ),
            // Subresources of a pod.
            ("POST", "/api/v1/namespaces/default/serviceaccounts", JSON, r#"{"metadata":{"name":"default"}}"#, 201, "{"),
            (
                "POST",
                "/api/v1/namespaces/default/pods",
                JSON,
                r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
                201,
                "{",
            ),
            (
                "GET",
                "/api/v1/namespaces/default/pods/p/portforward?ports=x",
                JSON,
                "",
                400,
                "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax",
            ),
            (
                "POST",
                "/api/v1/namespaces/default/pods/p/eviction?dryRun=All",
                JSON,
                r#"{"metadata":{"name":"p"},"deleteOptions":{"dryRun":["odd"]}}"#,
                500,
                "Non-matching dry-run options in request and content: [All] and [odd]",
            ),
            (
                "PATCH",
                "/api/v1/namespaces/default/pods/p/resize",
                STRATEGIC,
                r#"{"spec":{"containers":[{"name":"c","resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]}}"#,
                422,
                "Pod \"p\" is invalid: spec: Forbidden: only cpu and memory resources are mutable",
            ),
            (
                "PATCH",
                "/api/v1/namespaces/default/pods/p/ephemeralcontainers",
                STRATEGIC,
                r#"{"spec":{"ephemeralContainers":[{"name":"e","image":"i","restartPolicy":"Always"}]}}"#,
                422,
                "Pod \"p\" is invalid: spec.ephemeralContainers[0].restartPolicy: Forbidden: cannot be set for an Ephemeral Container",
            ),
            ("POST", "/api/v1/namespaces/default/limitranges?dryRun=All", JSON, r#"{"metadata":{},"spec":{"limits":[]}}"#, 201, "{"),
            (
                "PUT",
                &format!("{one}?dryRun=All"),
                JSON,
                r#"{"metadata":{"name":"one","uid":"x"}}"#,
                409,
                "Operation cannot be fulfilled on configmaps \"one\": StorageError: invalid object, Code: 4, Key: /configmaps/default/one, ResourceVersion: 0,",
            ),
            // Autoscalers whose rules have no policies are not those with the policies by default.
            (
                "POST",
                "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
                JSON,
                r#"{"metadata":{"name":"h"},"spec":{"maxReplicas":5,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"},"behavior":{"scaleUp":{"policies":[]}}}}"#,
                422,
                "HorizontalPodAutoscaler.autoscaling \"h\" is invalid: spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ),
        ],
    )
    .await;
    fixture.stop().await;
}

#[tokio::test]
async fn the_pages_of_a_server_are_told_by_what_is_accepted() {
    let fixture = Fixture::new().await;
    fixture.server.set_flags(vec![("b".into(), "2".into()), ("a".into(), String::new())]);
    let warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";
    let flags = format!("\napiserver flagz\n{warning}\na: \nb: 2\n");
    let status = format!("\napiserver statusz\n{warning}\n\nStarted: ");
    let refused = "only the following media types are accepted: application/json, application/yaml, text/plain";
    let object = "application/json;as=Flagz;v=v1beta1;g=config.k8s.io";
    let flagz = r#"{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"apiserver"},"flags":{"a":"","b":"2"}}"#;
    let index = "{\n  \"paths\": [\n    \"/.well-known/openid-configuration\",";
    let cases = [
        ("/flagz", "text/plain", 200, &*flags),
        ("/flagz", "*/*", 200, &flags),
        ("/flagz", object, 200, flagz),
        ("/flagz", "application/json", 406, refused),
        ("/statusz", "", 200, &status),
        ("/statusz", object, 406, refused),
        ("/statusz", "application/yaml;as=Statusz;v=v1beta1;g=config.k8s.io", 200, "apiVersion: config.k8s.io/v1beta1"),
        ("/debug/pprof", "*/*", 302, "<a href=\"/debug/pprof/\">Found</a>.\n\n"),
        ("/debug/pprof/", "*/*", 200, "<html>"),
        ("/debug/pprof/nope", "*/*", 404, "Unknown profile\n"),
        ("/", "text/plain", 200, index),
        ("/index.html", "application/yaml", 200, index),
    ];
    for (path, accept, code, said) in cases {
        let ask = async |token: &str| {
            let body: Body = Full::default().map_err(|never: std::convert::Infallible| match never {}).boxed_unsync();
            let bearer = format!("Bearer {token}");
            let request = Request::get(path).header("authorization", bearer).header("accept", accept);
            let response = fixture.server.handle(request.body(body).expect("a request"), Peer::default()).await;
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            (code, String::from_utf8_lossy(&bytes).into_owned())
        };
        let (got, text) = ask(&fixture.admin).await;
        assert!(got == code && (text.starts_with(said) || text.contains(said)), "{path} {accept}: {got} {text}");
        assert_eq!(ask(&fixture.bob).await.0, 403, "{path} is not for everybody");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn what_quota_admission_counts_is_the_servers() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "5"}}});
    assert_eq!(fixture.json("POST", path, &quota).await.0, 201);
    let status = json!({"status": {"hard": {"configmaps": "5"}, "used": {"configmaps": "1"}}}).to_string();
    let (code, _) =
        fixture.call(&fixture.admin, "PATCH", &format!("{path}/q/status?fieldManager=me"), MERGE, status).await;
    assert_eq!(code, 200);
    assert_eq!(fixture.json("POST", MAPS, &json!({"metadata": {"name": "counted"}})).await.0, 201);
    let (_, quota) = fixture.json("GET", &format!("{path}/q"), &Value::Null).await;
    assert_eq!(quota["status"]["used"]["configmaps"], "2");
    let entries = quota["metadata"]["managedFields"].as_array().expect("managed fields");
    let entry = entries.iter().find(|entry| entry["manager"] == "kube-apiserver").expect("the server's entry");
    assert_eq!((&entry["operation"], &entry["subresource"]), (&json!("Update"), &json!("status")));
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:used": {"f:configmaps": {}}}}));
    fixture.stop().await;
}

#[tokio::test]
async fn what_a_cluster_starts_with_belongs_to_whom_it_does_upstream() {
    let fixture = Fixture::new().await;
    let entries = async |path: &str| {
        let (_, found) = fixture.json("GET", path, &Value::Null).await;
        let fields = found["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let entry = |f: &Value| json!([f["manager"], f["operation"], f["subresource"], f["fieldsV1"]]);
        fields.iter().map(entry).collect::<Vec<_>>()
    };
    let labels = json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}});
    let namespace = entries("/api/v1/namespaces/kube-system").await;
    assert_eq!(namespace, [json!(["kube-apiserver", "Update", null, labels])]);
    let service = entries("/api/v1/namespaces/default/services/kubernetes").await;
    let spec = service[0][3]["f:spec"].as_object().expect("a spec");
    assert!(
        spec.contains_key("f:clusterIP") && !spec.contains_key("f:clusterIPs") && !spec.contains_key("f:ipFamilies")
    );
    let ranges = entries("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await;
    assert_eq!(ranges[0], json!(["kubernetes-service-cidr-controller", "Apply", "status", ranges[0][3]]));
    assert_eq!(ranges[1], json!(["kube-apiserver", "Update", null, {"f:spec": {"f:cidrs": {}}}]));
    let address = entries("/apis/networking.k8s.io/v1/ipaddresses/10.96.0.1").await;
    let parent = json!({".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}});
    assert_eq!(address[0][3]["f:spec"]["f:parentRef"], parent);
    fixture.stop().await;
}

#[tokio::test]
async fn details_of_answers_are_upstreams() {
    let fixture = Fixture::new().await;
    let marked = json!({"metadata": {"name": "x", "deletionTimestamp": "2020-01-01T00:00:00Z"}});
    let (_, made) = fixture.json("POST", MAPS, &marked).await;
    assert_eq!(
        (&made["metadata"]["managedFields"], &made["metadata"]["deletionTimestamp"]),
        (&Value::Null, &Value::Null)
    );
    let rules = json!({"metadata": {"name": "x"}, "spec": {"namespace": "default"}});
    let (_, rules) = fixture.json("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &rules).await;
    assert_eq!(rules["metadata"], json!({}));
    let asked = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "labelSelector": {"rawSelector": "a in ("}}}});
    let (_, access) = fixture.json("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &asked).await;
    let error = "spec.resourceAttributes.labelSelector ignored due to parse error";
    assert_eq!((&access["status"]["evaluationError"], &access["status"]["allowed"]), (&json!(error), &json!(true)));
    let job = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#;
    let path = "/apis/batch/v1/namespaces/default/jobs/j?fieldManager=m";
    let (code, job) = fixture.call(&fixture.admin, "PATCH", path, APPLY, job).await;
    assert_eq!((code, &job["metadata"]["labels"]["batch.kubernetes.io/job-name"]), (201, &json!("j")));
    fixture.stop().await;
}

#[tokio::test]
async fn access_for_administrators_needs_a_namespace_that_allows_it() {
    let fixture = Fixture::new().await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |name: &str, expression: &str| {
        let exactly =
            json!({"deviceClassName": "c", "adminAccess": true, "selectors": [{"cel": {"expression": expression}}]});
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
    };
    let (code, refused) = fixture.json("POST", claims, &claim("a", "true")).await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["message"],
        "ResourceClaim.resource.k8s.io \"a\" is invalid: spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
    );
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": claim("x", "true")["spec"]}});
    let templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    assert_eq!(fixture.json("POST", templates, &template).await.0, 422);
    let label = r#"{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}"#;
    let (code, _) = fixture.call(&fixture.admin, "PATCH", "/api/v1/namespaces/default", MERGE, label).await;
    assert_eq!(code, 200);
    assert_eq!(fixture.json("POST", claims, &claim("a", "true")).await.0, 201);
    assert_eq!(fixture.json("POST", templates, &template).await.0, 201);
    let (code, refused) = fixture.json("POST", claims, &claim("b", "nope")).await;
    let said = refused["message"].as_str().unwrap_or_default();
    assert!(code == 422 && said.contains("undeclared reference to 'nope'"), "{said}");
    fixture.stop().await;
}

/// What is tried is answered as it would come back from the store, and nobody owns what the server alone sets.
#[tokio::test]
async fn who_only_tries_is_shown_what_would_be_kept() {
    let fixture = Fixture::new().await;
    let admin = fixture.admin.clone();
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles?dryRun=All";
    let (code, role) = fixture.call(&admin, "POST", roles, JSON, r#"{"metadata":{"name":"r"},"rules":[]}"#).await;
    assert_eq!((code, &role["rules"]), (201, &Value::Null), "{role}");
    let tried = format!("{MAPS}?dryRun=All");
    let body = r#"{"metadata":{"name":"x","deletionTimestamp":"2020-01-01T00:00:00Z"}}"#;
    let (code, map) = fixture.call(&admin, "POST", &tried, JSON, body).await;
    assert_eq!((code, map["metadata"].get("managedFields")), (201, None), "{map}");
}

/// A pod that goes at once is seen going before it is seen gone, and is gone with the time of its end.
#[tokio::test]
async fn watchers_see_a_pod_go() {
    let fixture = Fixture::new().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false,
    }});
    fixture.json("POST", "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await;
    let (code, made) = fixture.json("POST", pods, &pod).await;
    assert_eq!(code, 201, "{made}");
    let version = made["metadata"]["resourceVersion"].as_str().expect("a version");
    assert_eq!(fixture.json("DELETE", &format!("{pods}/p"), &Value::Null).await.0, 200);
    let watch = format!("{pods}?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let (_, lines) = fixture.json("GET", &watch, &Value::Null).await;
    let text = lines.as_str().expect("several events").to_owned();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let kinds: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, ["MODIFIED", "DELETED"]);
    for event in &events {
        assert_eq!(event["object"]["metadata"]["deletionGracePeriodSeconds"], 0, "{event}");
    }
    fixture.stop().await;
}

/// A definition that others still hold says that its objects are gone.
#[tokio::test]
async fn a_definition_that_is_held_is_done_all_the_same() {
    let fixture = Fixture::new().await;
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({
        "metadata": {"name": "as.held.io", "finalizers": ["a.b/c"]},
        "spec": {"group": "held.io", "scope": "Cluster", "names": {"plural": "as", "kind": "A"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    });
    assert_eq!(fixture.json("POST", all, &definition).await.0, 201);
    let one = format!("{all}/as.held.io");
    assert_eq!(fixture.json("DELETE", &one, &Value::Null).await.0, 200);
    let done = |found: &Value| {
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ended = conditions.iter().find(|c| c["type"] == "Terminating" && c["status"] == "False").cloned();
        ended.map(|ended| ended["reason"].clone())
    };
    let mut reason = None;
    for _ in 0..20_000 {
        reason = done(&fixture.json("GET", &one, &Value::Null).await.1);
        if reason.is_some() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(reason.is_some_and(|reason| reason == "InstanceDeletionCompleted" || reason == "NeverEstablished"));
    let (code, again) = fixture.json("DELETE", &one, &Value::Null).await;
    assert_eq!((code, &again["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(0)), "{again}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_bookmark_is_an_empty_object_of_the_kind() {
    let fixture = Fixture::new().await;
    let watch = "/api/v1/namespaces/default/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true&timeoutSeconds=1";
    let request = Request::get(watch).header("authorization", format!("Bearer {}", fixture.admin));
    let request = request.body(Body::default()).expect("a request");
    let mut body = fixture.server.handle(request, Peer::default()).await.into_body();
    let frame = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
    let event: Value = serde_json::from_slice(&frame).expect("one event");
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("BOOKMARK"), &json!("Pod")));
    assert_eq!(event["object"]["spec"], json!({"containers": null}));
    let metadata = &event["object"]["metadata"];
    assert_eq!(metadata["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    assert!(metadata["resourceVersion"].as_str().is_some_and(|version| version.parse::<u64>().is_ok()), "{metadata}");
    fixture.stop().await;
}
