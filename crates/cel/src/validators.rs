//! What is refused though its types fit: literals that can be no duration, time or pattern, and lists of mixed types.

use crate::ast::{Expr, Kind, Literal};
use crate::checker::Facts;
use crate::library::{regex, time};
use crate::source::Issue;
use crate::types::Type;

pub(crate) fn validate(root: &Expr, facts: &Facts) -> Vec<Issue> {
    let mut issues = Vec::new();
    walk(root, facts, false, &mut issues);
    issues
}

fn literal(expression: Option<&Expr>) -> Option<(&str, usize)> {
    let expression = expression?;
    match &expression.kind {
        Kind::Literal(Literal::String(text)) => Some((text, expression.at)),
        _ => None,
    }
}

fn walk(expression: &Expr, facts: &Facts, exempt: bool, issues: &mut Vec<Issue>) {
    let mut exempt = exempt;
    match &expression.kind {
        Kind::Call { function, target, arguments } => {
            let pattern = if target.is_some() { arguments.first() } else { arguments.get(1) };
            let wrong = match function.as_str() {
                "duration" => literal(arguments.first()).filter(|(text, _)| time::parse_duration(text).is_none()),
                "timestamp" => literal(arguments.first()).filter(|(text, _)| time::parse_timestamp(text).is_none()),
                "matches" => literal(pattern).filter(|(text, _)| regex::compile(text).is_err()),
                _ => None,
            };
            if let Some((_, at)) = wrong {
                issues.push(Issue { at: Some(at), message: format!("invalid {function} argument") });
            }
            exempt |= function == "format";
        }
        Kind::List { elements, optional } if !exempt => {
            let types = elements.iter().zip(optional).map(|(element, optional)| (element, kind(facts, element, *optional)));
            same(types, issues);
        }
        Kind::Map(entries) if !exempt => {
            same(entries.iter().map(|entry| (&entry.key, kind(facts, &entry.key, false))), issues);
            same(entries.iter().map(|entry| (&entry.value, kind(facts, &entry.value, entry.optional))), issues);
        }
        _ => {}
    }
    below(expression, &mut |inner| walk(inner, facts, exempt, issues));
}

fn kind(facts: &Facts, expression: &Expr, optional: bool) -> Type {
    match facts.ty(expression) {
        Type::Optional(of) if optional => (**of).clone(),
        ty => ty.clone(),
    }
}

fn same<'a>(mut types: impl Iterator<Item = (&'a Expr, Type)>, issues: &mut Vec<Issue>) {
    let Some((_, first)) = types.next() else { return };
    if let Some((element, ty)) = types.find(|(_, ty)| !equivalent(&first, ty)) {
        let message = format!("expected type '{first}' but found '{ty}'");
        issues.push(Issue { at: Some(element.at), message });
    }
}

/// Whether two types are the same; of objects the name decides.
fn equivalent(one: &Type, two: &Type) -> bool {
    match (one, two) {
        (Type::List(one), Type::List(two)) | (Type::Optional(one), Type::Optional(two)) => equivalent(one, two),
        (Type::Map(key, value), Type::Map(other_key, other_value)) => {
            equivalent(key, other_key) && equivalent(value, other_value)
        }
        _ => one == two,
    }
}

fn below<'a>(expression: &'a Expr, visit: &mut dyn FnMut(&'a Expr)) {
    match &expression.kind {
        Kind::Literal(_) | Kind::Ident(_) => {}
        Kind::Select { operand, .. } => visit(operand),
        Kind::Call { target, arguments, .. } => {
            target.iter().for_each(|target| visit(target));
            arguments.iter().for_each(visit);
        }
        Kind::List { elements, .. } => elements.iter().for_each(visit),
        Kind::Map(entries) => entries.iter().for_each(|entry| {
            visit(&entry.key);
            visit(&entry.value);
        }),
        Kind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
        Kind::Fold(fold) => {
            [&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result].into_iter().for_each(visit);
        }
    }
}
