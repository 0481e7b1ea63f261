//! What an expression can cost at most, found out before it is ever run: from the sizes that a schema allows.

mod calls;
mod range;

use std::collections::HashMap;

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::checker::Facts;
use crate::schema::Decl;
use crate::types::Type;

pub use range::Range;

const LIST: u64 = 10;
const MAP: u64 = 30;
const STRUCT: u64 = 40;

pub(crate) fn estimate(root: &Expr, facts: &Facts, decl: Option<&Decl>) -> Range {
    let mut coster = Coster {
        facts,
        decl,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    coster.cost(root)
}

/// Where a value comes from: a variable and the way down from it.
type Way = Vec<String>;

/// The sizes of keys and values of a list or map.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    list: bool,
    key: Range,
    value: Range,
}

struct Local {
    name: String,
    way: Way,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// An argument of a call, as far as its cost goes.
pub(crate) struct Operand<'a> {
    pub expression: &'a Expr,
    pub way: Way,
    pub ty: Type,
    pub size: Option<Range>,
}

impl Operand<'_> {
    pub fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

pub(crate) struct Coster<'a> {
    facts: &'a Facts,
    decl: Option<&'a Decl>,
    paths: HashMap<usize, Way>,
    sizes: HashMap<usize, Range>,
    entries: HashMap<usize, Entries>,
    locals: Vec<Local>,
}

impl<'a> Coster<'a> {
    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn way(&self, expression: &Expr) -> Way {
        if let Kind::Ident(name) = &expression.kind
            && let Some(local) = self.local(name)
        {
            return local.way.clone();
        }
        self.paths.get(&expression.id).cloned().unwrap_or_default()
    }

    fn extended(&self, expression: &Expr, step: &str) -> Way {
        let mut way = self.way(expression);
        way.push(step.to_owned());
        way
    }

    /// The size that the schema allows at the end of a way.
    pub fn size_at(&self, way: &[String]) -> Option<Range> {
        let (_, steps) = way.split_first()?;
        let mut decl = self.decl?;
        for step in steps {
            decl = match step.as_str() {
                "@items" | "@values" => decl.items()?,
                // Keys are texts of no known length, which counts as none.
                "@keys" => {
                    let values = decl.items().filter(|_| matches!(decl.ty, Type::Map(..)))?;
                    return Some(Range::new(0, decl.longest_key(values)));
                }
                // Attributes of a device, whatever their names.
                _ if decl.is_open() => decl.items()?,
                field => &decl.field(field)?.decl,
            };
        }
        Some(Range::new(0, decl.max_elements))
    }

    fn cost(&mut self, expression: &'a Expr) -> Range {
        match &expression.kind {
            Kind::Literal(_) => Range::new(0, 0),
            Kind::Ident(name) => {
                let way = self.local(name).map_or_else(|| vec![name.clone()], |local| local.way.clone());
                self.paths.insert(expression.id, way);
                Range::exactly(1)
            }
            Kind::Select { operand, test: true, .. } => self.cost(operand),
            Kind::Select { operand, field, .. } => {
                if let Some(crate::checker::Name::Variable(_) | crate::checker::Name::Type(_)) =
                    self.facts.names.get(expression.id).and_then(Option::as_ref)
                {
                    let way = expression.qualified_name().into_iter().collect();
                    self.paths.insert(expression.id, way);
                    return Range::exactly(1);
                }
                let mut sum = self.cost(operand);
                if matches!(self.facts.ty(operand), Type::Map(..) | Type::Object(_) | Type::Opaque(_)) {
                    sum = sum.plus(Range::exactly(1));
                }
                let way = self.extended(operand, field);
                self.paths.insert(expression.id, way);
                sum
            }
            Kind::Call { function, target, arguments } => self.call(expression, function, target.as_deref(), arguments),
            Kind::List { elements, .. } => {
                let mut sum = Range::exactly(LIST);
                let mut value = if elements.is_empty() { Range::new(0, 0) } else { Range::new(u64::MAX, 0) };
                for element in elements {
                    sum = sum.plus(self.cost(element));
                    value = value.union(self.size(element).unwrap_or(Range::UNKNOWN));
                }
                self.entries.insert(expression.id, Entries { list: true, key: Range::exactly(1), value });
                sum
            }
            Kind::Map(entries) => {
                let mut sum = Range::exactly(MAP);
                let start = if entries.is_empty() { Range::new(0, 0) } else { Range::new(u64::MAX, 0) };
                let (mut key, mut value) = (start, start);
                for entry in entries {
                    sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size(&entry.key).unwrap_or(Range::UNKNOWN));
                    value = value.union(self.size(&entry.value).unwrap_or(Range::UNKNOWN));
                }
                self.entries.insert(expression.id, Entries { list: false, key, value });
                sum
            }
            Kind::Struct { fields, .. } => {
                fields.iter().fold(Range::exactly(STRUCT), |sum, field| sum.plus(self.cost(&field.value)))
            }
            Kind::Fold(fold) => self.fold(expression, fold),
        }
    }

    pub(crate) fn size(&mut self, expression: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expression.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expression) {
            return Some(size);
        }
        if let Some(size) = self.size_at(&self.way(expression)) {
            self.sizes.insert(expression.id, size);
            return Some(size);
        }
        if is_scalar(self.facts.ty(expression)) {
            return Some(Range::exactly(1));
        }
        match &expression.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entries_of(&self, expression: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expression.id) {
            return Some(entries.clone());
        }
        match &expression.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entries.clone()),
            _ => None,
        }
    }

    pub(crate) fn operand(&mut self, expression: &'a Expr) -> Operand<'a> {
        let way = self.way(expression);
        let hidden = way.first().is_some_and(|first| first == crate::macros::ACCUMULATOR);
        let size = self.size(expression);
        let ty = self.facts.ty(expression).clone();
        Operand { expression, way: if hidden { Vec::new() } else { way }, ty, size }
    }

    fn call(&mut self, expression: &'a Expr, function: &str, target: Option<&'a Expr>, arguments: &'a [Expr]) -> Range {
        if function == "dyn" && arguments.len() == 1 {
            let cost = self.cost(&arguments[0]).plus(Range::exactly(1));
            self.copy_sizes(expression, &arguments[0]);
            return cost;
        }
        let mut costs = Vec::with_capacity(arguments.len());
        let mut operands = Vec::with_capacity(arguments.len());
        for argument in arguments {
            costs.push(self.cost(argument));
            operands.push(self.operand(argument));
        }
        let overloads = self.facts.overloads[expression.id].clone();
        if overloads.is_empty() {
            return Range::new(0, 0);
        }
        let mut sum = Range::new(0, 0);
        let target = target.map(|target| {
            sum = self.cost(target);
            self.operand(target)
        });
        let mut cost = Range::new(u64::MAX, 0);
        let mut size: Option<Range> = None;
        for overload in overloads {
            let (one, result) = self.function(expression, function, overload, target.as_ref(), &operands, &costs);
            cost = cost.union(one);
            if let Some(result) = result {
                size = Some(size.map_or(result, |size| size.union(result)));
            }
            let step = match overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(of)) = (step, arguments.first()) {
                size = self.entries_of(of).map(|entries| entries.value);
                let way = self.extended(of, step);
                self.paths.insert(expression.id, way);
            }
            if size.is_none() {
                size = self.size(expression);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expression.id, size);
        }
        sum.plus(cost)
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }

    /// A variable of a comprehension, which is the key, the value or (with one variable) what a list or map gives.
    fn iterated(&self, name: &str, range: &Expr, key: Option<bool>) -> Local {
        let entries = self.entries_of(range);
        let list = entries.as_ref().map_or(matches!(self.facts.ty(range), Type::List(_)), |entries| entries.list);
        let (step, use_key) = match key {
            Some(true) => (if list { "@indices" } else { "@keys" }, true),
            Some(false) => (if list { "@items" } else { "@values" }, false),
            None => (if list { "@items" } else { "@keys" }, !list),
        };
        let size = entries.map(|entries| if use_key { entries.key } else { entries.value });
        Local { name: name.to_owned(), way: self.extended(range, step), size, entries: None }
    }

    fn fold(&mut self, expression: &'a Expr, fold: &'a Fold) -> Range {
        let bound = matches!(&fold.range.kind, Kind::List { elements, .. } if elements.is_empty())
            && matches!(&fold.condition.kind, Kind::Literal(Literal::Bool(false)));
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.start));
        let size = self.size(&fold.start);
        let accumulator = Local {
            name: fold.accumulator.clone(),
            way: self.way(&fold.start),
            size,
            entries: self.entries_of(&fold.start),
        };
        self.locals.push(accumulator);
        if bound {
            sum = sum.plus(self.cost(&fold.result));
            self.locals.pop();
            self.copy_sizes(expression, &fold.result);
            return sum;
        }
        let depth = self.locals.len();
        match &fold.second {
            Some(second) => {
                self.locals.push(self.iterated(&fold.variable, &fold.range, Some(true)));
                self.locals.push(self.iterated(second, &fold.range, Some(false)));
            }
            None => self.locals.push(self.iterated(&fold.variable, &fold.range, None)),
        }
        let turn = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.locals.truncate(depth);
        sum = sum.plus(self.cost(&fold.result));
        self.locals.pop();
        let times = self.size(&fold.range).unwrap_or(Range::UNKNOWN);
        sum = sum.plus(times.multiply(turn));
        match &fold.start.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&fold.start) {
                    self.sizes.insert(expression.id, size);
                }
            }
            Kind::List { .. } | Kind::Map(_) => {
                self.sizes.insert(expression.id, times);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(expression.id, entries);
                }
            }
            _ => {}
        }
        sum
    }
}

fn literal_size(expression: &Expr) -> Option<Range> {
    let size = match &expression.kind {
        Kind::Literal(Literal::String(text)) => text.chars().count(),
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        Kind::Literal(_) => 1,
        Kind::List { elements, .. } => elements.len(),
        Kind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(Range::exactly(size as u64))
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}
