//! Texts with mistakes, and texts near one: what upstream's reader says of each, or the JSON it makes of it.

use super::parse;

#[rustfmt::skip]
const TABLE: &[(&str, &str)] = &[
    ("a: b\n c: d\n", "yaml: line 2: mapping values are not allowed in this context"),
    ("a:\n  b: c\n d: e\n", "yaml: line 2: did not find expected key"),
    ("a:\n\tb: c\n", "yaml: line 2: found character that cannot start any token"),
    ("a: b\n\tc: d\n", "yaml: line 2: found a tab character that violates indentation"),
    ("- a\n b\n- c\n", "[\"a b\",\"c\"]"),
    ("a: - b\n", "yaml: block sequence entries are not allowed in this context"),
    ("a: 'b\nc: d\n", "yaml: line 3: found unexpected end of stream"),
    ("a: \"b\n---\nc\"\n", "yaml: line 2: found unexpected document indicator"),
    ("a: |x\n  b\n", "yaml: did not find expected comment or line break"),
    ("a: |0\n  b\n", "yaml: found an indentation indicator equal to 0"),
    ("a: |\n\tb\n", "yaml: line 2: found a tab character where an indentation space is expected"),
    ("a: |9\n  b\n", "yaml: line 1: did not find expected key"),
    ("a: >-\n  b\n  c\n\n  d\n", "{\"a\":\"b c\\nd\"}"),
    ("{a: b\n", "yaml: line 1: did not find expected ',' or '}'"),
    ("{a: b,\n", "yaml: line 1: did not find expected node content"),
    ("[a, b\nc: d\n", "yaml: line 1: did not find expected ',' or ']'"),
    ("{a: b}}\n", "{\"a\":\"b\"}"),
    ("{a: b} c\n", "{\"a\":\"b\"}"),
    ("[a]: b\n", "yaml: invalid map key: []interface {}{\"a\"}"),
    ("? [a]\n: b\n", "yaml: invalid map key: []interface {}{\"a\"}"),
    ("? {a: 1, b: [~, x]}\n: c\n", "yaml: invalid map key: map[interface {}]interface {}{\"a\":1, \"b\":[]interface {}{interface {}(nil), \"x\"}}"),
    ("{~: x}\n", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"x\""),
    ("? \n: {b: 1}\n", "unsupported map key of type: %!s(<nil>), key: <nil>, value: map[interface {}]interface {}{\"b\":1}"),
    ("a\nb: c\n", "yaml: line 2: mapping values are not allowed in this context"),
    ("a: b\nc\n", "yaml: line 3: could not find expected ':'"),
    ("a: b\n[\n", "yaml: line 3: could not find expected ':'"),
    ("a: *b\n", "yaml: unknown anchor 'b' referenced"),
    ("a: &b\n  c: *b\n", "yaml: anchor 'b' value contains itself"),
    ("a: & b\n", "yaml: did not find expected alphabetic or numeric character"),
    ("a: &b! c\n", "yaml: did not find expected alphabetic or numeric character"),
    ("a: !x!y z\n", "yaml: found undefined tag handle"),
    ("a: !!int b\n", "yaml: cannot decode !!str `b` as a !!int"),
    ("a: !!float 5\n", "{\"a\":5}"),
    ("a: !!bool yes\n", "{\"a\":true}"),
    ("a: !!str 5\n", "{\"a\":\"5\"}"),
    ("a: !x 5\n", "{\"a\":\"5\"}"),
    ("a: ! 5\n", "{\"a\":\"5\"}"),
    ("a: !<y z\n", "yaml: did not find the expected '>'"),
    ("a: !%zz b\n", "yaml: did not find URI escaped octet"),
    ("%YAML 1.2\n---\na: b\n", "yaml: found incompatible YAML document"),
    ("%YAML 1.1\na: b\n", "yaml: line 1: did not find expected <document start>"),
    ("%YAML x\n---\n", "yaml: did not find expected version number"),
    ("%TAG ! x\n%TAG ! y\n---\na: b\n", "yaml: line 1: found duplicate %TAG directive"),
    ("%FOO\n---\n", "yaml: found unknown directive name"),
    ("--- a\nb: c\n", "yaml: line 2: mapping values are not allowed in this context"),
    ("---\n...\n---\na: b\n", "null"),
    ("a: \"\\x4\"\n", "yaml: did not find expected hexdecimal number"),
    ("a: \"\\z\"\n", "yaml: found unknown escape character"),
    ("a: \"b\\\n   c\"\n", "{\"a\":\"bc\"}"),
    ("a: \"b\n\n  c\"\n", "{\"a\":\"b\\nc\"}"),
    ("a: .inf\n", "json: unsupported value: +Inf"),
    ("{.inf: a}\n", "{\".inf\":\"a\"}"),
    ("a: b\na: c\n", "{\"a\":\"c\"}"),
    ("x: &m {a: 1}\ny:\n  a: 2\n  <<: *m\n", "{\"true\":{\"a\":1},\"x\":{\"a\":1}}"),
    ("x:\n  <<: b\n", "yaml: map merge requires map or sequence of maps as the value"),
    ("a: @b\n", "yaml: found character that cannot start any token"),
    ("a: `b\n", "yaml: found character that cannot start any token"),
    ("a: %b\n", "yaml: found character that cannot start any token"),
    ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
    ("a: b\n  c: d\n", "yaml: line 2: mapping values are not allowed in this context"),
    ("a:b\n", "\"a:b\""),
    ("a: [b: c]\n", "{\"a\":[{\"b\":\"c\"}]}"),
    ("a: [?]\n", "yaml: line 1: did not find expected ',' or ']'"),
    ("a: b #c\n", "{\"a\":\"b\"}"),
    ("a: b#c\n", "{\"a\":\"b#c\"}"),
    ("\u{feff}a: b\n", "{\"a\":\"b\"}"),
    ("a: b\n\u{feff}c: d\n", "{\"a\":\"b\",\"\u{feff}c\":\"d\"}"),
    ("a: 08\nb: 0o17\nc: 017\nd: 0b11\ne: 1_0\nf: 1e3\n", "{\"a\":8,\"b\":15,\"c\":15,\"d\":3,\"e\":10,\"f\":1000}"),
    ("a: 'b' c\n", "yaml: did not find expected key"),
    ("'a' 'b'\n", "\"a\""),
    ("- a\nb: c\n", "yaml: line 1: did not find expected '-' indicator"),
    ("a:\n- b\nc: d\n- e\n", "yaml: line 3: did not find expected key"),
    ("a: b\r\nc: d\r\n", "{\"a\":\"b\",\"c\":\"d\"}"),
    ("? a\n", "{\"a\":null}"),
    ("a: ,b\n", "yaml: did not find expected node content"),
    ("a: ]\n", "yaml: did not find expected node content"),
    ("...\n", "yaml: did not find expected node content"),
    (": a\n", "yaml: did not find expected key"),
    ("a: \"b\"c\n", "yaml: did not find expected key"),
    ("a: \u{7}\n", "yaml: control characters are not allowed"),
];

#[test]
fn mistakes_are_told_as_upstream_tells_them() {
    for (text, expected) in TABLE {
        match parse(text.as_bytes()) {
            Ok(document) => {
                let expected: serde_json::Value =
                    serde_json::from_str(expected).unwrap_or_else(|_| panic!("{text:?}: {}", document.value));
                assert_eq!(document.value, expected, "{text:?}");
            }
            Err(error) => assert_eq!(error.to_string(), *expected, "{text:?}"),
        }
    }
}

#[test]
fn a_key_without_question_mark_is_short() {
    let long = "x".repeat(1030);
    let error = |text: String| parse(text.as_bytes()).err().map(|error| error.to_string());
    assert_eq!(error(format!("{long}: a\n")).as_deref(), Some("yaml: mapping values are not allowed in this context"));
    assert_eq!(error(format!("a: {{{long}: b}}\n")).as_deref(), Some("yaml: did not find expected ',' or '}'"));
}

#[test]
fn what_is_no_text_is_told_with_its_piece_of_the_text() {
    let error = |body: &[u8]| parse(body).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(error(b"a: \xff\n"), "yaml: invalid leading UTF-8 octet");
    assert_eq!(error(b"a: \xc3(\n"), "yaml: invalid trailing UTF-8 octet");
    assert_eq!(error(b"a: \xe2\x82"), "yaml: incomplete UTF-8 octet sequence");
    assert_eq!(error(b"a: \xc0\x80\n"), "yaml: invalid length of a UTF-8 sequence");
    assert_eq!(error(b"a: \xed\xa0\x80\n"), "yaml: invalid Unicode character");
    // The mistake in the first line is found before the control character far behind it is read.
    let far = format!("a: b: c\n{}\u{7}\n", "# x\n".repeat(500));
    assert_eq!(error(far.as_bytes()), "yaml: mapping values are not allowed in this context");
}
