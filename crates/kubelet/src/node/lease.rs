//! The node's lease: a cheap sign of life, renewed four times before it would end.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::Api;
use ferry_client::write;
use ferry_semantics::backoff::Backoff;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::PostParams;

use crate::context::Context;

const NAMESPACE: &str = "kube-node-lease";
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(7);

/// Renews the lease for ever. `node_uid` makes the Node its owner, so that it goes with it.
pub(crate) async fn keep_lease(context: Arc<Context>, node_uid: Option<String>) {
    let api: Api<Lease> = Api::namespaced(context.client.clone(), NAMESPACE);
    let name = context.config.node_name.clone();
    let seconds = context.config.settings.report.lease_seconds;
    let period = Duration::from_millis(u64::try_from(seconds).unwrap_or(1) * 250);
    let mut known: Option<Lease> = None;
    let mut retry = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let renewed = match known.take() {
            Some(mut lease) => {
                renew(&mut lease, &name, seconds, context.clock.now());
                api.replace(&name, &PostParams::default(), &lease).await
            }
            None => match api.get_opt(&name).await {
                Ok(Some(mut lease)) => {
                    renew(&mut lease, &name, seconds, context.clock.now());
                    api.replace(&name, &PostParams::default(), &lease).await
                }
                Ok(None) => {
                    api.create(&PostParams::default(), &new(&name, node_uid.clone(), seconds, context.clock.now()))
                        .await
                }
                Err(error) => Err(error),
            },
        };
        match renewed {
            Ok(lease) => {
                known = Some(lease);
                retry.reset();
                tokio::time::sleep(period).await;
            }
            Err(error) => {
                tracing::debug!("the node's lease: {}", write::short(&error));
                tokio::time::sleep(retry.next_delay()).await;
            }
        }
    }
}

fn renew(lease: &mut Lease, name: &str, seconds: i32, now: jiff::Timestamp) {
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = Some(name.to_owned());
    spec.lease_duration_seconds = Some(seconds);
    spec.renew_time = Some(MicroTime(now));
}

fn new(name: &str, node_uid: Option<String>, seconds: i32, now: jiff::Timestamp) -> Lease {
    let mut lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: node_uid.map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".into(),
                    kind: "Node".into(),
                    name: name.to_owned(),
                    uid,
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    };
    renew(&mut lease, name, seconds, now);
    lease
}
