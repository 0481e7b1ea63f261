//! What can go wrong beside a refusal: a choice of plug-ins, and calls of webhooks.

use std::fmt;

use http::StatusCode;

/// Why the plug-ins cannot be as they were chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginsError {
    Unknown(String),
    /// It is both enabled and disabled.
    Both(String),
    /// It was given a configuration, and does not follow one.
    NotConfigurable(String),
    /// It cannot be without a configuration, and has none.
    NotConfigured(&'static str),
    Configuration {
        plugin: &'static str,
        why: String,
    },
}

impl PluginsError {
    pub(crate) fn of(plugin: &'static str) -> impl FnOnce(String) -> Self {
        move |why| Self::Configuration { plugin, why }
    }
}

impl fmt::Display for PluginsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "{name:?} is no admission plug-in"),
            Self::Both(name) => write!(f, "admission plug-in {name:?} is both enabled and disabled"),
            Self::NotConfigurable(name) => write!(f, "admission plug-in {name:?} takes no configuration here"),
            Self::NotConfigured(name) => write!(f, "{name} needs a configuration"),
            Self::Configuration { plugin, why } => write!(f, "{plugin}: {why}"),
        }
    }
}

impl std::error::Error for PluginsError {}

/// Why a Service leads nowhere, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceError {
    NotFound(String),
    NoPort { service: String, port: u16 },
    NoEndpoints(String),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(name) => write!(f, "service {name:?} not found"),
            Self::NoPort { service, port } => write!(f, "no service port {port} found for service {service:?}"),
            Self::NoEndpoints(name) => write!(f, "no endpoints available for service {name:?}"),
        }
    }
}

impl std::error::Error for ServiceError {}

/// Why a webhook gave no answer that could be read, in the words of upstream's client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It was not reached, or not understood.
    Failed {
        url: String,
        why: String,
    },
    Deadline {
        url: String,
    },
    /// It answered, and not with success; with the beginning of its words.
    Status {
        code: StatusCode,
        text: String,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, text) = match self {
            Self::Failed { url, why } => return write!(f, "Post \"{url}\": {why}"),
            Self::Deadline { url } => return write!(f, "Post \"{url}\": context deadline exceeded"),
            Self::Status { code, text } => (code.as_u16(), text),
        };
        f.write_str(match code {
            404 => "the server could not find the requested resource",
            401 => "the server has asked for the client to provide credentials",
            403 => "unknown",
            429 => "the server has received too many requests and has asked us to try again later",
            500.. => {
                return write!(f, "an error on the server ({text:?}) has prevented the request from succeeding");
            }
            _ => "the server rejected our request for an unknown reason",
        })
    }
}

impl std::error::Error for CallError {}
