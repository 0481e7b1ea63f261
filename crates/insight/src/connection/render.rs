//! A way for people, and for programs.

use std::fmt::Write;

use ferry_meta::object;
use serde_json::{Value, json};

use super::{Outcome, Scene, Step, stopped};
use crate::world::{plain, title};

fn place(scene: &Scene) -> String {
    let (own, there) = (object::namespace(&scene.source), &scene.target.namespace);
    if own == there { format!("in {own}") } else { format!("from {own} to {there}") }
}

pub fn render(scene: &Scene, way: &[Step]) -> String {
    let mut out = String::new();
    let state = match stopped(way) {
        Some(_) => "it is stopped",
        None if scene.is_cut => "it could not be found out: the API server did not answer everything",
        None if way.iter().any(|step| matches!(step.outcome, Outcome::Unknown(_))) => "nothing is known to stop it",
        None => "nothing stops it",
    };
    let _ = writeln!(out, "{} → {} {}: {state}\n", title(&scene.source), scene.target.title(), place(scene));
    for step in way {
        let (mark, text) = match &step.outcome {
            Outcome::Passes(text) => ("ok", text.clone()),
            Outcome::Unknown(text) => ("?", text.clone()),
            Outcome::Stopped(finding) => ("stop", finding.cause.clone()),
        };
        let _ = writeln!(out, "  {:<10} {mark:<5} {text}", step.name);
    }
    if let Some(finding) = stopped(way) {
        let _ = writeln!(out);
        for detail in &finding.details {
            let _ = writeln!(out, "  {:<10} {detail}", "");
        }
        for (index, advice) in finding.advice.iter().enumerate() {
            let _ = writeln!(out, "  {:<10} {advice}", if index == 0 { "to do" } else { "" });
        }
    }
    if !scene.unseen.is_empty() {
        let _ = writeln!(out, "\nnot seen: {}", scene.unseen.join("; "));
    }
    plain(&out).into_owned()
}

pub fn to_json(scene: &Scene, way: &[Step]) -> Value {
    let steps: Vec<Value> = way
        .iter()
        .map(|step| match &step.outcome {
            Outcome::Passes(text) => json!({ "step": step.name, "outcome": "passes", "evidence": text }),
            Outcome::Unknown(text) => json!({ "step": step.name, "outcome": "unknown", "evidence": text }),
            Outcome::Stopped(finding) => {
                json!({ "step": step.name, "outcome": "stopped", "finding": finding.to_json() })
            }
        })
        .collect();
    json!({
        "from": title(&scene.source), "namespace": object::namespace(&scene.source), "to": scene.target.title(),
        "toNamespace": scene.target.namespace, "fine": stopped(way).is_none() && !scene.is_cut, "steps": steps, "unseen": scene.unseen,
    })
}
