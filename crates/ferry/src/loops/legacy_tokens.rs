//! Tokens of Secrets, through the API.

use ferry_client::Api;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Kit, NAMESPACE};

async fn review(kit: &Kit, token: &str) -> TokenReviewStatus {
    let review: TokenReview = serde_json::from_value(json!({ "metadata": {}, "spec": { "token": token } })).unwrap();
    let api: Api<TokenReview> = Api::all(kit.client.clone());
    api.create(&PostParams::default(), &review).await.unwrap().status.unwrap()
}

fn secret(name: &str, account: &str) -> Value {
    let annotations = json!({ "kubernetes.io/service-account.name": account });
    json!({ "metadata": { "name": name, "annotations": annotations }, "type": "kubernetes.io/service-account-token" })
}

/// The token of a Secret once it has one.
async fn token(kit: &Kit, name: &str) -> String {
    let filled =
        |secret: &Secret| secret.name_any() == name && secret.data.iter().flatten().any(|(key, _)| key == "token");
    let all = kit.until(kit.api::<Secret>(), "a filled Secret", |all| all.iter().any(|one| filled(one))).await;
    let secret = all.iter().find(|one| filled(one)).unwrap();
    let data = secret.data.as_ref().unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    assert_eq!((text("namespace").as_str(), text("ca.crt").as_str()), (NAMESPACE, kit.pki.ca_certificate()));
    text("token")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_get_tokens_that_go_with_them() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let account = kit.create::<ServiceAccount>(json!({ "metadata": { "name": "robot" } })).await;
    kit.create::<Secret>(secret("first", "robot")).await;
    kit.create::<Secret>(secret("second", "robot")).await;
    let (first, second) = (token(&kit, "first").await, token(&kit, "second").await);
    let user = review(&kit, &first).await.user.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:test:robot"));
    assert_eq!(user.uid, account.metadata.uid);
    assert!(user.groups.unwrap().contains(&"system:serviceaccounts:test".to_owned()));

    // The day of its use is written beside it, and since when that is done.
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string();
    let label = "kubernetes.io/legacy-token-last-used";
    kit.until(kit.api::<Secret>(), "a label of the last use", |all| {
        all.iter().any(|one| one.name_any() == "first" && one.labels().get(label) == Some(&today))
    })
    .await;
    let maps: Api<ConfigMap> = Api::namespaced(kit.client.clone(), "kube-system");
    let tracking = maps.get("kube-apiserver-legacy-service-account-token-tracking").await.unwrap();
    assert_eq!(tracking.data.unwrap()["since"], today);

    // What was marked is refused, until the mark is taken away.
    let secrets = kit.api::<Secret>();
    let mark =
        |value: Value| json!({ "metadata": { "labels": { "kubernetes.io/legacy-token-invalid-since": value } } });
    secrets.patch("first", &PatchParams::default(), &Patch::Merge(&mark(json!("2020-01-01")))).await.unwrap();
    let refused = review(&kit, &first).await;
    assert!(refused.authenticated != Some(true) && refused.error.unwrap().contains("has been marked invalid"));
    secrets.patch("first", &PatchParams::default(), &Patch::Merge(&mark(Value::Null))).await.unwrap();
    assert_eq!(review(&kit, &first).await.authenticated, Some(true));

    // It is good as long as its Secret holds it.
    let other = json!({ "data": { "token": "bm90IGl0" } });
    secrets.patch("first", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    assert!(review(&kit, &first).await.error.unwrap().contains("Token does not match server's copy"));
    secrets.delete("first", &DeleteParams::default()).await.unwrap();
    assert!(review(&kit, &first).await.error.unwrap().contains("Token has been invalidated"));

    // With the account its tokens go; a Secret of nobody goes at once.
    assert_eq!(review(&kit, &second).await.authenticated, Some(true));
    kit.api::<ServiceAccount>().delete("robot", &DeleteParams::default()).await.unwrap();
    assert_ne!(review(&kit, &second).await.authenticated, Some(true));
    kit.create::<Secret>(secret("third", "nobody")).await;
    kit.until(secrets, "no token", |all| {
        all.iter().all(|one| one.type_.as_deref() != Some("kubernetes.io/service-account-token"))
    })
    .await;
    kit.stop().await;
}
