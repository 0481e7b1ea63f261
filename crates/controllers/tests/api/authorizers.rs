//! Authorizers that cannot be asked.

use ferry_client::Api;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewStatus};
use kube::api::PostParams;
use serde_json::json;

use super::tls::{Wire, code, header};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_away_is_an_error_unless_somebody_else_allows() {
    let folder = tempfile::tempdir().unwrap();
    let (file, kubeconfig) = (folder.path().join("authorization.json"), folder.path().join("kubeconfig"));
    // Nobody listens there.
    let cluster = json!({ "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1/asked" } }] });
    std::fs::write(&kubeconfig, cluster.to_string()).unwrap();
    let hook = |policy: &str, user: &str| {
        json!({ "type": "Webhook", "name": user, "webhook": {
            "timeout": "1s", "subjectAccessReviewVersion": "v1", "failurePolicy": policy,
            "matchConditionSubjectAccessReviewVersion": "v1", "matchConditions": [{ "expression": format!("request.user == '{user}'") }],
            "connectionInfo": { "type": "KubeConfigFile", "kubeConfigFile": kubeconfig },
        } })
    };
    let document = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": [
        hook("NoOpinion", "open"), hook("Deny", "closed"), { "type": "RBAC", "name": "rbac" },
    ] });
    std::fs::write(&file, document.to_string()).unwrap();
    let wire = Wire::with(folder.path(), &[&format!("--authorization-config={}", file.display())]).await;
    let kit = &wire.kit;

    // What the roles allow is allowed where the webhook may be left out, and nowhere else.
    for (user, path, wanted) in [
        ("other", "/version", 200),
        ("other", "/api/v1/nodes", 403),
        ("open", "/version", 200),
        ("open", "/api/v1/nodes?limit=1", 500),
        ("closed", "/version", 500),
        ("closed", "/api/v1/nodes", 500),
    ] {
        let answer = wire.get_by(&kit.token(user, &["system:authenticated"]), path).await;
        assert_eq!(code(&answer), wanted, "{user} {path}: {answer}");
        let events = wire.on_record(&header(&answer, "audit-id"));
        let last = events.last().unwrap();
        if wanted == 500 {
            assert_eq!(header(&answer, "content-type"), "text/plain; charset=utf-8");
            let body = answer.split("\r\n\r\n").nth(1).unwrap();
            let start = format!("Internal Server Error: \"{path}\": Post \"http://127.0.0.1:1/asked\": ");
            assert!(body.starts_with(&start), "{body}");
            assert_eq!(last["annotations"], json!({ "authorization.k8s.io/reason": "internal error" }));
        } else {
            let decision = if wanted == 200 { "allow" } else { "forbid" };
            assert_eq!(last["annotations"]["authorization.k8s.io/decision"], decision);
        }
    }

    // Who asks about them is told both.
    let reviews: Api<SubjectAccessReview> = Api::all(kit.client.clone());
    for (user, denied) in [("open", None), ("closed", Some(true))] {
        let spec = json!({ "user": user, "resourceAttributes": { "verb": "list", "resource": "nodes" } });
        let review = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        let status: SubjectAccessReviewStatus =
            reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
        assert_eq!((status.allowed, status.denied), (false, denied), "{user}");
        assert!(status.evaluation_error.unwrap().contains("127.0.0.1:1"), "{user}");
    }
    wire.kit.stop().await;
}
