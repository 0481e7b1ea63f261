//! What can go wrong, and the code that the CNI protocol has for it.

use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("CNI version {0:?} is not supported; those from 0.3.0 to 1.1.0 are")]
    Version(String),
    #[error("{0} is not set")]
    Environment(&'static str),
    #[error("the network configuration is not understood: {0}")]
    Configuration(String),
    #[error("the pod's network namespace {path} cannot be entered: {source}")]
    Namespace { path: PathBuf, source: std::io::Error },
    #[error("cannot open a netlink socket: {0}")]
    Socket(#[source] std::io::Error),
    #[error("the kernel refused to {what}: {source}")]
    Kernel { what: String, source: rtnetlink::Error },
    #[error("there is no bridge {0} yet: the node's network is being set up")]
    NoBridge(String),
    #[error("no address is free in {range}: {taken} are taken")]
    Full { range: String, taken: usize },
    #[error("{what}: {source}")]
    File { what: String, source: std::io::Error },
    #[error("host port {port} is taken by pod {holder}")]
    HostPort { port: String, holder: String },
    #[error("host ports: {0}")]
    Rules(#[from] ferry_nft::NftError),
    #[error("the pod is not attached as it should be: {0}")]
    Check(String),
    #[error("{0} has no place in the pod's network: it is of another family of addresses")]
    Family(IpAddr),
    #[error("a thread for the pod network cannot be had: {0}")]
    Thread(String),
}

impl BridgeError {
    pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::File { what, source }
    }

    pub(crate) fn kernel(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let what = what.into();
        move |source| Self::Kernel { what, source }
    }

    /// The number that runtimes act upon: those below 100 are the protocol's own.
    fn code(&self) -> u32 {
        match self {
            Self::Version(_) => 1,
            Self::Environment(_) => 4,
            Self::File { .. } => 5,
            Self::Configuration(_) => 7,
            Self::NoBridge(_) | Self::Full { .. } | Self::HostPort { .. } => 11,
            _ => 100,
        }
    }

    /// As a plug-in prints it. A request whether pods can be attached has an answer of its own.
    pub(crate) fn to_json(&self, version: &str, is_status: bool) -> Value {
        let code = if is_status && matches!(self, Self::NoBridge(_) | Self::Full { .. }) { 50 } else { self.code() };
        json!({ "cniVersion": version, "code": code, "msg": self.to_string() })
    }
}
