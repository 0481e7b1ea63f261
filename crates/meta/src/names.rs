//! The shapes of names, with the words upstream refuses a wrong one. Each check returns the reasons; none means well-formed.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// The reasons against a value.
pub type Reasons = Vec<String>;

pub fn max_length(length: usize) -> String {
    format!("must be no more than {length} characters")
}

pub fn in_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// `message (e.g. 'a',  or 'b', regex used for validation is 'x')`, spaced as upstream spaces it.
pub fn regex_reason(message: &str, pattern: &str, examples: &[&str]) -> String {
    let mut text = format!("{message} (");
    for (index, example) in examples.iter().enumerate() {
        text += if index == 0 { "e.g. " } else { " or " };
        text += &format!("'{example}', ");
    }
    text + &format!("regex used for validation is '{pattern}')")
}

/// Whether `text` is a run of lower-case letters, digits and inner dashes.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    match bytes {
        [] => false,
        [first, .., last] => edge(*first) && edge(*last) && bytes.iter().all(|b| edge(*b) || *b == b'-'),
        [only] => edge(*only),
    }
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Letters, digits and inner `-`, `_`, `.`.
fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    match bytes {
        [] => false,
        [only] => only.is_ascii_alphanumeric(),
        [first, .., last] => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        }
    }
}

pub fn dns1123_label(value: &str) -> Reasons {
    let mut reasons = too_long(value, 63);
    if !is_label(value) {
        reasons.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_reason(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    reasons
}

pub fn dns1123_subdomain(value: &str) -> Reasons {
    let mut reasons = too_long(value, 253);
    if !is_subdomain(value) {
        reasons.push(regex_reason(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    reasons
}

/// A subdomain as upstream's generic rules word it.
pub fn long_name(value: &str) -> Reasons {
    dns1123_subdomain(value).into_iter().map(|reason| reason.replace("253 characters", "253 bytes")).collect()
}

/// As a subdomain, where a part may start with or contain an underscore (DNS search paths).
pub fn dns1123_subdomain_with_underscore(value: &str) -> Reasons {
    let mut reasons = too_long(value, 253);
    let part = |text: &str| {
        let text = text.strip_prefix('_').unwrap_or(text);
        !text.is_empty() && !text.starts_with('_') && is_label(&text.replace('_', "-")) && !text.ends_with('_')
    };
    if !value.split('.').all(part) {
        reasons.push(regex_reason(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    reasons
}

pub fn wildcard_dns1123_subdomain(value: &str) -> Reasons {
    let mut reasons = too_long(value, 253);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        reasons.push(regex_reason(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    reasons
}

pub fn dns1035_label(value: &str) -> Reasons {
    let mut reasons = too_long(value, 63);
    if !is_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        reasons.push(regex_reason(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    reasons
}

/// A label key, annotation key, finalizer or resource name: an optional DNS prefix, a slash, and a name. Lengths are told in
/// bytes here and in characters elsewhere, as upstream tells them.
pub fn qualified_name(value: &str) -> Reasons {
    let mut reasons = Reasons::new();
    let malformed = || {
        regex_reason(
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            QUALIFIED,
            &["MyName", "my.name", "123-abc"],
        ) + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
    };
    let name = match value.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                reasons.push("prefix part must be non-empty".to_owned());
            } else {
                reasons.extend(long_name(prefix).into_iter().map(|reason| format!("prefix part {reason}")));
            }
            *name
        }
        _ => return vec![malformed()],
    };
    if name.is_empty() {
        reasons.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        reasons.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified_part(name) {
        reasons.push(format!(
            "name part {}",
            regex_reason(
                "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
                QUALIFIED,
                &["MyName", "my.name", "123-abc"],
            )
        ));
    }
    reasons
}

/// Upstream judges label keys and qualified names alike.
pub fn label_key(value: &str) -> Reasons {
    qualified_name(value)
}

pub fn label_value(value: &str) -> Reasons {
    let mut reasons = Reasons::new();
    if value.len() > 63 {
        reasons.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_qualified_part(value) {
        reasons.push(regex_reason(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    reasons
}

/// Why a text cannot be one segment of a path: RBAC names, and what every name must satisfy.
pub fn path_segment(value: &str) -> Reasons {
    path_segment_name(value, false)
}

/// As `path_segment`; with `prefix` for a generateName, to which more is added.
pub fn path_segment_name(value: &str, prefix: bool) -> Reasons {
    let mut reasons = Reasons::new();
    if !prefix && (value == "." || value == "..") {
        return vec![format!("may not be '{value}'")];
    }
    for forbidden in ["/", "%"] {
        if value.contains(forbidden) {
            reasons.push(format!("may not contain '{forbidden}'"));
        }
    }
    reasons
}

/// The name of a container port: an IANA service name.
pub fn port_name(value: &str) -> Reasons {
    let mut reasons = too_long(value, 15);
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        reasons.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        reasons.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        reasons.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        reasons.push("must not begin or end with a hyphen".to_owned());
    }
    reasons
}

pub fn port_number(value: i64) -> Reasons {
    if (1..=65535).contains(&value) { Vec::new() } else { vec![in_range(1, 65535)] }
}

pub fn percent(value: &str) -> Reasons {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_reason(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

pub fn http_header_name(value: &str) -> Reasons {
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![regex_reason(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

pub fn environment_variable(value: &str) -> Reasons {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if value.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// A key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Reasons {
    let mut reasons = too_long(value, 253);
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        reasons.push(regex_reason(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." | ".." => reasons.push(format!("must not be '{value}'")),
        _ if value.starts_with("..") => reasons.push("must not start with '..'".to_owned()),
        _ => {}
    }
    reasons
}

pub fn c_identifier(value: &str) -> Reasons {
    let good = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if good {
        return Vec::new();
    }
    vec![regex_reason(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// A generateName may end in a dash, since more follows.
pub fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(stem) if !stem.is_empty() => {
            let mut text = stem.to_owned();
            // Upstream replaces the dash and the character before it, which loses that character: the outcome is the same
            // unless that character is the only bad one.
            text.pop();
            text.push('a');
            text
        }
        _ => name.to_owned(),
    }
}

fn too_long(value: &str, max: usize) -> Reasons {
    if value.len() > max { vec![max_length(max)] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_upstream_does() {
        type Check = fn(&str) -> Reasons;
        let check = |what: Check, good: &[&str], bad: &[&str]| {
            for text in good {
                assert!(what(text).is_empty(), "{text:?} refused: {:?}", what(text));
            }
            for text in bad {
                assert!(!what(text).is_empty(), "{text:?} accepted");
            }
        };
        check(dns1123_label, &["a", "a-b", "0"], &["", "-a", "a-", "A", "a.b", "a_b"]);
        check(dns1123_subdomain, &["a.b", "a-b.c"], &["", "a..b", ".a", "a.", "A"]);
        check(dns1035_label, &["a", "a1"], &["1a", "a.b", ""]);
        check(qualified_name, &["a", "A.b_c", "example.com/x"], &["", "/a", "a/", "a/b/c", "_a", "Example.com/x"]);
        check(label_value, &["", "A_b.c"], &["-", "a b", "é"]);
        check(port_name, &["http", "a1"], &["", "80", "a--b", "-a", "UP", "sixteen-letters-x"]);
        check(config_key, &["a.b", "..data".trim_start_matches("..")], &["", ".", "..", "..a", "a/b"]);
        check(environment_variable, &["a b", "A-1"], &["", "a=b", "é"]);
        check(dns1123_subdomain_with_underscore, &["_a.b", "a_b"], &["__a", "a_", ""]);
    }

    #[test]
    fn reasons_carry_upstreams_words() {
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            dns1123_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(mask_trailing_dash("web-"), "wea");
    }
}
