//! The text of an expression, and errors that point into it.

use std::fmt::Write;

/// More are counted: each shows the line it stands in.
const MOST_ISSUES: usize = 100;
/// Lines that are longer are not shown.
const LONGEST_LINE: usize = 16 << 10;

/// What is wrong at a place. Without a place: with the text as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    pub at: Option<usize>,
    pub message: String,
}

/// Prints issues as cel-go does, in the order of their places.
pub fn show(source: &str, mut issues: Vec<Issue>) -> String {
    issues.sort_by_key(|issue| issue.at);
    issues.dedup();
    let characters: Vec<char> = source.chars().collect();
    let mut texts: Vec<String> = issues.iter().take(MOST_ISSUES).map(|issue| one(&characters, issue)).collect();
    if issues.len() > MOST_ISSUES {
        texts.push(format!("{} more errors were truncated", issues.len() - MOST_ISSUES));
    }
    texts.join("\n")
}

fn one(source: &[char], issue: &Issue) -> String {
    let Some(at) = issue.at else { return format!("ERROR: <input>:-1:0: {}", issue.message) };
    if source.is_empty() {
        return format!("ERROR: <input>:1:0: {}", issue.message);
    }
    let at = at.min(source.len());
    let before = &source[..at];
    let line = before.iter().filter(|c| **c == '\n').count() + 1;
    let start = before.iter().rposition(|c| *c == '\n').map_or(0, |index| index + 1);
    let column = at - start;
    let end = source[start..].iter().position(|c| *c == '\n').map_or(source.len(), |index| start + index);
    if end - start > LONGEST_LINE {
        return format!("ERROR: <input>:{line}:{}: {}", column + 1, issue.message);
    }
    let snippet: String = source[start..end].iter().map(|c| if *c == '\t' { ' ' } else { *c }).collect();
    let mut text = format!("ERROR: <input>:{line}:{}: {}\n | {snippet}\n | ", column + 1, issue.message);
    // Wide characters are answered by wide dots, so that the mark stands below its place.
    for c in &source[start..start + column] {
        text.push(if c.len_utf8() > 1 { '．' } else { '.' });
    }
    let wide = source.get(at).is_some_and(|c| c.len_utf8() > 1 && at < end);
    let _ = write!(text, "{}", if wide { '＾' } else { '^' });
    text
}
