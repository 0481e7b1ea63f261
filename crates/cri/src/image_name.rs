//! Names of images, read one way by the kubelet and the runtime: `busybox` is `docker.io/library/busybox:latest`.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub registry: String,
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<String>,
}

/// Why a text is no name of an image, in the words of upstream's library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {text:?}: {problem}")]
pub struct ReferenceError {
    pub text: String,
    pub problem: ReferenceProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceProblem {
    #[error("invalid reference format")]
    Format,
    /// It could not be told from the id of an image.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Hexadecimal(String),
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
}

/// For messages of CRI, which are texts.
impl From<ReferenceError> for String {
    fn from(error: ReferenceError) -> Self {
        error.to_string()
    }
}

impl Reference {
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let failed = |problem| ReferenceError { text: text.to_owned(), problem };
        let wrong = || failed(ReferenceProblem::Format);
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_known_digest(digest)) {
            return Err(wrong());
        }
        if is_hex(rest) {
            return Err(failed(ReferenceProblem::Hexadecimal(rest.to_owned())));
        }
        let is_host = |first: &str| {
            first.contains(['.', ':']) || first == "localhost" || first.contains(|c: char| c.is_ascii_uppercase())
        };
        let (registry, rest) = match rest.split_once('/') {
            Some(("index.docker.io", rest)) => ("docker.io", rest),
            Some((first, rest)) if is_host(first) => (first, rest),
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
        if repository.contains(|c: char| c.is_ascii_uppercase()) {
            return Err(failed(ReferenceProblem::Uppercase(repository)));
        }
        let tag_fits = |tag: &str| {
            (1..=128).contains(&tag.len())
                && !tag.starts_with(['.', '-'])
                && tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        };
        let host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if repository.len() > 255
            || !repository.split('/').all(is_component)
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
    pub fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }

    pub fn tagged(&self) -> Option<String> {
        Some(format!("{}/{}:{}", self.registry, self.repository, self.tag.as_ref()?))
    }

    pub fn with_digest(&self, digest: &str) -> String {
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

/// Letters and digits, with single separators between them: a dot, one or two underscores, any number of dashes.
fn is_component(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = part.split(plain).filter(|between| !between.is_empty());
    part.starts_with(plain)
        && part.ends_with(plain)
        && separators.all(|between| matches!(between, "." | "_" | "__") || between.bytes().all(|b| b == b'-'))
}

/// A digest of a kind that there is, though registries use one alone.
fn is_known_digest(text: &str) -> bool {
    let lengths = [("sha256:", 64), ("sha384:", 96), ("sha512:", 128)];
    let is_hex = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    lengths
        .iter()
        .any(|(kind, length)| text.strip_prefix(kind).is_some_and(|digits| digits.len() == *length && is_hex(digits)))
}

/// `sha256:` and 64 digits: the only kind that registries use.
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(is_hex)
}

pub fn is_hex(text: &str) -> bool {
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
        check(
            &format!("busybox@sha512:{}", "a".repeat(128)),
            &format!("docker.io/library/busybox@sha512:{}", "a".repeat(128)),
        );
        check("index.docker.io/a/b__c.d--e:1", "docker.io/a/b__c.d--e:1");
        check("Example/app:1", "Example/app:1");
        let refuses = |text: &str, why: &str| {
            let error = Reference::parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("couldn't parse image name {text:?}: {why}"));
        };
        for bad in
            ["", "a//b", "a:b:c", "a@sha256:1", "a/../b", "-a", "a:", "docker.io/", "a/b:..x", "a..b", "a___b", "a b"]
        {
            refuses(bad, "invalid reference format");
        }
        refuses("UPPER", "invalid reference format: repository name (library/UPPER) must be lowercase");
        let id = "b".repeat(64);
        refuses(&id, &format!("invalid repository name ({id}), cannot specify 64-byte hexadecimal strings"));
    }
}
