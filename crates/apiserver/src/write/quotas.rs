//! Where quota admission reserves usage: the store itself, by compare-and-swap.

use std::sync::Arc;

use ferry_admission::QuotaStore;
use ferry_meta::{ApiError, object};
use ferry_registry::{Resource, ResourceTable};
use ferry_store::{Op, StoreError, Transaction};
use serde_json::Value;

use crate::cache::Cache;
use crate::storage::{codec, objects};

/// Made before the server, since the admission chain is made of it.
pub struct Quotas {
    cache: Arc<Cache>,
    row: Arc<Resource>,
}

impl Quotas {
    /// None where the table has no quotas.
    pub fn new(cache: Arc<Cache>, table: &ResourceTable) -> Option<Self> {
        Some(Self { cache, row: table.find("", "v1", "resourcequotas")?.clone() })
    }
}

#[async_trait::async_trait]
impl QuotaStore for Quotas {
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let got = self.cache.store().get(&self.row.key(namespace, name)).await;
        let got = got.map_err(|e| objects::store_error(&e))?;
        got.entry.map(|entry| objects::parse(&self.row, &entry).map(|stored| stored.object)).transpose()
    }

    async fn update_status(&self, quota: &Value) -> Result<Value, ApiError> {
        let (namespace, name) = (object::namespace(quota), object::name(quota));
        let conflict = || ApiError::modified(&self.row.group_resource(), name);
        let live = self.get(namespace, name).await?.ok_or_else(conflict)?;
        let expected = objects::parse_version(object::resource_version(quota)).map_err(objects::bare_error)?;
        let mut object = live.clone();
        object["status"] = quota.get("status").cloned().unwrap_or_default();
        if let Some(ty) = codec::type_of(&self.row.gvk) {
            let reset = self.row.strategy.reset_fields("status");
            codec::track(&ty, &self.row.gvk, "status", &reset, &mut object, Some(&live), "kube-apiserver");
        }
        let value = objects::to_bytes(&self.row, &object);
        let op = Op::Update { key: self.row.key(namespace, name), value, expected, lease: None };
        match self.cache.store().commit(Transaction::one(op)).await {
            Ok(commit) => {
                let _ = self.cache.wait_for(commit.revision).await;
                objects::set_version(&mut object, commit.revision);
                Ok(object)
            }
            Err(StoreError::Conflict { .. }) => Err(conflict()),
            Err(error) => Err(objects::store_error(&error)),
        }
    }
}
