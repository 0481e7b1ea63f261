//! From the claims of a token to a user.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_cel::{Budget, CompileError, Environment, PER_CALL_LIMIT, Program, Type};
use ferry_meta::UserInfo;
use serde_json::{Value, json};

use super::Provider;

/// An expression of the structured configuration over one variable, compiled once.
pub(super) struct Expression(Program);

impl Expression {
    /// `variable` is `claims` or `user`.
    pub(super) fn compile(text: &str, variable: &str) -> Result<Arc<Self>, CompileError> {
        let environment = Environment::new().variable(variable, Type::Dyn);
        environment.compile(text).map(|program| Arc::new(Self(program)))
    }

    pub(super) fn evaluate(&self, value: &Value) -> Result<Value, String> {
        let shown = self.0.text();
        let result = self.0.evaluate(&[ferry_cel::Value::json(value)], &mut Budget::new(PER_CALL_LIMIT));
        let result = result.map_err(|why| format!("oidc: error evaluating {shown}: {why}"))?;
        result.to_json().ok_or_else(|| format!("oidc: {shown} is no value of JSON"))
    }
}

/// A claim with a prefix, or an expression over `claims`.
#[derive(Clone)]
pub(super) enum Source {
    Claim { name: String, prefix: String },
    Expression(Arc<Expression>),
}

#[derive(Clone)]
pub(super) enum Rule {
    Claim { name: String, required: String },
    Expression { expression: Arc<Expression>, message: String },
}

/// What a provider's configuration says of its users.
#[derive(Clone)]
pub(super) struct Mapping {
    pub username: Source,
    pub groups: Option<Source>,
    pub uid: Option<Source>,
    pub extra: Vec<(String, Arc<Expression>)>,
    pub claim_rules: Vec<Rule>,
    pub user_rules: Vec<Rule>,
}

impl Mapping {
    fn text(&self, source: &Source, claims: &Value) -> Result<String, String> {
        match source {
            Source::Claim { name, prefix } => match claims.get(name) {
                Some(Value::String(value)) => Ok(format!("{prefix}{value}")),
                Some(_) => Err(format!("oidc: parse claim {name}: it is no string")),
                None => Err(format!("oidc: parse claim {name}: claim not present")),
            },
            Source::Expression(expression) => match expression.evaluate(claims)? {
                Value::String(value) => Ok(value),
                other => Err(format!("oidc: {} is {other}, not a string", expression.0.text())),
            },
        }
    }

    /// One text or a list of them. Empty ones do not count.
    fn texts(&self, value: &Value, prefix: &str, what: &str) -> Result<Vec<String>, String> {
        let list = match value {
            Value::Null => return Ok(Vec::new()),
            Value::String(one) => vec![one.as_str()],
            Value::Array(many) => many
                .iter()
                .map(|one| one.as_str().ok_or_else(|| format!("oidc: {what} holds {one}, which is no string")))
                .collect::<Result<_, _>>()?,
            other => return Err(format!("oidc: {what} is {other}, not a string or a list of strings")),
        };
        Ok(list.into_iter().filter(|one| !one.is_empty()).map(|one| format!("{prefix}{one}")).collect())
    }

    fn check(&self, rule: &Rule, value: &Value) -> Result<(), String> {
        match rule {
            Rule::Claim { name, required } => match value.get(name) {
                None => Err(format!("oidc: required claim {name} not present in ID token")),
                Some(have) if have.as_str() == Some(required) => Ok(()),
                Some(have) => {
                    let have = have.as_str().map_or_else(|| have.to_string(), str::to_owned);
                    Err(format!("oidc: required claim {name} value does not match. Got = {have}, want = {required}"))
                }
            },
            Rule::Expression { expression, message } => {
                if expression.evaluate(value)? == Value::Bool(true) {
                    return Ok(());
                }
                let shown = if message.is_empty() { expression.0.text() } else { message };
                Err(format!("oidc: error evaluating user info or claim validation rule: {shown}"))
            }
        }
    }
}

impl Provider {
    pub(super) fn user(&self, claims: &Value) -> Result<UserInfo, String> {
        let mapping = &self.mapping;
        let name = mapping.text(&mapping.username, claims)?;
        // An address that nobody confirmed says nothing of who holds it.
        let by_email = matches!(&mapping.username, Source::Claim { name, .. } if name == "email");
        if by_email && claims.get("email_verified").is_some_and(|v| *v != Value::Bool(true)) {
            return Err("oidc: email not verified".into());
        }
        if name.is_empty() {
            return Err("oidc: the user's name is empty".into());
        }
        let groups = match &mapping.groups {
            None => Vec::new(),
            Some(Source::Claim { name, prefix }) => {
                mapping.texts(claims.get(name).unwrap_or(&Value::Null), prefix, &format!("claim {name}"))?
            }
            Some(Source::Expression(expression)) => {
                mapping.texts(&expression.evaluate(claims)?, "", expression.0.text())?
            }
        };
        let uid = mapping.uid.as_ref().map(|source| mapping.text(source, claims)).transpose()?.unwrap_or_default();
        let mut extra = BTreeMap::new();
        for (key, expression) in &mapping.extra {
            let values = mapping.texts(&expression.evaluate(claims)?, "", expression.0.text())?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.entry(crate::CREDENTIAL_ID.to_owned()).or_insert_with(|| vec![format!("JTI={id}")]);
        }
        for rule in &mapping.claim_rules {
            mapping.check(rule, claims)?;
        }
        let user = UserInfo { name, uid, groups, extra };
        for rule in &mapping.user_rules {
            mapping.check(rule, &json!(user))?;
        }
        Ok(user)
    }
}
