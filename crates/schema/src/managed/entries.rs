//! `metadata.managedFields`: reading and writing the entries, their order and their number.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::set::Set;

/// As many managers that update are told apart; the oldest others are lumped together.
const MAX_UPDATE_MANAGERS: usize = 10;
const LUMPED: &str = "ancient-changes";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) subresource: String,
    pub(super) api_version: String,
    pub(super) applied: bool,
    pub(super) set: Set,
    /// As it stands on the wire; entries of `scale` have none.
    pub(super) time: Option<String>,
}

/// Whether these are entries as far as they can be read; what cannot is taken for none.
pub(super) fn are_some(fields: &Value) -> bool {
    const TEXTS: [&str; 6] = ["manager", "operation", "apiVersion", "time", "fieldsType", "subresource"];
    let entry = |item: &Value| {
        let text = |key: &str| item.get(key).is_none_or(|value| value.is_string() || value.is_null());
        item.is_object() && TEXTS.iter().all(|key| text(key))
    };
    fields.as_array().is_some_and(|items| items.iter().all(entry))
}

impl Entry {
    fn operation(&self) -> &'static str {
        if self.applied { "Apply" } else { "Update" }
    }

    /// As it stands in an object, with its fields in their wire form.
    pub(super) fn wire(&self, fields: Value) -> Value {
        let mut map = Map::new();
        map.insert("manager".into(), json!(self.manager));
        map.insert("operation".into(), json!(self.operation()));
        map.insert("apiVersion".into(), json!(self.api_version));
        map.insert("fieldsType".into(), json!("FieldsV1"));
        map.insert("fieldsV1".into(), fields);
        if let Some(time) = &self.time {
            map.insert("time".into(), json!(time));
        }
        if !self.subresource.is_empty() {
            map.insert("subresource".into(), json!(self.subresource));
        }
        Value::Object(map)
    }

    /// What makes entries one: appliers are the same manager in every version.
    pub(super) fn identifier(&self) -> String {
        let mut text = format!("{{\"manager\":{},\"operation\":\"{}\"", Value::from(&*self.manager), self.operation());
        if !self.applied {
            text += &format!(",\"apiVersion\":{}", Value::from(&*self.api_version));
        }
        if !self.subresource.is_empty() {
            text += &format!(",\"subresource\":{}", Value::from(&*self.subresource));
        }
        text + "}"
    }

    /// As conflicts name it.
    pub(super) fn shown(&self) -> String {
        let mut text = crate::text::quote(&self.manager);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {}", crate::text::quote(&self.subresource));
        }
        if !self.applied {
            text += &format!(" using {}", self.api_version);
        }
        text
    }
}

/// The entries by their identifiers.
pub(super) type Managers = BTreeMap<String, Entry>;

/// Reads the entries; None if one of them is no entry.
pub(super) fn read(managed_fields: Option<&Value>) -> Option<Managers> {
    let mut managers = Managers::new();
    for entry in managed_fields.and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let applied = match &*text("operation") {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        let set = match entry.get("fieldsV1") {
            None | Some(Value::Null) => Set::default(),
            Some(fields) => Set::from_fields(fields)?,
        };
        let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
        let entry = Entry {
            manager: text("manager"),
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            applied,
            set,
            time,
        };
        managers.insert(entry.identifier(), entry);
    }
    Some(managers)
}

/// Whether an object says of nobody that they manage it.
pub(super) fn are_none(managed_fields: Option<&Value>) -> bool {
    managed_fields.is_none_or(Value::is_null) || is_reset(managed_fields)
}

/// Whether a client asks for the entries to be cleared: `[]` or `[{}]`.
pub(super) fn is_reset(managed_fields: Option<&Value>) -> bool {
    match managed_fields {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [Value::Object(only)] => only.is_empty(),
            _ => false,
        },
        _ => false,
    }
}

/// The wire form, in upstream's order; Null where there is none.
pub(super) fn write(managers: &Managers) -> Value {
    let mut entries: Vec<&Entry> = managers.values().collect();
    entries.sort_by(|a, b| {
        let order = |e: &Entry| (e.operation(), e.time.clone().unwrap_or_default());
        order(a).cmp(&order(b)).then_with(|| {
            (&a.manager, &a.api_version, &a.subresource).cmp(&(&b.manager, &b.api_version, &b.subresource))
        })
    });
    if entries.is_empty() {
        return Value::Null;
    }
    Value::Array(entries.into_iter().map(|entry| entry.wire(entry.set.to_fields())).collect())
}

/// Lumps the oldest updating managers together when there are too many.
pub(super) fn cap(managers: &mut Managers) {
    let mut updaters: Vec<(String, String)> = managers
        .iter()
        .filter(|(_, entry)| !entry.applied)
        .map(|(id, entry)| (entry.time.clone().unwrap_or_default(), id.clone()))
        .collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATE_MANAGERS {
        return;
    }
    updaters.sort();
    let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
    for (_, id) in updaters {
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        let Some(entry) = managers.get(&id) else { continue };
        let Some(first) = first_of_version.get(&entry.api_version) else {
            first_of_version.insert(entry.api_version.clone(), id);
            continue;
        };
        let bucket = Entry {
            manager: LUMPED.to_owned(),
            subresource: String::new(),
            api_version: entry.api_version.clone(),
            applied: false,
            set: Set::default(),
            time: entry.time.clone(),
        };
        let bucket_id = bucket.identifier();
        if !managers.contains_key(&bucket_id)
            && let Some(first) = managers.remove(first)
        {
            managers.insert(bucket_id.clone(), Entry { set: first.set, ..bucket });
        }
        if id != bucket_id
            && let Some(entry) = managers.remove(&id)
            && let Some(lumped) = managers.get_mut(&bucket_id)
        {
            lumped.set.add(entry.set);
            lumped.time = entry.time;
        }
        count -= 1;
    }
}
