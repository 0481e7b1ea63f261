//! Policies and bindings as they are used: selectors read, expressions compiled.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ferry_cel::admission::{self, Scope};
use ferry_cel::{ExpressionError, Program, Type};
use ferry_meta::object::{items, name, text, uid};
use ferry_meta::selector::LabelSelector;
use ferry_meta::{GroupResource, GroupVersion, GroupVersionKind, ObjectReader};
use parking_lot::Mutex;
use serde_json::Value;

use super::constraints::Constraints;

/// An expression, or why it does not compile.
pub(super) struct Expression {
    pub text: String,
    pub program: Result<Program, ExpressionError>,
}

impl Expression {
    fn compile(scope: &Scope, text: &str, wanted: &[Type]) -> Self {
        Self { text: text.to_owned(), program: admission::compile(scope, text, wanted) }
    }
}

/// One of `matchConditions`.
pub(crate) struct Condition(pub(super) Expression);

impl Condition {
    pub(crate) fn compile(condition: &Value, params: bool) -> Self {
        let scope = Scope { params, authorizer: true, ..Scope::default() };
        Self(Expression::compile(&scope, text(condition, "/expression").trim(), &[Type::Bool]))
    }
}

pub(super) struct Policy {
    pub name: String,
    identity: (String, i64),
    pub ignore_failure: bool,
    pub param_kind: Option<GroupVersionKind>,
    pub constraints: Constraints,
    pub conditions: Vec<Condition>,
    /// In the order of their slots.
    pub variables: Vec<(String, Expression)>,
    pub validations: Vec<Validation>,
    pub audits: Vec<(String, Expression)>,
    pub mutations: Vec<Mutation>,
    pub reinvoke: bool,
}

pub(super) struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    pub reason: String,
}

pub(super) enum Mutation {
    Apply(Expression),
    Patch(Expression),
}

pub(super) struct Binding {
    pub name: String,
    pub policy: String,
    pub constraints: Option<Constraints>,
    pub actions: Vec<String>,
    pub params: Option<ParamRef>,
}

pub(super) struct ParamRef {
    pub name: String,
    pub namespace: String,
    pub selector: Option<LabelSelector>,
    pub deny_if_missing: bool,
}

impl Policy {
    fn read(policy: &Value, mutating: bool) -> Self {
        let spec = &policy["spec"];
        let param_kind = spec.get("paramKind").filter(|kind| !kind.is_null()).and_then(|kind| {
            let version = GroupVersion::parse(text(kind, "/apiVersion"))?;
            Some(GroupVersionKind::new(version.group, version.version, text(kind, "/kind")))
        });
        let params = param_kind.is_some();
        let mut scope = Scope { params, authorizer: true, ..Scope::default() };
        let variables = Self::variables(spec, &mut scope, mutating);
        let quiet = Scope { authorizer: false, ..scope.clone() };
        let validations = items(spec, "/validations").iter().map(|validation| Validation {
            expression: Expression::compile(&scope, text(validation, "/expression"), &[Type::Bool]),
            message: text(validation, "/message").trim().to_owned(),
            message_expression: match text(validation, "/messageExpression") {
                blank if blank.trim().is_empty() => None,
                expression => Some(Expression::compile(&quiet, expression, &[Type::String])),
            },
            reason: text(validation, "/reason").to_owned(),
        });
        let audits = items(spec, "/auditAnnotations").iter().map(|audit| {
            let expression = text(audit, "/valueExpression").trim();
            let wanted = [Type::String, Type::Null];
            (text(audit, "/key").to_owned(), Expression::compile(&scope, expression, &wanted))
        });
        let making = Scope { mutating: true, ..scope.clone() };
        let mutations = items(spec, "/mutations").iter().map(|mutation| match text(mutation, "/patchType") {
            "JSONPatch" => {
                let expression = text(mutation, "/jsonPatch/expression").trim();
                Mutation::Patch(Expression::compile(&making, expression, &[admission::patch_type()]))
            }
            _ => {
                let expression = text(mutation, "/applyConfiguration/expression").trim();
                Mutation::Apply(Expression::compile(&making, expression, &[admission::object_type()]))
            }
        });
        Self {
            name: name(policy).to_owned(),
            identity: identity(policy),
            ignore_failure: text(spec, "/failurePolicy") == "Ignore",
            constraints: Constraints::read(&spec["matchConstraints"]),
            conditions: items(spec, "/matchConditions").iter().map(|c| Condition::compile(c, params)).collect(),
            validations: validations.collect(),
            audits: audits.collect(),
            mutations: mutations.collect(),
            reinvoke: text(spec, "/reinvocationPolicy") == "IfNeeded",
            param_kind,
            variables,
        }
    }

    /// Each variable sees those before it; afterwards the scope knows all.
    fn variables(spec: &Value, scope: &mut Scope, always: bool) -> Vec<(String, Expression)> {
        let list = items(spec, "/variables");
        if always || !list.is_empty() {
            scope.variables = Some(Vec::new());
        }
        let mut variables = Vec::with_capacity(list.len());
        for variable in list {
            let expression = Expression::compile(scope, text(variable, "/expression"), &[]);
            let ty =
                expression.program.as_ref().map_or(Type::Dyn, |program| admission::variable_type(program.result()));
            if let Some(known) = &mut scope.variables {
                known.push((text(variable, "/name").to_owned(), ty));
            }
            variables.push((text(variable, "/name").to_owned(), expression));
        }
        variables
    }
}

impl Binding {
    fn read(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let params = spec.get("paramRef").filter(|params| !params.is_null()).map(|params| ParamRef {
            name: text(params, "/name").to_owned(),
            namespace: text(params, "/namespace").to_owned(),
            selector: params
                .get("selector")
                .filter(|selector| !selector.is_null())
                .map(|selector| LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing())),
            deny_if_missing: text(params, "/parameterNotFoundAction") == "Deny",
        });
        let actions = items(spec, "/validationActions").iter().filter_map(Value::as_str);
        Self {
            name: name(binding).to_owned(),
            policy: text(spec, "/policyName").to_owned(),
            constraints: spec.get("matchResources").filter(|c| !c.is_null()).map(Constraints::read),
            actions: actions.map(str::to_owned).collect(),
            params,
        }
    }
}

/// What stays the same as long as a policy says the same.
fn identity(policy: &Value) -> (String, i64) {
    let generation = policy.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    (uid(policy).to_owned(), generation)
}

/// A policy with its bindings.
pub(super) struct Bound {
    pub policy: Arc<Policy>,
    pub bindings: Vec<Binding>,
}

/// The policies of one kind that have bindings, by name; read again when one of them changes.
pub(super) struct Policies {
    reader: Arc<dyn ObjectReader>,
    policies: GroupResource,
    bindings: GroupResource,
    mutating: bool,
    current: ArcSwap<((u64, u64), Vec<Bound>)>,
    reading: Mutex<()>,
}

impl Policies {
    pub fn new(reader: Arc<dyn ObjectReader>, mutating: bool) -> Self {
        let kind = if mutating { "mutating" } else { "validating" };
        let resource =
            |rest: &str| GroupResource::new("admissionregistration.k8s.io", format!("{kind}admissionpolic{rest}"));
        let (policies, bindings) = (resource("ies"), resource("ybindings"));
        let current = ArcSwap::from_pointee(((0, 0), Vec::new()));
        let new = Self { reader, policies, bindings, mutating, current, reading: Mutex::new(()) };
        new.current.store(Arc::new(new.read(&[])));
        new
    }

    fn versions(&self) -> (u64, u64) {
        (self.reader.version(&self.policies), self.reader.version(&self.bindings))
    }

    fn read(&self, before: &[Bound]) -> ((u64, u64), Vec<Bound>) {
        // Read before the objects: a change in between is seen next time.
        let versions = self.versions();
        let mut bindings: Vec<Binding> =
            self.reader.list(&self.bindings, "").iter().map(|binding| Binding::read(binding)).collect();
        bindings.sort_by(|a, b| a.name.cmp(&b.name));
        let mut policies = self.reader.list(&self.policies, "");
        policies.sort_by(|a, b| name(a).cmp(name(b)));
        let mut bound = Vec::new();
        for policy in policies {
            let (own, others): (Vec<_>, Vec<_>) = bindings.into_iter().partition(|b| b.policy == name(&policy));
            bindings = others;
            if own.is_empty() {
                continue;
            }
            // What did not change is not compiled again.
            let known = before.iter().find(|known| known.policy.identity == identity(&policy));
            let policy = match known {
                Some(known) => known.policy.clone(),
                None => Arc::new(Policy::read(&policy, self.mutating)),
            };
            bound.push(Bound { policy, bindings: own });
        }
        (versions, bound)
    }

    pub fn current(&self) -> Arc<((u64, u64), Vec<Bound>)> {
        let current = self.current.load_full();
        if current.0 == self.versions() {
            return current;
        }
        let _one_reader = self.reading.lock();
        let current = self.current.load_full();
        if current.0 == self.versions() {
            return current;
        }
        let fresh = Arc::new(self.read(&current.1));
        self.current.store(fresh.clone());
        fresh
    }
}
