//! Deletes requests that nobody needs any more: issued, denied and failed ones after an hour, forgotten ones after a day.

use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, ObjectKey, WorkQueue, write};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::Timestamp;

use super::{NAME, condition, is_issued};
use crate::Context;

const DECIDED: Duration = Duration::from_secs(3600);
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// How long the request stays, from now on.
fn left(request: &CertificateSigningRequest, now: Timestamp) -> Duration {
    let issued = is_issued(request);
    let since = |kind: &str| condition(request, kind)?.last_update_time.as_ref().map(|time| time.0);
    let made = request.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let decided =
        ["Denied", "Failed"].iter().find_map(|kind| since(kind)).or_else(|| since("Approved").filter(|_| issued));
    // What was approved and never issued is forgotten a day after that.
    let (since, stays) = match decided {
        Some(since) => (since, DECIDED),
        None => (since("Approved").unwrap_or(made), FORGOTTEN),
    };
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let ended = issued && ends(request).is_some_and(|end| end <= now.as_second());
    if ended { Duration::ZERO } else { stays.saturating_sub(age) }
}

/// When the certificate that was issued is no longer valid, in seconds.
fn ends(request: &CertificateSigningRequest) -> Option<i64> {
    let issued = request.status.as_ref()?.certificate.as_ref()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&issued.0).ok()?;
    Some(pem.parse_x509().ok()?.validity().not_after.timestamp())
}

pub(crate) fn start(context: &Context) {
    let (client, requests) = (context.client(NAME), context.informers.of::<CertificateSigningRequest>());
    let queue: WorkQueue<ObjectKey> = context.queue("csrcleaner");
    let clock = context.config.clock.clone();
    let keys = queue.clone();
    requests.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let synced = requests.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, "csrcleaner", &queue, 1, ready, move |key: ObjectKey| {
        let (client, found, now) = (client.clone(), requests.get_key(&key), clock.seconds());
        async move {
            let Some(found) = found else { return Ok(Action::Done) };
            let left = left(&found, now);
            if !left.is_zero() {
                return Ok(Action::After(left));
            }
            write::delete_as_seen(&Api::<CertificateSigningRequest>::all(client), &*found).await?;
            Ok(Action::Done)
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_stay_as_long_as_upstream_keeps_them() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().expect("a time");
        let check = |kind: &str, issued: bool, hours: u64| {
            let request = serde_json::from_value(json!({
                "metadata": { "name": "r", "creationTimestamp": "2026-01-01T23:00:00Z" },
                "spec": { "request": "", "signerName": "s" },
                "status": {
                    "certificate": if issued { "eA==" } else { "" },
                    "conditions": [{ "type": kind, "status": "True", "lastUpdateTime": "2026-01-01T23:30:00Z" }],
                },
            }))
            .expect("a request");
            assert_eq!(left(&request, now), Duration::from_secs(hours * 1800), "{kind} {issued}");
        };
        check("Approved", true, 1);
        check("Approved", false, 47);
        check("Denied", false, 1);
        check("Failed", false, 1);
        check("Other", false, 46);
    }
}
