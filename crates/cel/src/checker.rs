//! Finds the type of every expression and which overloads a call may mean; refuses what cannot be, in cel-go's words.

use std::sync::Arc;

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::environment::Environment;
use crate::functions::{FUNCTIONS, Overload};
use crate::schema::Object;
use crate::source::Issue;
use crate::types::{Mapping, OPAQUE, Type, most_general};

/// What an expression was found to mean, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub types: Vec<Option<Type>>,
    /// Overloads that a call may mean.
    pub overloads: Vec<Vec<&'static str>>,
    /// Names that selections turned out to be, and types named by themselves.
    pub names: Vec<Option<Name>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// A variable of the environment.
    Variable(usize),
    /// A field of a variable whose fields are computed when asked for.
    Lazy(usize),
    Type(Type),
}

impl Facts {
    pub fn ty(&self, expression: &Expr) -> &Type {
        self.types.get(expression.id).and_then(Option::as_ref).unwrap_or(&Type::Dyn)
    }
}

pub(crate) fn check(environment: &Environment, root: &mut Expr, ids: usize) -> Result<Facts, Vec<Issue>> {
    let facts = Facts { types: vec![None; ids], overloads: vec![Vec::new(); ids], names: vec![None; ids] };
    let mut checker = Checker {
        environment,
        facts,
        mapping: Mapping::default(),
        variables: 0,
        scopes: Vec::new(),
        issues: Vec::new(),
    };
    checker.check(root);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let Checker { mut facts, mapping, .. } = checker;
    for ty in facts.types.iter_mut().flatten() {
        *ty = mapping.substitute(ty, true);
    }
    Ok(facts)
}

struct Checker<'a> {
    environment: &'a Environment,
    facts: Facts,
    mapping: Mapping,
    variables: usize,
    /// Variables of comprehensions, the innermost last.
    scopes: Vec<(String, Type)>,
    issues: Vec<Issue>,
}

/// Types that can be named in expressions.
fn type_named(name: &str) -> Option<Type> {
    let of = match name.trim_start_matches('.') {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        other => Type::Opaque(OPAQUE.iter().find(|opaque| **opaque == other)?),
    };
    Some(of)
}

impl Checker<'_> {
    fn refuse(&mut self, at: usize, message: String) {
        self.issues.push(Issue { at: Some(at), message });
    }

    fn undeclared(&mut self, expression: &Expr, name: &str) {
        self.refuse(expression.at, format!("undeclared reference to '{name}' (in container '')"));
        self.set(expression, Type::Error);
    }

    fn set(&mut self, expression: &Expr, ty: Type) {
        self.facts.types[expression.id] = Some(ty);
    }

    fn ty(&self, expression: &Expr) -> Type {
        self.facts.types[expression.id].clone().unwrap_or(Type::Error)
    }

    fn resolved(&self, expression: &Expr) -> Type {
        self.mapping.substitute(&self.ty(expression), false)
    }

    fn new_variable(&mut self) -> Type {
        self.variables += 1;
        Type::Variable(self.variables - 1)
    }

    fn assignable(&mut self, one: &Type, two: &Type) -> bool {
        self.mapping.assign(std::slice::from_ref(one), std::slice::from_ref(two))
    }

    fn mismatch(&mut self, at: usize, wanted: &Type, found: &Type) {
        self.refuse(at, format!("expected type '{wanted}' but found '{found}'"));
    }

    fn check(&mut self, expression: &mut Expr) {
        match &mut expression.kind {
            Kind::Literal(literal) => {
                let ty = match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                };
                self.set(expression, ty);
            }
            Kind::Ident(name) => {
                let name = name.clone();
                self.ident(expression, &name);
            }
            Kind::Select { .. } => self.select(expression),
            Kind::Call { .. } => self.call(expression),
            Kind::List { .. } => self.list(expression),
            Kind::Map(_) => self.map(expression),
            Kind::Struct { .. } => self.message(expression),
            Kind::Fold(_) => self.fold(expression),
        }
    }

    /// A name by itself: a variable of a comprehension, of the environment, or a type.
    fn named(&mut self, expression: &Expr, name: &str) -> bool {
        let global = name.strip_prefix('.');
        if global.is_none()
            && let Some((_, ty)) = self.scopes.iter().rev().find(|(have, _)| have == name)
        {
            let ty = ty.clone();
            self.set(expression, ty);
            return true;
        }
        let plain = global.unwrap_or(name);
        if let Some((index, ty)) = self.environment.find(plain) {
            self.facts.names[expression.id] = Some(Name::Variable(index));
            self.set(expression, ty);
            return true;
        }
        let Some(ty) = type_named(plain).or_else(|| self.environment.type_named(plain)) else { return false };
        self.facts.names[expression.id] = Some(Name::Type(ty.clone()));
        self.set(expression, Type::Type(Some(Arc::new(ty))));
        true
    }

    fn ident(&mut self, expression: &Expr, name: &str) {
        if !self.named(expression, name) {
            self.undeclared(expression, name);
        }
    }

    fn select(&mut self, expression: &mut Expr) {
        if let Some(name) = expression.qualified_name() {
            // A variable of a comprehension hides dotted names that begin as it does.
            let first = name.split('.').next().unwrap_or_default();
            let hidden = self.scopes.iter().any(|(have, _)| have == first);
            if !hidden && self.named(expression, &name) {
                return;
            }
        }
        let (id, at) = (expression.id, expression.at);
        let Kind::Select { operand, field, test } = &mut expression.kind else { return };
        let (field, test) = (field.clone(), *test);
        if let Kind::Ident(name) = &operand.kind
            && !self.scopes.iter().any(|(have, _)| have == name)
            && let Some(index) = self.environment.lazy_field(name, &field)
        {
            self.facts.names[id] = Some(Name::Lazy(index));
        }
        let ty = self.field(at, operand, &field, false);
        let ty = if test { Type::Bool } else { self.mapping.substitute(&ty, false) };
        self.facts.types[id] = Some(ty);
    }

    /// The type of a field of an operand.
    fn field(&mut self, at: usize, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let of = self.resolved(operand);
        let (target, wrapped) = match &of {
            Type::Optional(inner) => ((**inner).clone(), true),
            _ => (of, false),
        };
        let result = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match field_type(object, field) {
                Some(ty) => ty,
                None => {
                    self.refuse(at, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Opaque(name) => {
                if name.starts_with("net.") {
                    self.refuse(at, format!("type '{target}' does not support field selection"));
                    Type::Dyn
                } else {
                    self.refuse(at, format!("unexpected failed resolution of '{name}'"));
                    Type::Error
                }
            }
            Type::Variable(_) => {
                self.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            _ => {
                self.refuse(at, format!("type '{target}' does not support field selection"));
                Type::Dyn
            }
        };
        if wrapped || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, expression: &mut Expr) {
        let (id, at) = (expression.id, expression.at);
        let Kind::Call { function, target, arguments } = &mut expression.kind else { return };
        if function == "_?._" {
            let Kind::Literal(Literal::String(field)) = &arguments[1].kind else { return };
            let field = field.clone();
            self.facts.types[arguments[1].id] = Some(Type::String);
            let ty = self.field(at, &mut arguments[0], &field, true);
            let ty = self.mapping.substitute(&ty, false);
            self.facts.types[id] = Some(ty);
            self.facts.overloads[id] = vec!["select_optional_field"];
            return;
        }
        for argument in arguments.iter_mut() {
            self.check(argument);
        }
        if let Some(of) = target {
            let qualified = of.qualified_name().map(|prefix| format!("{prefix}.{function}"));
            if let Some(name) = qualified.filter(|name| self.known(name.trim_start_matches('.'))) {
                *function = name;
                *target = None;
            } else {
                self.check(of);
            }
        }
        let name = function.trim_start_matches('.').to_owned();
        if !self.known(&name) {
            let function = function.clone();
            return self.undeclared(expression, &function);
        }
        *function = name.clone();
        let Some(overloads) = FUNCTIONS.get(name.as_str()) else {
            return self.undeclared(expression, &name);
        };
        let operands: Vec<&Expr> = target.iter().map(|target| &**target).chain(arguments.iter()).collect();
        let places: Vec<usize> = operands.iter().map(|operand| operand.at).collect();
        let types: Vec<Type> = operands.iter().map(|operand| self.ty(operand)).collect();
        let member = target.is_some();
        if name == "_&&_" || name == "_||_" {
            let mut good = true;
            for (place, ty) in places.iter().zip(&types) {
                if !self.assignable(ty, &Type::Bool) {
                    self.mismatch(*place, &Type::Bool, ty);
                    good = false;
                }
            }
            self.facts.types[id] = Some(if good { Type::Bool } else { Type::Error });
            self.facts.overloads[id] = vec![overloads[0].id];
            return;
        }
        let (result, ids) = self.resolve(overloads, member, &types);
        match result {
            Some(ty) => {
                self.facts.types[id] = Some(ty);
                self.facts.overloads[id] = ids;
            }
            None => {
                let types: Vec<String> = types.iter().map(|ty| self.mapping.substitute(ty, true).to_string()).collect();
                let (on, shown) =
                    if member { (format!("{}.", types[0]), &types[1..]) } else { (String::new(), &types[..]) };
                let message =
                    format!("found no matching overload for '{name}' applied to '{on}({})'", shown.join(", "));
                self.refuse(at, message);
                self.facts.types[id] = Some(Type::Error);
            }
        }
    }

    fn known(&self, name: &str) -> bool {
        FUNCTIONS.contains_key(name) && (!name.starts_with("jsonpatch.") || self.environment.mutates)
    }

    /// The type a call has under all overloads that fit, and their ids.
    fn resolve(
        &mut self,
        overloads: &'static [Overload],
        member: bool,
        types: &[Type],
    ) -> (Option<Type>, Vec<&'static str>) {
        let (mut result, mut ids): (Option<Type>, Vec<&'static str>) = (None, Vec::new());
        for overload in overloads.iter().filter(|overload| overload.member == member) {
            let mut letters = Vec::new();
            let wanted: Vec<Type> =
                overload.arguments.iter().map(|argument| self.instantiate(argument, &mut letters)).collect();
            let out = self.instantiate(&overload.result, &mut letters);
            if !self.mapping.assign(types, &wanted) {
                continue;
            }
            ids.push(overload.id);
            let out = self.mapping.substitute(&out, false);
            result = Some(match result {
                None => out,
                Some(before) if before == Type::Dyn || before == out => before,
                Some(_) => Type::Dyn,
            });
        }
        (result, ids)
    }

    /// A type of a signature with letters of its own for this call.
    fn instantiate(&mut self, ty: &Type, letters: &mut Vec<(char, Type)>) -> Type {
        match ty {
            Type::Parameter(letter) => {
                if let Some((_, known)) = letters.iter().find(|(have, _)| have == letter) {
                    return known.clone();
                }
                let fresh = self.new_variable();
                letters.push((*letter, fresh.clone()));
                fresh
            }
            Type::List(of) => Type::list(self.instantiate(of, letters)),
            Type::Map(key, value) => Type::map(self.instantiate(key, letters), self.instantiate(value, letters)),
            Type::Optional(of) => Type::optional(self.instantiate(of, letters)),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.instantiate(of, letters)))),
            _ => ty.clone(),
        }
    }

    /// The type of a value that may be left out if it is an optional that is none.
    fn unwrapped(&mut self, value: &Expr, optional: bool) -> Type {
        let ty = self.ty(value);
        if !optional {
            return ty;
        }
        match &ty {
            Type::Optional(of) => (**of).clone(),
            Type::Dyn => ty,
            _ => {
                let wanted = Type::optional(ty.clone());
                self.mismatch(value.at, &wanted, &ty);
                ty
            }
        }
    }

    /// What elements have in common; that they have something is asked for elsewhere.
    fn join(&mut self, before: Option<Type>, now: Type) -> Type {
        let Some(before) = before else { return now };
        if self.assignable(&before, &now) { most_general(&before, &now) } else { Type::Dyn }
    }

    fn list(&mut self, expression: &mut Expr) {
        let Kind::List { elements, optional } = &mut expression.kind else { return };
        let mut of = None;
        for (element, optional) in elements.iter_mut().zip(optional.iter()) {
            self.check(element);
            let ty = self.unwrapped(element, *optional);
            of = Some(self.join(of, ty));
        }
        let of = of.unwrap_or_else(|| self.new_variable());
        self.set(expression, Type::list(of));
    }

    fn map(&mut self, expression: &mut Expr) {
        let Kind::Map(entries) = &mut expression.kind else { return };
        let (mut keys, mut values) = (None, None);
        for entry in entries.iter_mut() {
            self.check(&mut entry.key);
            let ty = self.ty(&entry.key);
            keys = Some(self.join(keys, ty));
            self.check(&mut entry.value);
            let ty = self.unwrapped(&entry.value, entry.optional);
            values = Some(self.join(values, ty));
        }
        let keys = keys.unwrap_or_else(|| self.new_variable());
        let values = values.unwrap_or_else(|| self.new_variable());
        self.set(expression, Type::map(keys, values));
    }

    fn message(&mut self, expression: &mut Expr) {
        let (id, at) = (expression.id, expression.at);
        let Kind::Struct { name, fields } = &mut expression.kind else { return };
        let Some(Type::Object(object)) = self.environment.type_named(name.trim_start_matches('.')) else {
            let name = name.clone();
            if let Some(ty) = type_named(&name) {
                self.refuse(at, format!("'{ty}' is not a message type"));
                self.facts.types[id] = Some(Type::Error);
                return;
            }
            return self.undeclared(expression, &name);
        };
        for field in fields.iter_mut() {
            self.check(&mut field.value);
            let wanted = match field_type(&object, &field.name) {
                Some(ty) => ty,
                None => {
                    self.refuse(field.at, format!("undefined field '{}'", field.name));
                    Type::Error
                }
            };
            let ty = self.unwrapped(&field.value, field.optional);
            if !self.assignable(&wanted, &ty) {
                let message =
                    format!("expected type of field '{}' is '{wanted}' but provided type is '{ty}'", field.name);
                self.refuse(field.at, message);
            }
        }
        self.facts.types[id] = Some(Type::Object(object));
    }

    fn fold(&mut self, expression: &mut Expr) {
        let (id, depth) = (expression.id, self.scopes.len());
        let Kind::Fold(fold) = &mut expression.kind else { return };
        let Fold { range, variable, second, accumulator, start, condition, step, result } = &mut **fold;
        self.check(range);
        self.check(start);
        let over = self.resolved(range);
        let collected = self.ty(start);
        self.scopes.push((accumulator.clone(), collected.clone()));
        let (first_type, second_type) = match &over {
            Type::List(of) if second.is_some() => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.assignable(&Type::Dyn, &over);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let message = format!(
                    "expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.refuse(range.at, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((variable.clone(), first_type));
        if let Some(second) = second {
            self.scopes.push((second.clone(), second_type));
        }
        self.check(condition);
        self.assert(condition, &Type::Bool);
        self.check(step);
        self.assert(step, &collected);
        self.scopes.truncate(depth + 1);
        self.check(result);
        self.scopes.truncate(depth);
        let ty = self.resolved(result);
        self.facts.types[id] = Some(ty);
    }

    fn assert(&mut self, expression: &Expr, wanted: &Type) {
        let found = self.ty(expression);
        if !self.assignable(wanted, &found) {
            self.mismatch(expression.at, wanted, &found);
        }
    }
}

/// The type of a field of an object; objects that are open have every field.
pub(crate) fn field_type(object: &Object, field: &str) -> Option<Type> {
    match object.fields.get(field) {
        Some(field) => Some(field.decl.ty.clone()),
        None if object.open => Some(Type::Dyn),
        None => None,
    }
}
