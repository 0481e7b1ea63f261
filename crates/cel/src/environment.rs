//! What an expression may name: variables and their types.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::checker;
use crate::cost;
use crate::error::CompileError;
use crate::parser;
use crate::plan;
use crate::program::Program;
use crate::schema::{Decl, Field, Object};
use crate::source;
use crate::stack;
use crate::types::Type;
use crate::validators;

/// The variables of an expression, in the order their values are given in.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
    /// Fields of a variable that are computed when asked for: the variable, the field and its slot.
    lazy: Vec<(String, String, usize)>,
    /// Whether objects and patches may be made, as mutating policies do.
    pub(crate) mutates: bool,
    /// Whether `cel.bind` gives names to values.
    binds: bool,
}

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable; names may have dots. Its slot is the number of those before it.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.push((name.to_owned(), ty));
        self
    }

    /// Declares a variable with the fields given. Its own slot is never asked for; those of its fields follow it.
    #[must_use]
    pub fn lazy(mut self, name: &str, type_name: &str, fields: &[(String, Type)]) -> Self {
        let decls: BTreeMap<String, Field> = fields
            .iter()
            .map(|(field, ty)| {
                let decl = Arc::new(Decl::of(ty.clone()));
                (field.clone(), Field { name: field.clone(), decl })
            })
            .collect();
        let object = Object { name: type_name.to_owned(), fields: decls, open: false };
        self.variables.push((name.to_owned(), Type::Object(Arc::new(object))));
        for (field, ty) in fields {
            self.lazy.push((name.to_owned(), field.clone(), self.variables.len()));
            // A name that no text can spell.
            self.variables.push((format!("{name}@{field}"), ty.clone()));
        }
        self
    }

    /// Allows `Object{…}`, `JSONPatch{…}` and `jsonpatch.escapeKey`.
    #[must_use]
    pub fn mutating(mut self) -> Self {
        self.mutates = true;
        self
    }

    /// Allows `cel.bind(name, value, expression)`.
    #[must_use]
    pub fn binding(mut self) -> Self {
        self.binds = true;
        self
    }

    /// The slot of a variable.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|(have, _)| have == name)
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.variables.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<(usize, Type)> {
        let index = self.slot(name)?;
        Some((index, self.variables[index].1.clone()))
    }

    pub(crate) fn lazy_field(&self, variable: &str, field: &str) -> Option<usize> {
        // The last of a name is what it means.
        let found = self.lazy.iter().rev().find(|(of, have, _)| of == variable && have == field)?;
        Some(found.2)
    }

    pub(crate) fn type_named(&self, name: &str) -> Option<Type> {
        if !self.mutates {
            return None;
        }
        if name == "JSONPatch" {
            let text = || Decl::of(Type::String);
            let fields = [("op", text()), ("path", text()), ("from", text()), ("value", Decl::of(Type::Dyn))];
            return Some(Decl::object("JSONPatch", &fields).ty);
        }
        if name == "Object" || name.starts_with("Object.") {
            let object = Object { name: name.to_owned(), fields: BTreeMap::new(), open: true };
            return Some(Type::Object(Arc::new(object)));
        }
        None
    }

    /// Compiles an expression; the error is worded and laid out as cel-go does.
    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        // No text nests deeper than it is long.
        stack::with_room(text.len(), || self.compiled(text))
    }

    fn compiled(&self, text: &str) -> Result<Program, CompileError> {
        let parsed = parser::parse(text, self.binds);
        let (mut root, ids) = parsed.map_err(|issues| CompileError::Syntax(source::show(text, issues)))?;
        let checked = checker::check(self, &mut root, ids);
        let facts = checked.map_err(|issues| CompileError::Types(source::show(text, issues)))?;
        let issues = validators::validate(&root, &facts);
        if !issues.is_empty() {
            return Err(CompileError::Literals(source::show(text, issues)));
        }
        let mut used = vec![false; self.variables.len()];
        root.walk(&mut |expression| {
            let name = facts.names.get(expression.id).and_then(Option::as_ref);
            if let Some(checker::Name::Variable(index) | checker::Name::Lazy(index)) = name {
                used[*index] = true;
            }
        });
        let node = plan::plan(&root, &facts);
        Ok(Program::new(text, root, facts, node, used))
    }

    /// The most an evaluation can cost, where `self` and `oldSelf` (and any other variable) are as `decl` says.
    pub fn estimate(&self, program: &Program, decl: Option<&Decl>) -> cost::Range {
        stack::with_room(program.depth(), || cost::estimate(program.root(), program.facts(), decl))
    }
}
