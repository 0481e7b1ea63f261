//! Values as others may have written them, seen as this server's own JSON.
//!
//! On an etcd that is or was upstream's, built-in kinds lie there as protobuf, or in another version than the one that is
//! stored here. All that reads the store gets JSON of the stored version from this layer; it is the one place that knows
//! of another form. It can write protobuf too, for upstream's servers beside this one read both.

use std::sync::Arc;

use bytes::Bytes;
use ferry_meta::{GroupVersion, GroupVersionKind};
use ferry_registry::ResourceTable;
use ferry_schema::proto;
use ferry_store::{
    Commit, Entry, Event, Got, LeaseId, Op, Range, RangeResult, Result, Revision, Store, StoreError, Transaction,
    WatchBatch, WatchRequest, WatchStream,
};
use futures::StreamExt;
use serde_json::Value;

use crate::storage::codec;

/// How built-in kinds are written. Custom resources, their definitions and APIServices are always JSON, as upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredAs {
    #[default]
    Json,
    Protobuf,
}

pub struct StoredValues {
    inner: Arc<dyn Store>,
    forms: Arc<Forms>,
}

struct Forms {
    table: ResourceTable,
    written: StoredAs,
}

impl StoredValues {
    pub fn over(inner: Arc<dyn Store>, table: &ResourceTable, written: StoredAs) -> Arc<Self> {
        Arc::new(Self { inner, forms: Arc::new(Forms { table: table.clone(), written }) })
    }
}

impl Forms {
    fn entry(&self, mut entry: Entry) -> Entry {
        match self.json(&entry.value) {
            Ok(None) => {}
            Ok(Some(json)) => entry.value = json,
            // Whoever wants this object will be told; all others are served.
            Err(why) => tracing::error!(key = &*entry.key, "a stored value cannot be read: {why}"),
        }
        entry
    }

    fn batch(&self, batch: WatchBatch) -> WatchBatch {
        let event = |event: Event| Event {
            entry: self.entry(event.entry),
            previous: event.previous.map(|previous| self.entry(previous)),
            ..event
        };
        WatchBatch { events: batch.events.into_iter().map(event).collect(), ..batch }
    }

    /// None where it is what it should be already.
    fn json(&self, value: &[u8]) -> std::result::Result<Option<Bytes>, String> {
        if value.starts_with(proto::MAGIC) {
            let envelope = proto::open(value).map_err(|e| e.to_string())?;
            let kind = kind(&envelope.type_meta.api_version, &envelope.type_meta.kind)?;
            let ty = codec::type_of(&kind).ok_or_else(|| format!("the type of {kind:?} is not known"))?;
            let object = proto::decode(&ty, value).map_err(|e| e.to_string())?;
            return Ok(Some(self.stored_version(&kind, object)));
        }
        let Some(kind) = leading_kind(value).filter(|kind| self.is_other_version(kind)) else { return Ok(None) };
        let object = serde_json::from_slice(value).map_err(|e| e.to_string())?;
        Ok(Some(self.stored_version(&kind, object)))
    }

    fn is_other_version(&self, kind: &GroupVersionKind) -> bool {
        self.table.find_kind(kind).is_some_and(|row| row.gvk != row.storage_gvk && !codec::is_custom(row))
    }

    fn stored_version(&self, kind: &GroupVersionKind, mut object: Value) -> Bytes {
        let mut stored = kind.clone();
        if let Some(row) = self.table.find_kind(kind).filter(|row| row.gvk != row.storage_gvk) {
            object = row.strategy.to_storage(object);
            stored = row.storage_gvk.clone();
        }
        if let Some(map) = object.as_object_mut() {
            map.insert("kind".into(), stored.kind.clone().into());
            map.insert("apiVersion".into(), stored.api_version().into());
        }
        codec::encode_stored(&stored, &object)
    }

    fn written(&self, value: Bytes) -> Bytes {
        if self.written == StoredAs::Json {
            return value;
        }
        let json_only = |group: &str| matches!(group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
        let kind = leading_kind(&value).filter(|kind| !json_only(&kind.group));
        kind.and_then(|kind| codec::to_protobuf(&kind, &value)).unwrap_or(value)
    }
}

fn kind(api_version: &str, kind: &str) -> std::result::Result<GroupVersionKind, String> {
    let version = GroupVersion::parse(api_version).ok_or_else(|| format!("{api_version:?} is no version"))?;
    Ok(version.with_kind(kind))
}

/// The kind of an object that begins with it, as everything that Go or this server wrote does.
fn leading_kind(json: &[u8]) -> Option<GroupVersionKind> {
    let rest = json.strip_prefix(b"{\"kind\":\"")?;
    let end = memchr::memchr(b'"', rest)?;
    let after = rest[end..].strip_prefix(b"\",\"apiVersion\":\"")?;
    let version_end = memchr::memchr(b'"', after)?;
    kind(std::str::from_utf8(&after[..version_end]).ok()?, std::str::from_utf8(&rest[..end]).ok()?).ok()
}

#[async_trait::async_trait]
impl Store for StoredValues {
    async fn get(&self, key: &str) -> Result<Got> {
        let got = self.inner.get(key).await?;
        Ok(Got { entry: got.entry.map(|entry| self.forms.entry(entry)), ..got })
    }

    async fn range(&self, range: Range) -> Result<RangeResult> {
        let found = self.inner.range(range).await?;
        Ok(RangeResult { entries: found.entries.into_iter().map(|entry| self.forms.entry(entry)).collect(), ..found })
    }

    async fn commit(&self, mut transaction: Transaction) -> Result<Commit> {
        for op in &mut transaction.ops {
            if let Op::Create { value, .. } | Op::Update { value, .. } = op {
                *value = self.forms.written(std::mem::take(value));
            }
        }
        self.inner.commit(transaction).await.map_err(|error| match error {
            StoreError::Conflict { key, current } => {
                StoreError::Conflict { key, current: current.map(|entry| Box::new(self.forms.entry(*entry))) }
            }
            other => other,
        })
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream> {
        let (batches, forms) = (self.inner.watch(request).await?, self.forms.clone());
        Ok(batches.map(move |batch| batch.map(|batch| forms.batch(batch))).boxed())
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn revision(&self) -> Result<Revision> {
        self.inner.revision().await
    }

    async fn grant_lease(&self, ttl_seconds: u64) -> Result<LeaseId> {
        self.inner.grant_lease(ttl_seconds).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        self.inner.revoke_lease(lease).await
    }

    async fn is_stale(&self, key: &str) -> Result<bool> {
        self.inner.is_stale(key).await
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn answers(&self) -> Result<()> {
        self.inner.answers().await
    }

    async fn health(&self) -> Result<()> {
        self.inner.health().await
    }
}

#[cfg(test)]
mod tests {
    use ferry_store::EmbeddedStore;
    use serde_json::json;

    use super::*;

    fn protobuf(kind: &GroupVersionKind, object: &Value) -> Bytes {
        proto::encode(&codec::type_of(kind).expect("a type"), object).into()
    }

    fn parsed(entry: Option<Entry>) -> Value {
        serde_json::from_slice(&entry.expect("an entry").value).expect("JSON")
    }

    fn config_map() -> Value {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "1"}, "metadata": {
            "name": "c", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}})
    }

    #[tokio::test]
    async fn what_upstream_wrote_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
        let store = StoredValues::over(inner.clone(), &ResourceTable::builtin(), StoredAs::Json);
        let start = inner.revision().await.expect("revision");
        let config_map_kind = GroupVersionKind::new("", "v1", "ConfigMap");
        let scaler_kind = GroupVersionKind::new("autoscaling", "v1", "HorizontalPodAutoscaler");
        let scaler = json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "h", "namespace": "n", "uid": "u"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3,
                "targetCPUUtilizationPercentage": 50}});
        let scaler_json = codec::encode(&scaler_kind, &scaler);
        let values = [
            ("configmaps/n/c", protobuf(&config_map_kind, &config_map())),
            ("configmaps/n/json", codec::encode(&config_map_kind, &config_map()).into()),
            ("configmaps/n/broken", Bytes::from_static(b"k8s\0\x0a\xff")),
            ("horizontalpodautoscalers/n/h", protobuf(&scaler_kind, &scaler)),
            ("horizontalpodautoscalers/n/json", scaler_json.into()),
        ];
        for (key, value) in values {
            let op = Op::Create { key: format!("/registry/{key}"), value, lease: None };
            inner.commit(Transaction::one(op)).await.expect("create");
        }
        for name in ["c", "json"] {
            let got = store.get(&format!("/registry/configmaps/n/{name}")).await.expect("get");
            assert_eq!(parsed(got.entry), config_map(), "{name}");
        }
        for name in ["h", "json"] {
            let got = store.get(&format!("/registry/horizontalpodautoscalers/n/{name}")).await.expect("get");
            let object = parsed(got.entry);
            assert_eq!(object["apiVersion"], "autoscaling/v2", "{name}");
            assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50, "{name}");
        }
        // A value that nobody can read hides no other.
        let range = Range { prefix: "/registry/".into(), ..Range::default() };
        let found = store.range(range).await.expect("range").entries;
        assert_eq!(found.iter().filter(|entry| entry.value.starts_with(b"{")).count(), 4);
        let taken = Op::Create { key: "/registry/configmaps/n/c".into(), value: Bytes::new(), lease: None };
        match store.commit(Transaction::one(taken)).await {
            Err(StoreError::Conflict { current, .. }) => assert_eq!(parsed(current.map(|entry| *entry)), config_map()),
            other => panic!("{other:?}"),
        }
        let request = WatchRequest { prefix: "/registry/configmaps/".into(), after: start };
        let first = store.watch(request).await.expect("watch").next().await.expect("a batch").expect("a batch");
        assert_eq!(parsed(Some(first.events[0].entry.clone())), config_map());
    }

    #[tokio::test]
    async fn protobuf_is_written_where_it_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
        let store = StoredValues::over(inner.clone(), &ResourceTable::builtin(), StoredAs::Protobuf);
        let object = config_map();
        let written = codec::encode_stored(&GroupVersionKind::new("", "v1", "ConfigMap"), &object);
        let custom = br#"{"kind":"Thing","apiVersion":"example.com/v1","metadata":{"name":"t"}}"#;
        for (key, value) in
            [("configmaps/n/c", written.clone()), ("example.com/things/n/t", Bytes::from_static(custom))]
        {
            let op = Op::Create { key: format!("/registry/{key}"), value, lease: None };
            store.commit(Transaction::one(op)).await.expect("create");
        }
        let raw = async |key: &str| inner.get(key).await.expect("get").entry.expect("an entry").value;
        assert!(raw("/registry/configmaps/n/c").await.starts_with(proto::MAGIC));
        assert_eq!(raw("/registry/example.com/things/n/t").await, &custom[..]);
        // Read back it is the same to the byte: an update that changes nothing stays none.
        let back = store.get("/registry/configmaps/n/c").await.expect("get").entry.expect("an entry");
        assert_eq!(back.value, written);
    }
}
