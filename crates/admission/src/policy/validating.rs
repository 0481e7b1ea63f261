//! Policies that refuse, warn or note.

use std::sync::Arc;

use ferry_auth::Authorizer;
use ferry_cel::{Budget, Question, REQUEST_BUDGET, Value};
use ferry_meta::{ApiError, ObjectReader, Reason, UserInfo};
use serde_json::{Value as Json, json};

use super::compiled::{Binding, Bound, Policies, Policy, Validation};
use super::constraints::Constraints;
use super::evaluation::{Decisions, Facts, Run, Stop, decided};
use super::{PolicyOptions, Shared, is_exempt, refusal};
use crate::equivalents::{Version, View};
use crate::{Operation, Plugin, Request};

/// Longer messages of expressions are not used.
const LONGEST_MESSAGE: usize = 5 * 1024;
const LONGEST_ANNOTATION: usize = 10 * 1024;
const MOST_FAILURES: usize = 50;

pub(crate) struct ValidatingPolicies {
    shared: Shared,
    policies: Policies,
}

/// Something a policy found.
struct Finding {
    message: String,
    reason: Reason,
    /// Which of the validations.
    index: usize,
}

/// What became of a policy with one parameter.
#[derive(Default)]
struct Findings {
    findings: Vec<Finding>,
    /// Refused whatever the binding's actions are.
    errors: Vec<String>,
    annotations: Vec<(String, String)>,
}

/// What is left to do at the end.
#[derive(Default)]
struct Outcome {
    refused: Option<(String, Reason)>,
    failures: Vec<Json>,
}

impl Outcome {
    fn refuse(&mut self, policy: &Policy, binding: &Binding, message: &str, reason: Reason) {
        let (policy, binding) = (&policy.name, &binding.name);
        self.refused.get_or_insert_with(|| {
            let text =
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}");
            (text, reason)
        });
    }
}

impl ValidatingPolicies {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>, authorizer: Arc<dyn Authorizer>, options: &PolicyOptions) -> Self {
        let policies = Policies::new(reader.clone(), false);
        Self { shared: Shared { reader, authorizer, kinds: options.kinds.clone() }, policies }
    }
}

#[async_trait::async_trait]
impl Plugin for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn minds_renewal(&self, _user: &UserInfo, _namespace: &str, _name: &str) -> bool {
        !self.policies.current().1.is_empty()
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let policies = self.policies.current();
        if policies.1.is_empty() || is_exempt(request) {
            return Ok(());
        }
        // Apart from this: most requests meet no policy, and all would pay for the room.
        Box::pin(self.validate_by(&policies.1, request)).await
    }
}

impl ValidatingPolicies {
    async fn validate_by(&self, policies: &[Bound], request: &mut Request<'_>) -> Result<(), ApiError> {
        let reader = &*self.shared.reader;
        let (mut labels, mut facts, mut decisions) = (None, None, Decisions::new());
        let mut views: Vec<(View, Facts)> = Vec::new();
        let mut outcome = Outcome::default();
        for bound in policies {
            let policy = &*bound.policy;
            let Some(version) = policy.constraints.match_request(reader, request, &mut labels) else { continue };
            if let Some(why) = self.shared.unknown_params(policy) {
                if !policy.ignore_failure {
                    let (name, why) = (&policy.name, format!("failed to configure policy: {why}"));
                    let text = format!("ValidatingAdmissionPolicy '{name}' denied request: {why}");
                    outcome.refused.get_or_insert((text, Reason::Invalid));
                }
                continue;
            }
            for binding in &bound.bindings {
                let mut sees = |c: &Constraints| c.match_request(reader, request, &mut labels).is_some();
                if !binding.constraints.as_ref().is_none_or(&mut sees) {
                    continue;
                }
                let params = match self.shared.params(policy, binding, request) {
                    Ok(params) => params,
                    Err(_) if policy.ignore_failure => continue,
                    Err(why) => {
                        let message = format!("failed to configure binding: {why}");
                        outcome.refuse(policy, binding, &message, Reason::Invalid);
                        continue;
                    }
                };
                if let Err(why) = view(reader, request, &version, &mut views).await {
                    if !policy.ignore_failure {
                        let message = format!("failed to configure binding: failed to convert object version: {why}");
                        outcome.refuse(policy, binding, &message, Reason::Invalid);
                    }
                    continue;
                }
                let own = facts.get_or_insert_with(|| Facts::of(reader, request));
                for params in params {
                    let (facts, object, old) = match views.iter().find(|(view, _)| view.is(&version)) {
                        Some((view, facts)) => (facts, view.object(), view.old()),
                        None => (&*own, request.object.as_deref(), request.old),
                    };
                    let result = decided(&*self.shared.authorizer, request.user, &mut decisions, |decisions| {
                        let run = Run::new(facts, object, old, params.as_deref(), &policy.variables, decisions);
                        evaluate(policy, &run)
                    })
                    .await;
                    act(policy, binding, result, &mut outcome, request);
                }
            }
        }
        if !outcome.failures.is_empty() {
            outcome.failures.truncate(MOST_FAILURES);
            let key = "validation.policy.admission.k8s.io/validation_failure".to_owned();
            request.annotations.push((key, Json::Array(outcome.failures).to_string()));
        }
        let Some((message, reason)) = outcome.refused else { return Ok(()) };
        let code = match reason {
            Reason::Forbidden => 403,
            Reason::Unauthorized => 401,
            Reason::RequestEntityTooLarge => 413,
            _ => 422,
        };
        Err(refusal(request, &message, reason, code, std::slice::from_ref(&message)))
    }
}

/// Sees to it that the objects are there in this version.
async fn view(
    reader: &dyn ObjectReader,
    request: &Request<'_>,
    version: &Version,
    views: &mut Vec<(View, Facts)>,
) -> Result<(), String> {
    let Version::Other(other) = version else { return Ok(()) };
    if views.iter().any(|(view, _)| view.is(version)) {
        return Ok(());
    }
    let mut view = View::of(request, other.clone()).await.map_err(|error| error.0.message.clone())?;
    let facts = Facts::of(reader, &view.request(request));
    views.push((view, facts));
    Ok(())
}

/// What the actions of a binding make of findings.
fn act(policy: &Policy, binding: &Binding, result: Findings, outcome: &mut Outcome, request: &mut Request<'_>) {
    for finding in result.findings {
        for action in &binding.actions {
            match action.as_str() {
                "Deny" => outcome.refuse(policy, binding, &finding.message, finding.reason),
                "Audit" => outcome.failures.push(json!({
                    "message": finding.message, "policy": policy.name, "binding": binding.name,
                    "expressionIndex": finding.index, "validationActions": binding.actions,
                })),
                "Warn" => request.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, finding.message
                )),
                _ => {}
            }
        }
    }
    for error in result.errors {
        outcome.refuse(policy, binding, &error, Reason::Invalid);
    }
    for (key, value) in result.annotations {
        let key = format!("{}/{key}", policy.name);
        match request.annotations.iter_mut().find(|(have, _)| *have == key) {
            Some((_, have)) if have.split(", ").any(|one| one == value) => {}
            Some((_, have)) => *have = format!("{have}, {value}"),
            None => request.annotations.push((key, value)),
        }
    }
}

fn evaluate(policy: &Policy, run: &Run<'_>) -> Result<Findings, Box<Question>> {
    let mut result = Findings::default();
    // A failure is a finding unless it is to be ignored.
    let failed = |message: String, index: usize, result: &mut Findings| {
        if !policy.ignore_failure {
            result.findings.push(Finding { message, reason: Reason::Invalid, index });
        }
    };
    match run.hold(&policy.conditions)? {
        Ok(true) => {}
        Ok(false) => return Ok(result),
        Err(why) => {
            failed(why, 0, &mut result);
            return Ok(result);
        }
    }
    let mut budget = Budget::new(REQUEST_BUDGET);
    for (index, validation) in policy.validations.iter().enumerate() {
        match run.evaluate(&validation.expression, &mut budget) {
            Ok(Ok(Value::Bool(true))) => {}
            Ok(Ok(_)) => {
                let message = message(validation, run, &mut budget)?;
                result.findings.push(Finding { message, reason: reason(validation), index });
            }
            Ok(Err(why)) => failed(why, index, &mut result),
            Err(Stop::Ask(question)) => return Err(question),
            Err(Stop::Spent(why)) => {
                result.findings.clear();
                failed(why, index, &mut result);
                return Ok(result);
            }
        }
    }
    let mut budget = Budget::new(REQUEST_BUDGET);
    for (key, expression) in &policy.audits {
        match run.evaluate(expression, &mut budget) {
            Ok(Ok(Value::String(text))) => {
                let text = text.trim();
                let end = (0..=text.len().min(LONGEST_ANNOTATION)).rev().find(|at| text.is_char_boundary(*at));
                let text = &text[..end.unwrap_or(0)];
                if !text.is_empty() {
                    result.annotations.push((key.clone(), text.to_owned()));
                }
            }
            Ok(Ok(_)) => {}
            Ok(Err(why)) | Err(Stop::Spent(why)) => {
                if !policy.ignore_failure {
                    result.errors.push(why);
                }
            }
            Err(Stop::Ask(question)) => return Err(question),
        }
    }
    Ok(result)
}

fn reason(validation: &Validation) -> Reason {
    match validation.reason.as_str() {
        "Forbidden" => Reason::Forbidden,
        "Unauthorized" => Reason::Unauthorized,
        "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
        _ => Reason::Invalid,
    }
}

/// The message of a validation that does not hold: its expression's if that gives one, its own, or what it says.
fn message(validation: &Validation, run: &Run<'_>, budget: &mut Budget) -> Result<String, Box<Question>> {
    if let Some(expression) = &validation.message_expression {
        match run.evaluate(expression, budget) {
            Ok(Ok(Value::String(text))) => {
                let text = text.trim();
                if !text.is_empty() && !text.contains('\n') && text.len() <= LONGEST_MESSAGE {
                    return Ok(text.to_owned());
                }
            }
            Ok(_) => {}
            Err(Stop::Ask(question)) => return Err(question),
            Err(Stop::Spent(why)) => return Ok(format!("failed messageExpression: {why}")),
        }
    }
    Ok(match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    })
}
