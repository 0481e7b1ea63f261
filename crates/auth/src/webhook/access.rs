//! Access that a webhook decides on.

use std::time::Duration;

use ferry_meta::object::text;
use ferry_outbound::Remote;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::conditions::AccessConditions;
use super::{ATTEMPTS, PATIENCE, review};
use crate::authorize::{Attributes, Authorizer, Decision};
use crate::expiring::Expiring;

#[derive(Clone, Debug)]
pub struct AccessWebhookOptions {
    /// `v1` or `v1beta1`.
    pub version: String,
    pub authorized_life: Duration,
    pub unauthorized_life: Duration,
    /// Whether a webhook that cannot be asked refuses, or leaves it to the next authorizer.
    pub deny_on_failure: bool,
    /// How long one question may take.
    pub timeout: Duration,
    pub cache_authorized: bool,
    pub cache_unauthorized: bool,
}

impl Default for AccessWebhookOptions {
    fn default() -> Self {
        Self {
            version: "v1".into(),
            authorized_life: Duration::from_secs(300),
            unauthorized_life: Duration::from_secs(30),
            deny_on_failure: false,
            timeout: PATIENCE,
            cache_authorized: true,
            cache_unauthorized: true,
        }
    }
}

/// Longer questions are asked anew each time: clients choose how long they are.
const LONGEST_REMEMBERED: usize = 10_000;

pub struct AccessWebhook {
    remote: Remote,
    options: AccessWebhookOptions,
    conditions: AccessConditions,
    seen: Expiring<Decision>,
}

impl AccessWebhook {
    pub fn new(remote: Remote, options: AccessWebhookOptions) -> Self {
        Self { remote, options, conditions: AccessConditions::default(), seen: Expiring::new() }
    }

    /// It is asked only where these hold.
    #[must_use]
    pub fn when(mut self, conditions: AccessConditions) -> Self {
        self.conditions = conditions;
        self
    }

    fn failed(&self, error: String) -> Decision {
        Decision::Failed { reason: String::new(), error, denies: self.options.deny_on_failure }
    }
}

fn question(version: &str, attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut spec = json!({"user": user.name});
    for (field, value) in [("uid", json!(user.uid)), ("groups", json!(user.groups)), ("extra", json!(user.extra))] {
        let empty = value.as_str() == Some("")
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        if !empty {
            spec[field] = value;
        }
    }
    if !attributes.is_resource {
        spec["nonResourceAttributes"] = json!({"path": attributes.path, "verb": attributes.verb});
    } else {
        let mut resource = serde_json::Map::new();
        for (field, value) in [
            ("namespace", attributes.namespace),
            ("verb", attributes.verb),
            ("group", attributes.group),
            ("version", attributes.version),
            ("resource", attributes.resource),
            ("subresource", attributes.subresource),
            ("name", attributes.name),
        ] {
            if !value.is_empty() {
                resource.insert(field.into(), value.into());
            }
        }
        if !attributes.fields.is_empty() {
            let requirements: Vec<Value> = attributes
                .fields
                .iter()
                .map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}))
                .collect();
            resource.insert("fieldSelector".into(), json!({"requirements": requirements}));
        }
        spec["resourceAttributes"] = resource.into();
    }
    json!({
        "apiVersion": format!("authorization.k8s.io/{version}"), "kind": "SubjectAccessReview",
        "metadata": {"creationTimestamp": null}, "spec": spec, "status": {"allowed": false},
    })
}

#[async_trait::async_trait]
impl Authorizer for AccessWebhook {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match self.conditions.hold(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::no_opinion(""),
            Err(why) => {
                tracing::error!("a condition of the webhook authorizer failed: {why}");
                return self.failed(why);
            }
        }
        let question = question(&self.options.version, attributes);
        let text_form = question.to_string();
        let key: [u8; 32] = Sha256::digest(&text_form).into();
        if let Some(known) = self.seen.get(&key) {
            return known;
        }
        let answer = match review(&self.remote, &question, ATTEMPTS, self.options.timeout).await {
            Ok(answer) => answer,
            Err(why) => {
                tracing::error!("failed to make webhook authorizer request: {why}");
                return self.failed(why);
            }
        };
        let flag = |field: &str| answer.pointer(&format!("/status/{field}")) == Some(&Value::Bool(true));
        let reason = text(&answer, "/status/reason").to_owned();
        let decision = match (flag("allowed"), flag("denied")) {
            (true, true) => {
                let error = "webhook subject access review returned both allow and deny response".into();
                Decision::Failed { reason, error, denies: true }
            }
            (true, false) => Decision::Allow { reason },
            (false, true) => Decision::Deny { reason },
            (false, false) => Decision::NoOpinion { reason },
        };
        let (life, kept) = match decision.is_allowed() {
            true => (self.options.authorized_life, self.options.cache_authorized),
            false => (self.options.unauthorized_life, self.options.cache_unauthorized),
        };
        if kept && text_form.len() <= LONGEST_REMEMBERED {
            self.seen.put(key, decision.clone(), life);
        }
        decision
    }
}
