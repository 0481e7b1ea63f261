//! Streams that are carried as they are: TCPRoutes, and TLSRoutes with and without an end of TLS here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{Shared, pool};
use crate::table::{Backend, StreamRoute, Target};

const CONNECT: Duration = Duration::from_secs(5);

/// Carries a stream to a backend until both ends have said all.
pub async fn carry<S>(shared: &Arc<Shared>, route: &StreamRoute, mut client: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(Target::Backend(backend)) = route.split.choose().map(|weighted| &weighted.target) else {
        return Err(io::Error::other(format!("{} has no backend", route.route)));
    };
    let backend = backend.clone();
    let mut stream = connect(shared, &backend).await?;
    shared.metrics.stream();
    match &backend.tls {
        None => tokio::io::copy_bidirectional(&mut client, &mut stream).await.map(|_| ()),
        Some(tls) => {
            let secured = tokio::time::timeout(CONNECT, pool::secure(stream, tls, &[])).await;
            let mut secured = secured.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            tokio::io::copy_bidirectional(&mut client, &mut secured).await.map(|_| ())
        }
    }
}

/// The first endpoint that can be reached.
async fn connect(shared: &Shared, backend: &Backend) -> io::Result<TcpStream> {
    let mut tried = Vec::new();
    let mut last = io::Error::other("the backend has no endpoints");
    while let Some(endpoint) = backend.endpoint(&tried).filter(|_| tried.len() < 4) {
        tried.push(endpoint);
        match tokio::time::timeout(CONNECT, TcpStream::connect(endpoint)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
        shared.metrics.connect_failure();
    }
    Err(last)
}
