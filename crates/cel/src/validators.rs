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
            if function == "format"
                && let (Some((text, _)), Some(Kind::List { elements, .. })) =
                    (literal(target.as_deref()), arguments.first().map(|list| &list.kind))
            {
                issues.extend(formatting(text, elements, expression.at, facts));
            }
            exempt |= function == "format";
        }
        Kind::List { elements, optional } if !exempt => {
            let types =
                elements.iter().zip(optional).map(|(element, optional)| (element, kind(facts, element, *optional)));
            same(types, issues);
        }
        Kind::Map(entries) if !exempt => {
            same(entries.iter().map(|entry| (&entry.key, kind(facts, &entry.key, false))), issues);
            same(entries.iter().map(|entry| (&entry.value, kind(facts, &entry.value, entry.optional))), issues);
        }
        _ => {}
    }
    expression.below(&mut |inner| walk(inner, facts, exempt, issues));
}

/// What is wrong with the clauses of a text and the values put in.
fn formatting(text: &str, values: &[Expr], at: usize, facts: &Facts) -> Option<Issue> {
    let issue = |at: usize, message: String| Some(Issue { at: Some(at), message });
    let mut characters = text.chars().peekable();
    let mut used = 0;
    while let Some(c) = characters.next() {
        if c != '%' {
            continue;
        }
        if characters.next_if_eq(&'%').is_some() {
            continue;
        }
        if characters.next_if_eq(&'.').is_some() {
            while characters.next_if(char::is_ascii_digit).is_some() {}
        }
        let Some(clause) = characters.next() else {
            return issue(at, "unexpected end of string".to_owned());
        };
        let allowed: &[Type] = match clause {
            's' => &[],
            'd' | 'o' => &[Type::Int, Type::Uint],
            'f' | 'e' => &[Type::Double, Type::String],
            'b' => &[Type::Int, Type::Uint, Type::Bool],
            'x' | 'X' => &[Type::Int, Type::Uint, Type::String, Type::Bytes],
            other => {
                let why = format!("unrecognized formatting clause \"{other}\"");
                return issue(at, format!("could not parse formatting clause: {why}"));
            }
        };
        let Some(value) = values.get(used) else { return issue(at, format!("index {used} out of range")) };
        used += 1;
        let ty = facts.ty(value);
        let fits = match clause {
            's' => !matches!(ty, Type::Opaque(_) | Type::Object(_) | Type::Optional(_)),
            _ => matches!(ty, Type::Dyn | Type::Any) || allowed.contains(ty),
        };
        if !fits {
            let why = match clause {
                's' => {
                    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
                }
                'd' => "decimal clause can only be used on integers",
                'f' => "fixed-point clause can only be used on doubles",
                'e' => "scientific clause can only be used on doubles",
                'b' => "only integers and bools can be formatted as binary",
                'o' => "octal clause can only be used on integers",
                _ => "only integers, byte buffers, and strings can be formatted as hex",
            };
            return issue(value.at, format!("error during formatting: {why}, was given {}", shown(ty)));
        }
    }
    if values.len() > used {
        let message = format!("too many arguments supplied to string.format (expected {used}, got {})", values.len());
        return issue(at, message);
    }
    None
}

fn shown(ty: &Type) -> String {
    match ty {
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        Type::Null => "null_type".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        other => other.to_string(),
    }
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
