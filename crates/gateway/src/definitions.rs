//! The definitions and classes that have to be there before anything can be followed.

use std::time::Duration;

use ferry_client::{Informer, write};
use k8s_openapi::api::networking::v1::IngressClass;
use kube::Client;
use serde_json::json;
use tokio::sync::watch;

use crate::api::GROUP;
use crate::{CLASS, CONTROLLER, INGRESS_CONTROLLER, crd};

const RETRY: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(100);
const TRIES: usize = 100;

/// Whoever leads makes what is missing; the others wait for that. Gives the kinds that the server has, and
/// whether it was this process that made them.
pub async fn ready(
    client: &Client,
    classes: &Informer<IngressClass>,
    leads: &watch::Receiver<bool>,
) -> (Vec<String>, bool) {
    let mut leads = leads.clone();
    let mut changes = classes.subscribe();
    loop {
        if *leads.borrow_and_update() {
            return (prepare(client).await, true);
        }
        // It is made after all definitions.
        if classes.is_synced() && classes.list().iter().any(|class| is_ours(class)) {
            return (served(client, &crd::kinds()).await, false);
        }
        tokio::select! {
            _ = changes.next() => {}
            Ok(()) = leads.changed() => {}
        }
    }
}

fn is_ours(class: &IngressClass) -> bool {
    class.spec.as_ref().is_some_and(|spec| spec.controller.as_deref() == Some(INGRESS_CONTROLLER))
}

/// Definitions take a moment. Somebody else's may never have the version that is read here.
async fn served(client: &Client, expected: &[String]) -> Vec<String> {
    let mut tries = TRIES;
    loop {
        match crd::served(client).await {
            Ok(served) if tries == 0 || expected.iter().all(|kind| served.contains(kind)) => return served,
            Ok(_) => {
                tries -= 1;
                tokio::time::sleep(SOON).await;
            }
            Err(error) => {
                tracing::info!("the gateway waits for its definitions: {}", write::short(&error));
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Definitions and classes are there when this returns.
pub async fn prepare(client: &Client) -> Vec<String> {
    loop {
        let prepared = async {
            let expected = crd::install(client).await?;
            make_classes(client).await?;
            Ok::<_, kube::Error>(expected)
        };
        match prepared.await {
            Ok(expected) => return served(client, &expected).await,
            Err(error) => {
                tracing::info!("the gateway waits for its definitions: {}", write::short(&error));
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn make_classes(client: &Client) -> Result<(), kube::Error> {
    let labels = json!({ "app.kubernetes.io/managed-by": "ferry" });
    let classes = [
        (
            format!("/apis/{GROUP}/v1/gatewayclasses"),
            json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass",
                "metadata": { "name": CLASS, "labels": labels },
                "spec": { "controllerName": CONTROLLER },
            }),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses".to_owned(),
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                "metadata": { "name": CLASS, "labels": labels },
                "spec": { "controller": INGRESS_CONTROLLER },
            }),
        ),
    ];
    for (path, class) in classes {
        let body = serde_json::to_vec(&class).map_err(kube::Error::SerdeError)?;
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json").body(body);
        match write::send(client, request.map_err(kube::Error::HttpError)?).await {
            Err(error) if !write::is_already_exists(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
