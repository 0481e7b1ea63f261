//! What a name, a label key or a label value may look like, with upstream's words for what is wrong.

const ALNUM_EDGES: &str = "must start and end with an alphanumeric character";

fn is_alnum(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

fn is_lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn is_label(text: &str) -> bool {
    let b = text.as_bytes();
    !b.is_empty()
        && is_lower_alnum(b[0])
        && is_lower_alnum(b[b.len() - 1])
        && b.iter().all(|c| is_lower_alnum(*c) || *c == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_qualified_part(text: &str) -> bool {
    let b = text.as_bytes();
    !b.is_empty()
        && is_alnum(b[0])
        && is_alnum(b[b.len() - 1])
        && b.iter().all(|c| is_alnum(*c) || matches!(c, b'-' | b'_' | b'.'))
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text) {
        errors.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {ALNUM_EDGES} \
                 (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            )
        });
    }
    errors
}

pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if !is_subdomain(text) {
        errors.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {ALNUM_EDGES} \
             (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ));
    }
    errors
}

/// The rules of a key such as `example.com/name`; `what` is "name" or "a valid label key" and the like.
fn qualified(text: &str, part_error: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(dns1123_subdomain(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            *name
        }
        _ => {
            errors.push(format!(
                "{part_error} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return errors;
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63)));
    }
    if !is_qualified_part(name) {
        errors.push(format!("name part {NAME_PART}"));
    }
    errors
}

const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
    (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// A qualified name: annotation keys, finalizers, resource names.
pub fn qualified_name(text: &str) -> Vec<String> {
    qualified(text, &format!("a qualified name {NAME_PART}"))
}

pub fn label_key(text: &str) -> Vec<String> {
    qualified(text, &format!("a valid label key {NAME_PART}"))
}

pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
             end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

/// Why a text cannot be one segment of a path; what every name must satisfy, whatever its kind.
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].into_iter().filter(|c| text.contains(c)).map(|c| format!("may not contain '{c}'")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_upstream() {
        assert!(dns1123_label("a-1").is_empty());
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert!(dns1123_subdomain("a.b-c.d").is_empty());
        assert!(!dns1123_subdomain("a..b").is_empty());
        assert!(label_key("example.com/a_b").is_empty());
        assert_eq!(label_key("/x"), ["prefix part must be non-empty"]);
        assert!(label_key("a/b/c")[0].starts_with("a valid label key must consist"));
        assert!(label_value("").is_empty());
        assert!(!label_value("-x").is_empty());
        assert_eq!(path_segment(".."), ["may not be '..'"]);
    }
}
