//! YAML out, in the layout of upstream's answers: sorted keys, lists at the indent of their key, long lines folded.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::resolve;

/// A document; ends with a newline.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut out, map, 0, false),
        Value::Array(items) if !items.is_empty() => write_list(&mut out, items, 0, false),
        other => {
            write_scalar(&mut out, other, 0);
            out.push('\n');
        }
    }
    out
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn write_map(out: &mut String, map: &Map<String, Value>, depth: usize, mut inline: bool) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort_by(|a, b| natural(a, b));
    for key in keys {
        if !std::mem::replace(&mut inline, false) {
            indent(out, depth);
        }
        write_string(out, key, depth, true);
        out.push(':');
        match map.get(key).unwrap_or(&Value::Null) {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(out, inner, depth + 1, false);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                write_list(out, items, depth, false);
            }
            other => {
                out.push(' ');
                write_scalar(out, other, depth + 1);
                out.push('\n');
            }
        }
    }
}

fn write_list(out: &mut String, items: &[Value], depth: usize, mut inline: bool) {
    for item in items {
        if !std::mem::replace(&mut inline, false) {
            indent(out, depth);
        }
        out.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => write_map(out, inner, depth + 1, true),
            Value::Array(inner) if !inner.is_empty() => write_list(out, inner, depth + 1, true),
            other => {
                write_scalar(out, other, depth + 1);
                out.push('\n');
            }
        }
    }
}

fn write_scalar(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(text) => write_string(out, text, depth, false),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        other => {
            let json = crate::encode::encode_any(other, false);
            let json = String::from_utf8_lossy(&json);
            // What is a whole number in JSON is one in YAML, up to 64 bits.
            match other.as_f64().filter(|_| json.parse::<i64>().is_err() && json.parse::<u64>().is_err()) {
                Some(float) => out.push_str(&crate::text::go_float_short(float)),
                None => out.push_str(&json),
            }
        }
    }
}

fn write_string(out: &mut String, text: &str, depth: usize, key: bool) {
    let special = text.chars().any(|c| c != '\n' && !is_printable(c));
    let resolves = !matches!(resolve::plain_scalar(text), Value::String(_))
        || resolve::infinite(text).is_some()
        || is_timestamp(text)
        || is_base_60(text);
    if text.contains('\n') && !key && !special && !text.starts_with([' ', '\n']) && !text.contains(" \n") {
        return write_literal(out, text, depth);
    }
    if special || text.contains('\n') {
        return write_double_quoted(out, text);
    }
    if resolves {
        out.push('"');
        out.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
        out.push('"');
    } else if is_plain(text) {
        write_folded(out, text, depth, key);
    } else {
        out.push('\'');
        write_folded(out, &text.replace('\'', "''"), depth, key);
        out.push('\'');
    }
}

/// A line that is longer than this goes on in the next one after its next space.
const WIDTH: usize = 80;

fn write_folded(out: &mut String, text: &str, depth: usize, key: bool) {
    let start = out.rfind('\n').map_or(0, |at| at + 1);
    let mut column = out[start..].chars().count();
    let mut chars = text.chars().peekable();
    let (mut first, mut after_space) = (true, false);
    while let Some(c) = chars.next() {
        let single = c == ' ' && !after_space && !first && chars.peek().is_some_and(|next| *next != ' ');
        if single && !key && column > WIDTH {
            out.push('\n');
            indent(out, depth);
            column = 2 * depth;
        } else {
            out.push(c);
            column += 1;
        }
        after_space = c == ' ';
        first = false;
    }
}

fn write_literal(out: &mut String, text: &str, depth: usize) {
    let body = text.trim_end_matches('\n');
    let ends = text.len() - body.len();
    out.push_str(match ends {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(out, depth);
            out.push_str(line);
        }
    }
}

fn write_double_quoted(out: &mut String, text: &str) {
    use std::fmt::Write;
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}' => out.push_str("\\0"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\u{1b}' => out.push_str("\\e"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            c if !is_printable(c) => {
                let _ = match c as u32 {
                    code @ ..=0xff => write!(out, "\\x{code:02X}"),
                    code @ ..=0xffff => write!(out, "\\u{code:04X}"),
                    code => write!(out, "\\U{code:08X}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// What upstream's library writes as it is; it knows nothing beyond the first plane.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// A number of 1 to `digits` digits and what follows it.
fn digits(text: &str, digits: usize) -> Option<(u32, &str)> {
    let length = text.bytes().take(digits).take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(length);
    Some((number.parse().ok()?, rest))
}

/// `2001-1-2`, `2001-01-02 03:04:05` or `2001-01-02T03:04:05Z`: other readers would take it for a time.
fn is_timestamp(text: &str) -> bool {
    let parsed = || {
        let year = text.get(..4).filter(|year| year.bytes().all(|byte| byte.is_ascii_digit()))?;
        let (month, rest) = digits(text[4..].strip_prefix('-')?, 2)?;
        let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
        let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
        jiff::civil::Date::new(year.parse().ok()?, month, day).ok()?;
        if rest.is_empty() {
            return Some(());
        }
        let zoned = rest.starts_with(['T', 't']);
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        let (hour, rest) = digits(rest, 2)?;
        let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
        let (second, rest) = digits(rest.strip_prefix(':')?, 2)?;
        let rest = match rest.strip_prefix('.') {
            Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => rest,
        };
        let is_offset = || {
            let (hours, minutes) = rest.strip_prefix(['+', '-'])?.split_once(':')?;
            let two = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            (two(hours) && two(minutes)).then_some(())
        };
        let ends = if zoned { rest == "Z" || is_offset().is_some() } else { rest.is_empty() };
        (hour < 24 && minute < 60 && second < 60 && ends).then_some(())
    };
    parsed().is_some()
}

/// `1:30` and `-190:20:30.15`: numbers to the base of sixty.
fn is_base_60(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (body, fraction) = body.split_once('.').unwrap_or((body, ""));
    let all = |text: &str, also: u8| text.bytes().all(|byte| byte.is_ascii_digit() || byte == also);
    let mut groups = body.split(':');
    let first = groups.next().unwrap_or_default();
    let rest: Vec<&str> = groups.collect();
    let small = |group: &&str| match group.len() {
        1 => all(group, b'0'),
        2 => all(group, b'0') && **group < *"60",
        _ => false,
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && all(first, b'_')
        && !rest.is_empty()
        && rest.iter().all(small)
        && all(fraction, b'_')
}

fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return false };
    let second = chars.next();
    let indicator = match first {
        '-' | '?' | ':' => second.is_none_or(|c| c == ' '),
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => true,
        _ => false,
    };
    !(indicator
        || text.starts_with([' ', '\t'])
        || text.ends_with([' ', '\t', ':'])
        || text.contains(": ")
        || text.contains(" #")
        || text.starts_with("---")
        || text.starts_with("..."))
}

/// Keys are ordered so that `a2` comes before `a10`.
fn natural(left: &str, right: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut digits = false;
    for i in 0..a.len().min(b.len()) {
        if a[i] == b[i] {
            digits = a[i].is_ascii_digit();
            continue;
        }
        let (left_letter, right_letter) = (a[i].is_alphabetic(), b[i].is_alphabetic());
        if left_letter && right_letter {
            return a[i].cmp(&b[i]);
        }
        if left_letter || right_letter {
            return if digits == left_letter { Ordering::Less } else { Ordering::Greater };
        }
        let number = |chars: &[char]| {
            let run: String = chars[i..].iter().take_while(|c| c.is_ascii_digit()).collect();
            (run.len(), run.parse::<u64>().unwrap_or(0))
        };
        let zeros =
            (a[i] == '0' || b[i] == '0') && (0..i).rev().take_while(|j| a[*j].is_ascii_digit()).any(|j| a[j] != '0');
        let ((left_length, left_number), (right_length, right_number)) = (number(&a), number(&b));
        if !zeros && left_number != right_number && left_length > 0 && right_length > 0 {
            return left_number.cmp(&right_number);
        }
        if left_length != right_length {
            return left_length.cmp(&right_length);
        }
        return a[i].cmp(&b[i]);
    }
    a.len().cmp(&b.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quoted_is_what_would_be_read_as_something_else() {
        for (text, quoted) in [
            (".inf", true),
            ("-.Inf", true),
            (".NaN", true),
            ("inf", false),
            ("2001-01-02", true),
            ("2001-1-2", true),
            ("2001-13-45", false),
            ("2001-01-02 b", false),
            ("2001-01-02T03:04:05.5Z", true),
            ("2001-01-02T03:04:05", false),
            ("2001-01-02 03:04:05", true),
            ("1:30", true),
            ("190:20:30.15", true),
            ("190:20:30.15 b", false),
            ("1:60", false),
        ] {
            assert_eq!(to_yaml(&json!({ "a": text })).contains('"'), quoted, "{text}");
        }
    }

    #[test]
    fn what_upstream_cannot_print_is_escaped() {
        assert_eq!(to_yaml(&json!("é日\u{a0}")), "é日\u{a0}\n");
        assert_eq!(to_yaml(&json!("a\u{1f600}")), "\"a\\U0001F600\"\n");
        assert_eq!(to_yaml(&json!("a\u{2028}\u{fffe}\u{7f}")), "\"a\\L\\uFFFE\\x7F\"\n");
    }

    #[test]
    fn numbers_are_written_as_go_does() {
        let value = json!([i64::MIN, u64::MAX, 1e15, 1e20, 1e-7, 1_234_567.5]);
        let expected =
            "- -9223372036854775808\n- 18446744073709551615\n- 1000000000000000\n- 1e+20\n- 1e-07\n- 1.2345675e+06\n";
        assert_eq!(to_yaml(&value), expected);
    }

    #[test]
    fn answers_are_laid_out_as_upstreams() {
        let value = json!({
            "apiVersion": "v1",
            "data": {"multi": "one\ntwo\n", "num": "1", "true": "yes", "a10": "x: y", "a2": "", "colon": "a:b"},
            "metadata": {
                "creationTimestamp": "2024-01-01T00:00:00Z", "resourceVersion": "12",
                "managedFields": [{"apiVersion": "v1", "fieldsV1": {"f:data": {".": {}, "f:k": {}}}}],
                "finalizers": ["a/b", "- x"], "generation": 1,
            },
            "items": [], "none": null
        });
        let expected = concat!(
            "apiVersion: v1\n",
            "data:\n  a2: \"\"\n  a10: 'x: y'\n  colon: a:b\n  multi: |\n    one\n    two\n  num: \"1\"\n  \"true\": \"yes\"\n",
            "items: []\n",
            "metadata:\n  creationTimestamp: \"2024-01-01T00:00:00Z\"\n  finalizers:\n  - a/b\n  - '- x'\n  generation: 1\n",
            "  managedFields:\n  - apiVersion: v1\n    fieldsV1:\n      f:data:\n        .: {}\n        f:k: {}\n",
            "  resourceVersion: \"12\"\nnone: null\n",
        );
        assert_eq!(to_yaml(&value), expected);
    }
}
