//! The key layout: `/registry/<resource>/<namespace>/<name>`, with a group segment where upstream has one.

use crate::{Result, StoreError};

pub const ROOT: &str = "/registry/";
/// etcd's default limit on a request, which upstream's stores live with.
pub const MAX_VALUE: usize = 3 * 512 * 1024;
pub const MAX_KEY: usize = 4096;
/// What encryption adds at most: who stores a value of the largest size need not know whether it is encrypted.
pub(crate) const MAX_SEAL: usize = 4096;

fn invalid<T>(key: &str, why: &'static str) -> Result<T> {
    Err(StoreError::InvalidKey { key: key.chars().take(256).collect(), why })
}

/// A key names one object: a resource and a name at least, no empty part.
pub fn check_key(key: &str) -> Result<()> {
    let Some(rest) = key.strip_prefix(ROOT) else { return invalid(key, "it does not start with /registry/") };
    if key.len() > MAX_KEY {
        return invalid(key, "it is longer than 4096 bytes");
    }
    if key.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return invalid(key, "it has a control character");
    }
    let mut parts = 0;
    for part in rest.split('/') {
        if part.is_empty() {
            return invalid(key, "it has an empty part");
        }
        if part == "." || part == ".." {
            return invalid(key, "a part is . or ..");
        }
        parts += 1;
    }
    if parts < 2 { invalid(key, "it names no object") } else { Ok(()) }
}

/// A prefix is anything below the root, the root included.
pub fn check_prefix(prefix: &str) -> Result<()> {
    if !prefix.starts_with(ROOT) {
        return invalid(prefix, "it does not start with /registry/");
    }
    if prefix.len() > MAX_KEY { invalid(prefix, "it is longer than 4096 bytes") } else { Ok(()) }
}

pub fn check_value(key: &str, value: &[u8]) -> Result<()> {
    let seal = if crate::encrypted::is_sealed(value) { MAX_SEAL } else { 0 };
    check_size(key, value, MAX_VALUE + seal)
}

/// Before it is encrypted.
pub(crate) fn check_plain(key: &str, value: &[u8]) -> Result<()> {
    check_size(key, value, MAX_VALUE)
}

fn check_size(key: &str, value: &[u8], max: usize) -> Result<()> {
    let size = value.len();
    if size > max { Err(StoreError::TooLarge { key: key.to_owned(), size, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_layout_pass() {
        for key in ["/registry/pods/default/web-1", "/registry/namespaces/a", "/registry/apps.example/x/ns/n:1"] {
            assert!(check_key(key).is_ok(), "{key}");
        }
        let long = format!("/registry/pods/{}", "x".repeat(MAX_KEY));
        for key in [
            "",
            "pods/a",
            "/registry",
            "/registry/",
            "/registry/pods",
            "/registry/pods/",
            "/registry//a",
            "/registry/pods/../a",
            "/registry/pods/a\n",
            "/registry/pods/a\0b",
            &long,
        ] {
            assert!(matches!(check_key(key), Err(StoreError::InvalidKey { .. })), "{key}");
        }
        assert!(check_prefix("/registry/").is_ok());
        assert!(check_prefix("/").is_err());
    }
}
