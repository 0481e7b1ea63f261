//! Floods of events: so many in a second for the server, a namespace, a user or a source; more are refused. Off by default.

use std::collections::HashMap;
use std::time::Instant;

use ferry_meta::object::text;
use ferry_meta::{ApiError, Reason};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::{Operation, Plugin, Request};

/// What is counted together, where the configuration does not say how much of it is remembered.
const DEFAULT_CACHE: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Kind {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limit {
    #[serde(rename = "type")]
    kind: Kind,
    qps: u32,
    burst: u32,
    #[serde(default)]
    cache_size: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    limits: Vec<Limit>,
}

pub(crate) struct EventRateLimit {
    limits: Vec<(Limit, Mutex<Buckets>)>,
}

/// Tokens by what is counted together, in two generations: what was not used lately is forgotten, and starts full again.
#[derive(Default)]
struct Buckets {
    young: HashMap<String, Bucket>,
    old: HashMap<String, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl EventRateLimit {
    /// From the plug-in's configuration, an `eventratelimit.admission.k8s.io/v1alpha1` Configuration.
    pub(crate) fn read(configuration: &Value) -> Result<Self, String> {
        let file = Configuration::deserialize(configuration).map_err(|error| error.to_string())?;
        if file.kind != "Configuration" || !file.api_version.starts_with("eventratelimit.admission.k8s.io/") {
            return Err("it is no Configuration of eventratelimit.admission.k8s.io/v1alpha1".into());
        }
        if file.limits.is_empty() {
            return Err("limits: at least one is required".into());
        }
        if file.limits.iter().any(|limit| limit.qps == 0 || limit.burst == 0) {
            return Err("limits: qps and burst must be positive".into());
        }
        Ok(Self { limits: file.limits.into_iter().map(|limit| (limit, Mutex::default())).collect() })
    }
}

fn key(kind: Kind, request: &Request<'_>) -> String {
    match kind {
        Kind::Server => String::new(),
        Kind::Namespace => request.namespace.to_owned(),
        Kind::User => request.user.name.clone(),
        Kind::SourceAndObject => {
            let Some(event) = request.object.as_deref() else { return String::new() };
            // The two groups of events have different names for the same.
            let object = if event.get("regarding").is_some() { "regarding" } else { "involvedObject" };
            let source =
                [text(event, "/source/component"), text(event, "/source/host"), text(event, "/reportingController")];
            let parts = ["kind", "namespace", "name", "uid", "apiVersion"];
            let object = parts.map(|part| text(event, &format!("/{object}/{part}")));
            [&source[..], &object[..]].concat().join("_")
        }
    }
}

impl Buckets {
    fn take(&mut self, key: String, limit: &Limit, now: Instant) -> bool {
        let size = if limit.cache_size == 0 { DEFAULT_CACHE } else { limit.cache_size };
        if !self.young.contains_key(&key) {
            if self.young.len() >= size {
                self.old = std::mem::take(&mut self.young);
            }
            let full = Bucket { tokens: f64::from(limit.burst), filled: now };
            let bucket = self.old.remove(&key).unwrap_or(full);
            self.young.insert(key.clone(), bucket);
        }
        let Some(bucket) = self.young.get_mut(&key) else { return true };
        let gained = now.saturating_duration_since(bucket.filled).as_secs_f64() * f64::from(limit.qps);
        bucket.tokens = (bucket.tokens + gained).min(f64::from(limit.burst));
        bucket.filled = now;
        let enough = bucket.tokens >= 1.0;
        if enough {
            bucket.tokens -= 1.0;
        }
        enough
    }
}

#[async_trait::async_trait]
impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let events = request.is("", "events") || request.is("events.k8s.io", "events");
        if !events || request.dry_run {
            return Ok(());
        }
        let now = Instant::now();
        let mut reached = Vec::new();
        // All are counted, so that one limit does not hide from another what came.
        for (limit, buckets) in &self.limits {
            let key = key(limit.kind, request);
            if !buckets.lock().take(key.clone(), limit, now) {
                reached.push(format!("limit reached on type {:?} for key {key}", limit.kind));
            }
        }
        if reached.is_empty() {
            return Ok(());
        }
        let all = if reached.len() == 1 { reached.remove(0) } else { format!("[{}]", reached.join(", ")) };
        Err(ApiError::new(429, Reason::TooManyRequests, format!("Too many requests: {all}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Case;
    use ferry_meta::UserInfo;
    use serde_json::json;
    use std::time::Duration;

    fn plugin(limits: Value) -> Result<EventRateLimit, String> {
        let head = json!({"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits});
        EventRateLimit::read(&head)
    }

    #[tokio::test]
    async fn each_user_has_a_bucket() {
        let plugin = plugin(json!([{"type": "User", "qps": 1, "burst": 2, "cacheSize": 2}])).expect("a plug-in");
        let event = async |user: &str| {
            let event = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "x"}});
            let case = Case::create("", "events", "a", event).by(UserInfo::new(user, &[]));
            case.validate(&plugin).await.map_err(|error| (error.code(), error.0.message.clone()))
        };
        assert!(event("bob").await.is_ok() && event("bob").await.is_ok());
        let (code, message) = event("bob").await.expect_err("refused");
        assert_eq!((code, message.as_str()), (429, "Too many requests: limit reached on type User for key bob"));
        assert!(event("eve").await.is_ok());
        let pod = Case::create("", "pods", "a", json!({"metadata": {"name": "p"}})).by(UserInfo::new("bob", &[]));
        assert!(pod.validate(&plugin).await.is_ok());
    }

    #[test]
    fn buckets_fill_again_and_few_are_kept() {
        let limit = Limit { kind: Kind::User, qps: 2, burst: 2, cache_size: 2 };
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let mut take = |key: &str, after: u64| buckets.take(key.into(), &limit, start + Duration::from_millis(after));
        assert!(take("a", 0) && take("a", 0) && !take("a", 0));
        assert!(take("a", 500) && !take("a", 500));
        assert!(take("a", 9000) && take("a", 9000) && !take("a", 9000), "no more than the burst");
        for key in ["b", "c", "d", "e", "f"] {
            assert!(take(key, 9000));
        }
        assert!(buckets.young.len() <= 2 && buckets.old.len() <= 2);
    }

    #[test]
    fn configurations_are_checked() {
        for limits in [
            json!([]),
            json!([{"type": "Nobody", "qps": 1, "burst": 1}]),
            json!([{"type": "User", "qps": 0, "burst": 1}]),
            json!([{"type": "User", "qps": 1}]),
        ] {
            assert!(plugin(limits.clone()).is_err(), "{limits}");
        }
    }
}
