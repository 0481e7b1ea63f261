//! How the server reaches kubelets: their address from the Node, TLS with the server's client certificate.

use std::sync::Arc;

/// The TLS of connections to kubelets; without it nothing is forwarded.
#[derive(Clone, Default)]
pub struct Kubelets {
    pub tls: Option<Arc<rustls::ClientConfig>>,
}
