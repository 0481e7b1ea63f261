//! The unified difference of two texts, line by line, as upstream shows what an update may not change.
//!
//! Matching blocks are found as Python's `difflib` finds them (longest first, lines that are too common ignored in long
//! texts), since any other choice would show other lines.

use std::collections::HashMap;
use std::fmt::Write;

const CONTEXT: usize = 3;
/// From this many lines on, lines that make up more than a hundredth are too common to match by.
const LONG: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Equal,
    Replace,
    Delete,
    Insert,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    kind: Kind,
    old: (usize, usize),
    new: (usize, usize),
}

/// Longer texts are not compared line by line, which takes more than their length: what lies between the first and the last lines
/// that differ is shown as one change then.
const LONGEST: usize = 2000;
/// Nor is more shown of it than this.
const SHOWN: usize = 64 << 10;

pub fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut out = String::new();
    for group in groups(changes(&old, &new)) {
        if out.len() > SHOWN {
            break;
        }
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let _ = writeln!(out, "@@ -{} +{} @@", range(first.old.0, last.old.1), range(first.new.0, last.new.1));
        for change in &group {
            let mut lines = |mark: char, lines: &[&str]| {
                for line in lines {
                    if out.len() > SHOWN {
                        return;
                    }
                    let _ = writeln!(out, "{mark}{line}");
                }
            };
            match change.kind {
                Kind::Equal => lines(' ', &old[change.old.0..change.old.1]),
                Kind::Delete | Kind::Replace => lines('-', &old[change.old.0..change.old.1]),
                Kind::Insert => {}
            }
            if matches!(change.kind, Kind::Insert | Kind::Replace) {
                lines('+', &new[change.new.0..change.new.1]);
            }
        }
    }
    out
}

fn range(start: usize, stop: usize) -> String {
    match stop - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    }
}

/// Matching blocks as (old index, new index, length), in order.
fn matches(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    if old.len().max(new.len()) > LONGEST {
        return ends(old, new);
    }
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in new.iter().enumerate() {
        positions.entry(line).or_default().push(index);
    }
    if new.len() >= LONG {
        positions.retain(|_, found| found.len() <= new.len() / 100 + 1);
    }
    let mut blocks = Vec::new();
    let mut queue = vec![(0, old.len(), 0, new.len())];
    while let Some((old_low, old_high, new_low, new_high)) = queue.pop() {
        let (i, j, length) = longest(old, new, &positions, old_low, old_high, new_low, new_high);
        if length == 0 {
            continue;
        }
        blocks.push((i, j, length));
        queue.push((old_low, i, new_low, j));
        queue.push((i + length, old_high, j + length, new_high));
    }
    blocks.sort_unstable();
    blocks
}

/// The lines that both begin with, and those that both end with.
fn ends(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old[start..].iter().rev().zip(new[start..].iter().rev());
    let end = rest.take_while(|(old, new)| old == new).count();
    let blocks = [(0, 0, start), (old.len() - end, new.len() - end, end)];
    blocks.into_iter().filter(|(_, _, length)| *length > 0).collect()
}

fn longest(
    old: &[&str],
    new: &[&str],
    positions: &HashMap<&str, Vec<usize>>,
    old_low: usize,
    old_high: usize,
    new_low: usize,
    new_high: usize,
) -> (usize, usize, usize) {
    let (mut best_old, mut best_new, mut best) = (old_low, new_low, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in old.iter().enumerate().take(old_high).skip(old_low) {
        let mut next: HashMap<usize, usize> = HashMap::new();
        for &j in positions.get(line).into_iter().flatten() {
            if j < new_low {
                continue;
            }
            if j >= new_high {
                break;
            }
            let length = j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or_default() + 1;
            next.insert(j, length);
            if length > best {
                (best_old, best_new, best) = (i + 1 - length, j + 1 - length, length);
            }
        }
        lengths = next;
    }
    // Common lines next to the block belong to it after all.
    while best_old > old_low && best_new > new_low && old[best_old - 1] == new[best_new - 1] {
        (best_old, best_new, best) = (best_old - 1, best_new - 1, best + 1);
    }
    while best_old + best < old_high && best_new + best < new_high && old[best_old + best] == new[best_new + best] {
        best += 1;
    }
    (best_old, best_new, best)
}

fn changes(old: &[&str], new: &[&str]) -> Vec<Change> {
    let mut changes = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (a, b, length) in matches(old, new).into_iter().chain([(old.len(), new.len(), 0)]) {
        let kind = match (i < a, j < b) {
            (true, true) => Some(Kind::Replace),
            (true, false) => Some(Kind::Delete),
            (false, true) => Some(Kind::Insert),
            (false, false) => None,
        };
        if let Some(kind) = kind {
            changes.push(Change { kind, old: (i, a), new: (j, b) });
        }
        (i, j) = (a + length, b + length);
        if length > 0 {
            match changes.last_mut() {
                Some(last) if last.kind == Kind::Equal => (last.old.1, last.new.1) = (i, j),
                _ => changes.push(Change { kind: Kind::Equal, old: (a, i), new: (b, j) }),
            }
        }
    }
    changes
}

/// Cuts long equal runs down to the context around changes.
fn groups(mut changes: Vec<Change>) -> Vec<Vec<Change>> {
    if let Some(first) = changes.first_mut()
        && first.kind == Kind::Equal
    {
        first.old.0 = first.old.0.max(first.old.1.saturating_sub(CONTEXT));
        first.new.0 = first.new.0.max(first.new.1.saturating_sub(CONTEXT));
    }
    if let Some(last) = changes.last_mut()
        && last.kind == Kind::Equal
    {
        last.old.1 = last.old.1.min(last.old.0 + CONTEXT);
        last.new.1 = last.new.1.min(last.new.0 + CONTEXT);
    }
    let mut groups = Vec::new();
    let mut group: Vec<Change> = Vec::new();
    for mut change in changes {
        if change.kind == Kind::Equal && change.old.1 - change.old.0 > 2 * CONTEXT {
            let mut tail = change;
            tail.old.1 = change.old.0 + CONTEXT;
            tail.new.1 = change.new.0 + CONTEXT;
            group.push(tail);
            groups.push(std::mem::take(&mut group));
            change.old.0 = change.old.1 - CONTEXT;
            change.new.0 = change.new.1 - CONTEXT;
        }
        group.push(change);
    }
    if group.iter().any(|change| change.kind != Kind::Equal) {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_read_as_unified_hunks() {
        let old: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
        let mut new = old.clone();
        new[9] = "ten".into();
        assert_eq!(
            unified(&old.join("\n"), &new.join("\n")),
            "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
        );
        new.remove(18);
        let text = unified(&old.join("\n"), &new.join("\n"));
        assert!(text.contains("@@ -16,5 +16,4 @@\n 16\n 17\n 18\n-19\n 20\n"), "{text}");
        assert_eq!(unified("a", "a"), "");
    }

    /// Lines that are alike take time by their square and more to be compared.
    #[test]
    fn long_texts_are_shown_as_one_change() {
        let lines = |count: usize, text: &str| vec![text; count].join("\n");
        let (old, new) = (format!("a\n{}\nz", lines(300_000, "x")), format!("a\nb\n{}\nz", lines(200_000, "x")));
        let text = unified(&old, &new);
        assert!(text.starts_with("@@ -1,") && text.contains("\n a\n-x\n"), "{}", &text[..100]);
        assert!(text.len() < 2 * SHOWN);
        let (old, new) = (lines(5_000, "x"), lines(4_999, "x"));
        assert_eq!(unified(&old, &new), "@@ -4997,4 +4997,3 @@\n x\n x\n x\n-x\n");
    }
}
