//! What of an answer need not be decoded at all: managedFields are a third of many objects, and no loop reads them.

use memchr::memmem;

const MANAGED_FIELDS: &[u8] = b"\"managedFields\"";
const METADATA: &[u8] = b"\"metadata\"";

/// How many braces are open within the metadata of an object.
const DEPTH: usize = 2;

/// The same object without its managedFields. What is not JSON stays as it is, for the parser to judge.
pub(super) fn strip<'a>(json: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if memmem::find(json, MANAGED_FIELDS).is_none() {
        return json;
    }
    scratch.clear();
    let (mut at, mut copied, mut level) = (0, 0, 0_usize);
    // Whether the next brace opens metadata, and whether we are directly in it.
    let (mut announced, mut inside) = (false, false);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                let end = string_end(json, at);
                let text = &json[at..end];
                if level + 1 == DEPTH {
                    announced = text == METADATA && value_of_key(json, end).is_some();
                } else if inside
                    && level == DEPTH
                    && text == MANAGED_FIELDS
                    && let Some(value) = value_of_key(json, end)
                {
                    let (from, to) = with_comma(json, copied, at, value_end(json, value));
                    scratch.extend_from_slice(&json[copied..from]);
                    (at, copied) = (to, to);
                    if memmem::find(&json[to..], MANAGED_FIELDS).is_none() {
                        break;
                    }
                    continue;
                }
                at = end;
                continue;
            }
            b'{' | b'[' => {
                level += 1;
                if level == DEPTH {
                    inside = announced && *byte == b'{';
                }
            }
            b'}' | b']' => {
                inside &= level != DEPTH;
                level = level.saturating_sub(1);
            }
            _ => {}
        }
        at += 1;
    }
    scratch.extend_from_slice(&json[copied..]);
    scratch
}

/// Behind the closing quote of the string that begins here.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

fn blank_end(json: &[u8], mut at: usize) -> usize {
    while json.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Where the value begins when the string before was a key.
fn value_of_key(json: &[u8], key_end: usize) -> Option<usize> {
    let colon = blank_end(json, key_end);
    (json.get(colon) == Some(&b':')).then(|| blank_end(json, colon + 1))
}

fn value_end(json: &[u8], start: usize) -> usize {
    let (mut at, mut level) = (start, 0_usize);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                at = string_end(json, at);
                if level == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => level += 1,
            b'}' | b']' if level <= 1 => return if level == 0 { at } else { at + 1 },
            b'}' | b']' => level -= 1,
            b',' if level == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    json.len()
}

/// The stretch with one of the commas around it that are still there, so that what remains is JSON.
fn with_comma(json: &[u8], copied: usize, from: usize, to: usize) -> (usize, usize) {
    let before = json[..from].iter().rposition(|byte| !byte.is_ascii_whitespace());
    if let Some(comma) = before.filter(|at| *at >= copied && json[*at] == b',') {
        return (comma, to);
    }
    let after = blank_end(json, to);
    (from, if json.get(after) == Some(&b',') { after + 1 } else { to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn check(json: &str, expected: &str) {
        let mut scratch = vec![1, 2, 3];
        let got = strip(json.as_bytes(), &mut scratch);
        assert_eq!(String::from_utf8_lossy(got), expected, "{json}");
        assert!(serde_json::from_slice::<Value>(got).is_ok(), "{json}");
    }

    #[test]
    fn managed_fields_of_the_object_go_and_nothing_else() {
        for (json, expected) in [
            (
                r#"{"kind":"x","metadata":{"name":"a","managedFields":[{"f":{"k":["}"]}}]},"spec":{}}"#,
                r#"{"kind":"x","metadata":{"name":"a"},"spec":{}}"#,
            ),
            (r#"{"metadata":{"managedFields":[],"x":1}}"#, r#"{"metadata":{"x":1}}"#),
            (r#"{"metadata":{"managedFields":null}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata" : { "a":"\"", "managedFields" : "x" }}"#, r#"{"metadata" : { "a":"\"" }}"#),
            (r#"{"metadata":{"managedFields":[1],"managedFields":[2],"a":1}}"#, r#"{"metadata":{"a":1}}"#),
        ] {
            check(json, expected);
        }
        // The same name elsewhere is the object's own.
        for json in [
            r#"{"spec":{"managedFields":[1]},"kind":"metadata","data":{"managedFields":"x"}}"#,
            r#"{"metadata":{"labels":{"managedFields":"x"},"name":"managedFields"}}"#,
            r#"{"spec":{"metadata":{"managedFields":[1]}}}"#,
            r#"{"metadata":[{"managedFields":[1]}]}"#,
        ] {
            check(json, json);
        }
    }

    #[test]
    fn what_is_cut_off_harms_nobody() {
        let whole = br#"{"metadata":{"name":"a\"b","managedFields":[{"f":{"k":["}"]}}],"c":"\\"}}"#;
        for end in 0..whole.len() {
            strip(&whole[..end], &mut Vec::new());
        }
        strip(br#"]]}}{"managedFields":{{{"#, &mut Vec::new());
    }
}
