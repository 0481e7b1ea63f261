//! Where a pod of this node waits until the policies that select it are in force at its address.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, oneshot};

/// A change takes milliseconds. Who waits longer than this is told so, and may come again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pods that may wait at once: more than a node starts.
const ROOM: usize = 1024;

/// For the kubelet. Clones lead to the same node's rules.
#[derive(Clone, Debug)]
pub struct Gate {
    sender: mpsc::Sender<Newcomer>,
}

/// The other end of a gate.
#[derive(Debug)]
pub struct Newcomers(pub(crate) mpsc::Receiver<Newcomer>);

#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) pod: Arc<Pod>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) done: oneshot::Sender<()>,
}

pub fn gate() -> (Gate, Newcomers) {
    let (sender, receiver) = mpsc::channel(ROOM);
    (Gate { sender }, Newcomers(receiver))
}

/// Why a pod may not start yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateError {
    NoAddress,
    Stopping,
    NotInForce,
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAddress => "the container runtime has not told an address of the pod yet",
            Self::Stopping => "this node is being stopped",
            Self::NotInForce => "the NetworkPolicies of this node are not in force yet; its log says why",
        })
    }
}

impl std::error::Error for GateError {}

impl Gate {
    /// Returns once no packet of the pod can escape the policies that select it.
    pub async fn pass(&self, pod: Arc<Pod>, addresses: Vec<IpAddr>) -> Result<(), GateError> {
        // Rules are for addresses: without one, none can be in force.
        if addresses.is_empty() {
            return Err(GateError::NoAddress);
        }
        let (done, told) = oneshot::channel();
        let pass = async {
            self.sender.send(Newcomer { pod, addresses, done }).await.ok()?;
            told.await.ok()
        };
        match tokio::time::timeout(PATIENCE, pass).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(GateError::Stopping),
            Err(_) => Err(GateError::NotInForce),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_an_address_it_stays_shut() {
        let (gate, mut newcomers) = gate();
        let why = gate.pass(Arc::new(Pod::default()), Vec::new()).await.expect_err("nothing to write rules for");
        assert_eq!(why, GateError::NoAddress);
        assert!(newcomers.0.try_recv().is_err(), "nobody is told");
    }
}
