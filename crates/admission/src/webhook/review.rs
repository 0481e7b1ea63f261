//! AdmissionReview v1: the question, and what may be believed of the answer.

use base64::Engine;
use ferry_meta::{ApiError, Status};
use serde_json::{Value, json};

use crate::{Operation, Request};

/// The review that is sent, and the uid its answer must have.
pub(super) fn question(request: &Request<'_>) -> (String, Value) {
    let uid = uuid::Uuid::new_v4().to_string();
    let mut question = request.describe();
    question["uid"] = json!(uid);
    question["object"] = json!(request.object.as_deref());
    question["oldObject"] = json!(request.old);
    question["options"] = options(request);
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": question});
    (uid, review)
}

fn options(request: &Request<'_>) -> Value {
    let kind = match request.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut options = if request.options.is_object() { request.options.clone() } else { json!({}) };
    if options.get("kind").is_none() {
        options["kind"] = json!(kind);
        options["apiVersion"] = json!("meta.k8s.io/v1");
    }
    options
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
    status: Option<Status>,
    /// For the audit log, by keys below the webhook's name.
    pub(super) annotations: Vec<(String, String)>,
}

/// The answer of a webhook, or what is wrong with it.
pub(super) fn answer(bytes: &[u8], uid: &str, mutating: bool) -> Result<Answer, String> {
    let review = ferry_schema::decode::answer(bytes)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    let (api_version, kind) = (text(&review, "/apiVersion"), text(&review, "/kind"));
    if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        return Err(format!(
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
        ));
    }
    let Some(response) = review.get("response").filter(|response| !response.is_null()) else {
        return Err("received invalid webhook response: webhook response was absent".into());
    };
    let own = text(response, "/uid");
    if own != uid {
        return Err(format!("received invalid webhook response: expected response.uid={uid:?}, got {own:?}"));
    }
    Ok(Answer {
        allowed: response.get("allowed").and_then(Value::as_bool).unwrap_or_default(),
        patch: if mutating { patch(response)? } else { None },
        warnings: ferry_meta::object::items(response, "/warnings")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        annotations: ferry_meta::object::map(response, "/auditAnnotations")
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        status: response.get("status").and_then(|status| serde_json::from_value(status.clone()).ok()),
    })
}

fn patch(response: &Value) -> Result<Option<Value>, String> {
    let encoded = text(response, "/patch");
    let kind = response.get("patchType").and_then(Value::as_str);
    if encoded.is_empty() {
        return match kind {
            Some(_) => {
                Err("received invalid webhook response: webhook returned response.patchType but not response.patch"
                    .into())
            }
            None => Ok(None),
        };
    }
    match kind {
        None => {
            Err("received invalid webhook response: webhook returned response.patch but not response.patchType".into())
        }
        Some("JSONPatch") => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .map_err(|error| format!("received invalid webhook response: {error}"))?;
            let patch = ferry_schema::decode::answer(&bytes)
                .map_err(|error| format!("received undecodable patch in webhook response: {error}"))?;
            Ok(Some(patch))
        }
        Some(other) => Err(format!("unsupported patch type in webhook response: {other:?}")),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    ferry_meta::object::text(value, pointer)
}

impl Answer {
    /// The answer to the client when the webhook refused. It is a failure whatever the webhook called it.
    pub(super) fn refusal(self, webhook: &str) -> ApiError {
        let mut status = self.status.unwrap_or_default();
        status.kind = "Status".into();
        status.api_version = "v1".into();
        status.code = status.code.max(400);
        if matches!(status.status.as_str(), "" | "Success") {
            status.status = "Failure".into();
        }
        let denied = format!("admission webhook {webhook:?} denied the request");
        status.message = match (status.message.as_str(), status.reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        ApiError(Box::new(status))
    }
}
