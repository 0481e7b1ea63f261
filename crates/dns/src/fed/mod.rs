//! DNS that asks no API server: another process, the feeder, tells it the names of the cluster, and what it knew last is in a file.
//!
//! `feeder` is the side of the process that has the informers, `tables` the side that answers. They speak in `line`s, which the
//! `snapshot` keeps, too.

mod feeder;
mod line;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferry_tasks::Tasks;
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use feeder::Feeder;

use crate::observe;
use crate::reload::{Live, Written};
use crate::server::Sockets;
use crate::{Config, DnsError};
use line::Line;
use snapshot::Snapshot;
use tables::Tables;

/// No object that an API server takes is longer.
const LONGEST_LINE: u64 = 16 << 20;
/// From a change until it is in the file: what else changes meanwhile is in it, too.
const GATHERED: Duration = Duration::from_secs(1);
/// One part in this many of the time, at most, goes into the file.
const SHARE: u32 = 10;

/// A server that is fed.
pub struct Fed {
    live: Live,
    tables: Tables,
    /// The last Corefile that could be read.
    corefile: Arc<Mutex<Option<Written>>>,
    changed: Arc<Notify>,
    addresses: Vec<SocketAddr>,
}

impl Fed {
    /// Answers on these sockets until the group stops; at first with what the file says, where it is good.
    pub async fn start(
        config: Config,
        sockets: Vec<(std::net::UdpSocket, std::net::TcpListener)>,
        file: PathBuf,
        tasks: &Tasks,
    ) -> Result<Self, DnsError> {
        let sockets = sockets.into_iter().map(taken_over).collect::<std::io::Result<Vec<_>>>()?;
        let snapshot = Snapshot::new(file, &about(&config));
        let (mut tables, corefile) = (Tables::default(), Arc::new(Mutex::default()));
        let mut live = crate::live(&config, &sockets, tables.cluster(), tasks)?;
        if let Some(written) = recall(&snapshot, &mut tables)
            && let Some(Ok(_)) = live.apply(written.clone()).await
        {
            *corefile.lock() = Some(written);
        }
        crate::answer(&live, &sockets, tasks).await;
        let changed = Arc::new(Notify::new());
        keep(snapshot, tables.clone(), corefile.clone(), changed.clone(), tasks);
        Ok(Self { live, tables, corefile, changed, addresses: crate::addresses(&sockets) })
    }

    /// Serves health and metrics, once nobody else has their ports.
    pub fn observe(&self, tasks: &Tasks) {
        observe::serve(self.live.handler(), &self.addresses, &tasks.child("dns observed"));
    }

    /// Takes in what a feeder says until it is gone.
    pub async fn follow(&mut self, mut feeder: impl AsyncBufRead + Unpin) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            (&mut feeder).take(LONGEST_LINE).read_until(b'\n', &mut bytes).await?;
            if bytes.last() != Some(&b'\n') {
                return Ok(());
            }
            if let Some(written) = self.tables.apply(Line::read(&bytes)?)
                // Of one that cannot be read the feeder tells.
                && let Some(Ok(_)) = self.live.apply(written.clone()).await
            {
                *self.corefile.lock() = Some(written);
            }
            if self.tables.is_confirmed() {
                self.changed.notify_one();
            }
        }
    }
}

fn taken_over((datagrams, connections): (std::net::UdpSocket, std::net::TcpListener)) -> std::io::Result<Sockets> {
    datagrams.set_nonblocking(true)?;
    connections.set_nonblocking(true)?;
    let address = datagrams.local_addr()?;
    Ok((address, Arc::new(UdpSocket::from_std(datagrams)?), Arc::new(TcpListener::from_std(connections)?)))
}

/// Whose names they are: a file that says something else is another cluster's, or another node's.
fn about(config: &Config) -> String {
    let all = |addresses: Vec<String>| addresses.join(",");
    let listen = all(config.listen.iter().map(ToString::to_string).collect());
    let service = all(config.service_addresses.iter().map(ToString::to_string).collect());
    format!("{} {listen} {service}", config.zone)
}

/// Fills the tables from the file, and gives the Corefile that was in force.
fn recall(snapshot: &Snapshot, tables: &mut Tables) -> Option<Written> {
    let mut corefile = None;
    let read = snapshot.read(|line| {
        if let Some(written) = tables.apply(line) {
            corefile = Some(written);
        }
    });
    match read {
        Ok(true) => {
            tables.recall();
            corefile
        }
        Ok(false) => None,
        Err(error) => {
            tables.clear();
            tracing::warn!(
                "DNS knows no names of the cluster until it is told: {}: {error}",
                snapshot.path().display()
            );
            None
        }
    }
}

/// Writes the file after changes.
fn keep(
    snapshot: Snapshot,
    tables: Tables,
    corefile: Arc<Mutex<Option<Written>>>,
    changed: Arc<Notify>,
    tasks: &Tasks,
) {
    let snapshot = Arc::new(snapshot);
    tasks.spawn_until_stopped("dns snapshot", async move {
        loop {
            changed.notified().await;
            tokio::time::sleep(GATHERED).await;
            let (snapshot, tables, corefile) = (snapshot.clone(), tables.clone(), corefile.lock().clone());
            let path = snapshot.path().to_owned();
            let begin = Instant::now();
            let written = tokio::task::spawn_blocking(move || snapshot.write(tables.lines(corefile))).await;
            if let Ok(Err(error)) = written {
                tracing::warn!(
                    "the names of the cluster are not kept for a restart of DNS: {}: {error}",
                    path.display()
                );
            }
            tokio::time::sleep(begin.elapsed() * SHARE).await;
        }
    });
}
