//! Folders of nodes, made and removed through the API server, which asks the node's kubelet.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::write;
use kube::Client;
use parking_lot::Mutex;

/// Calls of one node at the same time: one that does not answer holds up so many workers, and not all of them.
const AT_ONCE: usize = 2;

/// Why a node did not do what it was asked for.
#[derive(Debug)]
pub(super) struct Refused {
    /// 0 where not even the API server answered.
    pub(super) code: u16,
    pub(super) why: String,
}

impl Refused {
    /// Its disk has not that much free.
    pub(super) fn is_full(&self) -> bool {
        self.code == 507
    }

    /// Whether it did it all the same is not known.
    pub(super) fn is_unclear(&self) -> bool {
        matches!(self.code, 0 | 503 | 504)
    }
}

#[derive(Clone)]
pub(super) struct Folders {
    client: Client,
    turns: Turns,
}

/// How many calls each node has that is being called.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<String, usize>>>);

/// The right to call a node, for as long as it is held.
#[derive(Debug)]
pub(super) struct Turn(Turns, String);

impl Turns {
    fn take(&self, node: &str) -> Option<Turn> {
        let mut all = self.0.lock();
        let calls = all.entry(node.to_owned()).or_default();
        if *calls >= AT_ONCE {
            return None;
        }
        *calls += 1;
        Some(Turn(self.clone(), node.to_owned()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.0.0.lock();
        if let Some(calls) = all.get_mut(&self.1) {
            *calls -= 1;
            if *calls == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// What came of an empty folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emptied {
    /// It is gone, or somebody has written to it.
    Done,
    /// It was asked for a moment ago, or the node is at it.
    NotYet,
}

impl Folders {
    pub(super) fn new(client: Client) -> Self {
        Self { client, turns: Turns::default() }
    }

    /// None while the node has enough to do.
    pub(super) fn turn(&self, node: &str) -> Option<Turn> {
        self.turns.take(node)
    }

    async fn ask(&self, method: http::Method, path: &str) -> Result<String, Refused> {
        let request = http::Request::builder().method(method).uri(format!("/ferry/v1/local-volumes/{path}"));
        let request = request.body(Vec::new()).map_err(|error| Refused { code: 400, why: error.to_string() })?;
        self.client.request_text(request).await.map_err(|error| match &error {
            kube::Error::Api(status) => Refused { code: status.code, why: write::short(&error) },
            _ => Refused { code: 0, why: write::short(&error) },
        })
    }

    /// Makes the folder, or finds it there; tells its path on the node.
    pub(super) async fn make(&self, node: &str, name: &str, bytes: i64) -> Result<String, Refused> {
        self.ask(http::Method::PUT, &format!("{node}/{name}?bytes={bytes}")).await
    }

    /// Removes the folder with all that is in it. False while the node is at it.
    pub(super) async fn remove(&self, node: &str, name: &str) -> Result<bool, Refused> {
        Ok(self.ask(http::Method::DELETE, &format!("{node}/{name}")).await? != "removing")
    }

    pub(super) async fn remove_empty(&self, node: &str, name: &str) -> Result<Emptied, Refused> {
        let told = self.ask(http::Method::DELETE, &format!("{node}/{name}?onlyEmpty=true")).await?;
        Ok(if matches!(told.as_str(), "removing" | "made lately") { Emptied::NotYet } else { Emptied::Done })
    }

    /// The folders that have nothing in them.
    pub(super) async fn empty(&self, node: &str) -> Result<Vec<String>, Refused> {
        let text = self.ask(http::Method::GET, node).await?;
        serde_json::from_str(&text).map_err(|error| Refused { code: 0, why: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four claims for a node that hung held up the claims of all others.
    #[test]
    fn a_node_is_called_a_few_times_at_once() {
        let turns = Turns::default();
        let held: Vec<Turn> = (0..AT_ONCE).filter_map(|_| turns.take("hung")).collect();
        assert_eq!(held.len(), AT_ONCE);
        assert!(turns.take("hung").is_none() && turns.take("other").is_some());
        drop(held);
        assert!(turns.take("hung").is_some());
        assert!(turns.0.lock().is_empty(), "who is not called is forgotten");
    }
}
