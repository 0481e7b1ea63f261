//! What the parser makes of a text: expressions with the place they stand at.

/// One expression. Ids are dense, so that what is found out about expressions is kept in tables.
#[derive(Clone, Debug)]
pub struct Expr {
    pub id: usize,
    /// The place to point at in errors, in characters from the start.
    pub at: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub enum Kind {
    Literal(Literal),
    Ident(String),
    Select { operand: Box<Expr>, field: String, test: bool },
    Call { function: String, target: Option<Box<Expr>>, arguments: Vec<Expr> },
    List { elements: Vec<Expr>, optional: Vec<bool> },
    Map(Vec<Entry>),
    Struct { name: String, fields: Vec<Field> },
    Fold(Box<Fold>),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub at: usize,
    pub name: String,
    pub value: Expr,
    pub optional: bool,
}

/// A comprehension: what macros such as `all` and `map` become.
#[derive(Clone, Debug)]
pub struct Fold {
    pub range: Expr,
    pub variable: String,
    /// The value, where the first variable is the index or key.
    pub second: Option<String>,
    pub accumulator: String,
    pub start: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

impl Expr {
    pub fn is_ident(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(have) if have == name)
    }

    /// `a.b.c` as a dotted name, where it is nothing but names.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }

    /// Calls `visit` for this expression and all below it.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        self.below(&mut |part| part.walk(visit));
    }

    /// How many expressions stand in each other.
    pub fn depth(&self) -> usize {
        let mut deepest = 0;
        self.below(&mut |part| deepest = deepest.max(part.depth()));
        deepest + 1
    }

    /// Calls `visit` for the parts of this expression.
    pub fn below<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => visit(operand),
            Kind::Call { target, arguments, .. } => target.as_deref().into_iter().chain(arguments).for_each(visit),
            Kind::List { elements, .. } => elements.iter().for_each(visit),
            Kind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).for_each(visit),
            Kind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            Kind::Fold(fold) => {
                [&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result].into_iter().for_each(visit);
            }
        }
    }
}
