//! Expressions and what becomes of them, from a table; and what must not happen whatever an expression says.

use std::collections::HashMap;

use ferry_cel::{Budget, Decl, Environment, Error, Type, Value};
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
    let environment = Environment::new().variable("self", Type::Dyn);
    let value = json!({"long": "a".repeat(3 << 20), "list": (0..2000).collect::<Vec<_>>()});
    let program = environment.compile(text).map_err(Error::new)?;
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
}

#[test]
fn nothing_nests_without_end() {
    for (open, close) in [("(", ")"), ("[", "]"), ("!(", ")"), ("self[", "]"), ("size(", ")"), ("self.map(x, ", ")")] {
        for depth in [90, 5000] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            // Refused or not, it neither overflows the stack nor takes long.
            let _ = evaluate(&text);
        }
    }
    for chain in ["1 + ", "true && ", "self.a.", "1 == ", "self.optMap(x, x).", "true ? 1 : "] {
        let _ = evaluate(&format!("{}1", chain.repeat(5000)));
    }
    assert!(evaluate(&"1 + ".repeat(30_000)).is_err());
}

#[test]
fn fields_of_a_lazy_variable_are_asked_for_when_needed() {
    let fields = [("a".to_owned(), Type::Int), ("b".to_owned(), Type::Bool)];
    let environment = Environment::new().variable("x", Type::Int).lazy("variables", "variables", &fields);
    let program = environment.compile("variables.a > x && variables.b").unwrap();
    assert!(program.uses(0) && program.uses(2) && program.uses(3));
    let values = [Value::Int(1), Value::Null, Value::Int(2), Value::Bool(true)];
    assert_eq!(program.evaluate(&values, &mut Budget::new(100)).unwrap().as_bool(), Some(true));
    assert!(environment.compile("variables.c").unwrap_err().contains("undefined field 'c'"));
}
