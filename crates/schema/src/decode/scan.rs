//! A JSON reader that agrees with Go's `encoding/json` on what is valid and on the words of its syntax errors.
//!
//! [`validate`] runs first and without recursion; the typed reader may then rely on well-formed text.

use ferry_meta::bounds::{ENTRY, Extent, ITEM, MAP};

/// Go refuses deeper nesting, and so does this.
const MAX_NESTING: usize = 10_000;

/// Checks that the text is exactly one JSON value, and tells what that would take; the error is Go's.
pub(crate) fn validate(input: &[u8]) -> Result<Extent, String> {
    let mut at = 0;
    let (mut depth, mut weight) = (0, input.len());
    // True for an object, false for an array.
    let mut open: Vec<bool> = Vec::new();
    let end = || "unexpected end of JSON input".to_owned();
    loop {
        // A value begins here.
        at = skip_space(input, at);
        depth = depth.max(open.len());
        match input.get(at).copied().ok_or_else(end)? {
            b'{' => {
                open.push(true);
                if open.len() > MAX_NESTING {
                    return Err("invalid character '{' exceeded max depth".to_owned());
                }
                at = skip_space(input, at + 1);
                match input.get(at).copied().ok_or_else(end)? {
                    b'}' => {
                        open.pop();
                        at += 1;
                    }
                    _ => {
                        weight += MAP + ENTRY;
                        at = key_and_colon(input, at)?;
                        continue;
                    }
                }
            }
            b'[' => {
                open.push(false);
                if open.len() > MAX_NESTING {
                    return Err("invalid character '[' exceeded max depth".to_owned());
                }
                at = skip_space(input, at + 1);
                match input.get(at).copied().ok_or_else(end)? {
                    b']' => {
                        open.pop();
                        at += 1;
                    }
                    _ => {
                        weight += ITEM;
                        continue;
                    }
                }
            }
            b'"' => at = string(input, at)?,
            b't' => at = literal(input, at, "true")?,
            b'f' => at = literal(input, at, "false")?,
            b'n' => at = literal(input, at, "null")?,
            b'-' | b'0'..=b'9' => at = number(input, at)?,
            other => return Err(unexpected(other, "looking for beginning of value")),
        }
        // A value ended here.
        loop {
            at = skip_space(input, at);
            let Some(is_object) = open.last().copied() else {
                return match input.get(at).copied() {
                    None => Ok(Extent { depth, weight }),
                    Some(other) => Err(unexpected(other, "after top-level value")),
                };
            };
            match (input.get(at).copied().ok_or_else(end)?, is_object) {
                (b',', true) => {
                    weight += ENTRY;
                    at = key_and_colon(input, skip_space(input, at + 1))?;
                    break;
                }
                (b',', false) => {
                    weight += ITEM;
                    at += 1;
                    break;
                }
                (b'}', true) | (b']', false) => {
                    open.pop();
                    at += 1;
                }
                (other, true) => return Err(unexpected(other, "after object key:value pair")),
                (other, false) => return Err(unexpected(other, "after array element")),
            }
        }
    }
}

fn key_and_colon(input: &[u8], at: usize) -> Result<usize, String> {
    match input.get(at).copied() {
        None => return Err("unexpected end of JSON input".to_owned()),
        Some(b'"') => {}
        Some(other) => return Err(unexpected(other, "looking for beginning of object key string")),
    }
    let at = skip_space(input, string(input, at)?);
    match input.get(at).copied() {
        None => Err("unexpected end of JSON input".to_owned()),
        Some(b':') => Ok(at + 1),
        Some(other) => Err(unexpected(other, "after object key")),
    }
}

pub(crate) fn skip_space(input: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = input.get(at) {
        at += 1;
    }
    at
}

/// The first byte at or behind `at` that ends or interrupts a string: a quote, a backslash, a control character. Eight bytes
/// at a time, since most of what is read is text.
fn interrupted(input: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const TOPS: u64 = u64::from_le_bytes([0x80; 8]);
    let holds = |word: u64, byte: u8| {
        let difference = word ^ (ONES * u64::from(byte));
        difference.wrapping_sub(ONES) & !difference & TOPS
    };
    while let Some(bytes) = input.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*bytes);
        let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        // Bits above the lowest one may be wrong: a subtraction borrows from the next byte.
        let found = holds(word, b'"') | holds(word, b'\\') | control;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while input.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// From the opening quote to behind the closing one.
fn string(input: &[u8], at: usize) -> Result<usize, String> {
    let mut at = at + 1;
    loop {
        at = interrupted(input, at);
        match input.get(at).copied() {
            None => return Err("unexpected end of JSON input".to_owned()),
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => {
                at += 1;
                match input.get(at).copied() {
                    None => return Err("unexpected end of JSON input".to_owned()),
                    Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => at += 1,
                    Some(b'u') => {
                        for _ in 0..4 {
                            at += 1;
                            match input.get(at).copied() {
                                None => return Err("unexpected end of JSON input".to_owned()),
                                Some(c) if c.is_ascii_hexdigit() => {}
                                Some(c) => return Err(unexpected(c, "in \\u hexadecimal character escape")),
                            }
                        }
                        at += 1;
                    }
                    Some(other) => return Err(unexpected(other, "in string escape code")),
                }
            }
            Some(c) => return Err(unexpected(c, "in string literal")),
        }
    }
}

fn literal(input: &[u8], at: usize, word: &str) -> Result<usize, String> {
    for (i, expected) in word.bytes().enumerate() {
        match input.get(at + i).copied() {
            None => return Err("unexpected end of JSON input".to_owned()),
            Some(c) if c == expected => {}
            Some(c) => {
                return Err(unexpected(c, &format!("in literal {word} (expecting '{}')", expected as char)));
            }
        }
    }
    Ok(at + word.len())
}

fn number(input: &[u8], at: usize) -> Result<usize, String> {
    let digits = |mut at: usize| {
        while input.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let digit_at = |at: usize, context: &str| match input.get(at).copied() {
        None => Err("unexpected end of JSON input".to_owned()),
        Some(c) if c.is_ascii_digit() => Ok(()),
        Some(c) => Err(unexpected(c, context)),
    };
    let mut at = at;
    if input[at] == b'-' {
        at += 1;
        digit_at(at, "in numeric literal")?;
    }
    at = if input[at] == b'0' { at + 1 } else { digits(at) };
    if input.get(at) == Some(&b'.') {
        digit_at(at + 1, "after decimal point in numeric literal")?;
        at = digits(at + 1);
    }
    if let Some(b'e' | b'E') = input.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = input.get(at) {
            at += 1;
        }
        digit_at(at, "in exponent of numeric literal")?;
        at = digits(at);
    }
    Ok(at)
}

fn unexpected(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        other => {
            let quoted = crate::text::quote(char::from(other).encode_utf8(&mut [0; 4]));
            quoted.trim_matches('"').to_owned()
        }
    };
    format!("invalid character '{shown}' {context}")
}

/// Behind the value that begins at `at`, in well-formed text.
pub(crate) fn skip_value(input: &[u8], at: usize) -> usize {
    let mut at = skip_space(input, at);
    let mut depth = 0usize;
    loop {
        match input.get(at).copied() {
            None => return at,
            Some(b'"') => at = skip_string(input, at),
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
            }
            Some(b'}' | b']') => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            Some(b',' | b':' | b' ' | b'\t' | b'\r' | b'\n') => at += 1,
            Some(_) => {
                while input.get(at).is_some_and(|c| !matches!(c, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')) {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return at;
        }
    }
}

fn skip_string(input: &[u8], at: usize) -> usize {
    let mut at = interrupted(input, at + 1);
    while let Some(c) = input.get(at) {
        match c {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
        at = interrupted(input, at);
    }
    at
}

/// The text of the string that begins at `at`, and the place behind it. Like Go, bytes that are no UTF-8 and lone surrogates
/// become U+FFFD.
pub(crate) fn read_string(input: &[u8], at: usize) -> (String, usize) {
    let first = interrupted(input, at + 1);
    let plain = input.get(first) == Some(&b'"');
    let end = if plain { first + 1 } else { skip_string(input, at) };
    let inner = input.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
    if plain {
        return (String::from_utf8_lossy(inner).into_owned(), end);
    }
    let mut out: Vec<u8> = Vec::with_capacity(inner.len());
    let mut i = 0;
    while let Some(c) = inner.get(i).copied() {
        if c != b'\\' {
            out.push(c);
            i += 1;
            continue;
        }
        let escape = inner.get(i + 1).copied().unwrap_or(b'\\');
        i += 2;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let unit = hex4(inner, i);
                i += 4;
                let mut decoded = char::from_u32(unit);
                if (0xd800..0xdc00).contains(&unit) && inner.get(i..i + 2) == Some(b"\\u") {
                    let low = hex4(inner, i + 2);
                    if (0xdc00..0xe000).contains(&low) {
                        decoded = char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
                        i += 6;
                    }
                }
                let mut buffer = [0; 4];
                out.extend_from_slice(decoded.unwrap_or('\u{fffd}').encode_utf8(&mut buffer).as_bytes());
            }
            other => out.push(other),
        }
    }
    (String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()), end)
}

fn hex4(input: &[u8], at: usize) -> u32 {
    let digits = input.get(at..at + 4).and_then(|d| std::str::from_utf8(d).ok()).unwrap_or("fffd");
    u32::from_str_radix(digits, 16).unwrap_or(0xfffd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, error: &str) {
        assert_eq!(validate(text.as_bytes()).err().as_deref().unwrap_or_default(), error, "{text}");
    }

    #[test]
    fn syntax_errors_read_as_gos() {
        check("", "unexpected end of JSON input");
        check("{", "unexpected end of JSON input");
        check(r#"{"a":"#, "unexpected end of JSON input");
        check("{} x", "invalid character 'x' after top-level value");
        check("apiVersion", "invalid character 'a' looking for beginning of value");
        check("{a}", "invalid character 'a' looking for beginning of object key string");
        check(r#"{"a" 1}"#, "invalid character '1' after object key");
        check(r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair");
        check("[1 2]", "invalid character '2' after array element");
        check("[1,]", "invalid character ']' looking for beginning of value");
        check("tru", "unexpected end of JSON input");
        check("trux", "invalid character 'x' in literal true (expecting 'e')");
        check("1.x", "invalid character 'x' after decimal point in numeric literal");
        check("-x", "invalid character 'x' in numeric literal");
        check("1e", "unexpected end of JSON input");
        check("\"a\nb\"", "invalid character '\\n' in string literal");
        check(r#""\x""#, "invalid character 'x' in string escape code");
        check(r#""\u00g0""#, "invalid character 'g' in \\u hexadecimal character escape");
        check("01", "invalid character '1' after top-level value");
        check(&"[".repeat(20_000), "invalid character '[' exceeded max depth");
        check(&"{\"a\":".repeat(20_000), "invalid character '{' exceeded max depth");
        check(&format!("{}{}", "[".repeat(9_999), "]".repeat(9_999)), "");
        check(r#" {"a": [1, -2.5e+3, true, false, null, "\u00e9\ud83d\ude00"]} "#, "");
    }

    #[test]
    fn extents_are_those_of_the_values() {
        for text in
            ["1", "[]", "{}", "[[],{},[1,2]]", r#"{"a":{"b":[1,{"c":"d"}]},"e":[]}"#, " [ { } , { \"a\" : 1 } ] "]
        {
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            let (read, made) = (validate(text.as_bytes()).expect("JSON"), Extent::of(&value));
            assert_eq!(read.depth, made.depth, "{text}");
            // Of the text all bytes count, of the value those of texts and keys.
            assert!(read.weight >= made.weight && read.weight <= made.weight + text.len(), "{text}");
        }
    }

    #[test]
    fn strings_decode_as_gos() {
        assert_eq!(read_string(br#""a\u00e9\ud83d\ude00\ud800x\n\/""#, 0).0, "aé😀\u{fffd}x\n/");
        assert_eq!(read_string(b"\"a\xffb\"", 0).0, "a\u{fffd}b");
        // Whatever stands where in a group of eight bytes.
        for length in 0..20 {
            let plain = "é".repeat(length);
            assert_eq!(read_string(format!("\"{plain}\" \"").as_bytes(), 0), (plain.clone(), 2 * length + 2));
            assert_eq!(read_string(format!("\"{plain}\\\"{plain}\"").as_bytes(), 0).0, format!("{plain}\"{plain}"));
            check(&format!("\"{plain}\u{1f}x\""), "invalid character '\\x1f' in string literal");
            check(&format!("\"{plain}\u{7f} \""), "");
        }
    }
}
