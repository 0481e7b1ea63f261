//! etcd's v3 API, as far as Ferry speaks it: a client of one member.
//!
//! It sends what it is told to this member, once. Which member is asked, for how long, and what is sent again is for
//! the caller to decide.

#[cfg(test)]
mod tests;
mod watch;

use std::error::Error;
use std::time::Duration;

use tonic::metadata::MetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{ConnectError, Request, Status};

use super::EtcdTls;
use crate::{Result, StoreError};

/// The messages and services of `proto/etcd/`.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    unused_qualifications,
    dead_code,
    reason = "generated code"
)]
pub mod rpc {
    tonic::include_proto!("etcdserverpb");
}

pub use self::watch::Watching;
use rpc::cluster_client::ClusterClient;
use rpc::kv_client::KvClient;
use rpc::lease_client::LeaseClient;
use rpc::maintenance_client::MaintenanceClient;
use rpc::watch_client::WatchClient;

/// What one page of large objects may come to.
const MESSAGE: usize = 1 << 30;
const CONNECT: Duration = Duration::from_secs(2);
/// A connection on which nothing comes is asked whether it lives, and given up after the second time.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// How much may be under way to a reader of one answer, and to all together. Watches that are not read keep theirs: together they must
/// not take what everybody else needs, or every call would wait for them.
const WINDOWS: (u32, u32) = (1 << 20, 1 << 30);

/// Calls on it are refused by a member that has no leader.
pub type Led = InterceptedService<Channel, fn(Request<()>) -> Answer<Request<()>>>;

/// What became of a call.
pub type Answer<T> = std::result::Result<T, Status>;

/// The way to one member. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// Sends nothing yet: whether the member is there is seen by the first call. Must be called within a runtime.
    ///
    /// An endpoint without a scheme is reached by TLS where there are settings for it.
    pub fn new(endpoint: &str, tls: Option<&EtcdTls>) -> Result<Self> {
        let invalid = |error: tonic::transport::Error| {
            StoreError::InvalidEndpoint(endpoint.to_owned(), with_causes(error.to_string(), error.source()))
        };
        let (scheme, rest) =
            endpoint.split_once("://").unwrap_or((if tls.is_some() { "https" } else { "http" }, endpoint));
        let mut target = Endpoint::from_shared(format!("{scheme}://{rest}"))
            .map_err(invalid)?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1);
        match scheme {
            "http" => {}
            "https" => {
                let nothing = EtcdTls::default();
                target = target.tls_config(tls_settings(tls.unwrap_or(&nothing))).map_err(invalid)?;
            }
            _ => {
                let why = "it must begin with http:// or https://".to_owned();
                return Err(StoreError::InvalidEndpoint(endpoint.to_owned(), why));
            }
        }
        Ok(Self { channel: target.connect_lazy() })
    }

    /// Without a leader a member may be cut off from the others, and another one better to ask.
    fn led(&self) -> Led {
        InterceptedService::new(self.channel.clone(), require_leader)
    }

    pub fn kv(&self) -> KvClient<Led> {
        KvClient::new(self.led()).max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE)
    }

    pub fn lease(&self) -> LeaseClient<Led> {
        LeaseClient::new(self.led())
    }

    /// Begins one watch.
    pub async fn watch(&self, request: rpc::WatchCreateRequest) -> Answer<Watching> {
        Watching::open(WatchClient::new(self.led()).max_decoding_message_size(MESSAGE), request).await
    }

    /// Served without a leader too: whoever mends a cluster must see what is left of it.
    pub fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    /// Served without a leader too: that is when the state and a snapshot of one member matter most.
    pub fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }
}

fn tls_settings(tls: &EtcdTls) -> ClientTlsConfig {
    // The time to connect ends when TCP has; a member that then says nothing must not keep all requests waiting.
    let mut settings = ClientTlsConfig::new().timeout(CONNECT);
    if !tls.certificate_authority.is_empty() {
        settings = settings.ca_certificate(Certificate::from_pem(&tls.certificate_authority));
    }
    if let Some((certificate, private_key)) = &tls.identity {
        settings = settings.identity(Identity::from_pem(certificate, private_key));
    }
    if let Some(name) = &tls.server_name {
        settings = settings.domain_name(name);
    }
    settings
}

fn require_leader(mut request: Request<()>) -> Answer<Request<()>> {
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    Ok(request)
}

/// No connection stood, so nothing can have gone over it.
pub fn was_not_sent(status: &Status) -> bool {
    causes(status.source()).any(|cause| cause.is::<ConnectError>())
}

/// What etcd said, or why it could not be asked: refused, a certificate that is not trusted, a name that is not known.
pub fn describe(status: &Status) -> String {
    with_causes(status.message().to_owned(), status.source())
}

fn with_causes(text: String, cause: Option<&(dyn Error + 'static)>) -> String {
    causes(cause).map(ToString::to_string).fold(text, |text, next| {
        // Some errors repeat their source.
        if text.contains(&next) { text } else { format!("{text}: {next}") }
    })
}

fn causes<'a>(first: Option<&'a (dyn Error + 'static)>) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(first, |&error| error.source())
}
