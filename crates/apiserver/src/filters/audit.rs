//! What the audit log is told of a request on its way through the pipeline.

use std::sync::Arc;

use ferry_audit::{Facts, Receipt, Record, Subject};
use ferry_auth::Notes;
use ferry_meta::{ApiError, Status};
use http::Response;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::request::context::RequestContext;
use crate::request::verb::Verb;
use crate::response::answer::{Answer, Body};
use crate::server::Core;

/// Requests whose answers go on for long: watches, tunnels, logs.
pub(crate) fn is_long_running(context: &RequestContext) -> bool {
    let info = &context.info;
    info.is_resource && (matches!(info.verb, Verb::Watch | Verb::Proxy) || info.subresource.is_stream())
}

fn record(core: &Core, context: &RequestContext, authenticated: bool) -> Option<Arc<Record>> {
    let auditor = core.audit.as_ref()?;
    let info = &context.info;
    let query = context.raw_query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
    let address = context.peer.address.map(|address| address.ip());
    auditor.begin(Facts {
        audit_id: &context.audit_id,
        request_uri: format!("{}{query}", context.raw_path),
        subject: Subject {
            user: authenticated.then_some(&context.user),
            verb: info.verb.as_str(),
            is_resource: info.is_resource,
            namespace: &info.namespace,
            group: &info.group,
            resource: &info.resource,
            subresource: info.subresource.as_str(),
            name: &info.name,
            path: &info.path,
        },
        api_version: &info.version,
        user_agent: context.agent(),
        source_ips: ferry_audit::source_ips(context.header("x-forwarded-for"), context.header("x-real-ip"), address),
        received: context.received,
    })
}

/// The caller is known: from here on the request is on record.
pub(crate) async fn begin(core: &Core, context: &mut RequestContext, notes: &Notes) -> Result<(), ApiError> {
    notes.warnings().into_iter().for_each(|text| context.warn(text));
    let Some(record) = record(core, context, true) else { return Ok(()) };
    notes.annotations().iter().for_each(|(key, value)| record.annotate(key, value));
    let strict = record.is_strict();
    let written = wait(record.received()).await;
    context.audit = Some(record);
    match written {
        Err(why) if strict => Err(ApiError::internal(format!("failed to write audit event: {why}"))),
        _ => Ok(()),
    }
}

/// What authentication has to say of a token that a request is about.
pub(crate) fn noted(context: &RequestContext, notes: &Notes) {
    notes.warnings().into_iter().for_each(|text| context.warn(text));
    if let Some(record) = &context.audit {
        notes.annotations().iter().for_each(|(key, value)| record.annotate(key, value));
    }
}

/// A caller who could not prove who they are.
pub(crate) async fn refused(core: &Core, context: &RequestContext, notes: &Notes) {
    let Some(record) = record(core, context, false) else { return };
    notes.annotations().iter().for_each(|(key, value)| record.annotate(key, value));
    let scheme = context.header("authorization").split(' ').next().unwrap_or_default().to_lowercase();
    let mut attempted = Vec::new();
    match &*scheme {
        "bearer" | "basic" => attempted.push(scheme.as_str()),
        _ => {}
    }
    if !context.peer.certificates.is_empty() {
        attempted.push("x509");
    }
    let message = if attempted.is_empty() {
        "Authentication failed, no credentials provided".to_owned()
    } else {
        format!("Authentication failed, attempted: {}", attempted.join(", "))
    };
    let _ = wait(record.unauthenticated(&message)).await;
}

/// The decision of the authorizers.
pub(crate) fn decided(context: &RequestContext, decision: &ferry_auth::Decision) {
    let Some(record) = &context.audit else { return };
    if decision.error().is_some() {
        return record.annotate("authorization.k8s.io/reason", "internal error");
    }
    record.annotate("authorization.k8s.io/decision", if decision.is_allowed() { "allow" } else { "forbid" });
    record.annotate("authorization.k8s.io/reason", decision.reason());
}

/// An object that came with the request. `defaulted` is what is written of it.
pub(crate) fn request_object(context: &RequestContext, object: &Value, defaulted: impl FnOnce() -> Value) {
    if let Some(record) = &context.audit {
        record.request_object(object, defaulted);
    }
}

/// What is known of the answer before it is encoded.
pub(crate) fn answered(context: &RequestContext, outcome: &Result<Answer, ApiError>) -> Option<Status> {
    let record = context.audit.as_ref()?;
    match outcome {
        Ok(Answer::Json { kind, json, .. }) => {
            record.response_object(json);
            let is_status = kind.group.is_empty() && kind.kind == "Status";
            is_status.then(|| serde_json::from_slice(json).ok()).flatten()
        }
        Err(error) => {
            record.response_object(&serde_json::to_vec(&*error.0).unwrap_or_default());
            Some((*error.0).clone())
        }
        Ok(_) => None,
    }
}

/// The answer is ready. A long one is on record twice: when it begins and when it ends.
pub(crate) async fn finish(
    context: &RequestContext,
    status: Option<Status>,
    response: Response<Body>,
) -> Response<Body> {
    let Some(record) = context.audit.clone() else { return response };
    let code = response.status().as_u16();
    if !is_long_running(context) || code >= 400 {
        let _ = wait(record.complete(code, status.as_ref())).await;
        return response;
    }
    let _ = wait(record.started(code)).await;
    let end = End { record, code };
    response.map(|body| {
        body.map_frame(move |frame| {
            let _until_the_end = &end;
            frame
        })
        .boxed_unsync()
    })
}

/// A handler panicked: on record, and answered as upstream does.
pub(crate) async fn panicked(context: &RequestContext) -> Result<Answer, ApiError> {
    tracing::error!("the request {} {} caused a panic", context.method, context.raw_path);
    if let Some(record) = &context.audit {
        let _ = wait(record.panicked()).await;
    }
    Err(ApiError::new(
        500,
        ferry_meta::Reason::InternalError,
        "This request caused apiserver to panic. Look in the logs for details.",
    ))
}

struct End {
    record: Arc<Record>,
    code: u16,
}

impl Drop for End {
    fn drop(&mut self) {
        drop(self.record.complete(self.code, None));
    }
}

async fn wait(receipts: Vec<Receipt>) -> Result<(), String> {
    let mut outcome = Ok(());
    for receipt in receipts {
        match receipt.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => outcome = Err(why),
            Err(_) => outcome = Err("the event was dropped".into()),
        }
    }
    outcome
}
