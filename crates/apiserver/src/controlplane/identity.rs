//! The lease by which this server tells that it is there. Those of servers that are gone are deleted.

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::{ApiError, object, time};
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::controlplane::bootstrap::{Bootstrap, Endpoint};
use crate::server::Core;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LABEL: &str = "apiserver.kubernetes.io/identity";
const COMPONENT: &str = "kube-apiserver";
const DURATION_SECONDS: i64 = 3600;
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// Leases that ran out are looked for this often.
const COLLECTED_EVERY: Duration = Duration::from_secs(3600);

pub(crate) async fn run(core: Arc<Core>, token: String, endpoint: Endpoint) {
    let caller = Bootstrap { core: &core, token: &token };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let name = lease_name(&host);
    let holder = format!("{name}_{}", crate::request::context::new_uid());
    let mut renewing = tokio::time::interval(RENEWED_EVERY);
    renewing.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut collecting = tokio::time::interval(COLLECTED_EVERY);
    loop {
        let done = tokio::select! {
            _ = renewing.tick() => renew(&caller, &name, &holder, &host, endpoint).await,
            _ = collecting.tick() => collect(&caller).await,
        };
        if let Err(error) = done {
            tracing::warn!("the lease of this server: {}", error.0.message);
        }
    }
}

/// The same for every start on one machine.
fn lease_name(host: &str) -> String {
    let mut hashed = Sha256::new();
    for part in [host, COMPONENT] {
        hashed.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        hashed.update(part.as_bytes());
    }
    format!("apiserver-{}", base32(&hashed.finalize()[..16]))
}

/// In small letters, without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut out, mut held, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(char::from(ALPHABET[(held >> bits) as usize & 31]));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        out.push(char::from(ALPHABET[(held << (5 - bits)) as usize & 31]));
    }
    out
}

async fn renew(
    caller: &Bootstrap<'_>,
    name: &str,
    holder: &str,
    host: &str,
    endpoint: Endpoint,
) -> Result<(), ApiError> {
    let path = format!("{LEASES}/{name}");
    let found = match caller.call(Method::GET, &path, None).await {
        Ok(found) => Some(found),
        Err(error) if error.code() == 404 => None,
        Err(error) => return Err(error),
    };
    let address = std::net::SocketAddr::new(endpoint.address, endpoint.port);
    let is_new = found.is_none();
    let mut lease = found.unwrap_or_else(|| {
        json!({
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": DURATION_SECONDS},
        })
    });
    let labels = [(LABEL, COMPONENT), ("kubernetes.io/hostname", host)];
    for (map, entries) in [
        ("labels", &labels[..]),
        ("annotations", &[("kubernetes.io/peer-advertise-address", &*address.to_string())][..]),
    ] {
        let metadata = object::metadata_mut(&mut lease);
        let map = metadata.entry(map).or_insert_with(|| json!({}));
        for (key, value) in entries {
            map[key] = json!(value);
        }
    }
    object::child_mut(&mut lease, "spec").insert("renewTime".into(), time::micro_time(time::now()).into());
    let (method, path) = if is_new { (Method::POST, LEASES) } else { (Method::PUT, &*path) };
    caller.call(method, path, Some(&lease)).await.map(drop)
}

/// Deletes the leases of servers that have not renewed theirs in time.
async fn collect(caller: &Bootstrap<'_>) -> Result<(), ApiError> {
    let list = caller.call(Method::GET, &format!("{LEASES}?labelSelector={LABEL}%3D{COMPONENT}"), None).await?;
    let now = time::now().as_second();
    for lease in object::items(&list, "/items").iter().filter(|lease| ran_out(lease, now)) {
        let path = format!("{LEASES}/{}", object::name(lease));
        let only = json!({"preconditions": {"resourceVersion": object::resource_version(lease)}});
        match caller.call(Method::DELETE, &path, Some(&only)).await {
            Err(error) if !matches!(error.code(), 404 | 409) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn ran_out(lease: &Value, now: i64) -> bool {
    let duration = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64);
    match (time::parse(object::text(lease, "/spec/renewTime")), duration) {
        (Some(renewed), Some(duration)) => renewed.as_second().saturating_add(duration) < now,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_lease() {
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        assert_eq!(lease_name("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    }

    #[test]
    fn leases_run_out() {
        let lease = |renewed: &str| json!({"spec": {"renewTime": renewed, "leaseDurationSeconds": 3600}});
        let now = time::parse("2020-01-01T02:00:00Z").expect("a time").as_second();
        assert!(ran_out(&lease("2020-01-01T00:59:59.000000Z"), now));
        assert!(!ran_out(&lease("2020-01-01T01:30:00.000000Z"), now));
        assert!(ran_out(&json!({}), now));
    }
}
