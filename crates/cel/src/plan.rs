//! From a checked expression to what is run: names have become slots, functions pointers, literals values.

use std::sync::Arc;

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::charge::Charge;
use crate::checker::{Facts, Name};
use crate::library::{self, Builtin};
use crate::macros::ACCUMULATOR;
use crate::schema::Object;
use crate::types::Type;
use crate::value::{Map, Value};

#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Variable(usize),
    /// A variable of a comprehension, by its place on the stack.
    Local(usize),
    Select {
        operand: Box<Node>,
        field: Arc<str>,
    },
    Has {
        operand: Box<Node>,
        field: Arc<str>,
    },
    /// A field that is there because it is declared.
    Declared,
    OptionalSelect {
        operand: Box<Node>,
        field: Arc<str>,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Conditional(Box<[Node; 3]>),
    /// True unless the operand is false, be it an error.
    NotFalse(Box<Node>),
    Call {
        function: Builtin,
        charge: Charge,
        arguments: Vec<Node>,
    },
    /// `matches`, `find` and their like with a pattern that is known beforehand.
    Pattern {
        function: library::regex::Prepared,
        expression: regex::Regex,
        length: u64,
        arguments: Vec<Node>,
    },
    List {
        elements: Vec<Node>,
        optional: Vec<bool>,
    },
    Map(Vec<(Node, Node, bool)>),
    Struct {
        object: Arc<Object>,
        fields: Vec<(String, Node, bool)>,
    },
    Fold(Box<FoldNode>),
    /// The accumulator with one more element.
    Append {
        accumulator: usize,
        element: Box<Node>,
    },
    /// The accumulator with one more entry, or with the entries of a map.
    Insert {
        accumulator: usize,
        key: Option<Box<Node>>,
        value: Box<Node>,
    },
}

#[derive(Debug)]
pub(crate) struct FoldNode {
    pub range: Node,
    /// Place of the accumulator; the variables follow it.
    pub base: usize,
    pub two: bool,
    pub start: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
    /// Errors of a step may be made up for by later ones.
    pub logical: bool,
}

pub(crate) fn plan(root: &Expr, facts: &Facts) -> Node {
    Planner { facts, locals: Vec::new() }.node(root)
}

struct Planner<'a> {
    facts: &'a Facts,
    locals: Vec<String>,
}

pub(crate) fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::from(text.clone()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}

impl Planner<'_> {
    fn boxed(&mut self, expression: &Expr) -> Box<Node> {
        Box::new(self.node(expression))
    }

    fn local(&self, name: &str) -> Option<usize> {
        self.locals.iter().rposition(|have| have == name)
    }

    fn node(&mut self, expression: &Expr) -> Node {
        if let Some(name) = self.facts.names.get(expression.id).and_then(Option::as_ref) {
            return match name {
                Name::Variable(slot) => Node::Variable(*slot),
                Name::Lazy(_) if matches!(&expression.kind, Kind::Select { test: true, .. }) => Node::Declared,
                Name::Lazy(slot) => Node::Variable(*slot),
                Name::Type(ty) => Node::Constant(Value::Type(named_type(ty))),
            };
        }
        match &expression.kind {
            Kind::Literal(literal) => Node::Constant(constant(literal)),
            Kind::Ident(name) => match self.local(name) {
                Some(place) => Node::Local(place),
                None => Node::Constant(Value::Null),
            },
            Kind::Select { operand, field, test: false } => {
                Node::Select { operand: self.boxed(operand), field: field.as_str().into() }
            }
            Kind::Select { operand, field, test: true } => {
                Node::Has { operand: self.boxed(operand), field: field.as_str().into() }
            }
            Kind::Call { function, target, arguments } => {
                let operands: Vec<&Expr> = target.iter().map(|target| &**target).chain(arguments).collect();
                self.call(expression, function, &operands)
            }
            Kind::List { elements, optional } => {
                let elements: Vec<Node> = elements.iter().map(|element| self.node(element)).collect();
                match constants(&elements).filter(|_| !optional.contains(&true)) {
                    Some(items) => Node::Constant(Value::from(items)),
                    None => Node::List { elements, optional: optional.clone() },
                }
            }
            Kind::Map(entries) if entries.is_empty() => Node::Constant(Value::Map(Map::Values(Arc::default()))),
            Kind::Map(entries) => {
                let entries = entries.iter().map(|e| (self.node(&e.key), self.node(&e.value), e.optional));
                Node::Map(entries.collect())
            }
            Kind::Struct { fields, .. } => {
                let Type::Object(object) = self.facts.ty(expression).clone() else {
                    return Node::Constant(Value::Null);
                };
                let fields = fields.iter().map(|f| (f.name.clone(), self.node(&f.value), f.optional)).collect();
                Node::Struct { object, fields }
            }
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn call(&mut self, expression: &Expr, function: &str, operands: &[&Expr]) -> Node {
        match (function, operands) {
            ("_&&_", [one, two]) => return Node::And(self.boxed(one), self.boxed(two)),
            ("_||_", [one, two]) => return Node::Or(self.boxed(one), self.boxed(two)),
            ("!_", [one]) => return Node::Not(self.boxed(one)),
            ("@not_strictly_false", [one]) => return Node::NotFalse(self.boxed(one)),
            ("_?_:_", [test, one, two]) => {
                return Node::Conditional(Box::new([self.node(test), self.node(one), self.node(two)]));
            }
            ("_[_]", [of, index]) => {
                return Node::Index { operand: self.boxed(of), index: self.boxed(index), optional: false };
            }
            ("_[?_]", [of, index]) => {
                return Node::Index { operand: self.boxed(of), index: self.boxed(index), optional: true };
            }
            ("_?._", [of, field]) => {
                if let Kind::Literal(Literal::String(field)) = &field.kind {
                    return Node::OptionalSelect { operand: self.boxed(of), field: field.as_str().into() };
                }
            }
            _ => {}
        }
        if let Some(node) = self.accumulating(function, operands).or_else(|| self.pattern(function, operands)) {
            return node;
        }
        let arguments: Vec<Node> = operands.iter().map(|operand| self.node(operand)).collect();
        if CONVERSIONS.contains(&function)
            && let Some(values) = constants(&arguments)
            && let Ok(value) = library::builtin(function)(&values, &NOTHING)
        {
            return Node::Constant(value);
        }
        let overloads = &self.facts.overloads[expression.id];
        Node::Call { function: library::builtin(function), charge: Charge::of(function, overloads), arguments }
    }

    /// `accumulator + [element]` and insertions into it change it in place.
    fn accumulating(&mut self, function: &str, operands: &[&Expr]) -> Option<Node> {
        let first = operands.first()?;
        if !first.is_ident(ACCUMULATOR) {
            return None;
        }
        let accumulator = self.local(ACCUMULATOR)?;
        match (function, operands) {
            ("_+_", [_, added]) => {
                let Kind::List { elements, optional } = &added.kind else { return None };
                let ([element], [false]) = (elements.as_slice(), optional.as_slice()) else { return None };
                Some(Node::Append { accumulator, element: self.boxed(element) })
            }
            ("cel.@mapInsert", [_, key, value]) => {
                Some(Node::Insert { accumulator, key: Some(self.boxed(key)), value: self.boxed(value) })
            }
            ("cel.@mapInsert", [_, value]) => Some(Node::Insert { accumulator, key: None, value: self.boxed(value) }),
            _ => None,
        }
    }

    fn pattern(&mut self, function: &str, operands: &[&Expr]) -> Option<Node> {
        let prepared = library::regex::prepared(function)?;
        let Kind::Literal(Literal::String(pattern)) = &operands.get(1)?.kind else { return None };
        let expression = library::regex::compile(pattern).ok()?;
        let others = operands.iter().enumerate().filter(|(index, _)| *index != 1);
        let arguments = others.map(|(_, operand)| self.node(operand)).collect();
        Some(Node::Pattern { function: prepared, expression, length: pattern.chars().count() as u64, arguments })
    }

    fn fold(&mut self, fold: &Fold) -> Node {
        let range = self.node(&fold.range);
        let start = self.node(&fold.start);
        let base = self.locals.len();
        self.locals.push(fold.accumulator.clone());
        self.locals.push(fold.variable.clone());
        if let Some(second) = &fold.second {
            self.locals.push(second.clone());
        }
        let condition = self.node(&fold.condition);
        let step = self.node(&fold.step);
        self.locals.truncate(base + 1);
        let result = self.node(&fold.result);
        self.locals.truncate(base);
        let logical = matches!(step, Node::And(..) | Node::Or(..));
        let two = fold.second.is_some();
        Node::Fold(Box::new(FoldNode { range, base, two, start, condition, step, result, logical }))
    }
}

/// What is read once when the argument is known beforehand.
const CONVERSIONS: [&str; 13] = [
    "duration",
    "timestamp",
    "bytes",
    "double",
    "int",
    "uint",
    "string",
    "bool",
    "quantity",
    "ip",
    "cidr",
    "semver",
    "type",
];
const NOTHING: [Value<'static>; 0] = [];

/// The values of nodes that are all known beforehand.
fn constants(nodes: &[Node]) -> Option<Vec<Value<'static>>> {
    let value = |node: &Node| if let Node::Constant(value) = node { Some(value.clone()) } else { None };
    nodes.iter().map(value).collect()
}

/// A type as a value: lists and maps are one type each.
fn named_type(ty: &Type) -> Type {
    match ty {
        Type::List(_) => Type::list(Type::Dyn),
        Type::Map(..) => Type::map(Type::Dyn, Type::Dyn),
        Type::Optional(_) => Type::optional(Type::Dyn),
        Type::Type(_) => Type::Type(None),
        _ => ty.clone(),
    }
}
