//! Bootstrap signer: keeps the signatures in `kube-public/cluster-info` equal to the tokens there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;

use super::{expiration, field, is_token, sign};
use crate::Context;

const NAME: &str = "bootstrap-signer";
const NAMESPACE: &str = "kube-public";
const MAP: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
const PREFIX: &str = "jws-kubeconfig-";

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (maps, secrets) = (context.informers.of::<ConfigMap>(), context.informers.of::<Secret>());
    let queue: WorkQueue<ObjectKey> = context.queue("bootstrap_signer_queue");
    let the_map = || ObjectKey::new(NAMESPACE, MAP);
    let keys = queue.clone();
    maps.on_change(move |change| {
        if ObjectKey::of(&**change.object()) == the_map() {
            keys.add(the_map());
        }
    });
    let keys = queue.clone();
    secrets.on_change(move |change| {
        if is_token(change.object()) {
            keys.add(the_map());
        }
    });
    let synced = (maps.clone(), secrets.clone());
    let ready = async move {
        synced.0.synced().await;
        synced.1.synced().await;
    };
    let clock = context.config.clock.clone();
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |_key: ObjectKey| {
        let (client, map, secrets) = (client.clone(), maps.get(NAMESPACE, MAP), secrets.clone());
        let now = clock.now();
        async move { update(client, map, &secrets, now).await }
    });
}

async fn update(
    client: Client,
    map: Option<Arc<ConfigMap>>,
    secrets: &Informer<Secret>,
    now: Timestamp,
) -> Result<Action, Error> {
    let Some(map) = map else { return Ok(Action::Done) };
    let tokens: Vec<_> = secrets.list_in(super::NAMESPACE);
    let wanted = signed(map.data.as_ref(), tokens.iter().map(|token| &**token), now);
    if map.data == wanted {
        return Ok(Action::Done);
    }
    let changed = ConfigMap { data: wanted, ..(*map).clone() };
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    match api.replace(MAP, &PostParams::default(), &changed).await {
        Err(error) if !write::is_not_found(&error) => Err(error.into()),
        _ => Ok(Action::Done),
    }
}

type Data = BTreeMap<String, String>;

/// The map's data with one signature for each token that may sign.
fn signed<'a>(data: Option<&Data>, tokens: impl Iterator<Item = &'a Secret>, now: Timestamp) -> Option<Data> {
    let mut data = data?.clone();
    let Some(content) = data.get(CONTENT).cloned() else { return Some(data) };
    data.retain(|key, _| !key.starts_with(PREFIX));
    for token in tokens.filter(|token| is_token(token)) {
        // The name tells the token's, so that no two Secrets can be about the same one.
        let named = token.metadata.name.as_deref().and_then(|name| name.strip_prefix("bootstrap-token-"));
        if named.is_none() || named != field(token, "token-id") {
            continue;
        }
        let alive = expiration(token).is_none_or(|end| end > now);
        let may_sign = field(token, "usage-bootstrap-signing") == Some("true");
        if let (Some(id), Some(secret), true) =
            (field(token, "token-id"), field(token, "token-secret"), alive && may_sign)
        {
            data.insert(format!("{PREFIX}{id}"), sign::detached(&content, id, secret));
        }
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_living_token_signs() {
        let token = |id: &str, usage: &str, expiration: &str| -> Secret {
            let fields = [
                ("token-id", id),
                ("token-secret", "s"),
                ("usage-bootstrap-signing", usage),
                ("expiration", expiration),
            ];
            let data: BTreeMap<_, _> = fields.map(|(key, value)| (key, k8s_openapi::ByteString(value.into()))).into();
            let metadata = json!({ "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" });
            serde_json::from_value(json!({ "metadata": metadata, "type": super::super::TOKEN_TYPE, "data": data }))
                .expect("a secret")
        };
        let tokens = [
            token("aaaaaa", "true", ""),
            token("bbbbbb", "false", ""),
            token("cccccc", "true", "2001-01-01T00:00:00Z"),
            token("dddddd", "true", "soon"),
            Secret {
                metadata: ObjectMeta { name: Some("other".into()), ..token("eeeeee", "true", "").metadata },
                ..token("eeeeee", "true", "")
            },
        ];
        let data = Data::from([(CONTENT.into(), "x".into()), (format!("{PREFIX}gone"), "y".into())]);
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let made = signed(Some(&data), tokens.iter(), now).expect("data");
        assert_eq!(made.keys().collect::<Vec<_>>(), ["jws-kubeconfig-aaaaaa", "kubeconfig"]);
        let silent = Data::from([("other".into(), "x".into()), (format!("{PREFIX}aaaaaa"), "y".into())]);
        assert_eq!(signed(Some(&silent), tokens.iter(), now), Some(silent.clone()));
        assert_eq!(signed(None, tokens.iter(), now), None);
    }
}
