//! Publishes the authority of the API server's certificate as a ClusterTrustBundle, and takes away outdated ones.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Client, ResourceExt};
use sha2::{Digest, Sha256};

use crate::Context;

const NAME: &str = "kube-apiserver-serving-clustertrustbundle-publisher";
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

/// The signer with colons for slashes, and a digest of the bundle.
fn bundle_name(bundle: &str) -> String {
    let digest = Sha256::digest(bundle);
    let short = digest.iter().take(6).fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    format!("{}:{short}", SIGNER.replace('/', ":"))
}

pub(crate) fn start(context: &Context) {
    if context.config.root_ca.is_empty() {
        return;
    }
    let (client, bundles) = (context.client(NAME), context.informers.of::<ClusterTrustBundle>());
    let text: Arc<str> = context.config.root_ca.as_str().into();
    let queue: WorkQueue<ObjectKey> = context.queue("ca_cert_publisher_cluster_trust_bundles");
    let keys = queue.clone();
    bundles.on_change(move |change| {
        if change.object().spec.signer_name.as_deref() == Some(SIGNER) {
            keys.add(ObjectKey::default());
        }
    });
    queue.add(ObjectKey::default());
    let synced = bundles.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |_key: ObjectKey| {
        let (client, bundles, text) = (client.clone(), bundles.clone(), text.clone());
        async move { publish(client, &bundles, &text).await }
    });
}

async fn publish(client: Client, bundles: &Informer<ClusterTrustBundle>, text: &str) -> Result<Action, Error> {
    let api: Api<ClusterTrustBundle> = Api::all(client);
    let name = bundle_name(text);
    let wanted = ClusterTrustBundle {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: ClusterTrustBundleSpec { signer_name: Some(SIGNER.into()), trust_bundle: text.to_owned() },
    };
    match bundles.get("", &name) {
        None => match api.create(&PostParams::default(), &wanted).await {
            Err(error) if !write::is_already_exists(&error) => return Err(error.into()),
            _ => {}
        },
        Some(there) if there.spec != wanted.spec => {
            let fixed = ClusterTrustBundle { spec: wanted.spec, ..(*there).clone() };
            api.replace(&name, &PostParams::default(), &fixed).await?;
        }
        Some(_) => {}
    }
    // Others of this signer are of an authority that is no longer used.
    for other in bundles.list() {
        if other.spec.signer_name.as_deref() == Some(SIGNER) && other.name_any() != name {
            write::delete(&api, &*other, None).await?;
        }
    }
    Ok(Action::Done)
}
