//! The words of upstream's YAML reader for a mistake, and the line it names.
//!
//! Its scanner counts lines from one and its parser from zero, the end of a text stands on a line of its own, and neither
//! names the first line.

use std::ops::Range;

use granit_parser::{ErrorKind, ScanError};

/// Who finds a mistake in upstream's reader.
enum Finder {
    Scanner,
    Parser,
}

/// Characters that no text may have.
pub(super) fn control_characters(text: &str) -> Option<String> {
    let is_control = |c: char| {
        !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
            && c < '\u{10000}'
            && c != '\u{feff}'
    };
    text.contains(is_control).then(|| "yaml: control characters are not allowed".to_owned())
}

pub(super) fn of(error: &ScanError, text: &str) -> String {
    let marker = error.marker();
    let lines = text.lines().count().max(1);
    let before: String = text.chars().take(marker.index()).collect();
    let rest = text.chars().skip(marker.index()).collect::<String>();
    let at_end = rest.trim().is_empty();
    // As upstream counts: what is at the end is on the line behind the last.
    let line = if at_end { lines + 1 } else { marker.line().max(1) };
    let (finder, what) = match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::UnexpectedCharacter { .. } => (Finder::Scanner, "found character that cannot start any token"),
        ErrorKind::InvalidQuotedScalarIndent => {
            let line = text.matches('\n').count() + 1;
            return placed(&Finder::Scanner, line, "found unexpected end of stream");
        }
        ErrorKind::UnclosedFlowCollection { .. } if is_key(text) => {
            return placed(&Finder::Scanner, lines + 1, "could not find expected ':'");
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping => {
            let bracket = open_bracket(text).unwrap_or('[');
            return placed(&Finder::Parser, lines + 1, in_brackets(text, bracket));
        }
        ErrorKind::ExpectedBlockMappingKey => (Finder::Parser, "did not find expected key"),
        ErrorKind::ExpectedBlockSequenceEntry => (Finder::Parser, "did not find expected '-' indicator"),
        ErrorKind::ExpectedNodeContent => (Finder::Parser, "did not find expected node content"),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => {
            return placed(&Finder::Scanner, next_line(text, marker.line()), "could not find expected ':'");
        }
        ErrorKind::UnclosedQuotedScalar => {
            let line = if marker.line() <= 1 { text.matches('\n').count() + 1 } else { marker.line() };
            return placed(&Finder::Scanner, line, "found unexpected end of stream");
        }
        ErrorKind::MappingValueNotAllowed if open_bracket(&before).is_none() => {
            (Finder::Scanner, "mapping values are not allowed in this context")
        }
        ErrorKind::MappingKeyNotAllowed => (Finder::Scanner, "mapping keys are not allowed in this context"),
        ErrorKind::ExpectedDocumentStart => (Finder::Parser, "did not find expected <document start>"),
        ErrorKind::UnknownAnchor => return alias(text, marker.index()),
        other => {
            let said = other.to_string();
            let escape = said.strip_prefix("while parsing a quoted scalar, ");
            match (escape, open_bracket(&before)) {
                (Some(said), _) => {
                    let surrogate = said.contains("surrogate") || said.contains("Unicode");
                    let said = said.replace("hexadecimal", "hexdecimal");
                    let said = if surrogate { "found invalid Unicode character escape code" } else { &said };
                    return placed(&Finder::Scanner, line, said);
                }
                (None, Some(bracket)) => (Finder::Parser, in_brackets(&before, bracket)),
                (None, None) => return placed(&Finder::Scanner, line, &said),
            }
        }
    };
    placed(&finder, line, what)
}

fn placed(finder: &Finder, line: usize, what: &str) -> String {
    match finder {
        Finder::Scanner if line > 1 => format!("yaml: line {line}: {what}"),
        Finder::Parser if line > 1 => format!("yaml: line {}: {what}", line - 1),
        _ => format!("yaml: {what}"),
    }
}

/// The line of what stands behind this one; the end is a line of its own.
fn next_line(text: &str, line: usize) -> usize {
    let has_content = |text: &str| !text.trim().is_empty() && !text.trim_start().starts_with('#');
    let next = text.lines().enumerate().skip(line).find(|(_, text)| has_content(text));
    next.map_or_else(|| text.lines().count() + 1, |(index, _)| index + 1)
}

/// What no text may begin with.
pub(super) fn beginning(text: &str) -> Option<String> {
    let before = text.len() - text.trim_start().len();
    let (space, rest) = text.split_at(before);
    let line = space.matches('\n').count() + 1;
    if space.rsplit('\n').next().is_some_and(|indentation| indentation.contains('\t')) && !rest.is_empty() {
        return Some(placed(&Finder::Scanner, line, "found character that cannot start any token"));
    }
    if rest == "..." || rest.starts_with("...\n") {
        return Some(placed(&Finder::Parser, line, "did not find expected node content"));
    }
    let directive = rest.strip_prefix('%')?;
    let known = ["YAML", "TAG"].iter().any(|name| directive.starts_with(name));
    (!known).then(|| placed(&Finder::Scanner, line, "found unknown directive name"))
}

/// The document in brackets before a closing one that nothing opened.
pub(super) fn before_stray_bracket(error: &ScanError, text: &str) -> Option<String> {
    let stray = matches!(error.kind(), ErrorKind::MisplacedFlowCollectionEnd);
    let before: String = text.chars().take(error.marker().index()).collect();
    let whole = before.trim_start().starts_with(['[', '{']) && before.trim_end().ends_with([']', '}']);
    (stray && whole && open_bracket(&before).is_none()).then_some(before)
}

/// A colon without a key; in brackets it has one, which is null.
pub(super) fn null_key(text: &str, at: usize, line: usize) -> Option<String> {
    let before: String = text.chars().take(at).collect();
    let colon = text.chars().nth(at) == Some(':');
    (colon && open_bracket(&before).is_none()).then(|| placed(&Finder::Parser, line, "did not find expected key"))
}

/// Halves of characters cannot be written in YAML, though JSON has them. `place` is that of a quoted text.
pub(super) fn surrogates(text: &str, place: Range<usize>) -> Result<(), String> {
    let start = place.start;
    let quoted = text.get(place).unwrap_or_default();
    let mut from = 0;
    while let Some(found) = quoted[from..].find('\\') {
        let at = from + found;
        let escape = &quoted[at + 1..];
        let digits = match escape.as_bytes().first() {
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let code = escape.get(1..=digits).filter(|_| digits > 0).and_then(|code| u32::from_str_radix(code, 16).ok());
        if code.is_some_and(|code| char::from_u32(code).is_none()) {
            let lines = text[..start + at].matches('\n').count();
            return Err(placed(&Finder::Scanner, lines + 1, "found invalid Unicode character escape code"));
        }
        from = at + 1 + escape.chars().next().map_or(0, char::len_utf8);
    }
    Ok(())
}

/// Whether the outermost bracket that stays open stands where the next key of a map has to.
fn is_key(text: &str) -> bool {
    let Some((line, content)) =
        text.lines().enumerate().find(|(_, content)| content.trim_start().starts_with(['[', '{']))
    else {
        return false;
    };
    let indentation = |text: &str| text.len() - text.trim_start().len();
    let earlier = text.lines().take(line).filter(|earlier| !earlier.trim().is_empty()).last();
    earlier.is_some_and(|earlier| {
        indentation(earlier) == indentation(content) && earlier.contains(": ") && open_bracket(earlier).is_none()
    })
}

/// The innermost bracket that is open at the end of a text.
fn open_bracket(text: &str) -> Option<char> {
    let mut open = Vec::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), _) => quote = (q != c).then_some(q),
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => open.push(c),
            (None, ']' | '}') => drop(open.pop()),
            _ => {}
        }
    }
    open.pop()
}

/// What is missing within brackets: a value behind a separator, a separator behind a value.
fn in_brackets(before: &str, bracket: char) -> &'static str {
    match (before.trim_end().chars().next_back(), bracket) {
        (Some('[' | '{' | ',' | ':'), _) => "did not find expected node content",
        (_, '[') => "did not find expected ',' or ']'",
        _ => "did not find expected ',' or '}'",
    }
}

/// An alias at this place, of nothing that is known.
pub(super) fn alias(text: &str, at: usize) -> String {
    let before: String = text.chars().take(at).collect();
    let is_name = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let name: String = text.chars().skip(at).skip_while(|c| *c == '*').take_while(is_name).collect();
    if before.contains(&format!("&{name}")) {
        return format!("yaml: anchor '{name}' value contains itself");
    }
    format!("yaml: unknown anchor '{name}' referenced")
}
