//! A compiled expression, and running it.

use std::sync::Arc;

use crate::ast::{Expr, Kind, Literal};
use crate::authorization::{AuthorizerDecision, Question};
use crate::charge;
use crate::checker::Facts;
use crate::error::Error;
use crate::operators;
use crate::plan::{FoldNode, Node};
use crate::stack;
use crate::types::Type;
use crate::value::{Key, List, Made, Map, Value};
use crate::work::{self, Counting};

/// What one evaluation may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// What all evaluations of one request may cost together.
pub const REQUEST_BUDGET: u64 = 10_000_000;
/// The part of it that conditions may use.
pub const CONDITIONS_BUDGET: u64 = 2_500_000;
/// Texts do not grow beyond this, whatever they cost.
pub(crate) const LONGEST_TEXT: usize = 16 << 20;

/// Where an evaluation finds the values of variables.
pub trait Bindings<'a> {
    /// The value of the variable in a slot.
    fn value(&self, slot: usize, budget: &mut Budget) -> Result<Value<'a>, Error>;

    /// The answer to a question of authorization; None when it has to be asked for first.
    fn decide(&self, _question: &Question) -> Option<Arc<AuthorizerDecision>> {
        None
    }
}

/// Values by slot.
impl<'a> Bindings<'a> for [Value<'a>] {
    fn value(&self, slot: usize, _budget: &mut Budget) -> Result<Value<'a>, Error> {
        self.get(slot).cloned().ok_or_else(|| Error::new("no such attribute"))
    }
}

impl<'a, const N: usize> Bindings<'a> for [Value<'a>; N] {
    fn value(&self, slot: usize, budget: &mut Budget) -> Result<Value<'a>, Error> {
        self.as_slice().value(slot, budget)
    }
}

impl<'a> Bindings<'a> for Vec<Value<'a>> {
    fn value(&self, slot: usize, budget: &mut Budget) -> Result<Value<'a>, Error> {
        self.as_slice().value(slot, budget)
    }
}

/// What evaluations may still cost.
#[derive(Clone, Debug)]
pub struct Budget {
    remaining: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Self {
        Self { remaining: limit }
    }

    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Takes a cost off; false when there was not enough.
    pub fn spend(&mut self, cost: u64) -> bool {
        let enough = self.remaining >= cost;
        self.remaining = self.remaining.saturating_sub(cost);
        enough
    }
}

/// A compiled expression: compiled once, evaluated often, by any thread.
#[derive(Debug)]
pub struct Program {
    text: String,
    root: Expr,
    facts: Facts,
    node: Node,
    used: Vec<bool>,
    depth: usize,
}

impl Drop for Program {
    fn drop(&mut self) {
        let nothing = Expr { id: 0, at: 0, kind: Kind::Literal(Literal::Null) };
        let root = std::mem::replace(&mut self.root, nothing);
        let node = std::mem::replace(&mut self.node, Node::Constant(Value::Null));
        stack::with_room(self.depth, move || drop((root, node)));
    }
}

impl Program {
    pub(crate) fn new(text: &str, root: Expr, facts: Facts, node: Node, used: Vec<bool>) -> Self {
        let depth = root.depth();
        Self { text: text.to_owned(), root, facts, node, used, depth }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The type of the result, as far as it is known beforehand.
    pub fn result(&self) -> &Type {
        self.facts.ty(&self.root)
    }

    /// Whether the variable in a slot is named.
    pub fn uses(&self, slot: usize) -> bool {
        self.used.get(slot).copied().unwrap_or(false)
    }

    pub(crate) fn root(&self) -> &Expr {
        &self.root
    }

    /// How many expressions stand in each other.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Evaluates. Costs are taken off the budget, and one evaluation costs [`PER_CALL_LIMIT`] at most.
    pub fn evaluate<'a>(
        &self,
        bindings: &(impl Bindings<'a> + ?Sized),
        budget: &mut Budget,
    ) -> Result<Value<'a>, Error> {
        let _counting = Counting::start();
        let mut machine = Machine { bindings: &Wrapped(bindings), budget, cost: 0, locals: Vec::new() };
        let outcome = stack::with_room(self.depth, || machine.run(&self.node));
        let cost = machine.cost;
        if !budget.spend(cost) {
            return Err(Error::BudgetExhausted);
        }
        outcome
    }
}

/// Makes an object of bindings that may have no size of their own.
struct Wrapped<'r, B: ?Sized>(&'r B);

impl<'a, B: Bindings<'a> + ?Sized> Bindings<'a> for Wrapped<'_, B> {
    fn value(&self, slot: usize, budget: &mut Budget) -> Result<Value<'a>, Error> {
        self.0.value(slot, budget)
    }

    fn decide(&self, question: &Question) -> Option<Arc<AuthorizerDecision>> {
        self.0.decide(question)
    }
}

type Outcome<'a> = Result<Value<'a>, Error>;

pub(crate) struct Machine<'r, 'a> {
    bindings: &'r dyn Bindings<'a>,
    budget: &'r mut Budget,
    cost: u64,
    locals: Vec<Outcome<'a>>,
}

impl<'a> Machine<'_, 'a> {
    fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > PER_CALL_LIMIT { Err(Error::CostLimit) } else { Ok(()) }
    }

    fn run(&mut self, node: &Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(slot) => {
                self.charge(1)?;
                self.bindings.value(*slot, self.budget)
            }
            Node::Local(place) => {
                self.charge(1)?;
                self.locals.get(*place).cloned().unwrap_or(Ok(Value::Null))
            }
            Node::Declared => Ok(Value::Bool(true)),
            Node::Select { operand, field } => {
                let operand = self.run(operand)?;
                self.charge(1)?;
                select(&operand, field)
            }
            Node::Has { operand, field } => {
                let operand = self.run(operand)?;
                has(&operand, field)
            }
            Node::OptionalSelect { operand, field } => {
                let operand = self.run(operand)?;
                self.charge(1)?;
                match &operand {
                    Value::Map(_) | Value::Object(_) | Value::Optional(_) => {
                        Ok(Value::Optional(operand.get(field)?.map(Arc::new)))
                    }
                    _ => Ok(Value::Optional(None)),
                }
            }
            Node::Index { operand, index, optional } => {
                let operand = self.run(operand)?;
                let index = self.run(index)?;
                self.charge(1)?;
                operators::index(&operand, &index, *optional)
            }
            Node::And(one, two) => self.logical(one, two, false),
            Node::Or(one, two) => self.logical(one, two, true),
            Node::Not(operand) => match self.run(operand)? {
                Value::Bool(value) => {
                    self.charge(1)?;
                    Ok(Value::Bool(!value))
                }
                _ => Err(Error::no_such_overload()),
            },
            Node::Conditional(parts) => match self.run(&parts[0])? {
                Value::Bool(true) => self.run(&parts[1]),
                Value::Bool(false) => self.run(&parts[2]),
                _ => Err(Error::no_such_overload()),
            },
            Node::NotFalse(operand) => {
                let outcome = self.run(operand);
                self.charge(1)?;
                match outcome {
                    Err(error) if error.is_final() => Err(error),
                    outcome => Ok(Value::Bool(!matches!(outcome, Ok(Value::Bool(false))))),
                }
            }
            Node::Call { function, charge, arguments } => {
                let mut values: [Value<'a>; 4] = [Value::Null, Value::Null, Value::Null, Value::Null];
                let count = arguments.len().min(4);
                for (value, argument) in values.iter_mut().zip(arguments) {
                    *value = self.run(argument)?;
                }
                let values = &values[..count];
                // Charged before it is done: what is too dear is not begun.
                let before = charge.cost(values, None);
                self.charge(before)?;
                let result = function(values, self.bindings);
                // Whatever came of it, it went too far.
                work::check()?;
                let result = result?;
                let after = charge.cost(values, Some(&result));
                self.charge(after.saturating_sub(before))?;
                Ok(result)
            }
            Node::Pattern { function, expression, length, arguments } => {
                let values: Result<Vec<Value<'a>>, Error> =
                    arguments.iter().map(|argument| self.run(argument)).collect();
                let values = values?;
                self.charge(charge::regex(values.first().map_or(1, Value::size), *length))?;
                function(expression, &values)
            }
            Node::List { elements, optional } => self.list(elements, optional),
            Node::Map(entries) => self.map(entries),
            Node::Struct { object, fields } => {
                let mut made = Made { object: object.clone(), fields: Vec::with_capacity(fields.len()) };
                for (name, node, optional) in fields {
                    let value = self.run(node)?;
                    if let Some(value) = present(value, *optional)? {
                        made.fields.push((name.clone(), value));
                    }
                }
                self.charge(40)?;
                Ok(Value::Object(Arc::new(made)))
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Append { accumulator, element } => {
                let element = self.run(element)?;
                self.charge(12)?;
                work::make(work::ITEM)?;
                let mut items = match self.take(*accumulator)? {
                    Value::List(List::Values(items)) => items,
                    _ => return Err(Error::no_such_overload()),
                };
                Arc::make_mut(&mut items).push(element);
                Ok(Value::List(List::Values(items)))
            }
            Node::Insert { accumulator, key, value } => self.insert(*accumulator, key.as_deref(), value),
        }
    }

    /// The value of a local that is about to be replaced.
    fn take(&mut self, place: usize) -> Outcome<'a> {
        match self.locals.get_mut(place) {
            Some(local) => std::mem::replace(local, Ok(Value::Null)),
            None => Ok(Value::Null),
        }
    }

    /// `&&` and `||`: an operand that decides makes up for an error of the other.
    fn logical(&mut self, one: &Node, two: &Node, decides: bool) -> Outcome<'a> {
        let first = self.run(one);
        match &first {
            Ok(Value::Bool(value)) if *value == decides => return first,
            Err(error) if error.is_final() => return first,
            _ => {}
        }
        let second = self.run(two);
        match (&first, &second) {
            (_, Ok(Value::Bool(value))) if *value == decides => second,
            (_, Err(error)) if error.is_final() => second,
            (Err(_), _) => first,
            (_, Err(_)) => second,
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decides)),
            _ => Err(Error::no_such_overload()),
        }
    }

    fn list(&mut self, elements: &[Node], optional: &[bool]) -> Outcome<'a> {
        let mut items = Vec::with_capacity(elements.len());
        for (node, optional) in elements.iter().zip(optional) {
            let value = self.run(node)?;
            items.extend(present(value, *optional)?);
        }
        self.charge(10)?;
        work::make(items.len() * work::ITEM)?;
        Ok(Value::from(items))
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Outcome<'a> {
        let mut map = std::collections::BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.run(key)?;
            let value = self.run(value)?;
            let Some(value) = present(value, *optional)? else { continue };
            let known =
                Key::of(&key).ok_or_else(|| Error::new(format!("unsupported key type: {}", key.type_name())))?;
            map.insert(known, (key, value));
        }
        self.charge(30)?;
        work::make(map.len() * 4 * work::ITEM)?;
        Ok(Value::Map(Map::Values(Arc::new(map))))
    }

    fn insert(&mut self, accumulator: usize, key: Option<&Node>, value: &Node) -> Outcome<'a> {
        let key = key.map(|key| self.run(key)).transpose()?;
        let value = self.run(value)?;
        self.charge(2)?;
        let added: Vec<(Value<'a>, Value<'a>)> = match (key, value) {
            (Some(key), value) => vec![(key, value)],
            (None, Value::Map(map)) => {
                let keys = map.keys().into_iter();
                keys.map(|key| Ok((key.clone(), map.get(&key)?.unwrap_or(Value::Null))))
                    .collect::<Result<_, Error>>()?
            }
            _ => return Err(Error::no_such_overload()),
        };
        let Value::Map(Map::Values(mut entries)) = self.take(accumulator)? else {
            return Err(Error::no_such_overload());
        };
        work::make(added.len() * 4 * work::ITEM)?;
        for (key, value) in added {
            let known = Key::of(&key).ok_or_else(Error::no_such_overload)?;
            if Arc::make_mut(&mut entries).insert(known, (key.clone(), value)).is_some() {
                return Err(Error::new(format!("insert failed: key {} already exists", operators::show(&key))));
            }
        }
        Ok(Value::Map(Map::Values(entries)))
    }

    fn fold(&mut self, fold: &FoldNode) -> Outcome<'a> {
        let range = self.run(&fold.range)?;
        let start = self.run(&fold.start);
        if let Err(error) = &start
            && error.is_final()
        {
            return start;
        }
        self.locals.truncate(fold.base);
        self.locals.push(start);
        self.locals.push(Ok(Value::Null));
        if fold.two {
            self.locals.push(Ok(Value::Null));
        }
        let looped = self.turns(fold, &range);
        self.locals.truncate(fold.base + 1);
        looped?;
        let result = self.run(&fold.result);
        self.locals.truncate(fold.base);
        result
    }

    fn turns(&mut self, fold: &FoldNode, range: &Value<'a>) -> Result<(), Error> {
        match range {
            Value::List(list) => {
                for index in 0..list.len() {
                    let item = list.get(index).map(|item| item.unwrap_or(Value::Null));
                    let number = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    let go = if fold.two {
                        self.turn(fold, Ok(number), item)?
                    } else {
                        self.turn(fold, item, Ok(Value::Null))?
                    };
                    if !go {
                        break;
                    }
                }
                Ok(())
            }
            Value::Map(map) => {
                for key in map.keys() {
                    let value =
                        if fold.two { map.get(&key).map(|v| v.unwrap_or(Value::Null)) } else { Ok(Value::Null) };
                    if !self.turn(fold, Ok(key), value)? {
                        break;
                    }
                }
                Ok(())
            }
            _ => Err(Error::new(format!("got '{}', expected iterable type", go_name(range)))),
        }
    }

    /// One round; false ends the loop.
    fn turn(&mut self, fold: &FoldNode, first: Outcome<'a>, second: Outcome<'a>) -> Result<bool, Error> {
        self.locals.truncate(fold.base + 1);
        self.locals.push(first);
        if fold.two {
            self.locals.push(second);
        }
        match self.run(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.is_final() => return Err(error),
            _ => {}
        }
        let step = self.run(&fold.step);
        if let Err(error) = &step
            && (error.is_final() || !fold.logical)
        {
            return Err(error.clone());
        }
        self.locals[fold.base] = step;
        Ok(true)
    }
}

/// The type as Go calls it.
fn go_name(value: &Value<'_>) -> String {
    let name = value.type_name();
    let name = name.strip_prefix("google.protobuf.").unwrap_or(&name);
    let mut characters = name.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    format!("types.{}{}", first.unwrap_or_default(), characters.as_str())
}

/// What an entry marked with `?` contributes: nothing if it is none.
fn present<'a>(value: Value<'a>, optional: bool) -> Result<Option<Value<'a>>, Error> {
    if !optional {
        return Ok(Some(value));
    }
    match value {
        Value::Optional(of) => Ok(of.map(|of| (*of).clone())),
        other => Err(Error::new(format!(
            "cannot initialize optional entry from non-optional value {}",
            operators::show(&other)
        ))),
    }
}

fn select<'a>(operand: &Value<'a>, field: &str) -> Outcome<'a> {
    match operand {
        Value::Map(_) | Value::Object(_) => operand.get(field)?.ok_or_else(|| Error::no_such_key(field)),
        Value::Optional(_) => Ok(Value::Optional(operand.get(field)?.map(Arc::new))),
        Value::List(_) => Err(Error::new("unsupported index type 'string' in list")),
        _ => Err(Error::no_such_key(field)),
    }
}

fn has<'a>(operand: &Value<'a>, field: &str) -> Outcome<'a> {
    match operand {
        Value::Map(_) | Value::Object(_) | Value::Optional(_) => Ok(Value::Bool(operand.get(field)?.is_some())),
        _ => Ok(Value::Bool(false)),
    }
}
