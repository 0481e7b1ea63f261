//! Evaluating the expressions of a policy for one request.
//!
//! Evaluation never waits. Where an expression asks the authorizer, it ends; the question is answered and the evaluation is begun
//! again with the answer.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use ferry_auth::{Attributes, Authorizer};
use ferry_cel::admission::{
    AUTHORIZER, NAMESPACE_OBJECT, OBJECT, OLD_OBJECT, PARAMS, REQUEST, REQUEST_RESOURCE, VARIABLES,
};
use ferry_cel::{
    Authority, AuthorizerDecision, Bindings, Budget, CONDITIONS_BUDGET, Check, Error, Question, Resource, Value,
};
use ferry_meta::bounds::Excess;
use ferry_meta::{ObjectReader, UserInfo};
use serde_json::Value as Json;

use super::compiled::{Condition, Expression};
use crate::Request;
use crate::resources::NAMESPACES;

/// Answers of the authorizer to one request's questions.
pub(super) type Decisions = HashMap<Question, Arc<AuthorizerDecision>>;

/// What all expressions of a request see.
pub(super) struct Facts {
    request: Json,
    namespace: Option<Arc<Json>>,
    requested: Arc<Check>,
}

impl Facts {
    pub fn of(reader: &dyn ObjectReader, request: &Request<'_>) -> Self {
        let own = request.kind.group.is_empty() && request.kind.kind == "Namespace";
        let namespace = match request.namespace {
            "" => None,
            _ if own => None,
            name => reader.get(&NAMESPACES, "", name),
        };
        // The rights asked for are those to what the client asked for.
        let resource = request.requested.map_or(request.resource, |(_, resource)| resource);
        let requested = Check::Resource(Resource {
            authority: Authority::Requester,
            group: resource.group.clone(),
            resource: resource.resource.clone(),
            subresource: request.subresource.to_owned(),
            namespace: request.namespace.to_owned(),
            name: request.name.to_owned(),
            field_selector: None,
            label_selector: None,
        });
        Self { request: describe(request), namespace, requested: Arc::new(requested) }
    }
}

/// The request as expressions see it.
fn describe(request: &Request<'_>) -> Json {
    let mut described = request.describe();
    described["options"] = request.options.clone();
    described
}

static NULL: Json = Json::Null;

/// The variables of one evaluation.
pub(super) struct Run<'a> {
    pub facts: &'a Facts,
    pub object: Option<&'a Json>,
    pub old: Option<&'a Json>,
    pub params: Option<&'a Json>,
    pub variables: &'a [(String, Expression)],
    decisions: &'a Decisions,
    known: RefCell<Vec<Option<Result<Value<'a>, Error>>>>,
    /// Variables that are being evaluated, each for another.
    nested: Cell<usize>,
}

/// As many variables may ask for one another.
const MOST_NESTED: usize = 2_000;

impl<'a> Run<'a> {
    pub fn new(
        facts: &'a Facts,
        object: Option<&'a Json>,
        old: Option<&'a Json>,
        params: Option<&'a Json>,
        variables: &'a [(String, Expression)],
        decisions: &'a Decisions,
    ) -> Self {
        let known = RefCell::new(vec![None; variables.len()]);
        Self { facts, object, old, params, variables, decisions, known, nested: Cell::new(0) }
    }

    /// A variable is evaluated when it is first asked for, and once.
    fn variable(&self, index: usize, budget: &mut Budget) -> Result<Value<'a>, Error> {
        let Some((name, expression)) = self.variables.get(index) else { return Err(Error::new("no such variable")) };
        if let Some(known) = self.known.borrow().get(index).cloned().flatten() {
            return known;
        }
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            Error::new(format!("composited variable {name:?} fails to {what}: {why}"))
        };
        // Variables may ask for others, each of which takes room on the stack.
        let nested = self.nested.get();
        if nested >= MOST_NESTED {
            return Err(failed("evaluate", &Excess::Depth));
        }
        self.nested.set(nested + 1);
        let outcome = match &expression.program {
            Ok(program) => match program.evaluate(self, budget) {
                Ok(value) if value.is_too_deep() => Err(failed("evaluate", &Excess::Depth)),
                Err(why) if !why.is_final() => Err(failed("evaluate", &why)),
                other => other,
            },
            Err(why) => Err(failed("compile", why)),
        };
        self.nested.set(nested);
        if !matches!(outcome, Err(Error::Undecided(_)))
            && let Some(place) = self.known.borrow_mut().get_mut(index)
        {
            *place = Some(outcome.clone());
        }
        outcome
    }

    /// The value of an expression, or the text of what went wrong.
    pub fn evaluate(&self, expression: &Expression, budget: &mut Budget) -> Result<Result<Value<'a>, String>, Stop> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        match program.evaluate(self, budget) {
            Ok(value) => Ok(Ok(value)),
            Err(Error::Undecided(question)) => Err(Stop::Ask(question)),
            Err(error @ Error::BudgetExhausted) => Err(Stop::Spent(error.to_string())),
            Err(error) => Ok(Err(format!("expression '{}' resulted in error: {error}", expression.text))),
        }
    }

    /// Whether all conditions hold; one that is false outweighs others that fail.
    pub fn hold(&self, conditions: &[Condition]) -> Result<Result<bool, String>, Box<Question>> {
        let mut budget = Budget::new(CONDITIONS_BUDGET);
        let mut failed = Vec::new();
        for Condition(expression) in conditions {
            match self.evaluate(expression, &mut budget) {
                Ok(Ok(Value::Bool(false))) => return Ok(Ok(false)),
                Ok(Ok(_)) => {}
                Ok(Err(why)) => failed.push(why),
                Err(Stop::Ask(question)) => return Err(question),
                Err(Stop::Spent(why)) => return Ok(Err(why)),
            }
        }
        Ok(match failed.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        })
    }
}

/// Why an evaluation cannot go on.
pub(super) enum Stop {
    /// The authorizer has to be asked.
    Ask(Box<Question>),
    /// It cost too much.
    Spent(String),
}

impl<'a> Bindings<'a> for Run<'a> {
    fn value(&self, slot: usize, budget: &mut Budget) -> Result<Value<'a>, Error> {
        let json = |value: Option<&'a Json>| Ok(Value::json(value.unwrap_or(&NULL)));
        match slot {
            OBJECT => json(self.object),
            OLD_OBJECT => json(self.old),
            NAMESPACE_OBJECT => json(self.facts.namespace.as_deref()),
            REQUEST => json(Some(&self.facts.request)),
            PARAMS => json(self.params),
            AUTHORIZER => Ok(Value::Authorizer(Arc::new(Authority::Requester))),
            REQUEST_RESOURCE => Ok(Value::Check(self.facts.requested.clone())),
            _ => self.variable(slot - VARIABLES - 1, budget),
        }
    }

    fn decide(&self, question: &Question) -> Option<Arc<AuthorizerDecision>> {
        self.decisions.get(question).cloned()
    }
}

/// Evaluates until no question is left open.
pub(super) async fn decided<T>(
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    decisions: &mut Decisions,
    mut attempt: impl FnMut(&Decisions) -> Result<T, Box<Question>>,
) -> T {
    loop {
        match attempt(decisions) {
            Ok(outcome) => return outcome,
            Err(question) => {
                let verdict = ask(authorizer, user, &question).await;
                decisions.insert(*question, Arc::new(verdict));
            }
        }
    }
}

async fn ask(authorizer: &dyn Authorizer, user: &UserInfo, question: &Question) -> AuthorizerDecision {
    let account;
    let user_of = |authority: &Authority| match authority {
        Authority::Requester => user.clone(),
        Authority::ServiceAccount { namespace, name } => {
            let mut account = UserInfo::service_account(namespace, name, "");
            account.groups.push(ferry_meta::user::ALL_AUTHENTICATED.to_owned());
            account
        }
    };
    let decision = match &*question.check {
        Check::Path { authority, path } => {
            account = user_of(authority);
            authorizer.authorize(&Attributes::path(&account, &question.verb, path)).await
        }
        Check::Group { .. } => return AuthorizerDecision::default(),
        Check::Resource(resource) => {
            account = user_of(&resource.authority);
            let attributes = Attributes {
                version: "*",
                namespace: &resource.namespace,
                subresource: &resource.subresource,
                name: &resource.name,
                ..Attributes::resource(&account, &question.verb, &resource.group, &resource.resource)
            };
            authorizer.authorize(&attributes).await
        }
    };
    AuthorizerDecision {
        allowed: decision.is_allowed(),
        reason: decision.reason().to_owned(),
        error: decision.error().map(str::to_owned),
    }
}

/// Whether the conditions of a webhook hold.
pub(crate) async fn hold(
    conditions: &[Condition],
    reader: &dyn ObjectReader,
    authorizer: &dyn Authorizer,
    request: &Request<'_>,
) -> Result<bool, String> {
    let facts = Facts::of(reader, request);
    let mut decisions = Decisions::new();
    decided(authorizer, request.user, &mut decisions, |decisions| {
        Run::new(&facts, request.object.as_deref(), request.old, None, &[], decisions).hold(conditions)
    })
    .await
}
