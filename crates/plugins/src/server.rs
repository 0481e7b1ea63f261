//! The other end: gRPC on a Unix socket of a folder that nobody but root reaches.

use std::io;
use std::path::Path;

use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

/// Requests of one connection that are answered at the same time.
const AT_ONCE: usize = 64;

/// Serves on a socket until it is dropped. One that was there before is replaced.
pub async fn serve(socket: &Path, routes: Routes) -> io::Result<()> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = tokio::net::UnixListener::bind(socket)?;
    let server = Server::builder().concurrency_limit_per_connection(AT_ONCE).add_routes(routes);
    server.serve_with_incoming(UnixListenerStream::new(listener)).await.map_err(io::Error::other)
}
