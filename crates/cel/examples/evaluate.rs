//! Reads cases from standard input, one JSON object per line with `expr` and, if wanted, `schema` and `self`; prints what becomes of
//! them. For comparing with another implementation of CEL.

use std::io::{BufRead, Write};

use ferry_cel::{Budget, Decl, Environment, Type, Value};
use serde_json::{Value as Json, json};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let case: Json = serde_json::from_str(&line?).unwrap_or_default();
        writeln!(out, "{}", one(&case))?;
    }
    Ok(())
}

fn one(case: &Json) -> Json {
    let decl = Decl::from_schema(&case["schema"], "selfType", false);
    let ty = decl.as_ref().map_or(Type::Dyn, |decl| decl.ty.clone());
    let environment = Environment::new().variable("self", ty.clone()).variable("oldSelf", ty);
    let program = match environment.compile(case["expr"].as_str().unwrap_or_default()) {
        Ok(program) => program,
        Err(error) => return json!(format!("compile: {error}")),
    };
    let cost = environment.estimate(&program, decl.as_ref());
    let mut budget = Budget::new(u64::MAX);
    let result = Value::typed(&case["self"], decl.as_ref())
        .and_then(|value| program.evaluate(&[value.clone(), value], &mut budget));
    let shown = match result {
        Ok(value) => value.to_string(),
        Err(error) => format!("error: {error}"),
    };
    let spent = u64::MAX - budget.remaining();
    json!({"type": program.result().to_string(), "max": cost.max, "min": cost.min, "cost": spent, "result": shown})
}
