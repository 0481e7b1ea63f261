//! Copies of the Secrets and ConfigMaps that are in use, in a namespace that joined nodes may read: they may read no other Secret.
//! Whoever leads writes them, while there is a node that needs them; what is not in use any more is deleted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use ferry_client::{Api, ObjectKey, write};
use ferry_tasks::Tasks;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::resolve::{Changed, Id, Parts, Source};

/// Where the copies are.
pub const NAMESPACE: &str = "ferry-gateway";
/// Of what an object is a copy: `Secret NAMESPACE/NAME`.
const OF: &str = "gateway.ferry.dev/copy-of";
const TYPE: &str = "gateway.ferry.dev/copy";
const RETRY: Duration = Duration::from_secs(1);
const KINDS: [&str; 2] = ["Secret", "ConfigMap"];

/// The name of a copy says of what it is one.
pub fn name(kind: &str, key: &ObjectKey) -> String {
    let digest = Sha256::digest(format!("{kind} {key}"));
    let mut name = format!("{}-", kind.to_ascii_lowercase());
    for byte in &digest[..16] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Of what this is a copy; None: of nothing.
pub fn of(copy: &Secret) -> Option<Id> {
    let text = copy.metadata.annotations.as_ref()?.get(OF)?;
    let (kind, key) = text.split_once(' ')?;
    let (namespace, own) = key.split_once('/')?;
    let kind = KINDS.iter().find(|known| **known == kind)?;
    let key = ObjectKey::new(namespace, own);
    (copy.metadata.name.as_deref() == Some(&*name(kind, &key))).then_some(Id { key, kind })
}

/// The object that a copy stands for.
pub fn read(id: &Id, copy: Option<std::sync::Arc<Secret>>) -> Changed {
    match id.kind {
        "Secret" => Changed::Secret(id.key.clone(), copy),
        _ => Changed::ConfigMap(id.key.clone(), copy.map(|copy| std::sync::Arc::new(map(&copy)))),
    }
}

fn map(copy: &Secret) -> ConfigMap {
    let data = copy.data.iter().flatten();
    let data = data.filter_map(|(key, value)| Some((key.clone(), String::from_utf8(value.0.clone()).ok()?)));
    ConfigMap { data: Some(data.collect()), ..ConfigMap::default() }
}

/// What is kept of a copy.
pub fn trim(copy: &mut Secret) {
    let meta = &mut copy.metadata;
    (meta.labels, meta.managed_fields) = (None, None);
}

/// A copy of what is in use of an object.
pub fn copy(source: &Source, parts: Parts, secret: Option<&Secret>, map: Option<&ConfigMap>) -> Option<Secret> {
    let data: BTreeMap<String, ByteString> = match source.kind {
        "Secret" => {
            let is_used = |key: &str| match key {
                "tls.crt" | "tls.key" => parts.pair,
                _ => parts.users,
            };
            let data = secret?.data.iter().flatten().filter(|(key, _)| is_used(key));
            data.map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        _ => {
            let data = map?.data.iter().flatten().filter(|(key, _)| *key == "ca.crt");
            data.map(|(key, value)| (key.clone(), ByteString(value.clone().into_bytes()))).collect()
        }
    };
    let metadata = ObjectMeta {
        name: Some(name(source.kind, &source.key)),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some([("app.kubernetes.io/managed-by".to_owned(), "ferry".to_owned())].into()),
        annotations: Some([(OF.to_owned(), format!("{} {}", source.kind, source.key))].into()),
        ..ObjectMeta::default()
    };
    Some(Secret { metadata, type_: Some(TYPE.to_owned()), data: Some(data), ..Secret::default() })
}

type Wanted = Option<BTreeMap<String, Secret>>;

/// Keeps the copies as they are to be.
pub struct Copies(watch::Sender<Wanted>);

impl Copies {
    pub fn start(client: &Client, tasks: &Tasks) -> Self {
        let (sender, mut wanted) = watch::channel(None);
        let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        tasks.spawn_until_stopped("gateway keys", async move {
            while wanted.changed().await.is_ok() {
                loop {
                    let now: Wanted = wanted.borrow_and_update().clone();
                    let Some(now) = now else { break };
                    match bring(&api, &now).await {
                        Ok(()) => break,
                        Err(error) => {
                            tracing::warn!(
                                "the keys that nodes serve with cannot be written to namespace {NAMESPACE}: {}",
                                write::short(&error)
                            );
                            tokio::time::sleep(RETRY).await;
                        }
                    }
                }
            }
        });
        Self(sender)
    }

    /// These are to be there and no others. None: that is somebody else's business now.
    pub fn want(&self, copies: Wanted) {
        self.0.send_if_modified(|known| {
            let is_other = *known != copies;
            *known = copies;
            is_other
        });
    }

    /// Somebody has changed a copy.
    pub fn look(&self) {
        self.0.send_modify(|_| {});
    }
}

async fn bring(api: &Api<Secret>, wanted: &BTreeMap<String, Secret>) -> Result<(), kube::Error> {
    let there = api.list(&ListParams::default()).await?.items;
    let there: BTreeMap<_, _> =
        there.into_iter().filter_map(|copy| Some((copy.metadata.name.clone()?, copy))).collect();
    // What somebody else keeps there is theirs.
    for (name, copy) in there.iter().filter(|(name, copy)| !wanted.contains_key(*name) && of(copy).is_some()) {
        tracing::debug!("{name} is not in use any more");
        write::delete_as_seen(api, copy).await?;
    }
    for (name, copy) in wanted {
        let Some(known) = there.get(name) else {
            api.create(&PostParams::default(), copy).await?;
            continue;
        };
        if known.type_ != copy.type_ {
            api.delete(name, &DeleteParams::default()).await?;
            api.create(&PostParams::default(), copy).await?;
        } else if known.data.iter().flatten().ne(copy.data.iter().flatten()) || of(known).is_none() {
            let mut changed = copy.clone();
            changed.metadata.resource_version.clone_from(&known.metadata.resource_version);
            api.replace(name, &PostParams::default(), &changed).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(kind: &'static str) -> Source {
        Source { kind, key: ObjectKey::new("n", "s") }
    }

    #[test]
    fn a_copy_has_what_is_in_use() {
        let data = [("tls.crt", "c"), ("tls.key", "k"), ("auth", "a:b")];
        let data = data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
        let secret = Secret { data: Some(data.collect()), ..Secret::default() };
        let keys = |pair, users| -> Vec<String> {
            let made = copy(&source("Secret"), Parts { pair, users }, Some(&secret), None).expect("there is one");
            made.data.iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        assert_eq!(keys(true, false), ["tls.crt", "tls.key"]);
        assert_eq!(keys(false, true), ["auth"]);
        assert_eq!(keys(true, true).len(), 3);
        assert!(copy(&source("Secret"), Parts::default(), None, None).is_none());
        let data = [("ca.crt", "c"), ("other", "o")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let config = ConfigMap { data: Some(data.into()), ..ConfigMap::default() };
        let made = copy(&source("ConfigMap"), Parts::default(), None, Some(&config)).expect("there is one");
        assert_eq!(map(&made).data.expect("its data"), [("ca.crt".to_owned(), "c".to_owned())].into());
    }

    /// Nobody who may write one copy writes another in its name.
    #[test]
    fn a_copy_is_of_what_its_name_says() {
        let mut made = copy(&source("Secret"), Parts::default(), Some(&Secret::default()), None).expect("there is one");
        assert_eq!(of(&made), Some(Id { kind: "Secret", key: ObjectKey::new("n", "s") }));
        for wrong in ["Secret n/other", "ConfigMap n/s", "Pod n/s", "Secret", "Secret n", ""] {
            made.metadata.annotations = Some([(OF.to_owned(), wrong.to_owned())].into());
            assert_eq!(of(&made), None, "{wrong}");
        }
        assert_eq!(of(&Secret::default()), None);
    }
}
