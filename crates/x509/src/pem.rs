//! PEM as Go's library reads it: what is no well-formed block is passed over, and blocks behind it are found all the same.
//! Two readers that disagree on where a bundle ends would trust different authorities.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub label: String,
    /// Whether lines like `Proc-Type: 4,ENCRYPTED` stand before the contents.
    pub headers: bool,
    pub contents: Vec<u8>,
}

/// All blocks of a text. Each part of it is looked at once, however many false beginnings it has.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let (mut at, mut end) = (0, 0);
    while let Some(begin) = line_start(text, BEGIN, at) {
        let (first, after) = line(text, begin + BEGIN.len());
        at = after;
        let Some(label) = first.strip_suffix(DASHES) else { continue };
        let mut headers = false;
        let mut body = after;
        while body < text.len() {
            let (header, next) = line(text, body);
            if !header.contains(':') {
                break;
            }
            (headers, body) = (true, next);
        }
        at = body;
        if end < body {
            match line_start(text, END, body.saturating_sub(1)) {
                Some(next) => end = next,
                None => return found,
            }
        }
        let (last, behind) = line(text, end + END.len());
        // Dashes are no base64: with another beginning in between, this one has no end.
        let inner = line_start(text, BEGIN, body).is_some_and(|next| next < end);
        if inner || last.strip_suffix(DASHES) != Some(label) || end < body {
            continue;
        }
        let compact: String = text[body..end].chars().filter(|c| !c.is_ascii_whitespace()).collect();
        if let Ok(contents) = STANDARD.decode(compact) {
            found.push(Block { label: label.to_owned(), headers, contents });
            at = behind;
        }
    }
    found
}

/// Where a line begins with a mark, at a place or behind it.
fn line_start(text: &str, mark: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let starts = from == 0 || text.as_bytes().get(from - 1) == Some(&b'\n');
    if starts && rest.starts_with(mark) {
        return Some(from);
    }
    rest.match_indices(mark).map(|(at, _)| from + at).find(|at| *at > 0 && text.as_bytes()[at - 1] == b'\n')
}

/// The line that begins at a place, without what is white at its end, and where the next one begins.
fn line(text: &str, from: usize) -> (&str, usize) {
    let rest = text.get(from..).unwrap_or_default();
    let length = rest.find('\n').map_or(rest.len(), |at| at + 1);
    (rest[..length].trim_end_matches([' ', '\t', '\r', '\n']), from + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(String, bool, Vec<u8>)> {
        blocks(text).into_iter().map(|block| (block.label, block.headers, block.contents)).collect()
    }

    #[test]
    fn blocks_are_found_behind_what_is_none() {
        let block = |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        let (one, two) = (("A".to_owned(), false, b"one".to_vec()), ("B".to_owned(), false, b"two".to_vec()));
        let (first, second) = (block("A", "b25l"), block("B", "dHdv"));
        for (text, wanted) in [
            (String::new(), vec![]),
            ("nothing".to_owned(), vec![]),
            (format!("words\n{first}words\n{second}"), vec![one.clone(), two.clone()]),
            (format!("words {first}{second}"), vec![two.clone()]),
            (first.replace('\n', "\r\n"), vec![one.clone()]),
            (format!("{}{second}", block("A", "no base64!")), vec![two.clone()]),
            (format!("-----BEGIN A-----\nb25l\n{second}"), vec![two.clone()]),
            (format!("{}{second}", first.replace("END A", "END C")), vec![two.clone()]),
            ("-----BEGIN A-----\nb25l\n".to_owned(), vec![]),
            (block("A", "K: v\n\nb25l"), vec![("A".to_owned(), true, b"one".to_vec())]),
            (block("A", " b2\t5l "), vec![one.clone()]),
            ("-----BEGIN A-----\n-----END A-----\n".to_owned(), vec![("A".to_owned(), false, Vec::new())]),
        ] {
            assert_eq!(labels(&text), wanted, "{text:?}");
        }
    }

    #[test]
    fn false_beginnings_cost_no_more_than_their_bytes() {
        let text = format!("{}-----END B-----\n", "-----BEGIN A-----\n".repeat(50_000));
        let started = std::time::Instant::now();
        assert_eq!(blocks(&text), []);
        assert!(started.elapsed().as_secs() < 5);
    }
}
