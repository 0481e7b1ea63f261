//! Webhooks as loopback servers: what they are asked, how often, and what becomes of their answers.

use super::*;
use crate::testing_server::serve;
use crate::{AccessWebhook, AccessWebhookOptions, Attributes, Authorizer, TokenAuthenticator};
use ferry_meta::UserInfo;
use ferry_tasks::Tasks;
use serde_json::json;

#[tokio::test]
async fn a_token_is_reviewed_once_while_the_answer_is_fresh() {
    let tasks = Tasks::new("test");
    let (url, asked) = serve(&tasks, |_, body| {
        let review: Value = serde_json::from_slice(body).unwrap_or_default();
        let good = review["spec"]["token"] == "good";
        let mut answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"});
        answer["status"] = if good {
            json!({"authenticated": true, "user": {"username": "eve", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}}})
        } else {
            json!({"authenticated": false})
        };
        (200, answer.to_string())
    })
    .await;
    let own = vec!["api".to_owned()];
    let remote = Remote::new(&url, None, &tasks).expect("a client");
    let webhook = TokenWebhook::new(remote, "v1", own.clone(), Duration::from_secs(60));
    for _ in 0..3 {
        let identity = webhook.authenticate_token("good", &own).await.expect("answered").expect("known");
        assert_eq!((identity.user.name.as_str(), &identity.audiences), ("eve", &own));
        assert_eq!(identity.user.extra["k"], ["v"]);
        assert_eq!(webhook.authenticate_token("bad", &own).await, Ok(None));
    }
    assert_eq!(asked.count(), 2);
    assert_eq!(webhook.authenticate_token("good", &["other".to_owned()]).await, Ok(None));
    assert_eq!(webhook.authenticate_token(&"x".repeat(100_000), &own).await, Ok(None));
    assert_eq!(asked.count(), 3);
    tasks.stop(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn an_access_webhook_allows_denies_or_has_no_opinion() {
    let tasks = Tasks::new("test");
    let (url, asked) = serve(&tasks, |_, body| {
        let review: Value = serde_json::from_slice(body).unwrap_or_default();
        let status = match review["spec"]["user"].as_str() {
            Some("friend") => json!({"allowed": true, "reason": "a friend"}),
            Some("foe") => json!({"allowed": false, "denied": true, "reason": "a foe"}),
            Some("torn") => json!({"allowed": true, "denied": true}),
            Some("broken") => return (400, String::new()),
            _ => json!({"allowed": false}),
        };
        (
            200,
            json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": status})
                .to_string(),
        )
    })
    .await;
    let remote = |tasks: &Tasks| Remote::new(&url, None, tasks).expect("a client");
    let webhook = AccessWebhook::new(remote(&tasks), AccessWebhookOptions::default());
    let strict =
        AccessWebhook::new(remote(&tasks), AccessWebhookOptions { deny_on_failure: true, ..Default::default() });
    for (name, want) in
        [("friend", "allow"), ("foe", "deny"), ("stranger", "none"), ("broken", "failed"), ("torn", "failed")]
    {
        for _ in 0..2 {
            let user = UserInfo::new(name, &["g"]);
            let attributes = Attributes { namespace: "a", name: "x", ..Attributes::resource(&user, "get", "", "pods") };
            let have = match webhook.authorize(&attributes).await {
                crate::Decision::Allow { .. } => "allow",
                crate::Decision::Deny { .. } => "deny",
                crate::Decision::NoOpinion { .. } => "none",
                crate::Decision::Failed { denies, .. } => {
                    assert_eq!(denies, name == "torn");
                    "failed"
                }
            };
            assert_eq!(have, want, "{name}");
        }
    }
    // A failure is not remembered, an answer is.
    assert_eq!(asked.count(), 6);
    let user = UserInfo::new("broken", &[]);
    let decision = strict.authorize(&Attributes::path(&user, "get", "/x")).await;
    assert!(decision.denies() && decision.error() == Some("the webhook answered 400"), "{decision:?}");
    assert_eq!(asked.last()["spec"]["nonResourceAttributes"], json!({"path": "/x", "verb": "get"}));
    tasks.stop(Duration::from_secs(10)).await;
}
