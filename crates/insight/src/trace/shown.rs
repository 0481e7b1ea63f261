//! What was shown of a trace that is followed: every hop once, however often it is looked at.

use std::collections::BTreeSet;

use super::hops::{Hop, Trace};
use super::render::lines;

#[derive(Debug, Default)]
pub struct Shown {
    hops: BTreeSet<(u8, String)>,
    waits: Vec<String>,
}

impl Shown {
    /// The lines of the hops that were not shown yet. Their times may be known better by now: that shows no hop again.
    pub fn news(&mut self, trace: &Trace) -> Vec<String> {
        let fresh = |(hop, line): (&Hop, String)| self.hops.insert((hop.number, hop.name.clone())).then_some(line);
        trace.hops.iter().zip(lines(trace)).filter_map(fresh).collect()
    }

    /// What it waits for, unless that was shown last. The age in front of each is no news.
    pub fn waits<'a>(&mut self, lines: &'a [String]) -> &'a [String] {
        let told: Vec<String> = lines.iter().map(|line| line.chars().skip(12).collect()).collect();
        if told == self.waits || told.is_empty() {
            return &[];
        }
        self.waits = told;
        lines
    }
}
