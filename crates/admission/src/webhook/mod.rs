//! Admission webhooks: mutating ones are called one after the other, validating ones at once.
//!
//! A webhook that is down, slow or answers nonsense costs a request its timeout at most; then `failurePolicy` decides.

mod client;
mod config;
pub(crate) mod matching;
mod review;
mod service;

pub use client::authorities;
pub use service::resolve as resolve_service;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ferry_auth::Authorizer;
use ferry_meta::{ApiError, GroupVersionResource, ObjectReader, UserInfo};
use ferry_tasks::Tasks;
use serde_json::Value;

use crate::equivalents::{Equivalent, Version, View};
use crate::{CallError, Operation, Plugin, Request, policy};
use client::WebhookClient;
use config::{Hook, Hooks};
use matching::matching;
use review::Answer;

/// Fills in defaults of an object that a webhook changed.
pub type Defaulter = Arc<dyn Fn(&GroupVersionResource, &mut Value) + Send + Sync>;

/// What webhooks need besides the reader.
#[derive(Clone)]
pub struct WebhookOptions {
    /// The owner of the connections that are kept.
    pub tasks: Tasks,
    pub defaulter: Option<Defaulter>,
}

/// Calls webhooks that are not about admission: those that convert custom resources.
pub struct Webhooks(WebhookClient);

impl Webhooks {
    pub fn new(reader: Arc<dyn ObjectReader>, tasks: Tasks) -> Self {
        Self(WebhookClient::new(reader, tasks))
    }

    /// The body of a 200 answer of the webhook that a `clientConfig` names.
    pub async fn post(
        &self,
        client_config: &Value,
        timeout: std::time::Duration,
        body: Bytes,
    ) -> Result<Bytes, CallError> {
        let ca_bundle = ferry_meta::object::text(client_config, "/caBundle");
        self.0.send(&config::Target::read(client_config), ca_bundle, timeout, true, body).await
    }
}

struct Caller {
    reader: Arc<dyn ObjectReader>,
    client: WebhookClient,
    authorizer: Arc<dyn Authorizer>,
}

impl Caller {
    fn new(reader: Arc<dyn ObjectReader>, authorizer: Arc<dyn Authorizer>, options: &WebhookOptions) -> Self {
        let client = WebhookClient::new(reader.clone(), options.tasks.clone());
        Self { reader, client, authorizer }
    }

    /// Whether the hook is to be called; an expression that fails follows the failure policy.
    async fn wanted(&self, hook: &Hook, request: &Request<'_>) -> Result<bool, ApiError> {
        if hook.conditions.is_empty() {
            return Ok(true);
        }
        match policy::hold(&hook.conditions, &*self.reader, &*self.authorizer, request).await {
            Ok(wanted) => Ok(wanted),
            Err(_) if hook.ignore_failure => Ok(false),
            Err(why) => Err(request.forbidden(why)),
        }
    }

    /// `None`: the call failed and is to be ignored.
    async fn call(&self, hook: &Hook, request: &Request<'_>, mutating: bool) -> Result<Option<Answer>, ApiError> {
        if request.dry_run && !hook.dry_run {
            return Err(ApiError::bad_request(format!("admission webhook {:?} does not support dry run", hook.name)));
        }
        let (uid, question) = review::question(request);
        let answer = match self.client.post(hook, Bytes::from(question.to_string())).await {
            Ok(bytes) => review::answer(&bytes, &uid, mutating),
            Err(why) => Err(format!("failed to call webhook: {why}")),
        };
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(why) => failed(hook, &why).map(|()| None),
        }
    }
}

/// Ok when the failure is to be ignored.
fn failed(hook: &Hook, why: &str) -> Result<(), ApiError> {
    let text = format!("failed calling webhook {:?}: {why}", hook.name);
    if hook.ignore_failure {
        tracing::warn!("{text}; its failure policy lets the request pass");
        return Ok(());
    }
    Err(ApiError::internal(text))
}

/// A webhook's notes for the audit log stand under its own name.
fn annotations<'a>(hook: &'a Hook, answer: &'a Answer) -> impl Iterator<Item = (String, String)> + 'a {
    answer.annotations.iter().map(|(key, value)| (format!("{}/{key}", hook.name), value.clone()))
}

pub(crate) struct MutatingWebhooks {
    caller: Caller,
    hooks: Hooks,
    defaulter: Option<Defaulter>,
    /// The plug-ins before this one: they see the object again when a webhook changed it.
    before: Vec<Arc<dyn Plugin>>,
}

impl MutatingWebhooks {
    pub(crate) fn new(
        reader: Arc<dyn ObjectReader>,
        authorizer: Arc<dyn Authorizer>,
        options: &WebhookOptions,
        before: Vec<Arc<dyn Plugin>>,
    ) -> Self {
        let hooks = Hooks::new(reader.clone(), "mutatingwebhookconfigurations");
        Self { caller: Caller::new(reader, authorizer, options), hooks, defaulter: options.defaulter.clone(), before }
    }

    /// Asks a hook in the version that it names.
    async fn run(&self, hook: &Hook, version: Version, request: &mut Request<'_>) -> Result<(), ApiError> {
        let Version::Other(other) = version else { return self.ask(hook, request).await };
        let mut view = View::of(request, other).await?;
        let mut seen = view.request(request);
        let outcome = self.ask(hook, &mut seen).await;
        let Request { warnings, annotations, calls, .. } = seen;
        request.warnings.extend(warnings);
        request.annotations.extend(annotations);
        request.calls.extend(calls);
        outcome?;
        view.write_back(request).await
    }

    async fn ask(&self, hook: &Hook, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !self.caller.wanted(hook, request).await? {
            return Ok(());
        }
        let started = Instant::now();
        let answer = self.caller.call(hook, request, true).await;
        request.calls.push((hook.name.clone(), started.elapsed()));
        let Some(answer) = answer? else { return Ok(()) };
        request.warnings.extend(answer.warnings.iter().cloned());
        request.annotations.extend(annotations(hook, &answer));
        if !answer.allowed {
            return Err(answer.refusal(&hook.name));
        }
        let (Some(patch), Some(object)) = (answer.patch, request.object.as_deref_mut()) else { return Ok(()) };
        match ferry_schema::patch::json_patch(object.clone(), &patch) {
            Ok(changed) if changed.is_object() => {
                *object = changed;
                if let Some(defaulter) = &self.defaulter {
                    defaulter(request.resource, object);
                }
                Ok(())
            }
            Ok(_) => failed(hook, "received invalid patch in webhook response: the result is no object"),
            Err(error) => failed(hook, &format!("{error}")),
        }
    }
}

#[async_trait::async_trait]
impl Plugin for MutatingWebhooks {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn minds_renewal(&self, _user: &UserInfo, _namespace: &str, _name: &str) -> bool {
        !self.hooks.current().1.is_empty()
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let hooks = self.hooks.current();
        if hooks.1.is_empty() {
            return Ok(());
        }
        // Apart from this: most requests meet no webhook, and all would pay for the room.
        Box::pin(self.mutate_by(&hooks.1, request)).await
    }
}

impl MutatingWebhooks {
    async fn mutate_by(&self, hooks: &[Arc<Hook>], request: &mut Request<'_>) -> Result<(), ApiError> {
        let original = request.object.as_deref().cloned();
        // What a hook that wants to be asked again left behind.
        let mut seen: HashMap<String, Option<Value>> = HashMap::new();
        // Selected one by one: an earlier webhook may have changed the labels that select a later one.
        for hook in hooks {
            let Some((_, version)) = matching(&*self.caller.reader, std::slice::from_ref(hook), request).pop() else {
                continue;
            };
            self.run(hook, version, request).await?;
            if hook.reinvoke {
                seen.insert(hook.id.clone(), request.object.as_deref().cloned());
            }
        }
        if request.object.as_deref() == original.as_ref() {
            return Ok(());
        }
        let operation = request.operation;
        request.reinvoked = true;
        for plugin in self.before.iter().filter(|plugin| plugin.handles(operation)) {
            plugin.mutate(request).await?;
        }
        for hook in hooks.iter().filter(|hook| hook.reinvoke) {
            let changed = seen.get(&hook.id).is_some_and(|left| left.as_ref() != request.object.as_deref());
            let mut matching = matching(&*self.caller.reader, std::slice::from_ref(hook), request);
            if let Some((_, version)) = matching.pop().filter(|_| changed) {
                self.run(hook, version, request).await?;
            }
        }
        Ok(())
    }
}

pub(crate) struct ValidatingWebhooks {
    caller: Caller,
    hooks: Hooks,
}

impl ValidatingWebhooks {
    pub(crate) fn new(
        reader: Arc<dyn ObjectReader>,
        authorizer: Arc<dyn Authorizer>,
        options: &WebhookOptions,
    ) -> Self {
        let hooks = Hooks::new(reader.clone(), "validatingwebhookconfigurations");
        Self { caller: Caller::new(reader, authorizer, options), hooks }
    }
}

#[async_trait::async_trait]
impl Plugin for ValidatingWebhooks {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn minds_renewal(&self, _user: &UserInfo, _namespace: &str, _name: &str) -> bool {
        !self.hooks.current().1.is_empty()
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let hooks = self.hooks.current();
        let matching = matching(&*self.caller.reader, &hooks.1, request);
        if matching.is_empty() {
            return Ok(());
        }
        // Apart from this: most requests meet no webhook, and all would pay for the room.
        Box::pin(self.validate_by(matching, request)).await
    }
}

impl ValidatingWebhooks {
    async fn validate_by(
        &self,
        matching: Vec<(Arc<Hook>, Version)>,
        request: &mut Request<'_>,
    ) -> Result<(), ApiError> {
        let mut views: Vec<View> = Vec::new();
        for (_, version) in &matching {
            if let Version::Other(other) = version
                && !views.iter().any(|view| view.other == *other)
            {
                views.push(View::of(request, other.clone()).await?);
            }
        }
        let requests: Vec<Request<'_>> = views.iter_mut().map(|view| view.request(request)).collect();
        let mut wanted = Vec::new();
        for (hook, version) in matching {
            let in_version = |other: &Equivalent| requests.iter().find(|seen| *seen.resource == other.resource);
            let seen: &Request<'_> = match &version {
                Version::Requested => request,
                Version::Other(other) => in_version(other).unwrap_or(request),
            };
            if self.caller.wanted(&hook, seen).await? {
                wanted.push((hook, seen));
            }
        }
        let calls = wanted.iter().map(|(hook, seen)| async move {
            let started = Instant::now();
            let outcome = self.caller.call(hook, seen, false).await;
            (hook, outcome, started.elapsed())
        });
        let mut first_error = None;
        let (mut warnings, mut notes, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for (hook, outcome, took) in futures::future::join_all(calls).await {
            times.push((hook.name.clone(), took));
            let error = match outcome {
                Ok(None) => continue,
                Ok(Some(mut answer)) => {
                    warnings.append(&mut answer.warnings);
                    notes.extend(annotations(hook, &answer));
                    if answer.allowed {
                        continue;
                    }
                    answer.refusal(&hook.name)
                }
                Err(error) => error,
            };
            first_error.get_or_insert(error);
        }
        drop(wanted);
        drop(requests);
        request.warnings.extend(warnings);
        request.annotations.extend(notes);
        request.calls.extend(times);
        first_error.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
