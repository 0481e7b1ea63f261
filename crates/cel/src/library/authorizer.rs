//! Questions of authorization.

use std::sync::Arc;

use ferry_meta::names;

use super::{Outcome, text};
use crate::authorization::{Authority, AuthorizerDecision, Check, Question, Resource};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::Value;

fn authority(arguments: &[Value<'_>]) -> Result<Authority, Error> {
    match &arguments[0] {
        Value::Authorizer(authority) => Ok((**authority).clone()),
        _ => Err(Error::no_such_overload()),
    }
}

fn made<'a>(check: Check) -> Outcome<'a> {
    Ok(Value::Check(Arc::new(check)))
}

pub(crate) fn path<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let path = text(arguments, 1)?;
    if path.is_empty() {
        return Err(Error::new("path must not be empty"));
    }
    made(Check::Path { authority: authority(arguments)?, path: (**path).to_owned() })
}

pub(crate) fn group<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    made(Check::Group { authority: authority(arguments)?, group: (**text(arguments, 1)?).to_owned() })
}

pub(crate) fn service_account<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    authority(arguments)?;
    let (namespace, name) = (text(arguments, 1)?, text(arguments, 2)?);
    if !names::dns1123_subdomain(name).is_empty() {
        return Err(Error::new("Invalid service account name"));
    }
    if !names::dns1123_label(namespace).is_empty() {
        return Err(Error::new("Invalid service account namespace"));
    }
    let account = Authority::ServiceAccount { namespace: (**namespace).to_owned(), name: (**name).to_owned() };
    Ok(Value::Authorizer(Arc::new(account)))
}

pub(crate) fn resource<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let Value::Check(check) = &arguments[0] else { return Err(Error::no_such_overload()) };
    let Check::Group { authority, group } = &**check else { return Err(Error::no_such_overload()) };
    let resource = text(arguments, 1)?;
    if resource.is_empty() {
        return Err(Error::new("resource must not be empty"));
    }
    made(Check::Resource(Resource {
        authority: authority.clone(),
        group: group.clone(),
        resource: (**resource).to_owned(),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        field_selector: None,
        label_selector: None,
    }))
}

/// The check with something about the resource said more exactly.
fn with<'a>(arguments: &[Value<'a>], put: fn(&mut Resource, String)) -> Outcome<'a> {
    let Value::Check(check) = &arguments[0] else { return Err(Error::no_such_overload()) };
    let Check::Resource(resource) = &**check else { return Err(Error::no_such_overload()) };
    let mut resource = resource.clone();
    put(&mut resource, (**text(arguments, 1)?).to_owned());
    made(Check::Resource(resource))
}

pub(crate) fn subresource<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    with(arguments, |resource, text| resource.subresource = text)
}

pub(crate) fn namespace<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    with(arguments, |resource, text| resource.namespace = text)
}

pub(crate) fn name<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    with(arguments, |resource, text| resource.name = text)
}

pub(crate) fn field_selector<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    with(arguments, |resource, text| resource.field_selector = Some(text))
}

pub(crate) fn label_selector<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    with(arguments, |resource, text| resource.label_selector = Some(text))
}

pub(crate) fn check<'a>(arguments: &[Value<'a>], bindings: &dyn Bindings<'a>) -> Outcome<'a> {
    let Value::Check(check) = &arguments[0] else { return Err(Error::no_such_overload()) };
    if matches!(**check, Check::Group { .. }) {
        return Err(Error::no_such_overload());
    }
    let question = Question { check: check.clone(), verb: (**text(arguments, 1)?).to_owned() };
    match bindings.decide(&question) {
        Some(verdict) => Ok(Value::Decision(verdict)),
        None => Err(Error::Undecided(Box::new(question))),
    }
}

fn verdict<'v>(arguments: &'v [Value<'_>]) -> Result<&'v AuthorizerDecision, Error> {
    match &arguments[0] {
        Value::Decision(verdict) => Ok(verdict),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn allowed<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(verdict(arguments)?.allowed))
}

pub(crate) fn reason<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(verdict(arguments)?.reason.clone()))
}

pub(crate) fn error<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(verdict(arguments)?.error.clone().unwrap_or_default()))
}

pub(crate) fn errored<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(verdict(arguments)?.error.is_some()))
}
