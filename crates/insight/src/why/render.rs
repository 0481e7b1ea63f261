//! Findings for people.

use std::fmt::Write;

use ferry_meta::object;

use super::Finding;
use crate::world::{World, title};

pub fn render(world: &World, findings: &[Finding]) -> String {
    let mut out = String::new();
    let namespace = object::namespace(&world.target);
    let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
    let name = title(&world.target);
    let state = match findings.first() {
        None => "nothing holds it up",
        Some(first) if first.underway => "it is on its way",
        Some(_) => "it is stuck",
    };
    let _ = writeln!(out, "{name}{place}: {state}");
    for finding in findings {
        let _ = writeln!(out);
        line(&mut out, if finding.underway { "now at" } else { "stuck at" }, finding.hop.name());
        if finding.about != name {
            line(&mut out, "object", &finding.about);
        }
        line(&mut out, "because", &finding.cause);
        for detail in &finding.details {
            line(&mut out, "", detail);
        }
        for (index, advice) in finding.advice.iter().enumerate() {
            line(&mut out, if index == 0 { "to do" } else { "" }, advice);
        }
    }
    if !world.unseen.is_empty() {
        let _ = writeln!(out, "\nnot seen: {}", world.unseen.join("; "));
    }
    out
}

fn line(out: &mut String, label: &str, text: &str) {
    for (index, part) in text.lines().enumerate() {
        let _ = writeln!(out, "  {:<9} {part}", if index == 0 { label } else { "" });
    }
}
