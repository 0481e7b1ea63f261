//! Changes to stored JSON as bytes, without reading all of it or encoding it anew.
//!
//! What a change relies on, and what it is answered with where that does not hold:
//!
//! 1. The text is valid JSON: it was read by serde_json from end to end while the places were found. Places are those of parts
//!    that were borrowed from that very text ([`range_of`] looks at that), so that they lie on the borders of tokens.
//! 2. Keys are without escapes: a key that cannot be borrowed is an error of the reader, and the change is not made.
//! 3. Fields stand in the order of their type, as the encoder writes them. A new one goes before the first that comes behind
//!    it in that order ([`InsertionPoint`]), and commas are set by whether something follows.
//! 4. Inserted names and values need no escapes ([`is_plain`]); what does is left to the encoder.
//! 5. What is overwritten has the same length before and after ([`overwrite`]).
//!
//! Each function answers None where one of these does not hold. Its callers then go the long way, through the decoded object.
//! The tests compare both ways on random objects.

use std::fmt;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use ferry_schema::catalogue::TypeDef;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Where a part that borrows from the text stands in it. None for a part of anything else.
pub(crate) fn range_of(text: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= text.len()).then_some(start..end)
}

/// The same within a reader.
pub(crate) fn range_in<E: de::Error>(text: &str, part: &str) -> Result<Range<usize>, E> {
    range_of(text, part).ok_or_else(|| E::custom("a part of another text"))
}

/// Whether a name or a value stands in JSON as it is.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:_/".contains(&b))
}

/// Where something new goes among the members of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InsertionPoint {
    at: usize,
    /// Nothing follows in the object.
    last: bool,
}

impl InsertionPoint {
    /// Before a key of the text, at its opening quote.
    pub(crate) fn before<E: de::Error>(text: &str, key: &str) -> Result<Self, E> {
        let at = range_in::<E>(text, key)?.start.checked_sub(1).ok_or_else(|| E::custom("a key without a quote"))?;
        Ok(Self { at, last: false })
    }

    /// Behind a value of the text, which is the last of its object.
    pub(crate) fn behind<E: de::Error>(text: &str, value: &str) -> Result<Self, E> {
        Ok(Self { at: range_in::<E>(text, value)?.end, last: true })
    }

    /// A member at this place. The name must be plain, the value JSON.
    pub(crate) fn member(self, name: &str, value: &str) -> Insertion {
        let text = if self.last { format!(",\"{name}\":{value}") } else { format!("\"{name}\":{value},") };
        Insertion { at: self.at, text }
    }
}

/// What is written at a place, with its comma.
pub(crate) struct Insertion {
    at: usize,
    text: String,
}

/// The text with all insertions; those at one place come in their order.
pub(crate) fn insert(text: &str, mut insertions: Vec<Insertion>) -> Option<Bytes> {
    insertions.sort_by_key(|insertion| insertion.at);
    // It has just its size, for it stays as long as the object does.
    let mut out = Vec::with_capacity(text.len() + insertions.iter().map(|new| new.text.len()).sum::<usize>());
    let mut copied = 0;
    for Insertion { at, text: new } in insertions {
        out.extend_from_slice(text.as_bytes().get(copied..at)?);
        out.extend_from_slice(new.as_bytes());
        copied = at;
    }
    out.extend_from_slice(text.as_bytes().get(copied..)?);
    Some(out.into())
}

/// The text with other bytes in some places, as many as before.
pub(crate) fn overwrite(text: &str, changes: &[(&Range<usize>, &str)]) -> Option<Bytes> {
    let mut out = text.as_bytes().to_vec();
    for (range, new) in changes {
        let place = out.get_mut((*range).clone()).filter(|place| place.len() == new.len())?;
        place.copy_from_slice(new.as_bytes());
    }
    Some(out.into())
}

/// Reads an object of a type and finds where a field goes in it. An error where the field is there already.
pub(crate) struct NewField<'c> {
    pub text: &'c str,
    pub definition: &'c TypeDef,
    pub field: &'static str,
    /// Neither may this be there.
    pub refused: &'static str,
}

/// The position of a field in the order of its type.
pub(crate) fn position<E: de::Error>(definition: &TypeDef, field: &str) -> Result<usize, E> {
    definition.field_index(field).ok_or_else(|| E::custom("an unknown field"))
}

impl<'de> DeserializeSeed<'de> for NewField<'_> {
    type Value = InsertionPoint;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<InsertionPoint, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NewField<'_> {
    type Value = InsertionPoint;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InsertionPoint, A::Error> {
        let wanted = position(self.definition, self.field)?;
        let (mut before, mut end) = (None, None);
        while let Some(key) = map.next_key::<&str>()? {
            if key == self.field || key == self.refused {
                return Err(de::Error::custom("it is there"));
            }
            if before.is_none() && position::<A::Error>(self.definition, key)? > wanted {
                before = Some(InsertionPoint::before(self.text, key)?);
            }
            end = Some(InsertionPoint::behind(self.text, map.next_value::<&RawValue>()?.get())?);
        }
        before.or(end).ok_or_else(|| de::Error::custom("an empty object"))
    }
}

/// `,"resourceVersion":"` and `"` around the largest number.
pub(crate) const LONGEST_VERSION: usize = 42;

/// Where the resourceVersion of an object goes when it is sent: the store keeps it without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionPlace {
    at: usize,
    /// Behind the uid of the metadata, where upstream prints it; else behind the opening brace.
    behind_uid: bool,
    /// Nothing of the metadata follows.
    last: bool,
}

impl VersionPlace {
    /// `uid` is the value of `metadata.uid` with its quotes.
    pub(crate) fn behind_uid(text: &str, uid: &str) -> Option<Self> {
        let uid = range_of(text, uid).filter(|_| uid.starts_with('"'))?;
        Some(Self { at: uid.end, behind_uid: true, last: false })
    }

    /// For metadata without a uid.
    pub(crate) fn first_in(text: &str, metadata: &str) -> Option<Self> {
        let inside = metadata.strip_prefix('{')?;
        let at = range_of(text, metadata)?.start + 1;
        Some(Self { at, behind_uid: false, last: inside.trim_start().starts_with('}') })
    }

    /// The bytes before it.
    pub(crate) fn at(self) -> usize {
        self.at
    }

    /// The JSON with its version, without its first bytes, which must end before the metadata.
    pub(crate) fn write(self, stored: &[u8], skipped: usize, revision: u64, out: &mut BytesMut) {
        out.put_slice(&stored[skipped..self.at]);
        out.put_slice(if self.behind_uid { b",\"resourceVersion\":\"" } else { b"\"resourceVersion\":\"" });
        out.put_slice(itoa::Buffer::new().format(revision).as_bytes());
        out.put_slice(if self.behind_uid || self.last { b"\"" } else { b"\"," });
        out.put_slice(&stored[self.at..]);
    }
}

/// An object that this server encoded, with its resourceVersion. None when there is no uid, which no stored object lacks.
pub(crate) fn with_version(stored: &[u8], revision: u64) -> Option<Bytes> {
    const UID: &[u8] = b"\"uid\":\"";
    // The first such bytes are metadata's own: quotes within strings are escaped, and only names come before.
    let begin = memchr::memmem::find(stored, UID)? + UID.len();
    let at = begin + memchr::memchr(b'"', &stored[begin..])? + 1;
    let mut out = BytesMut::with_capacity(stored.len() + LONGEST_VERSION);
    VersionPlace { at, behind_uid: true, last: false }.write(stored, 0, revision, &mut out);
    Some(out.freeze())
}

#[cfg(test)]
mod tests {
    use ferry_meta::GroupVersionKind;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::storage::codec;

    /// Texts that would be found in the wrong place by a reader of bytes.
    const TEXTS: [&str; 7] =
        ["", "a", "\"uid\":\"x\"", "}{,:", "\\\"uid\\\":", "\u{2028}<&>é", "{\"metadata\":{\"uid\":\"u\"}}"];

    fn text(random: &mut StdRng) -> Value {
        TEXTS[random.random_range(0..TEXTS.len())].into()
    }

    fn config_map(random: &mut StdRng) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".into(), "a".into());
        metadata.insert("uid".into(), format!("u-{}", random.random_range(0..1000)).into());
        for field in ["namespace", "generateName"] {
            if random.random() {
                metadata.insert(field.into(), "plain".into());
            }
        }
        for field in ["labels", "annotations"] {
            if random.random() {
                metadata.insert(field.into(), json!({"uid": text(random), "k": text(random)}));
            }
        }
        if random.random() {
            let owner = json!({"apiVersion": "v1", "kind": "X", "name": text(random), "uid": text(random)});
            metadata.insert("ownerReferences".into(), json!([owner]));
        }
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"uid": text(random)}})
    }

    #[test]
    fn a_version_stands_where_the_encoder_puts_it() {
        let mut random = StdRng::seed_from_u64(19);
        let kind = GroupVersionKind::new("", "v1", "ConfigMap");
        for _ in 0..500 {
            let mut object = config_map(&mut random);
            let revision: u64 = random.random();
            let quick = with_version(&codec::encode_stored(&kind, &object), revision).expect("a uid");
            object["metadata"]["resourceVersion"] = revision.to_string().into();
            assert_eq!(String::from_utf8_lossy(&quick), String::from_utf8_lossy(&codec::encode(&kind, &object)));
        }
    }

    #[test]
    fn fields_stand_where_the_encoder_puts_them() {
        let catalogue = ferry_schema::builtin();
        let definition = catalogue.get(catalogue.id("io.k8s.api.core.v1.PodSpec").expect("a type"));
        let kind = GroupVersionKind::new("", "v1", "Pod");
        let mut random = StdRng::seed_from_u64(20);
        let others =
            ["restartPolicy", "dnsPolicy", "serviceAccountName", "hostname", "schedulerName", "priorityClassName"];
        for _ in 0..500 {
            let mut spec =
                Map::from_iter([("containers".to_owned(), json!([{"name": "c", "image": text(&mut random)}]))]);
            for other in others {
                if random.random() {
                    spec.insert(other.into(), "x".into());
                }
            }
            let mut pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec});
            let stored = codec::encode_stored(&kind, &pod);
            let stored = std::str::from_utf8(&stored).expect("text");
            let seed = NewField { text: stored, definition, field: "nodeName", refused: "" };
            let begin = stored.find("\"spec\":").expect("a spec") + "\"spec\":".len();
            let place = seed.deserialize(&mut serde_json::Deserializer::from_str(&stored[begin..])).expect("a place");
            let quick = insert(stored, vec![place.member("nodeName", "\"n\"")]).expect("inserted");
            pod["spec"]["nodeName"] = "n".into();
            assert_eq!(String::from_utf8_lossy(&quick), String::from_utf8_lossy(&codec::encode_stored(&kind, &pod)));
        }
    }

    #[test]
    fn places_are_of_this_text_and_lengths_stay() {
        let (text, other) = ("{\"a\":1}".to_owned(), "{\"a\":1}".to_owned());
        assert_eq!(range_of(&text, &text[1..4]), Some(1..4));
        assert_eq!(range_of(&text, &other), None);
        assert_eq!(overwrite(&text, &[(&(5..6), "2")]).as_deref(), Some(&b"{\"a\":2}"[..]));
        assert_eq!(overwrite(&text, &[(&(5..6), "22")]), None);
        assert_eq!(overwrite(&text, &[(&(5..99), "2")]), None);
        assert!(!is_plain("a\"b") && !is_plain("a\\") && !is_plain("é") && is_plain("a-b.c/d_e:f"));
    }
}
