//! Policies that change what is written.

use std::sync::Arc;

use ferry_auth::Authorizer;
use ferry_cel::{Budget, Question, REQUEST_BUDGET, Value};
use ferry_meta::bounds::Extent;
use ferry_meta::{ApiError, ObjectReader, Reason, UserInfo};
use ferry_schema::{Type, Validation, managed, patch};
use serde_json::{Map, Value as Json};

use super::compiled::{Expression, Mutation, Policies, Policy};
use super::constraints::Constraints;
use super::evaluation::{Decisions, Facts, Run, Stop, decided};
use super::types::Types;
use super::{PolicyOptions, Shared, is_exempt, refusal};
use crate::equivalents::{Version, View};
use crate::webhook::Defaulter;
use crate::{Operation, Plugin, Request};

pub(crate) struct MutatingPolicies {
    shared: Shared,
    policies: Policies,
    types: Types,
    defaulter: Option<Defaulter>,
    /// The plug-ins before this one: they see the object again when a policy changed it.
    before: Vec<Arc<dyn Plugin>>,
}

/// What a mutation asks for.
enum Change {
    Merge(Json),
    Operations(Vec<Json>),
}

/// Why a policy, or a part of it, changes nothing.
enum Failure {
    /// It is for the policy to say what follows.
    Refused(Vec<String>),
    /// What came out is no object of its kind: nobody gets past that.
    Broken(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Refused(vec![why])
    }
}

/// A policy that was asked and wants to be asked again.
struct Asked {
    policy: usize,
    binding: usize,
}

impl MutatingPolicies {
    pub(crate) fn new(
        reader: Arc<dyn ObjectReader>,
        authorizer: Arc<dyn Authorizer>,
        options: &PolicyOptions,
        before: Vec<Arc<dyn Plugin>>,
    ) -> Self {
        Self {
            policies: Policies::new(reader.clone(), true),
            types: Types::new(reader.clone()),
            defaulter: options.defaulter.clone(),
            shared: Shared { reader, authorizer, kinds: options.kinds.clone() },
            before,
        }
    }

    /// Asks all policies, or only those of `again`; what refused, in order.
    async fn pass(
        &self,
        request: &mut Request<'_>,
        again: Option<&[Asked]>,
        asked: &mut Vec<Asked>,
    ) -> Result<Vec<String>, ApiError> {
        let policies = self.policies.current();
        let reader = &*self.shared.reader;
        let mut errors = Vec::new();
        let mut decisions = Decisions::new();
        for (policy_index, bound) in policies.1.iter().enumerate() {
            let policy = &*bound.policy;
            // Labels may have changed since the policy before.
            let mut labels = None;
            let Some(version) = policy.constraints.match_request(reader, request, &mut labels) else { continue };
            for (binding_index, binding) in bound.bindings.iter().enumerate() {
                let mut sees = |c: &Constraints| c.match_request(reader, request, &mut labels).is_some();
                let seen = binding.constraints.as_ref().is_none_or(&mut sees);
                let chosen = again.is_none_or(|again| {
                    again.iter().any(|one| one.policy == policy_index && one.binding == binding_index)
                });
                if !seen || !chosen {
                    continue;
                }
                let refused = |why: &str| {
                    format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name)
                };
                let params = match self.shared.params(policy, binding, request) {
                    Ok(params) => params,
                    Err(why) => {
                        if !policy.ignore_failure {
                            errors.push(refused(&why));
                        }
                        continue;
                    }
                };
                for params in params {
                    match self.run(policy, &version, params.as_deref(), request, &mut decisions).await {
                        Err(Failure::Broken(why)) => return Err(ApiError::internal(why)),
                        Err(Failure::Refused(why)) if !policy.ignore_failure => {
                            errors.extend(why.iter().map(|why| refused(why)));
                        }
                        Err(Failure::Refused(_)) | Ok(()) => {}
                    }
                }
                if policy.reinvoke {
                    asked.push(Asked { policy: policy_index, binding: binding_index });
                }
            }
        }
        Ok(errors)
    }

    /// One policy with one parameter, in the version that it names.
    async fn run(
        &self,
        policy: &Policy,
        version: &Version,
        params: Option<&Json>,
        request: &mut Request<'_>,
        decisions: &mut Decisions,
    ) -> Result<(), Failure> {
        let Version::Other(other) = version else { return self.run_in(policy, params, request, decisions).await };
        let failed = |error: ApiError| format!("failed to convert object version: {}", error.0.message);
        let mut view = View::of(request, other.clone()).await.map_err(failed)?;
        let outcome = self.run_in(policy, params, &mut view.request(request), decisions).await;
        // A mutation that fails does not undo those before it.
        view.write_back(request).await.map_err(failed)?;
        outcome
    }

    async fn run_in(
        &self,
        policy: &Policy,
        params: Option<&Json>,
        request: &mut Request<'_>,
        decisions: &mut Decisions,
    ) -> Result<(), Failure> {
        let facts = Facts::of(&*self.shared.reader, request);
        let wanted = decided(&*self.shared.authorizer, request.user, decisions, |decisions| {
            let object = request.object.as_deref();
            Run::new(&facts, object, request.old, params, &policy.variables, decisions).hold(&policy.conditions)
        })
        .await;
        if !wanted? {
            return Ok(());
        }
        let mut failures = Vec::new();
        for mutation in &policy.mutations {
            let change = decided(&*self.shared.authorizer, request.user, decisions, |decisions| {
                let object = request.object.as_deref();
                let run = Run::new(&facts, object, request.old, params, &policy.variables, decisions);
                change(mutation, &run)
            })
            .await;
            // A mutation that fails does not keep later ones from being tried.
            match change.map_err(Failure::from).and_then(|change| self.apply(change, request)) {
                Ok(()) => {}
                Err(Failure::Refused(why)) => failures.extend(why),
                broken => return broken,
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(Failure::Refused(failures)) }
    }

    fn apply(&self, change: Change, request: &mut Request<'_>) -> Result<(), Failure> {
        let ty = self.types.of(request);
        let Some(object) = request.object.as_deref_mut() else { return Ok(()) };
        let changed = match change {
            Change::Merge(mut config) => {
                let ty = ty.as_ref().ok_or_else(|| "the type of the object is not known".to_owned())?;
                for key in ["apiVersion", "kind"] {
                    config[key] = object[key].clone();
                }
                let merged = managed::merge_configuration(ty, object, &config)
                    .map_err(|why| format!("error applying patch: {why}"))?;
                Extent::of(&merged).check().map_err(|excess| format!("error applying patch: {excess}"))?;
                merged
            }
            Change::Operations(operations) => match patched(object.clone(), operations)? {
                Some(changed) => changed,
                None => return Ok(()),
            },
        };
        let mut changed = checked(ty.as_ref(), changed).map_err(Failure::Broken)?;
        if let Some(defaulter) = &self.defaulter {
            defaulter(request.resource, &mut changed);
        }
        *object = changed;
        Ok(())
    }
}

/// The object after the operations; None when a test says that they are not to be made.
fn patched(object: Json, operations: Vec<Json>) -> Result<Option<Json>, String> {
    let mut patcher = patch::JsonPatcher::new(object);
    for operation in operations {
        let kind = operation["op"].as_str().unwrap_or_default();
        match patcher.apply(&operation) {
            Ok(()) => {}
            Err(_) if kind == "test" => return Ok(None),
            Err(_) if !["add", "remove", "replace", "move", "copy"].contains(&kind) => {
                return Err(format!("JSON Patch: Unexpected kind: {kind}"));
            }
            Err(error) => {
                let path = operation["path"].as_str().unwrap_or_default();
                return Err(format!("JSON Patch: {}", told(kind, path, &error.to_string())));
            }
        }
    }
    let object = patcher.finish().map_err(|error| format!("JSON Patch: {error}"))?;
    if object.is_object() { Ok(Some(object)) } else { Err("JSON Patch: the result is no object".to_owned()) }
}

/// Why an operation is not made, in the words of upstream's library.
fn told(kind: &str, path: &str, why: &str) -> String {
    if let Some(key) = why.strip_prefix("unable to remove nonexistent key: ") {
        // A move names the key alone.
        let place = if kind == "move" { key } else { path };
        return format!("error in {kind} for path: '{place}': Unable to remove nonexistent key: {key}: missing value");
    }
    if why.starts_with("replace operation value") {
        return format!("{why}: %!w(<nil>)");
    }
    let missing = if why.contains("missing") { ": missing value" } else { "" };
    format!("{kind} operation does not apply: {why}{missing}")
}

/// The object as its type reads it.
fn checked(ty: Option<&Type>, object: Json) -> Result<Json, String> {
    let Some(ty) = ty.filter(|ty| ty.schema().is_none()) else { return Ok(object) };
    let decoded = ferry_schema::decode_value(ty, &object, Validation::Strict).map_err(|error| error.to_string())?;
    Ok(decoded.object)
}

/// What a mutation asks for, or why it cannot be told.
fn change(mutation: &Mutation, run: &Run<'_>) -> Result<Result<Change, String>, Box<Question>> {
    let (Mutation::Apply(expression) | Mutation::Patch(expression)) = mutation;
    let value = match value(expression, run)? {
        Ok(value) => value,
        Err(why) => return Ok(Err(why)),
    };
    Ok(match mutation {
        Mutation::Apply(_) => configuration(&value).map(Change::Merge),
        Mutation::Patch(_) => operations(&value).map(Change::Operations),
    })
}

fn value<'a>(expression: &Expression, run: &Run<'a>) -> Result<Result<Value<'a>, String>, Box<Question>> {
    match run.evaluate(expression, &mut Budget::new(REQUEST_BUDGET)) {
        Ok(outcome) => Ok(outcome),
        Err(Stop::Ask(question)) => Err(question),
        Err(Stop::Spent(why)) => Ok(Err(why)),
    }
}

fn configuration(value: &Value<'_>) -> Result<Json, String> {
    let Value::Object(_) = value else {
        return Err(format!("unsupported return type from ApplyConfiguration expression: {}", value.type_name()));
    };
    named_by_path(value, "Object", &mut { MOST_NAMED })?;
    value.to_json().ok_or_else(|| "invalid return type".to_owned())
}

/// As many values of a configuration are looked at; they may share parts.
const MOST_NAMED: usize = 1_000_000;

/// The types of nested objects spell the way to them: `Object.spec` stands in the field `spec`.
fn named_by_path(value: &Value<'_>, path: &str, left: &mut usize) -> Result<(), String> {
    *left = left.checked_sub(1).ok_or("the configuration is too large")?;
    match value {
        Value::Object(made) => {
            let name = &made.object.name;
            if name != path {
                return Err(format!(
                    "type mismatch: unexpected type name {name:?}, expected {path:?}, which matches field name path from root Object type"
                ));
            }
            made.fields.iter().try_for_each(|(field, value)| named_by_path(value, &format!("{path}.{field}"), left))
        }
        Value::List(list) => {
            let items = list.to_vec().map_err(|error| error.to_string())?;
            items.iter().try_for_each(|item| named_by_path(item, path, left))
        }
        _ => Ok(()),
    }
}

fn operations(value: &Value<'_>) -> Result<Vec<Json>, String> {
    let Value::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut operations = Vec::with_capacity(list.len());
    for item in list.to_vec().map_err(|error| error.to_string())? {
        let Value::Object(made) = &item else {
            return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
        };
        let mut operation = Map::new();
        for (name, field) in &made.fields {
            if let Value::Object(inner) = field {
                named_by_path(field, &inner.object.name, &mut { MOST_NAMED })?;
            }
            let json =
                field.to_json().ok_or("JSONPath valueExpression evaluated to a type that could not marshal to JSON")?;
            operation.insert(name.clone(), json);
        }
        operations.push(Json::Object(operation));
    }
    Ok(operations)
}

#[async_trait::async_trait]
impl Plugin for MutatingPolicies {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn minds_renewal(&self, _user: &UserInfo, _namespace: &str, _name: &str) -> bool {
        !self.policies.current().1.is_empty()
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if self.policies.current().1.is_empty() || is_exempt(request) || request.object.is_none() {
            return Ok(());
        }
        // Apart from this: most requests meet no policy, and all would pay for the room.
        Box::pin(self.mutate_by_all(request)).await
    }
}

impl MutatingPolicies {
    async fn mutate_by_all(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let original = request.object.as_deref().cloned();
        let mut asked = Vec::new();
        let reinvoked = request.reinvoked;
        let mut errors = if reinvoked {
            // Only policies that want to see it again do.
            let all = self.policies.current();
            let again = all.1.iter().enumerate().filter(|(_, bound)| bound.policy.reinvoke);
            let again: Vec<Asked> = again
                .flat_map(|(policy, bound)| (0..bound.bindings.len()).map(move |binding| Asked { policy, binding }))
                .collect();
            self.pass(request, Some(&again), &mut asked).await?
        } else {
            self.pass(request, None, &mut asked).await?
        };
        if errors.is_empty() && !reinvoked && request.object.as_deref() != original.as_ref() {
            request.reinvoked = true;
            let operation = request.operation;
            for plugin in self.before.iter().filter(|plugin| plugin.handles(operation)) {
                plugin.mutate(request).await?;
            }
            // Upstream asks the one that changed the object again too.
            if !asked.is_empty() {
                errors = self.pass(request, Some(&asked), &mut Vec::new()).await?;
            }
            request.reinvoked = false;
        }
        let Some(first) = errors.first() else { return Ok(()) };
        // Upstream says 403 and Invalid in one answer, and the message without the object's name.
        let mut error = refusal(request, first, Reason::Invalid, 403, &errors);
        error.0.message = first.clone();
        Err(error)
    }
}
