//! The API servers of a cluster as one: a node's connections go to one that answers, and to another when it does not.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use arc_swap::ArcSwap;
use ferry_client::Informer;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::net::TcpStream;

/// A server that does not take a connection within this time is passed over.
const CONNECT: Duration = Duration::from_secs(2);
/// The same for TLS on top of it: the kernel takes connections for a process that stands still.
const HANDSHAKE: Duration = Duration::from_secs(4);

/// `host:port` of each server, and which of them answered last. Clones share it.
#[derive(Clone, Debug)]
pub struct Servers {
    list: Arc<ArcSwap<Vec<String>>>,
    preferred: Arc<AtomicUsize>,
    /// Where else to look when none of them answers.
    noted: Option<Noted>,
}

/// What is on disk of the servers; somebody may have written there where they are now.
#[derive(Clone)]
struct Noted(Arc<dyn Fn() -> Vec<String> + Send + Sync>);

impl std::fmt::Debug for Noted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noted")
    }
}

impl Servers {
    pub fn new(list: Vec<String>) -> Self {
        Self { list: Arc::new(ArcSwap::from_pointee(list)), preferred: Arc::default(), noted: None }
    }

    /// Looks there, too, when no server of the list answers.
    pub fn noted_by(self, noted: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { noted: Some(Noted(Arc::new(noted))), ..self }
    }

    pub fn list(&self) -> Arc<Vec<String>> {
        self.list.load_full()
    }

    /// Takes over what the cluster says of its servers; whether that was news. No servers at all is no news: somebody has to
    /// be asked for better.
    pub fn learn(&self, mut found: Vec<String>) -> bool {
        found.sort();
        found.dedup();
        if found.is_empty() || *self.list() == found {
            return false;
        }
        self.list.store(Arc::new(found));
        true
    }

    /// Asks another one first from now on, unless somebody else has seen to that since `asked` was.
    fn pass_over(&self, asked: usize) {
        let next = (asked + 1) % self.list().len().max(1);
        let _ = self.preferred.compare_exchange(asked, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        match (self.connect_to_known().await, &self.noted) {
            (Err(_), Some(Noted(noted))) if self.learn(noted()) => self.connect_to_known().await,
            (connected, _) => connected,
        }
    }

    async fn connect_to_known(&self) -> std::io::Result<TcpStream> {
        let (list, first) = (self.list(), self.preferred.load(Ordering::Relaxed));
        let mut last = std::io::Error::new(std::io::ErrorKind::NotConnected, "no API server is known");
        for step in 0..list.len() {
            let at = (first + step) % list.len();
            let attempt = tokio::time::timeout(CONNECT, TcpStream::connect(list[at].as_str())).await;
            match attempt.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => last = std::io::Error::new(error.kind(), format!("{}: {error}", list[at])),
            }
        }
        Err(last)
    }
}

/// Connections of `inner`, which go to the servers, complete with TLS: from one that takes the connection and then says nothing
/// to the next.
#[derive(Clone, Debug)]
pub struct Patient<C> {
    inner: C,
    servers: Servers,
}

impl<C> Patient<C> {
    pub fn new(inner: C, servers: Servers) -> Self {
        Self { inner, servers }
    }
}

impl<C> tower::Service<http::Uri> for Patient<C>
where
    C: tower::Service<http::Uri, Error: Into<tower::BoxError>, Future: Send> + Clone + Send + 'static,
    C::Response: Send,
{
    type Response = C::Response;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, tower::BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), tower::BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let (mut inner, servers) = (self.inner.clone(), self.servers.clone());
        Box::pin(async move {
            let mut last: tower::BoxError = "no API server is known".into();
            for _ in 0..servers.list().len() {
                let asked = servers.preferred.load(Ordering::Relaxed);
                match tokio::time::timeout(HANDSHAKE, inner.call(uri.clone())).await {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(error)) => last = error.into(),
                    Err(_) => last = format!("an API server said nothing within {HANDSHAKE:?}").into(),
                }
                servers.pass_over(asked);
            }
            Err(last)
        })
    }
}

/// Whatever host a request names, the connection goes to one of the servers.
impl tower::Service<http::Uri> for Servers {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let servers = self.clone();
        Box::pin(async move { servers.connect().await.map(TokioIo::new) })
    }
}

/// The addresses behind the Service `default/kubernetes`, as the servers themselves write them. Others may make slices with its
/// label, and are not believed.
pub fn of_slices(slices: &Informer<EndpointSlice>) -> Vec<String> {
    let mut found = Vec::new();
    for slice in own_slices(slices) {
        let ports = slice.ports.iter().flatten();
        let Some(port) = ports.filter(|port| port.name.as_deref() == Some("https")).find_map(|port| port.port) else {
            continue;
        };
        for address in slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses) {
            found.push(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") });
        }
    }
    found
}

fn own_slices(slices: &Informer<EndpointSlice>) -> impl Iterator<Item = Arc<EndpointSlice>> {
    let is_own = |slice: &Arc<EndpointSlice>| slice.metadata.name.as_deref() == Some("kubernetes");
    slices.list_in("default").into_iter().filter(is_own)
}

/// The addresses alone.
pub fn addresses(slices: &Informer<EndpointSlice>) -> Vec<IpAddr> {
    let all: Vec<_> = own_slices(slices).collect();
    let endpoints = all.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints.flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok()).collect()
}

/// Follows the cluster's own list, and calls back with it whenever it changes.
pub fn follow(
    servers: Servers,
    slices: Informer<EndpointSlice>,
    tasks: &ferry_tasks::Tasks,
    changed: impl Fn(&[String]) -> Result<()> + Send + Sync + 'static,
) {
    tasks.spawn_critical_once("api-servers", async move {
        let mut changes = slices.subscribe();
        slices.synced().await;
        loop {
            if servers.learn(of_slices(&slices)) {
                tracing::info!(servers = ?servers.list(), "the list of API servers has changed");
                if let Err(error) = changed(&servers.list()) {
                    tracing::warn!("cannot save the list of API servers for the next start: {error:#}");
                }
            }
            changes.next().await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_go_to_a_server_that_answers() {
        let up = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = up.local_addr().unwrap().to_string();
        // Bound and closed again: nobody listens there.
        let down = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let servers = Servers::new(vec![down.clone(), address.clone()]);
        assert_eq!(servers.connect().await.unwrap().peer_addr().unwrap().to_string(), address);
        assert_eq!(servers.preferred.load(Ordering::Relaxed), 1, "the next connection does not try the dead one first");
        drop(up);
        let error = servers.connect().await.unwrap_err().to_string();
        assert!(error.contains(&down) || error.contains(&address), "{error}");

        // Somebody noted where the server is now.
        let moved = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = moved.local_addr().unwrap().to_string();
        let noted = there.clone();
        let servers = servers.noted_by(move || vec![noted.clone()]);
        assert_eq!(servers.connect().await.unwrap().peer_addr().unwrap().to_string(), there);
        assert_eq!(*servers.list(), [there]);

        assert!(servers.learn(vec![address.clone()]) && !servers.learn(vec![address]) && !servers.learn(Vec::new()));
        assert_eq!(servers.list().len(), 1);
    }

    /// Says who it is once a byte came, as TLS does.
    #[derive(Clone)]
    struct Greeted(Servers);

    impl tower::Service<http::Uri> for Greeted {
        type Response = u8;
        type Error = std::io::Error;
        type Future = Pin<Box<dyn Future<Output = std::io::Result<u8>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Uri) -> Self::Future {
            let servers = self.0.clone();
            Box::pin(async move { tokio::io::AsyncReadExt::read_u8(&mut servers.connect().await?).await })
        }
    }

    #[tokio::test]
    async fn a_server_that_takes_connections_and_says_nothing_is_passed_over() {
        let frozen = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let up = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let list = [&frozen, &up].map(|listener| listener.local_addr().unwrap().to_string()).to_vec();
        let greeting = async {
            loop {
                let (mut stream, _) = up.accept().await.unwrap();
                tokio::io::AsyncWriteExt::write_u8(&mut stream, 7).await.unwrap();
            }
        };
        let servers = Servers::new(list);
        let mut patient = Patient::new(Greeted(servers.clone()), servers.clone());
        let asking = tower::Service::call(&mut patient, http::Uri::from_static("https://kubernetes"));
        let answer = tokio::select! { answer = asking => answer, () = greeting => unreachable!() };
        assert_eq!(answer.unwrap(), 7);
        assert_eq!(
            servers.preferred.load(Ordering::Relaxed),
            1,
            "the next connection does not try the frozen one first"
        );
    }
}
