//! Names of images: `busybox` is `docker.io/library/busybox:latest`.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) registry: String,
    pub(crate) repository: String,
    pub(crate) tag: Option<String>,
    pub(crate) digest: Option<String>,
}

impl Reference {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("couldn't parse image name {text:?}: invalid reference format");
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong());
        }
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => ("docker.io", rest),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
            _ => (rest, None),
        };
        let repository = if registry == "docker.io" && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        let word = |part: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            !part.is_empty()
                && part.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-'))
                && part.starts_with(plain)
                && part.ends_with(plain)
        };
        let tag_fits = |tag: &str| {
            (1..=128).contains(&tag.len())
                && !tag.starts_with(['.', '-'])
                && tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        };
        let host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if repository.len() > 255
            || !repository.split('/').all(word)
            || tag.is_some_and(|tag| !tag_fits(tag))
            || registry.is_empty()
            || !registry.chars().all(host)
        {
            return Err(wrong());
        }
        let tag = match (tag, digest) {
            (None, None) => Some("latest".to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self { registry: registry.to_owned(), repository, tag, digest: digest.map(str::to_owned) })
    }

    /// What the registry is asked for.
    pub(crate) fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }

    pub(crate) fn tagged(&self) -> Option<String> {
        Some(format!("{}/{}:{}", self.registry, self.repository, self.tag.as_ref()?))
    }

    pub(crate) fn with_digest(&self, digest: &str) -> String {
        format!("{}/{}@{digest}", self.registry, self.repository)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// `sha256:` and 64 digits: the only kind that registries use.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(is_hex)
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        let check = |text: &str, full: &str| {
            let reference = Reference::parse(text).map(|r| r.to_string());
            assert_eq!(reference.as_deref().ok(), Some(full), "{text}");
        };
        let digest = format!("sha256:{}", "a".repeat(64));
        check("busybox", "docker.io/library/busybox:latest");
        check("me/app:1", "docker.io/me/app:1");
        check("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10");
        check("localhost:5000/a/b", "localhost:5000/a/b:latest");
        check(&format!("busybox@{digest}"), &format!("docker.io/library/busybox@{digest}"));
        for bad in ["", "UPPER", "a//b", "a:b:c", "a@sha256:1", "a/../b", "-a", "a:", "docker.io/", "a/b:..x"] {
            assert!(Reference::parse(bad).is_err(), "{bad}");
        }
    }
}
