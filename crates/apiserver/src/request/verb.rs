//! The verbs and subresources of the API. They are read from the path once; behind that they are compared as values.

use std::fmt;

/// What a request does, in the words of RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// The prefix of old paths, `/api/v1/proxy/…`.
    Proxy,
    Connect,
    /// The method of a request that is for no resource, in lower case; empty for one that no resource has.
    Other(Box<str>),
}

impl Verb {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::Connect => "connect",
            Self::Other(method) => method,
        }
    }
}

impl From<&str> for Verb {
    fn from(name: &str) -> Self {
        match name {
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "create" => Self::Create,
            "update" => Self::Update,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            "deletecollection" => Self::DeleteCollection,
            "proxy" => Self::Proxy,
            "connect" => Self::Connect,
            other => Self::Other(other.into()),
        }
    }
}

impl Default for Verb {
    fn default() -> Self {
        Self::Other(Box::default())
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part of an object that a request is about. Those that no handler asks for by name are `Other`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// The object itself.
    #[default]
    Main,
    Status,
    Scale,
    Binding,
    Eviction,
    Token,
    Log,
    Exec,
    Attach,
    PortForward,
    Proxy,
    Other(Box<str>),
}

impl Subresource {
    /// Empty for the object itself.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Token => "token",
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
            Self::Proxy => "proxy",
            Self::Other(name) => name,
        }
    }

    pub(crate) fn is_main(&self) -> bool {
        *self == Self::Main
    }

    /// Tunnels and streams, to a kubelet or a Service.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Log | Self::Exec | Self::Attach | Self::PortForward | Self::Proxy)
    }
}

impl From<&str> for Subresource {
    fn from(name: &str) -> Self {
        match name {
            "" => Self::Main,
            "status" => Self::Status,
            "scale" => Self::Scale,
            "binding" => Self::Binding,
            "eviction" => Self::Eviction,
            "token" => Self::Token,
            "log" => Self::Log,
            "exec" => Self::Exec,
            "attach" => Self::Attach,
            "portforward" => Self::PortForward,
            "proxy" => Self::Proxy,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for Subresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for row in ferry_registry::ResourceTable::builtin().rows() {
            let verbs = row.verbs.iter().chain(row.subresources.iter().flat_map(|sub| &sub.verbs));
            for verb in verbs {
                assert_eq!(Verb::from(&**verb).as_str(), verb);
                assert!(!matches!(Verb::from(&**verb), Verb::Other(_)), "{verb} has no value");
            }
            for sub in &row.subresources {
                assert_eq!(Subresource::from(&*sub.name).as_str(), sub.name);
            }
        }
        for method in ["post", "options", ""] {
            assert_eq!(Verb::from(method), Verb::Other(method.into()));
        }
        assert_eq!(Verb::default().as_str(), "");
        assert_eq!(Subresource::from(""), Subresource::default());
    }
}
