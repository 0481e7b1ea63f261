//! Expressions and what becomes of them, from a table; and what must not happen whatever an expression says.

use std::collections::HashMap;

use ferry_cel::{Budget, CompileError, Decl, Environment, Error, Type, Value};
use serde_json::{Value as Json, json};

fn outcome(schema: &Json, value: &Json, text: &str) -> Json {
    let decl = Decl::from_schema(schema, "selfType", false);
    let ty = decl.as_ref().map_or(Type::Dyn, |decl| decl.ty.clone());
    let environment = Environment::new().variable("self", ty.clone()).variable("oldSelf", ty);
    let program = match environment.compile(text) {
        Ok(program) => program,
        Err(error) => return json!(format!("compile: {error}")),
    };
    let cost = environment.estimate(&program, decl.as_ref());
    let result = Value::typed(value, decl.as_ref())
        .and_then(|value| program.evaluate(&[value.clone(), value], &mut Budget::new(u64::MAX)));
    let shown = match result {
        Ok(value) => value.to_string(),
        Err(error) => format!("error: {error}"),
    };
    json!([program.result().to_string(), cost.max, shown])
}

#[test]
fn expressions_mean_what_upstream_makes_of_them() {
    let read = |text: &str| -> Json { serde_json::from_str(text).unwrap() };
    let mut contexts: HashMap<&str, (Json, Json)> = HashMap::new();
    for line in include_str!("cases.tsv").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let (name, one, two) = (columns.next().unwrap(), columns.next().unwrap(), columns.next().unwrap());
        if let Some(name) = name.strip_prefix('=') {
            contexts.insert(name, (read(one), read(two)));
            continue;
        }
        let (schema, value) = &contexts[name];
        let expression = read(one);
        let text = expression.as_str().unwrap();
        assert_eq!(outcome(schema, value, text), read(two), "{text}");
    }
}

fn evaluate(text: &str) -> Result<String, Error> {
    let environment = Environment::new().binding().variable("self", Type::Dyn);
    let value = json!({"long": "a".repeat(3 << 20), "list": (0..2000).collect::<Vec<_>>()});
    let program = environment.compile(text).map_err(|error| Error::new(error.to_string()))?;
    program.evaluate(&[Value::json(&value)], &mut Budget::new(10_000_000)).map(|value| value.type_name())
}

#[test]
fn nothing_runs_or_grows_without_end() {
    let stopped = |text: &str| {
        let outcome = evaluate(text);
        assert!(matches!(outcome, Err(Error::CostLimit | Error::BudgetExhausted)), "{text:.80}: {outcome:?}");
    };
    stopped("self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))");
    stopped("self.list.map(a, self.list.map(b, self.list))");
    stopped("self.long.replace('a', self.long)");
    stopped("self.long.replace('a', 'aaaaaaaaaaaa').replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaa')");
    stopped("self.long.split('').join(self.long)");
    stopped("self.long.matches('(a|b|c|d|e|f|g|h|i|j|k|l|m|n|o|p)*z')");
    stopped("self.list.sort()");
    stopped("sets.contains(self.list, self.list)");
    stopped("self.list.map(a, self.list + self.list)");
    stopped("self.list.map(a, '%s'.format([self.long]))");
    stopped("self.list.map(a, self.list.reverse())");
    stopped("self.list.all(a, self == self)");
    stopped("self.list.all(a, [[[self]]] == [[[self]]])");
    stopped("self.list.all(a, 'x'.matches('(x{90}){90}' + string(a)) || true)");
}

/// Values that share parts: each holds the one before it twice.
#[test]
fn what_is_shared_is_not_gone_through_without_end() {
    let doubled = |first: &str, step: &dyn Fn(usize) -> String, times: usize, last: &str| {
        let mut text = format!("cel.bind(v0, {first}, ");
        (1..=times).for_each(|at| text += &format!("cel.bind(v{at}, {}, ", step(at - 1)));
        format!("{text}{}{}", last.replace("LAST", &format!("v{times}")), ")".repeat(times + 1))
    };
    let pair = |at: usize| format!("[v{at}, v{at}]");
    for (text, ends) in [
        (doubled("[0, 0]", &pair, 40, "LAST == LAST"), true),
        (doubled("[0, 0]", &pair, 40, "[LAST].indexOf(LAST)"), true),
        (doubled("[0, 0]", &pair, 40, "'%s'.format([LAST])"), true),
        (doubled("[0, 0]", &pair, 40, "LAST in [LAST]"), true),
        (doubled("[0, 0]", &pair, 40, "{'a': 1}[string(LAST.size())] == 1 || LAST.distinct() == LAST"), true),
        (doubled("[0, 0]", &pair, 40, "LAST.flatten(40).size()"), true),
        (doubled("[0, 0]", &|at| format!("v{at} + v{at}"), 40, "LAST.size()"), true),
        (doubled("'ab'", &|at| format!("v{at} + v{at}"), 40, "LAST.size()"), true),
        (doubled("{'a': 0}", &|at| format!("{{'a': v{at}, 'b': v{at}}}"), 40, "LAST == LAST"), true),
        (doubled("[0, 0]", &pair, 40, "LAST.size()"), false),
        (doubled("[0, 0]", &pair, 5, "LAST == LAST"), false),
    ] {
        let outcome = evaluate(&text);
        assert_eq!(matches!(outcome, Err(Error::CostLimit | Error::BudgetExhausted)), ends, "{text:.60}…: {outcome:?}");
    }
    // It is a value, of which nobody makes JSON or a text.
    let environment = Environment::new().binding().variable("self", Type::Dyn);
    let program = environment.compile(&doubled("[0, 0]", &pair, 40, "LAST")).unwrap();
    let value = program.evaluate(&[Value::Null], &mut Budget::new(10_000_000)).unwrap();
    assert!(value.to_json().is_none());
    assert_eq!(value.to_string(), "<list>");
    assert!(!value.is_too_deep());
    let deep = (0..600).fold(Value::Int(1), |value, _| Value::from(vec![value]));
    assert!(deep.is_too_deep());
}

/// What is repeated, around what, and how often it may be: as cel-go counts it.
const NESTED: [(&str, &str, &str, usize); 28] = [
    ("(", "1", ")", 249),
    ("[", "1", "]", 249),
    ("{1: ", "1", "}", 249),
    ("", "1", " + 1", 250),
    ("", "1", " * 1", 250),
    ("", "1", " + 1 * 1", 249),
    ("", "self", " == self", 250),
    ("", "self", ".a", 250),
    ("", "self", ".?a", 250),
    ("", "self", "[0]", 250),
    ("", "self", ".size()", 250),
    ("self[", "0", "]", 249),
    ("true ? 1 : ", "1", "", 249),
    ("true ? (", "1", ") : 1", 249),
    ("size(", "self", ")", 249),
    ("[1].all(x, ", "true", ")", 249),
    ("[1].map(x, ", "1", ")", 249),
    ("!(", "true", ")", 249),
    ("-(", "1", ")", 249),
    ("(1 + ", "1", ")", 124),
    ("(", "1", " + 1)", 248),
    ("(1 + 1 + ", "1", ")", 124),
    ("(1 + 1 * ", "1", ")", 83),
    ("(self == ", "1", ")", 124),
    ("(", "self", ".b)", 249),
    ("self.b.c(", "1", ")", 249),
    ("a.b{c: ", "1", "}", 249),
    ("[1].all(x, 1 + 1 == 2 && self.b.c.d && ", "true", ")", 247),
];

#[test]
fn expressions_nest_as_deep_as_upstream_lets_them() {
    let environment = Environment::new().variable("self", Type::Dyn);
    for (open, inner, close, most) in NESTED {
        let nested = |depth: usize| format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
        let too_deep = |depth: usize| match environment.compile(&nested(depth)) {
            Ok(program) => {
                let _ = environment.estimate(&program, None);
                let _ = program.evaluate(&[Value::Int(1)], &mut Budget::new(u64::MAX));
                false
            }
            Err(error) => matches!(error, CompileError::Syntax(issues) if issues.contains("recursion")),
        };
        assert_eq!((too_deep(most), too_deep(most + 1)), (false, true), "{open}{inner}{close}");
    }
}

#[test]
fn nothing_nests_without_end() {
    let parts = NESTED.iter().map(|(open, inner, close, _)| (*open, *inner, *close));
    let chains = [
        ("", "true", " && true"),
        ("", "true", " || true && true"),
        ("!", "true", ""),
        ("-", "1", ""),
        ("", "self", ".optMap(x, x)"),
        ("[1].exists_one(x, ![self].map(y, {1: [-(", "1", ")]}))"),
        ("cel.bind(x, [1].filter(y, ", "true", "), x.size() == 1 || !x)"),
    ];
    for (open, inner, close) in parts.chain(chains) {
        for depth in [60, 124, 249, 5000] {
            // Refused or not, it neither overflows the stack nor takes long.
            let _ = evaluate(&format!("{}{inner}{}", open.repeat(depth), close.repeat(depth)));
        }
    }
    assert!(evaluate(&"1 + ".repeat(30_000)).is_err());
    let errors = environment_of_nothing(&"a || ".repeat(200));
    assert!(errors.len() < 200_000 && errors.ends_with("more errors were truncated"), "{}", errors.len());
}

fn environment_of_nothing(text: &str) -> String {
    Environment::new().compile(&format!("{text}b")).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn fields_of_a_lazy_variable_are_asked_for_when_needed() {
    let fields = [("a".to_owned(), Type::Int), ("b".to_owned(), Type::Bool)];
    let environment = Environment::new().variable("x", Type::Int).lazy("variables", "variables", &fields);
    let program = environment.compile("variables.a > x && variables.b").unwrap();
    assert!(program.uses(0) && program.uses(2) && program.uses(3));
    let values = [Value::Int(1), Value::Null, Value::Int(2), Value::Bool(true)];
    assert_eq!(program.evaluate(&values, &mut Budget::new(100)).unwrap().as_bool(), Some(true));
    assert!(environment.compile("variables.c").unwrap_err().to_string().contains("undefined field 'c'"));
}
