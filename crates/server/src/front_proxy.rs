//! How the API server shows itself to the servers behind it.

use std::sync::Arc;

use anyhow::Result;

use crate::certificate_rotation::Renewals;
use crate::pki::{Leaf, Pki, Use};
use crate::server_options::{AuthenticationOptions, OwnProxy};

/// What the API server shows to servers behind it, and how those know it.
pub struct FrontProxy {
    pub identity: ferry_apiserver::FrontProxy,
    pub known_by: OwnProxy,
}

const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// The administrator's certificate, or one that a CA of its own signs: whoever holds any other certificate of the cluster
/// cannot speak for others. Either is renewed while the process runs.
pub fn open(pki: &Pki, options: &AuthenticationOptions, renewals: &Renewals) -> Result<FrontProxy> {
    if let (Some(certificate), Some(key)) = (&options.proxy_client_cert_file, &options.proxy_client_key_file) {
        let current = renewals.files(certificate.clone(), key.clone())?;
        return Ok(FrontProxy { identity: ferry_apiserver::FrontProxy(current), known_by: OwnProxy::default() });
    }
    let own = Arc::new(pki.below("front-proxy")?);
    let known_by = OwnProxy { ca: own.ca_certificate().to_owned(), name: FRONT_PROXY_CLIENT.to_owned() };
    let leaf = Leaf {
        name: "client".to_owned(),
        common_name: FRONT_PROXY_CLIENT.to_owned(),
        organizations: Vec::new(),
        usage: Use::Client,
    };
    let current = renewals.leaf_of(own, leaf)?;
    Ok(FrontProxy { identity: ferry_apiserver::FrontProxy(current), known_by })
}
