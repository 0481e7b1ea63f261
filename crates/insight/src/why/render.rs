//! Findings for people.

use std::fmt::Write;

use ferry_meta::object;

use super::{Finding, Verdict, held, verdict};
use crate::world::{World, plain, title};

/// So much of what could not be read is named.
const UNSEEN: usize = 10;

pub fn render(world: &World, findings: &[Finding]) -> String {
    let mut out = String::new();
    let namespace = object::namespace(&world.target);
    let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
    let name = title(&world.target);
    let state = match verdict(world, findings) {
        Verdict::Unknown => "how it is could not be found out: the API server did not answer everything",
        // Who may not read everything knows of nothing, which is less than that there is nothing.
        Verdict::Fine if !world.unseen.is_empty() => "nothing is known to hold it up",
        Verdict::Fine => "nothing holds it up",
        Verdict::OnItsWay => "it is on its way",
        Verdict::Stuck if held(findings).is_some_and(|first| first.probably) => "something probably holds it up",
        Verdict::Stuck => "it is stuck",
    };
    let _ = writeln!(out, "{name}{place}: {state}");
    for finding in findings {
        let _ = writeln!(out);
        if !finding.note {
            line(&mut out, if finding.underway { "now at" } else { "stuck at" }, finding.hop.name());
        }
        if finding.about != name {
            line(&mut out, "object", &finding.about);
        }
        let label = match (finding.note, finding.probably) {
            (true, _) => "note",
            (false, true) => "probably",
            (false, false) => "because",
        };
        line(&mut out, label, &finding.cause);
        for detail in &finding.details {
            line(&mut out, "", detail);
        }
        for (index, advice) in finding.advice.iter().enumerate() {
            let label = if finding.note { "to change" } else { "to do" };
            line(&mut out, if index == 0 { label } else { "" }, advice);
        }
    }
    if !world.unseen.is_empty() {
        let shown: Vec<&str> = world.unseen.iter().take(UNSEEN).map(String::as_str).collect();
        let more = world.unseen.len() - shown.len();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let _ = writeln!(out, "\nnot seen: {}{more}", shown.join("; "));
    }
    out
}

fn line(out: &mut String, label: &str, text: &str) {
    for (index, part) in plain(text).lines().enumerate() {
        let _ = writeln!(out, "  {:<9} {part}", if index == 0 { label } else { "" });
    }
}
