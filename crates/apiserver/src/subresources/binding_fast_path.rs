//! A pod gets its node by a change to its stored bytes: of a pod that waits to be placed little is read, and nothing is
//! encoded anew. What is out of the ordinary is left to those who read all of it.

use std::fmt;

use bytes::Bytes;
use ferry_schema::catalogue::TypeDef;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::storage::json_splice::{self, Insertion, InsertionPoint, NewField, is_plain, position};

/// The pod on that node, with the labels it takes from there and does not have, its condition `PodScheduled` true since
/// `now`. None where that takes a closer look: it is another pod, has a node or conditions already, is held back or being
/// deleted.
pub(super) fn place(stored: &[u8], uid: &str, node: &str, labels: &Map<String, Value>, now: &str) -> Option<Bytes> {
    let labels: Vec<(&str, &str)> =
        labels.iter().map(|(key, value)| Some((&**key, value.as_str()?))).collect::<Option<_>>()?;
    if !is_plain(node) || !is_plain(now) || !labels.iter().all(|(key, value)| is_plain(key) && is_plain(value)) {
        return None;
    }
    let catalogue = ferry_schema::builtin();
    let definition = |name: &str| Some(catalogue.get(catalogue.id(name)?));
    let text = std::str::from_utf8(stored).ok()?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let pod = Pod {
        text,
        metadata: definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?,
        spec: definition("io.k8s.api.core.v1.PodSpec")?,
        status: definition("io.k8s.api.core.v1.PodStatus")?,
    };
    let (metadata, spec, status) = pod.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    if !uid.is_empty() && uid != metadata.uid {
        return None;
    }
    let mut insertions =
        vec![spec.member("nodeName", &format!("\"{node}\"")), status.member("conditions", &scheduled(now))];
    insertions.extend(metadata.with_labels(&labels));
    json_splice::insert(text, insertions)
}

fn scheduled(now: &str) -> String {
    format!(r#"[{{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"{now}"}}]"#)
}

/// The uid, and where labels, the node and the conditions go.
struct Pod<'c> {
    text: &'c str,
    metadata: &'c TypeDef,
    spec: &'c TypeDef,
    status: &'c TypeDef,
}

impl<'de> DeserializeSeed<'de> for Pod<'_> {
    type Value = (Metadata<'de>, InsertionPoint, InsertionPoint);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pod<'_> {
    type Value = (Metadata<'de>, InsertionPoint, InsertionPoint);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pod that waits for a node")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut metadata, mut spec, mut status) = (None, None, None);
        let text = self.text;
        let place = |definition, field, refused| NewField { text, definition, field, refused };
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "metadata" => metadata = Some(map.next_value_seed(InMetadata { text, definition: self.metadata })?),
                "spec" => spec = Some(map.next_value_seed(place(self.spec, "nodeName", "schedulingGates"))?),
                "status" => status = Some(map.next_value_seed(place(self.status, "conditions", ""))?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match (metadata, spec, status) {
            (Some(metadata), Some(spec), Some(status)) => Ok((metadata, spec, status)),
            _ => Err(de::Error::missing_field("metadata, spec or status")),
        }
    }
}

/// Of a pod that is not being deleted.
struct Metadata<'de> {
    uid: &'de str,
    /// Each with the place before it.
    labels: Vec<(&'de str, InsertionPoint)>,
    /// Where the next label goes; where all of them go when there are none.
    end: InsertionPoint,
}

impl Metadata<'_> {
    /// Labels are ordered by their keys; those that are there stay.
    fn with_labels(&self, new: &[(&str, &str)]) -> Vec<Insertion> {
        if self.labels.is_empty() && !new.is_empty() {
            let all: Vec<String> = new.iter().map(|(key, value)| format!("\"{key}\":\"{value}\"")).collect();
            return vec![self.end.member("labels", &format!("{{{}}}", all.join(",")))];
        }
        let missing = new.iter().filter(|(key, _)| !self.labels.iter().any(|(have, _)| have == key));
        missing
            .map(|(key, value)| {
                let next = self.labels.iter().find(|(have, _)| have > key);
                next.map_or(self.end, |(_, place)| *place).member(key, &format!("\"{value}\""))
            })
            .collect()
    }
}

struct InMetadata<'c> {
    text: &'c str,
    definition: &'c TypeDef,
}

impl<'de> DeserializeSeed<'de> for InMetadata<'_> {
    type Value = Metadata<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for InMetadata<'_> {
    type Value = Metadata<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of a pod that stays")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let wanted = position(self.definition, "labels")?;
        let (mut uid, mut labels, mut before, mut end) = (None, None, None, None);
        while let Some(key) = map.next_key::<&str>()? {
            if before.is_none() && position::<A::Error>(self.definition, key)? > wanted {
                before = Some(InsertionPoint::before(self.text, key)?);
            }
            match key {
                "labels" => labels = Some(map.next_value_seed(Labels(self.text))?),
                "deletionTimestamp" => return Err(de::Error::custom("it is being deleted")),
                _ => {
                    let value = map.next_value::<&RawValue>()?.get();
                    if key == "uid" {
                        uid = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
                    }
                    end = Some(InsertionPoint::behind(self.text, value)?);
                }
            }
        }
        let uid = uid.ok_or_else(|| de::Error::missing_field("uid"))?;
        let end = before.or(end).ok_or_else(|| de::Error::missing_field("uid"))?;
        Ok(match labels {
            Some((labels, end)) => Metadata { uid, labels, end },
            None => Metadata { uid, labels: Vec::new(), end },
        })
    }
}

/// The labels that are there, and where another one goes behind them.
struct Labels<'c>(&'c str);

impl<'de> DeserializeSeed<'de> for Labels<'_> {
    type Value = (Vec<(&'de str, InsertionPoint)>, InsertionPoint);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Labels<'_> {
    type Value = (Vec<(&'de str, InsertionPoint)>, InsertionPoint);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut labels, mut end) = (Vec::new(), None);
        while let Some(key) = map.next_key::<&str>()? {
            let value: &RawValue = map.next_value()?;
            labels.push((key, InsertionPoint::before(self.0, key)?));
            end = Some(InsertionPoint::behind(self.0, value.get())?);
        }
        end.map(|end| (labels, end)).ok_or_else(|| de::Error::custom("labels without a label"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::storage::codec;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn pod(metadata: &Value, spec: &Value, status: &Value) -> Value {
        let mut pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status});
        pod["metadata"]["name"] = "a".into();
        pod["metadata"]["uid"] = "u-1".into();
        pod
    }

    fn stored(pod: &Value) -> Bytes {
        codec::encode_stored(&ferry_meta::GroupVersionKind::new("", "v1", "Pod"), pod)
    }

    fn placed(pod: &Value, uid: &str, node: &str, labels: &Value) -> Option<Bytes> {
        place(&stored(pod), uid, node, labels.as_object().expect("labels"), NOW)
    }

    #[test]
    fn it_is_what_a_whole_encoding_gives() {
        let containers = json!([{"name": "c", "image": "i <&> \"\u{2028}", "resources": {}}]);
        let metadata = [
            json!({}),
            json!({"namespace": "n", "generation": 1, "creationTimestamp": NOW}),
            json!({"labels": {"b": "1"}}),
            json!({"labels": {"m": "\"", "zone": "own"}, "annotations": {"x": "y"}, "managedFields": [{"manager": "m"}]}),
        ];
        let specs = [
            json!({"containers": containers}),
            json!({"containers": containers, "restartPolicy": "Always", "dnsPolicy": "Default"}),
            json!({"containers": containers, "restartPolicy": "Always", "hostNetwork": true, "schedulerName": "x"}),
        ];
        let statuses = [
            json!({"phase": "Pending"}),
            json!({"phase": "Pending", "qosClass": "Burstable"}),
            json!({"qosClass": "Burstable"}),
        ];
        let labels = [json!({}), json!({"zone": "z"}), json!({"a": "0", "example.com/region": "r", "zone": "z"})];
        for (((metadata, spec), status), labels) in every(&metadata, &specs, &statuses, &labels) {
            let mut pod = pod(metadata, spec, status);
            let quick = placed(&pod, "u-1", "node-1", labels).expect("the quick way");
            super::super::binding::tests::assigned(&mut pod, "node-1", labels, NOW);
            assert_eq!(String::from_utf8_lossy(&quick), String::from_utf8_lossy(&stored(&pod)), "{labels}");
        }
    }

    fn every<'a>(
        metadata: &'a [Value],
        specs: &'a [Value],
        statuses: &'a [Value],
        labels: &'a [Value],
    ) -> impl Iterator<Item = (((&'a Value, &'a Value), &'a Value), &'a Value)> {
        let pairs = metadata.iter().flat_map(|one| specs.iter().map(move |two| (one, two)));
        let triples = pairs.flat_map(|two| statuses.iter().map(move |three| (two, three)));
        triples.flat_map(|three| labels.iter().map(move |four| (three, four)))
    }

    #[test]
    fn whatever_is_out_of_the_ordinary_is_left_to_others() {
        let (none, spec, status) = (json!({}), json!({"containers": []}), json!({"phase": "Pending"}));
        let plain = pod(&none, &spec, &status);
        assert!(placed(&plain, "", "node", &none).is_some());
        assert!(placed(&plain, "u-2", "node", &none).is_none(), "another pod");
        assert!(placed(&plain, "", "no\"de", &none).is_none(), "a name to be escaped");
        assert!(placed(&plain, "", "node", &json!({"a": "\""})).is_none(), "a label to be escaped");
        let with = |field: &str, value: Value| {
            let mut spec = spec.clone();
            spec[field] = value;
            pod(&none, &spec, &status)
        };
        assert!(placed(&with("nodeName", json!("m")), "", "n", &none).is_none());
        assert!(placed(&with("schedulingGates", json!([{"name": "g"}])), "", "n", &none).is_none());
        let mut deleted = plain.clone();
        deleted["metadata"]["deletionTimestamp"] = NOW.into();
        assert!(placed(&deleted, "", "n", &none).is_none());
        let known = pod(&none, &spec, &json!({"conditions": [{"type": "PodScheduled", "status": "False"}]}));
        assert!(placed(&known, "", "n", &none).is_none());
        assert!(placed(&pod(&none, &spec, &none), "", "n", &none).is_none(), "nowhere to put it");
        assert!(place(b"{", "", "n", &Map::new(), NOW).is_none());
    }
}
