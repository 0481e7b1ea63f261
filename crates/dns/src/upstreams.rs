//! Which resolvers are asked: those that were given, or those of a file that is followed.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Upstreams;

/// Nothing tells when a file behind a link is replaced; it is looked at with a question, and no more often than this.
const LOOK: Duration = Duration::from_secs(2);
/// Of a file. The C library asks no more than three.
const MOST: usize = 3;
const LONGEST_FILE: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Follow {
    upstreams: Upstreams,
    /// Where we are reached ourselves.
    own: Vec<SocketAddr>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    list: Arc<Vec<SocketAddr>>,
    looked: Option<Instant>,
    stamp: Option<Stamp>,
}

/// What changes when a file does.
type Stamp = (u64, u64, u64, i64, i64);

impl Follow {
    pub(crate) fn new(upstreams: Upstreams, own: Vec<SocketAddr>) -> Self {
        let given = match &upstreams {
            Upstreams::These(list) => list.clone(),
            Upstreams::File(_) => Vec::new(),
        };
        let this = Self { upstreams, own, known: Mutex::default() };
        this.known.lock().list = this.without_own(given);
        this
    }

    fn without_own(&self, mut list: Vec<SocketAddr>) -> Arc<Vec<SocketAddr>> {
        list.retain(|upstream| {
            let same = |own: &SocketAddr| {
                own.port() == upstream.port() && (own.ip() == upstream.ip() || own.ip().is_unspecified())
            };
            !self.own.iter().any(same)
        });
        Arc::new(list)
    }

    /// The resolvers to ask now.
    pub(crate) async fn now(&self) -> Arc<Vec<SocketAddr>> {
        let Upstreams::File(path) = &self.upstreams else { return self.known.lock().list.clone() };
        let now = Instant::now();
        let last = {
            let mut known = self.known.lock();
            if known.looked.is_some_and(|at| now.duration_since(at) < LOOK) {
                return known.list.clone();
            }
            known.looked = Some(now);
            known.stamp
        };
        let stamp = stamp(path).await;
        if stamp.is_some() && stamp == last {
            return self.known.lock().list.clone();
        }
        let read = read(path).await;
        let mut known = self.known.lock();
        match read {
            Ok(text) => {
                known.stamp = stamp;
                known.list = self.without_own(parse(&text));
                if known.list.is_empty() {
                    tracing::warn!(
                        "names outside of the cluster cannot be resolved: {} names no resolver",
                        path.display()
                    );
                }
            }
            // A file that is being replaced is back in a moment: those it named may still do.
            Err(error) => tracing::warn!("the resolvers of the node are not known: {}: {error}", path.display()),
        }
        known.list.clone()
    }
}

async fn stamp(path: &Path) -> Option<Stamp> {
    let data = tokio::fs::metadata(path).await.ok()?;
    Some((data.dev(), data.ino(), data.size(), data.mtime(), data.mtime_nsec()))
}

async fn read(path: &Path) -> std::io::Result<String> {
    use tokio::io::AsyncReadExt;
    let mut text = String::new();
    tokio::fs::File::open(path).await?.take(LONGEST_FILE).read_to_string(&mut text).await?;
    Ok(text)
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    // A zone (`%eth0`) names an interface that only link-local addresses need.
    let addresses = addresses.filter_map(|text| text.split('%').next()?.parse::<IpAddr>().ok());
    addresses.map(|address| SocketAddr::new(address, 53)).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn resolvers_are_read_from_a_file() {
        let text = "# comment\nsearch a b\nnameserver 192.0.2.1\n nameserver  fd00::1 # x\nnameserver x\nnameserver\n";
        assert_eq!(parse(text), addresses(&["192.0.2.1:53", "[fd00::1]:53"]));
    }

    #[tokio::test]
    async fn a_server_never_forwards_to_itself() {
        let given = Upstreams::These(addresses(&["192.0.2.1:53", "127.0.0.53:53", "192.0.2.1:5353", "10.96.0.10:53"]));
        let follow = Follow::new(given, addresses(&["192.0.2.1:53", "10.96.0.10:53"]));
        assert_eq!(*follow.now().await, addresses(&["127.0.0.53:53", "192.0.2.1:5353"]));
    }

    #[tokio::test]
    async fn a_file_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("resolv.conf");
        let follow = Follow::new(Upstreams::File(path.clone()), addresses(&["192.0.2.9:53"]));
        let look = async || {
            follow.known.lock().looked = None;
            follow.now().await
        };
        assert!(look().await.is_empty(), "there is none yet");
        std::fs::write(&path, "nameserver 192.0.2.1\nnameserver 192.0.2.9\n").expect("written");
        assert_eq!(*look().await, addresses(&["192.0.2.1:53"]));
        // As programs replace it: another file under the same name.
        let other = folder.path().join("other");
        std::fs::write(&other, "nameserver 192.0.2.2\nnameserver 192.0.2.9\n").expect("written");
        assert_eq!(*follow.now().await, addresses(&["192.0.2.1:53"]), "it was looked at a moment ago");
        std::fs::rename(&other, &path).expect("replaced");
        assert_eq!(*look().await, addresses(&["192.0.2.2:53"]));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(*look().await, addresses(&["192.0.2.2:53"]), "those it named may still do");
    }
}
