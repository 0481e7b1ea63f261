//! Hostnames of listeners and routes: exact ones and wildcards.

use std::sync::Arc;

/// What a host is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hostname {
    Exact(Arc<str>),
    /// `*.example.com` is kept as `.example.com`.
    Wildcard {
        suffix: Arc<str>,
        depth: Depth,
    },
}

/// How many labels the star of a wildcard stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Depth {
    /// As in the Gateway API.
    Any,
    /// As in Ingresses.
    One,
}

/// The larger, the more precedence: exact before wildcard, long before short.
pub type Specificity = (bool, usize);

impl Hostname {
    pub fn parse(text: &str, depth: Depth) -> Self {
        let text = text.to_ascii_lowercase();
        match text.strip_prefix('*') {
            Some(suffix) if suffix.starts_with('.') => Self::Wildcard { suffix: suffix.into(), depth },
            _ => Self::Exact(text.into()),
        }
    }

    /// `host` is in lower case and without a port.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *host,
            Self::Wildcard { suffix, depth } => match host.strip_suffix(&**suffix) {
                Some("") | None => false,
                Some(rest) => *depth == Depth::Any || !rest.contains('.'),
            },
        }
    }

    pub fn specificity(&self) -> Specificity {
        match self {
            Self::Exact(name) => (true, name.len()),
            // The star counts as well.
            Self::Wildcard { suffix, .. } => (false, suffix.len() + 1),
        }
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Exact(name), _) => other.matches(name).then(|| self.clone()),
            (_, Self::Exact(name)) => self.matches(name).then(|| other.clone()),
            (Self::Wildcard { suffix: a, .. }, Self::Wildcard { suffix: b, .. }) => {
                if a.ends_with(&**b) {
                    Some(self.clone())
                } else if b.ends_with(&**a) {
                    Some(other.clone())
                } else {
                    None
                }
            }
        }
    }

    /// What both stand for; None in an argument stands for every host. The outer None: there is no such host.
    pub fn intersection(a: Option<&Self>, b: Option<&Self>) -> Option<Option<Self>> {
        match (a, b) {
            (None, other) | (other, None) => Some(other.cloned()),
            (Some(a), Some(b)) => a.meet(b).map(Some),
        }
    }
}

impl std::fmt::Display for Hostname {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => formatter.write_str(name),
            Self::Wildcard { suffix, .. } => write!(formatter, "*{suffix}"),
        }
    }
}

/// The specificity of a hostname that may be left out.
pub fn specificity(hostname: Option<&Hostname>) -> Specificity {
    hostname.map_or((false, 0), Hostname::specificity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(text: &str) -> Hostname {
        Hostname::parse(text, Depth::Any)
    }

    #[test]
    fn hostnames_match() {
        for (name, host, depth, want) in [
            ("example.com", "example.com", Depth::Any, true),
            ("Example.COM", "example.com", Depth::Any, true),
            ("example.com", "a.example.com", Depth::Any, false),
            ("*.example.com", "a.example.com", Depth::Any, true),
            ("*.example.com", "a.b.example.com", Depth::Any, true),
            ("*.example.com", "a.b.example.com", Depth::One, false),
            ("*.example.com", "example.com", Depth::Any, false),
            ("*.example.com", ".example.com", Depth::Any, false),
            ("*.example.com", "aexample.com", Depth::Any, false),
        ] {
            assert_eq!(Hostname::parse(name, depth).matches(host), want, "{name} for {host}");
        }
    }

    #[test]
    fn hostnames_intersect() {
        for (a, b, want) in [
            ("a.com", "a.com", Some("a.com")),
            ("a.com", "b.com", None),
            ("*.com", "a.com", Some("a.com")),
            ("a.com", "*.com", Some("a.com")),
            ("*.a.com", "*.com", Some("*.a.com")),
            ("*.com", "*.a.com", Some("*.a.com")),
            ("*.a.com", "a.com", None),
            ("*.a.com", "*.b.com", None),
        ] {
            let found = Hostname::intersection(Some(&any(a)), Some(&any(b)));
            assert_eq!(found.flatten().map(|name| name.to_string()).as_deref(), want, "{a} and {b}");
        }
        assert_eq!(Hostname::intersection(None, None), Some(None));
        assert_eq!(Hostname::intersection(None, Some(&any("a.com"))), Some(Some(any("a.com"))));
    }
}
