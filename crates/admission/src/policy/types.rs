//! The types of objects that mutations merge into: built-in ones from the catalogue, custom ones from their definitions.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::object::{items, text, uid};
use ferry_meta::{GroupVersionKind, ObjectReader};
use ferry_schema::Type;
use ferry_schema::structural::{Schema, custom_type};
use parking_lot::Mutex;
use serde_json::Value;

use crate::Request;
use crate::resources::DEFINITIONS;

/// A version of a definition: its uid and generation, and the version's name.
type Identity = (String, i64, String);

pub(super) struct Types {
    reader: Arc<dyn ObjectReader>,
    custom: Mutex<HashMap<String, (Identity, Type)>>,
}

impl Types {
    pub fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader, custom: Mutex::default() }
    }

    pub fn of(&self, request: &Request<'_>) -> Option<Type> {
        if let Some(ty) = ferry_schema::builtin().kind(request.kind) {
            return Some(ty);
        }
        let name = format!("{}.{}", request.resource.resource, request.resource.group);
        let definition = self.reader.get(&DEFINITIONS, "", &name)?;
        let generation = definition.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let identity = (uid(&definition).to_owned(), generation, request.kind.version.clone());
        let mut custom = self.custom.lock();
        if let Some((known, ty)) = custom.get(&name)
            && *known == identity
        {
            return Some(ty.clone());
        }
        let ty = read(&definition, request.kind)?;
        custom.insert(name, (identity, ty.clone()));
        Some(ty)
    }
}

fn read(definition: &Value, kind: &GroupVersionKind) -> Option<Type> {
    let versions = items(definition, "/spec/versions");
    let version = versions.iter().find(|version| text(version, "/name") == kind.version)?;
    Some(custom_type(kind, Schema::parse(version.pointer("/schema/openAPIV3Schema")?)))
}
