//! Connections in: who gets one, for how long, and how much the server holds on their behalf.
//!
//! Every HTTPS listener of Ferry is served by [`serve`]. A client that has not shown who it is may hold few connections,
//! none of them for long, and gives way first; one that has shares the rest with the other users. Whoever holds most pays
//! when there is no room left, in connections (`pool`) and in bytes (`connection`). Nothing here waits for room: a
//! newcomer always gets in.
//!
//! Knows neither the API server nor the kubelet: must depend on `tasks` alone.

mod body;
mod connection;
mod frames;
mod limits;
pub mod plain;
mod pool;
mod received;
mod rest;
mod serve;
mod socket;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod unread;
mod woken;
mod write_coalescing;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use rustls_pki_types::CertificateDer;

pub use body::{AtItsEnd, abandoned_after};
pub use connection::Connection;
pub use frames::Frames;
pub use limits::Limits;
pub use received::Received;
pub use serve::{Handler, Protocols, builder, is_short_of_room, serve, speak};
pub use socket::Socket;
pub use sweep::run as sweep;
pub use table::Connections;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of every response, streamed or whole.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// What a connection says of its other end.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Whose keys the client has, the leaf first. Who vouches for them depends on the port's TLS configuration: the API server's
    /// takes any, and its authenticators look.
    pub certificates: Arc<[CertificateDer<'static>]>,
    pub address: Option<SocketAddr>,
    /// None for callers of this process.
    pub connection: Option<Arc<Connection>>,
}

impl Peer {
    /// The caller has shown to be this user.
    pub fn authenticated(&self, user: &str) {
        if let Some(connection) = &self.connection {
            connection.authenticated(user);
        }
    }

    /// The body of an answer. Its bytes count until the client has them.
    pub fn body(&self, bytes: Bytes) -> Body {
        match &self.connection {
            Some(connection) => body::whole(connection, bytes),
            None => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
        }
    }
}
