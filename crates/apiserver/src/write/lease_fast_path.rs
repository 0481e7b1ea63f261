//! Leases that are renewed. Each node renews its own every few seconds, and leaders do too, so that this is what an
//! idle cluster does. Two times change, each for one of the same length: the stored bytes are changed in place. What is
//! out of the ordinary is left to those who read all of it.

use std::ops::Range;

use bytes::Bytes;
use ferry_meta::{ApiError, object, time};
use ferry_store::{Entry, Op, StoreError, Transaction};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::storage::{codec, json_splice, live, objects};
use crate::write::Write;

/// What is asked for.
pub(crate) enum Wanted<'a> {
    /// The body of a merge patch.
    Merge(&'a [u8]),
    /// The whole lease, decoded.
    Whole(&'a Value),
}

/// The lease as JSON once it is renewed. None where nothing was done, since that takes a closer look.
pub(super) async fn renew(write: &Write<'_>, wanted: Wanted<'_>) -> Result<Option<Bytes>, ApiError> {
    let Write { core, context, row, namespace, name, options, .. } = *write;
    if row.gvk != row.storage_gvk || options.dry_run || !write.subresource.is_main() {
        return Ok(None);
    }
    if core.admission.iter().any(|plugin| plugin.minds_renewal(&context.user, namespace, name)) {
        return Ok(None);
    }
    let entry = match live::cached(core, row, namespace, name) {
        Some(entry) => entry,
        None => match objects::find(core, row, namespace, name).await? {
            Some(entry) => entry,
            None => return Ok(None),
        },
    };
    let manager = options.manager(context.agent());
    let manager = if manager.is_empty() { "unknown" } else { &*manager };
    let value = match wanted {
        Wanted::Merge(body) => merged(&entry.value, body, manager, &time::time(time::now())),
        Wanted::Whole(lease) => {
            // One that names no version, or another, is refused in the words of all others.
            if objects::parse_version(object::resource_version(lease)).ok() != Some(entry.modified) {
                return Ok(None);
            }
            let mut lease = lease.clone();
            object::metadata_mut(&mut lease).remove("resourceVersion");
            objects::set_kind(&mut lease, row);
            let lease = codec::encode_stored(&row.storage_gvk, &lease);
            replaced(&entry.value, &lease, manager, &time::time(time::now()))
        }
    };
    let Some(value) = value else { return Ok(None) };
    let Entry { modified, lease, .. } = entry;
    let op = Op::Update { key: row.key(namespace, name), value: value.clone(), expected: modified, lease };
    let outcome = core.commit(Transaction::one(op), Some(&context.stages)).await;
    match outcome {
        Ok(commit) => objects::to_json(row, &value, commit.revision).map(Some),
        // Whoever was faster may have left it another lease.
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(objects::store_error(&error)),
    }
}

/// The stored lease after a merge patch that tells its holder and duration anew, and another time.
fn merged(stored: &[u8], body: &[u8], manager: &str, now: &str) -> Option<Bytes> {
    let stored = std::str::from_utf8(stored).ok()?;
    let Renewal { spec } = serde_json::from_slice(body).ok()?;
    let there = read(stored, manager, now)?;
    let same_holder = spec.holder_identity.is_none_or(|holder| there.holder == Some(holder));
    let same_duration = spec.lease_duration_seconds.is_none_or(|duration| there.duration == Some(duration));
    (same_holder && same_duration).then_some(())?;
    there.changed(stored, spec.renew_time, now)
}

/// The stored lease after it was sent back as a whole, the same but for its time.
fn replaced(stored: &[u8], sent: &[u8], manager: &str, now: &str) -> Option<Bytes> {
    if stored.len() != sent.len() {
        return None;
    }
    let (stored, sent) = (std::str::from_utf8(stored).ok()?, std::str::from_utf8(sent).ok()?);
    let there = read(stored, manager, now)?;
    let Range { start, end } = there.renewed;
    let same = stored.get(..start) == sent.get(..start) && stored.get(end..) == sent.get(end..);
    let renewed = same.then(|| sent.get(start..end)).flatten()?;
    there.changed(stored, renewed, now)
}

/// A lease that this manager may renew without anything else becoming another's.
struct Renewable<'a> {
    holder: Option<&'a str>,
    duration: Option<i64>,
    /// Where the time of its renewal stands.
    renewed: Range<usize>,
    /// Where it stands when the manager last changed it.
    noted: Range<usize>,
}

impl Renewable<'_> {
    fn changed(&self, stored: &str, renewed: &str, now: &str) -> Option<Bytes> {
        let plain = time::parse(renewed).is_some_and(|at| time::micro_time(at) == renewed);
        // A time that stays leaves all as it is, even when it was noted.
        if !plain || stored.get(self.renewed.clone()) == Some(renewed) {
            return None;
        }
        json_splice::overwrite(stored, &[(&self.renewed, renewed), (&self.noted, now)])
    }
}

fn read<'a>(stored: &'a str, manager: &str, now: &str) -> Option<Renewable<'a>> {
    const RENEW_TIME: &str = "\"f:renewTime\":{}";
    let lease: Lease<'a> = serde_json::from_str(stored).ok()?;
    // The newest entry is the last one, and stays so unless the clock goes back.
    let (own, others) = lease.metadata.managed_fields.split_last()?;
    let owns = |entry: &Managed<'_>| entry.fields_v1.get().contains(RENEW_TIME);
    let is_own = own.manager == manager
        && own.operation == "Update"
        && own.api_version == "coordination.k8s.io/v1"
        && own.subresource.is_none()
        && own.time <= now;
    if lease.metadata.deletion_timestamp.is_some() || !is_own || !owns(own) || others.iter().any(owns) {
        return None;
    }
    let Spec { holder_identity: holder, lease_duration_seconds: duration, renew_time } = lease.spec;
    let renewed = json_splice::range_of(stored, renew_time)?;
    let noted = json_splice::range_of(stored, own.time)?;
    Some(Renewable { holder, duration, renewed, noted })
}

/// As much of a stored lease as matters here. Strings with escapes cannot be borrowed: such a lease is not read.
#[derive(Deserialize)]
struct Lease<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow, default)]
    managed_fields: Vec<Managed<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Managed<'a> {
    manager: &'a str,
    operation: &'a str,
    api_version: &'a str,
    time: &'a str,
    #[serde(borrow)]
    fields_v1: &'a RawValue,
    subresource: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    holder_identity: Option<&'a str>,
    lease_duration_seconds: Option<i64>,
    renew_time: &'a str,
}

/// A merge patch that has nothing else in it. A null would take a field away, and is not one of its values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renewal<'a> {
    #[serde(borrow)]
    spec: RenewalSpec<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RenewalSpec<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    holder_identity: Option<&'a str>,
    #[serde(default, deserialize_with = "given")]
    lease_duration_seconds: Option<i64>,
    renew_time: &'a str,
}

fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a","uid":"u","managedFields":[{"manager":"other","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{}}}},{"manager":"kubelet","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-01-01T00:00:01Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:holderIdentity":{},"f:renewTime":{}}}}]},"spec":{"holderIdentity":"a","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:01.000000Z"}}"#;
    const NOW: &str = "2026-01-01T00:00:09Z";
    const NEW: &str = "2026-01-01T00:00:09.123456Z";

    fn renewed() -> String {
        STORED.replace("00:00:01Z", "00:00:09Z").replace("00:00:01.000000Z", "00:00:09.123456Z")
    }

    #[test]
    fn times_are_changed_in_place() {
        for body in [
            format!(r#"{{"spec":{{"renewTime":"{NEW}"}}}}"#),
            format!(r#"{{"spec":{{"leaseDurationSeconds":40,"renewTime":"{NEW}","holderIdentity":"a"}}}}"#),
        ] {
            let out = merged(STORED.as_bytes(), body.as_bytes(), "kubelet", NOW);
            assert_eq!(out.as_deref(), Some(renewed().as_bytes()), "{body}");
        }
        let sent = STORED.replace("00:00:01.000000Z", "00:00:09.123456Z");
        let out = replaced(STORED.as_bytes(), sent.as_bytes(), "kubelet", NOW);
        assert_eq!(out.as_deref(), Some(renewed().as_bytes()));
    }

    /// What the long way writes: the lease decoded, its two times set, and encoded.
    #[test]
    fn it_is_what_a_whole_encoding_gives() {
        use rand::rngs::StdRng;
        use rand::{Rng, SeedableRng};
        let kind = ferry_meta::GroupVersionKind::new("coordination.k8s.io", "v1", "Lease");
        let mut random = StdRng::seed_from_u64(55);
        let body = format!(r#"{{"spec":{{"renewTime":"{NEW}"}}}}"#);
        for _ in 0..500 {
            let mut lease: Value = serde_json::from_str(STORED).expect("a lease");
            for (place, value) in [
                ("/metadata/namespace", "n"),
                ("/spec/strategy", "OldestEmulationVersion"),
                ("/spec/acquireTime", "2026-01-01T00:00:01.000000Z"),
            ] {
                let (parent, field) = place.rsplit_once('/').expect("a path");
                if random.random() {
                    lease.pointer_mut(parent).expect("a parent")[field] = value.into();
                }
            }
            if random.random() {
                let odd = ["\"renewTime\":\"2026-01-01T00:00:01.000000Z\"", "\\", "é\u{2028}"];
                lease["metadata"]["annotations"] = serde_json::json!({"a": odd[random.random_range(0..odd.len())]});
            }
            if random.random() {
                lease["spec"]["leaseTransitions"] = random.random_range(1..9).into();
            }
            let quick = merged(&codec::encode_stored(&kind, &lease), body.as_bytes(), "kubelet", NOW);
            lease["spec"]["renewTime"] = NEW.into();
            lease["metadata"]["managedFields"][1]["time"] = NOW.into();
            let slow = codec::encode_stored(&kind, &lease);
            assert_eq!(quick.as_deref().map(String::from_utf8_lossy), Some(String::from_utf8_lossy(&slow)));
        }
    }

    #[test]
    fn all_else_takes_a_closer_look() {
        let body = format!(r#"{{"spec":{{"renewTime":"{NEW}"}}}}"#);
        let refused = |stored: &str, body: &str, manager: &str, now: &str| {
            assert_eq!(merged(stored.as_bytes(), body.as_bytes(), manager, now), None, "{stored} {body}");
        };
        for other in [
            r#"{"spec":{}}"#,
            r#"{"spec":{"renewTime":null}}"#,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:09Z"}}"#,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:01.000000Z"}}"#,
            r#"{"spec":{"renewTime":"2026-13-01T00:00:01.000000Z"}}"#,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:09.123456Z","holderIdentity":null}}"#,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:09.123456Z","holderIdentity":"b"}}"#,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:09.123456Z","leaseDurationSeconds":41}}"#,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:09.123456Z","renewTime":"2026-01-01T00:00:09.123456Z"}}"#,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:09.123456Z","unknown":1}}"#,
            r#"{"metadata":{},"spec":{"renewTime":"2026-01-01T00:00:09.123456Z"}}"#,
            "{}",
            "[",
        ] {
            refused(STORED, other, "kubelet", NOW);
        }
        refused(STORED, &body, "another", NOW);
        refused(STORED, &body, "kubelet", "2026-01-01T00:00:00Z");
        for (from, to) in [
            (r#""uid":"u","#, r#""uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z","#),
            (r#"{"f:labels":{}}"#, r#"{"f:labels":{}},"f:spec":{"f:renewTime":{}}"#),
            (r#""f:holderIdentity":{},"f:renewTime":{}"#, r#""f:holderIdentity":{}"#),
            (r#""manager":"kubelet","operation":"Update""#, r#""manager":"kubelet","operation":"Apply""#),
            (r#""fieldsType":"FieldsV1","fieldsV1":{"f:spec""#, r#""subresource":"status","fieldsV1":{"f:spec""#),
            ("01.000000Z", "01Z"),
        ] {
            assert!(STORED.contains(from), "{from}");
            refused(&STORED.replace(from, to), &body, "kubelet", NOW);
        }
        let sent = STORED.replace("00:00:01.000000Z", "00:00:09.123456Z").replace(r#""name":"a""#, r#""name":"b""#);
        assert_eq!(replaced(STORED.as_bytes(), sent.as_bytes(), "kubelet", NOW), None);
        assert_eq!(replaced(STORED.as_bytes(), STORED.as_bytes(), "kubelet", NOW), None);
    }
}
