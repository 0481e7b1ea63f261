//! Macros: calls that stand for comprehensions and presence tests.

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::parser::Parser;
use crate::source::Issue;

/// The name that comprehensions collect under; no text can spell it.
pub(crate) const ACCUMULATOR: &str = "@result";
const UNUSED: &str = "#unused";

fn refuse(at: usize, message: &str) -> Issue {
    Issue { at: Some(at), message: message.to_owned() }
}

/// The call, or what the macro of that name makes of it.
pub(crate) fn expand(
    parser: &mut Parser,
    at: usize,
    function: &str,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Result<Expr, Issue> {
    let count = arguments.len();
    let Some(target) = target else {
        if function == "has" && count == 1 {
            return has(parser, at, arguments);
        }
        return Ok(call(parser, at, function, None, arguments));
    };
    let binds = parser.binds && matches!(&target.kind, Kind::Ident(name) if name == "cel");
    let mut build = Build { parser, at };
    match (function, count) {
        ("bind", 3) if binds => build.named(arguments),
        ("all", 2 | 3) => build.all(target, arguments),
        ("exists", 2 | 3) => build.exists(target, arguments),
        ("exists_one", 2) | ("existsOne", 3) => build.exists_one(target, arguments),
        ("map", 2 | 3) => build.map(target, arguments),
        ("filter", 2) => build.filter(target, arguments),
        ("transformList", 3 | 4) => build.transform(target, arguments, Collect::List),
        ("transformMap", 3 | 4) => build.transform(target, arguments, Collect::Map),
        ("transformMapEntry", 3 | 4) => build.transform(target, arguments, Collect::Entries),
        ("optMap", 2) => build.optional_map(target, arguments, false),
        ("optFlatMap", 2) => build.optional_map(target, arguments, true),
        ("sortBy", 2) => build.sort_by(target, arguments),
        _ => Ok(call(parser, at, function, Some(target), arguments)),
    }
}

fn call(parser: &mut Parser, at: usize, function: &str, target: Option<Expr>, arguments: Vec<Expr>) -> Expr {
    let kind = Kind::Call { function: function.to_owned(), target: target.map(Box::new), arguments };
    parser.new_expr(at, kind)
}

fn has(parser: &mut Parser, at: usize, mut arguments: Vec<Expr>) -> Result<Expr, Issue> {
    let argument = arguments.remove(0);
    match argument.kind {
        Kind::Select { operand, field, test: false } => {
            Ok(parser.new_expr(at, Kind::Select { operand, field, test: true }))
        }
        _ => Err(refuse(argument.at, "invalid argument to has() macro")),
    }
}

#[derive(PartialEq)]
enum Collect {
    List,
    Map,
    Entries,
}

struct Build<'a> {
    parser: &'a mut Parser,
    at: usize,
}

/// The variables a comprehension runs over.
struct Variables {
    first: String,
    second: Option<String>,
}

impl Build<'_> {
    fn literal(&mut self, literal: Literal) -> Expr {
        self.parser.new_expr(self.at, Kind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.parser.new_expr(self.at, Kind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        let optional = vec![false; elements.len()];
        self.parser.new_expr(self.at, Kind::List { elements, optional })
    }

    fn call(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        call(self.parser, self.at, function, None, arguments)
    }

    fn member(&mut self, function: &str, target: Expr, arguments: Vec<Expr>) -> Expr {
        call(self.parser, self.at, function, Some(target), arguments)
    }

    fn fold(
        &mut self,
        range: Expr,
        variables: Variables,
        start: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
    ) -> Expr {
        let fold = Fold {
            range,
            variable: variables.first,
            second: variables.second,
            accumulator: ACCUMULATOR.to_owned(),
            start,
            condition,
            step,
            result,
        };
        self.parser.new_expr(self.at, Kind::Fold(Box::new(fold)))
    }

    /// Takes the names of one or two variables off the arguments.
    fn variables(&self, arguments: &mut Vec<Expr>, two: bool, complaint: &str) -> Result<Variables, Issue> {
        let name = |argument: &Expr| match &argument.kind {
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err(refuse(argument.at, complaint)),
        };
        let first = arguments.remove(0);
        let first_name = name(&first)?;
        let overwrites = "iteration variable overwrites accumulator variable";
        let taken = |name: &str| name == ACCUMULATOR || name == "__result__";
        if !two {
            if taken(&first_name) {
                return Err(refuse(first.at, overwrites));
            }
            return Ok(Variables { first: first_name, second: None });
        }
        let second = arguments.remove(0);
        let second_name = name(&second)?;
        if first_name == second_name {
            return Err(refuse(second.at, &format!("duplicate variable name: {first_name}")));
        }
        for (argument, name) in [(&first, &first_name), (&second, &second_name)] {
            if taken(name) {
                return Err(refuse(argument.at, overwrites));
            }
        }
        Ok(Variables { first: first_name, second: Some(second_name) })
    }

    fn all(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Result<Expr, Issue> {
        let two = arguments.len() == 3;
        let variables = self.variables(&mut arguments, two, "argument must be a simple name")?;
        let start = self.literal(Literal::Bool(true));
        let accumulator = self.accumulator();
        let condition = self.call("@not_strictly_false", vec![accumulator]);
        let accumulator = self.accumulator();
        let step = self.call("_&&_", vec![accumulator, arguments.remove(0)]);
        let result = self.accumulator();
        Ok(self.fold(target, variables, start, condition, step, result))
    }

    fn exists(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Result<Expr, Issue> {
        let two = arguments.len() == 3;
        let variables = self.variables(&mut arguments, two, "argument must be a simple name")?;
        let start = self.literal(Literal::Bool(false));
        let accumulator = self.accumulator();
        let not = self.call("!_", vec![accumulator]);
        let condition = self.call("@not_strictly_false", vec![not]);
        let accumulator = self.accumulator();
        let step = self.call("_||_", vec![accumulator, arguments.remove(0)]);
        let result = self.accumulator();
        Ok(self.fold(target, variables, start, condition, step, result))
    }

    fn exists_one(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Result<Expr, Issue> {
        let two = arguments.len() == 3;
        let variables = self.variables(&mut arguments, two, "argument must be a simple name")?;
        let start = self.literal(Literal::Int(0));
        let condition = self.literal(Literal::Bool(true));
        let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
        let counted = self.call("_+_", vec![accumulator, one]);
        let accumulator = self.accumulator();
        let step = self.call("_?_:_", vec![arguments.remove(0), counted, accumulator]);
        let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
        let result = self.call("_==_", vec![accumulator, one]);
        Ok(self.fold(target, variables, start, condition, step, result))
    }

    /// A fold that collects; `filter` decides what.
    fn collect(&mut self, target: Expr, variables: Variables, start: Expr, step: Expr, filter: Option<Expr>) -> Expr {
        let condition = self.literal(Literal::Bool(true));
        let step = match filter {
            Some(filter) => {
                let accumulator = self.accumulator();
                self.call("_?_:_", vec![filter, step, accumulator])
            }
            None => step,
        };
        let result = self.accumulator();
        self.fold(target, variables, start, condition, step, result)
    }

    fn map(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Result<Expr, Issue> {
        let variables = self.variables(&mut arguments, false, "argument is not an identifier")?;
        let filter = (arguments.len() == 2).then(|| arguments.remove(0));
        let start = self.list(Vec::new());
        let (accumulator, element) = (self.accumulator(), self.list(vec![arguments.remove(0)]));
        let step = self.call("_+_", vec![accumulator, element]);
        Ok(self.collect(target, variables, start, step, filter))
    }

    fn filter(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Result<Expr, Issue> {
        let item = arguments[0].clone();
        let variables = self.variables(&mut arguments, false, "argument is not an identifier")?;
        let start = self.list(Vec::new());
        let (accumulator, element) = (self.accumulator(), self.list(vec![item]));
        let step = self.call("_+_", vec![accumulator, element]);
        Ok(self.collect(target, variables, start, step, Some(arguments.remove(0))))
    }

    fn transform(&mut self, target: Expr, mut arguments: Vec<Expr>, into: Collect) -> Result<Expr, Issue> {
        let variables = self.variables(&mut arguments, true, "argument must be a simple name")?;
        let filter = (arguments.len() == 2).then(|| arguments.remove(0));
        let value = arguments.remove(0);
        let accumulator = self.accumulator();
        let (start, step) = match into {
            Collect::List => {
                let element = self.list(vec![value]);
                (self.list(Vec::new()), self.call("_+_", vec![accumulator, element]))
            }
            Collect::Map | Collect::Entries => {
                let mut parts = vec![accumulator];
                if into == Collect::Map {
                    let key = self.ident(&variables.first);
                    parts.push(key);
                }
                parts.push(value);
                let start = self.parser.new_expr(self.at, Kind::Map(Vec::new()));
                (start, self.call("cel.@mapInsert", parts))
            }
        };
        Ok(self.collect(target, variables, start, step, filter))
    }

    fn named(&mut self, mut arguments: Vec<Expr>) -> Result<Expr, Issue> {
        let variable = arguments.remove(0);
        let Kind::Ident(name) = variable.kind else {
            return Err(refuse(variable.at, "cel.bind() variable names must be simple identifiers"));
        };
        let value = arguments.remove(0);
        Ok(self.bind(&name, value, arguments.remove(0)))
    }

    /// `name` stands for `value` inside of `body`.
    fn bind(&mut self, name: &str, value: Expr, body: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        let fold = Fold {
            range,
            variable: UNUSED.to_owned(),
            second: None,
            accumulator: name.to_owned(),
            start: value,
            condition,
            step,
            result: body,
        };
        self.parser.new_expr(self.at, Kind::Fold(Box::new(fold)))
    }

    fn optional_map(&mut self, target: Expr, mut arguments: Vec<Expr>, flat: bool) -> Result<Expr, Issue> {
        let variable = arguments.remove(0);
        let Kind::Ident(name) = variable.kind else {
            let function = if flat { "optFlatMap" } else { "optMap" };
            return Err(refuse(variable.at, &format!("{function}() variable name must be a simple identifier")));
        };
        let again = self.parser.copy(&target);
        let there = self.member("hasValue", target, Vec::new());
        let value = self.member("value", again, Vec::new());
        let mut mapped = self.bind(&name, value, arguments.remove(0));
        if !flat {
            mapped = self.call("optional.of", vec![mapped]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![there, mapped, none]))
    }

    fn sort_by(&mut self, target: Expr, arguments: Vec<Expr>) -> Result<Expr, Issue> {
        const INPUT: &str = "@__sortBy_input__";
        let range = self.ident(INPUT);
        let keys = self.map(range, arguments)?;
        let input = self.ident(INPUT);
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(INPUT, target, sorted))
    }
}
