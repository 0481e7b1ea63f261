//! One object as the cache keeps it: the store's own bytes, and the little that selectors ask for.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use ferry_meta::selector::{FieldSelector, LabelSelector};
use ferry_store::{Entry, Revision};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::registration::Registration;
use crate::storage::json_splice::{LONGEST_VERSION, VersionPlace};

/// Forms of one object that are kept beside its JSON (protobuf, CBOR): few, or memory doubles for nothing.
const KEPT_FORMS: usize = 3;
/// Small kinds that admission asks for with every write; of others the parsed form would cost more memory than it saves.
const KEPT_PARSED: [&str; 5] = [
    "/registry/namespaces/",
    "/registry/serviceaccounts/",
    "/registry/priorityclasses/",
    "/registry/limitranges/",
    "/registry/resourcequotas/",
];

pub struct CachedObject {
    pub key: Arc<str>,
    pub revision: Revision,
    pub created: Revision,
    /// The storage version without `metadata.resourceVersion`: bytes that the store has too, so that they are in memory once.
    stored: Bytes,
    /// Whether they are, and not what was made of them.
    verbatim: bool,
    /// Where the version goes when the object is sent.
    version_at: VersionPlace,
    /// Sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// In the order of the registration's fields.
    pub fields: Box<[Box<str>]>,
    registration: Arc<Registration>,
    forms: Mutex<Vec<(Box<str>, Bytes)>>,
    parsed: OnceLock<Arc<Value>>,
}

impl fmt::Debug for CachedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedObject({}@{})", self.key, self.revision)
    }
}

impl CachedObject {
    /// Reads a stored value: one pass over the JSON, keeping only metadata and selectable fields.
    pub(super) fn ingest(
        registration: &Arc<Registration>,
        key: Arc<str>,
        value: &Bytes,
        created: Revision,
        revision: Revision,
    ) -> Result<Self, String> {
        let decoded = registration.decode(&key, value)?;
        let (stored, parts) = match Parts::read(&decoded, registration).map_err(|e| e.to_string())? {
            Some(parts) => (decoded, parts),
            None => {
                // Written by somebody who left a version in: rare, so the slow way will do.
                let mut object: Value = serde_json::from_slice(&decoded).map_err(|e| e.to_string())?;
                ferry_meta::object::metadata_mut(&mut object).remove("resourceVersion");
                let cleaned = Bytes::from(serde_json::to_vec(&object).map_err(|e| e.to_string())?);
                let parts = Parts::read(&cleaned, registration).map_err(|e| e.to_string())?;
                (cleaned, parts.ok_or("no metadata")?)
            }
        };
        Ok(Self {
            key,
            revision,
            created,
            verbatim: stored.as_ptr() == value.as_ptr(),
            stored,
            version_at: parts.version_at,
            labels: parts.labels,
            fields: registration.field_values(&parts.wanted),
            registration: registration.clone(),
            forms: Mutex::new(Vec::new()),
            parsed: OnceLock::new(),
        })
    }

    /// The same state under another revision: what a watcher is shown when the object goes.
    pub(super) fn at(&self, revision: Revision) -> Self {
        Self {
            key: self.key.clone(),
            revision,
            created: self.created,
            stored: self.stored.clone(),
            verbatim: self.verbatim,
            version_at: self.version_at,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            registration: self.registration.clone(),
            forms: Mutex::new(Vec::new()),
            parsed: OnceLock::new(),
        }
    }

    /// As it stands in the store, but for a lease. None where the cache has it in another form.
    pub(crate) fn entry(&self) -> Option<Entry> {
        let Self { key, stored, created, revision, .. } = self;
        let entry =
            Entry { key: key.clone(), value: stored.clone(), created: *created, modified: *revision, lease: None };
        self.verbatim.then_some(entry)
    }

    /// The storage version with its resourceVersion, and room for the end of a line.
    pub fn json(&self) -> Bytes {
        let mut json = BytesMut::with_capacity(self.json_length() + 1);
        self.write_json(&mut json);
        json.freeze()
    }

    /// How long the JSON is at most.
    pub fn json_length(&self) -> usize {
        self.stored.len() + LONGEST_VERSION
    }

    pub fn write_json(&self, out: &mut BytesMut) {
        self.write_behind(0, out);
    }

    /// The JSON without its first bytes, which must end before the metadata.
    pub(crate) fn write_behind(&self, skipped: usize, out: &mut BytesMut) {
        self.version_at.write(&self.stored, skipped, self.revision, out);
    }

    /// Whether the JSON begins with this, which must end before the metadata.
    pub(crate) fn starts_with(&self, prefix: &[u8]) -> bool {
        prefix.len() <= self.version_at.at() && self.stored.starts_with(prefix)
    }

    pub(super) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.registration.split(&self.key).0
    }

    pub fn name(&self) -> &str {
        self.registration.split(&self.key).1
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.binary_search_by(|(have, _)| (**have).cmp(key)).ok()?;
        Some(&self.labels[found].1)
    }

    /// A selectable field; unknown ones are empty.
    pub fn field(&self, field: &str) -> &str {
        match field {
            "metadata.name" => self.name(),
            "metadata.namespace" => self.namespace(),
            _ => {
                let position = self.registration.fields.iter().position(|have| have == field);
                position.and_then(|at| self.fields.get(at)).map_or("", |value| value)
            }
        }
    }

    pub fn matches(&self, labels: &LabelSelector, fields: &FieldSelector) -> bool {
        (labels.is_everything() || labels.matches_sorted(&self.labels))
            && (fields.is_everything() || fields.matches(|field| self.field(field).to_owned().into()))
    }

    /// The parsed object, shared where it is asked for often.
    pub(super) fn read(&self) -> Option<Arc<Value>> {
        if let Some(known) = self.parsed.get() {
            return Some(known.clone());
        }
        // It was read when it was ingested, so it parses.
        let parsed = Arc::new(self.parse().ok()?);
        if KEPT_PARSED.iter().any(|prefix| self.key.starts_with(prefix)) {
            let _ = self.parsed.set(parsed.clone());
        }
        Some(parsed)
    }

    pub fn parse(&self) -> serde_json::Result<Value> {
        let mut object: Value = serde_json::from_slice(&self.stored)?;
        ferry_meta::object::metadata_mut(&mut object)
            .insert("resourceVersion".into(), self.revision.to_string().into());
        Ok(object)
    }

    pub(crate) fn has_form(&self, form: &str) -> bool {
        self.forms.lock().iter().any(|(have, _)| **have == *form)
    }

    /// Keeps an encoding that took another server to make; one that is asked for next must be there.
    pub(crate) fn keep_form(&self, form: &str, bytes: Bytes) {
        let mut forms = self.forms.lock();
        if forms.len() >= KEPT_FORMS {
            // The oldest: others may just have been made for somebody who is about to read them.
            forms.remove(0);
        }
        forms.push((form.into(), bytes));
    }

    /// Another encoding of this object, made once and kept. `form` names encoding and version.
    pub fn form<E>(&self, form: &str, make: impl FnOnce(&Self) -> Result<Bytes, E>) -> Result<Bytes, E> {
        if let Some((_, bytes)) = self.forms.lock().iter().find(|(have, _)| **have == *form) {
            return Ok(bytes.clone());
        }
        let bytes = make(self)?;
        let mut forms = self.forms.lock();
        if forms.len() < KEPT_FORMS && !forms.iter().any(|(have, _)| **have == *form) {
            forms.push((form.into(), bytes.clone()));
        }
        Ok(bytes)
    }
}

/// What one pass over a stored value finds.
struct Parts {
    version_at: VersionPlace,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The object cut down to the registration's fields.
    wanted: Value,
}

/// For the rare object without a uid: its metadata as it stands.
#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Parts {
    /// None when the metadata already has a version.
    fn read(json: &[u8], registration: &Registration) -> serde_json::Result<Option<Self>> {
        let text = std::str::from_utf8(json).map_err(de::Error::custom)?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let (metadata, wanted) = Top { registration, text }.deserialize(&mut reader)?;
        reader.end()?;
        let metadata = metadata.ok_or_else(|| de::Error::custom("the object has no metadata"))?;
        if metadata.has_version {
            return Ok(None);
        }
        let version_at = match metadata.version_at {
            Some(place) => place,
            None => VersionPlace::first_in(text, serde_json::from_str::<Whole>(text)?.metadata.get())
                .ok_or_else(|| de::Error::custom("the metadata is no object"))?,
        };
        Ok(Some(Self { version_at, labels: metadata.labels, wanted }))
    }
}

/// A key that is copied only where it is escaped.
struct Key<'de>(std::borrow::Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(text.into()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(text.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

struct Top<'a> {
    registration: &'a Registration,
    text: &'a str,
}

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = (Option<Metadata>, Value);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = (Option<Metadata>, Value);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = None;
        let mut wanted = Map::new();
        while let Some(Key(key)) = map.next_key()? {
            if key == "metadata" {
                metadata = Some(map.next_value_seed(InMetadata(self.text))?);
                continue;
            }
            let below = Below::of(self.registration.fields.iter().map(String::as_str), &key);
            match below.is_empty() {
                true => drop(map.next_value::<IgnoredAny>()?),
                false => drop(wanted.insert(key.into_owned(), map.next_value_seed(below)?)),
            }
        }
        Ok((metadata, Value::Object(wanted)))
    }
}

#[derive(Default)]
struct Metadata {
    labels: Box<[(Box<str>, Box<str>)]>,
    /// None where there is no uid.
    version_at: Option<VersionPlace>,
    has_version: bool,
}

/// Reads metadata of an object with this text.
struct InMetadata<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for InMetadata<'_> {
    type Value = Metadata;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Metadata, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for InMetadata<'_> {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        type Labels = Option<std::collections::BTreeMap<Box<str>, Box<str>>>;
        let mut found = Metadata::default();
        while let Some(Key(key)) = map.next_key()? {
            match &*key {
                "labels" => found.labels = map.next_value::<Labels>()?.unwrap_or_default().into_iter().collect(),
                "resourceVersion" => found.has_version = map.next_value::<Option<IgnoredAny>>()?.is_some(),
                "uid" => {
                    let uid = map.next_value::<&RawValue>()?.get();
                    found.version_at = VersionPlace::behind_uid(self.0, uid);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// What is wanted below one key: the rest of each path, `""` for the value itself.
struct Below<'a>(Vec<&'a str>);

impl<'a> Below<'a> {
    fn of(paths: impl Iterator<Item = &'a str>, key: &str) -> Self {
        let rest = |path: &'a str| match path.split_once('.') {
            Some((first, rest)) => (first == key).then_some(rest),
            None => (path == key).then_some(""),
        };
        Self(paths.filter_map(rest).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> DeserializeSeed<'de> for Below<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0.contains(&"") {
            return Value::deserialize(deserializer);
        }
        deserializer.deserialize_any(self)
    }
}

/// Nothing is below what is no object.
impl<'de> Visitor<'de> for Below<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut wanted = Map::new();
        while let Some(Key(key)) = map.next_key()? {
            let below = Below::of(self.0.iter().copied(), &key);
            match below.is_empty() {
                true => drop(map.next_value::<IgnoredAny>()?),
                false => drop(wanted.insert(key.into_owned(), map.next_value_seed(below)?)),
            }
        }
        Ok(Value::Object(wanted))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Option<CachedObject> {
        let resource = ferry_meta::GroupResource::new("", "things");
        let value = |object: &Value, field: &str| {
            field.split('.').try_fold(object, |value, part| value.get(part)).map_or(String::new(), Value::to_string)
        };
        let fields = vec!["spec.a.b".to_owned(), "spec.c".to_owned(), "top".to_owned()];
        let registration = Arc::new(Registration::new(resource, "things", false, fields, value));
        CachedObject::ingest(&registration, "/registry/things/x".into(), &Bytes::from(text.to_owned()), 1, 7).ok()
    }

    #[test]
    fn one_pass_finds_the_place_of_the_version_the_labels_and_the_fields() {
        let cases = [
            // Behind the uid, whatever comes before or after, and another's uid is not its own.
            (
                r#"{"metadata":{"name":"x","uid":"u","labels":{"k":"v"}}}"#,
                r#"{"metadata":{"name":"x","uid":"u","resourceVersion":"7","labels":{"k":"v"}}}"#,
            ),
            (r#"{"metadata":{"uid":"u"}}"#, r#"{"metadata":{"uid":"u","resourceVersion":"7"}}"#),
            (
                r#"{"metadata":{ "name":"x","ownerReferences":[{"uid":"o"}]}}"#,
                r#"{"metadata":{"resourceVersion":"7", "name":"x","ownerReferences":[{"uid":"o"}]}}"#,
            ),
            (r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":"7"}}"#),
            // A version that somebody left in is replaced.
            (r#"{"metadata":{"resourceVersion":"3","uid":"u"}}"#, r#"{"metadata":{"uid":"u","resourceVersion":"7"}}"#),
        ];
        for (stored, sent) in cases {
            let object = read(stored).expect(stored);
            assert_eq!(String::from_utf8_lossy(&object.json()), sent, "{stored}");
        }
        let object = read(
            r#"{"top":[1],"metadata":{"uid":"u","labels":{"b":"2","a":"1"}},"spec":{"x":{"b":0},"a":{"b":"y","z":[{}]},"c":null}}"#,
        );
        let object = object.expect("an object");
        assert_eq!((object.label("a"), object.label("b"), object.label("c")), (Some("1"), Some("2"), None));
        assert_eq!([object.field("spec.a.b"), object.field("spec.c"), object.field("top")], [r#""y""#, "null", "[1]"]);
        for odd in [json!(null), json!(true), json!(-1), json!(2), json!(1.5), json!("s"), json!([{"b": 1}])] {
            let object =
                read(&json!({"metadata": {"labels": null}, "spec": {"a": odd}}).to_string()).expect("an object");
            assert_eq!(object.field("spec.a.b"), "", "{odd}");
        }
        for bad in ["", "[]", "{}", r#"{"metadata":null}"#, r#"{"metadata":{}} x"#, r#"{"metadata":{"uid":"u"}"#] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }
}
