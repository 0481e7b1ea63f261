//! The versions that a resource is served in besides the one of a request, for the rules of webhooks and policies.

use std::sync::OnceLock;

use ferry_admission::{Equivalent, Equivalents};
use ferry_meta::{ApiError, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use super::admission::Attributes;
use crate::custom_resources::conversion;
use crate::server::Core;
use crate::storage::objects;

pub(super) struct OtherVersions<'a> {
    core: &'a Core,
    attributes: &'a Attributes<'a>,
    /// Most requests meet no rule that asks.
    list: OnceLock<Vec<Equivalent>>,
}

impl<'a> OtherVersions<'a> {
    pub(super) fn new(core: &'a Core, attributes: &'a Attributes<'a>) -> Self {
        Self { core, attributes, list: OnceLock::new() }
    }

    /// What is kept in one place is one resource, whatever its group and version.
    fn find(&self) -> Vec<Equivalent> {
        let Attributes { row, subresource, .. } = self.attributes;
        let table = self.core.table();
        let others = table.rows().iter().filter(|other| {
            row.stored && other.stored && other.storage_prefix == row.storage_prefix && other.gvk != row.gvk
        });
        others
            .filter_map(|other| {
                let kind = match *subresource {
                    "" => &other.gvk,
                    name => &other.subresource(name)?.kind,
                };
                let resource = GroupVersionResource::new(&*other.gvk.group, &*other.gvk.version, &*other.plural);
                Some(Equivalent { resource, kind: kind.clone() })
            })
            .collect()
    }
}

#[async_trait::async_trait]
impl Equivalents for OtherVersions<'_> {
    fn list(&self) -> &[Equivalent] {
        self.list.get_or_init(|| self.find())
    }

    async fn convert(&self, object: &Value, from: &GroupVersionKind, to: &GroupVersionKind) -> Result<Value, ApiError> {
        let table = self.core.table();
        let row = |kind: &GroupVersionKind| {
            let row = table.find_kind(kind).cloned();
            row.ok_or_else(|| ApiError::internal(format!("{} {} is not served", kind.api_version(), kind.kind)))
        };
        conversion::between(self.core, &*row(from)?, &*row(to)?, object.clone()).await.map_err(objects::bare_error)
    }
}
