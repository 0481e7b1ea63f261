//! Folders of nodes, made and removed through the API server, which asks the node's kubelet.

use ferry_client::write;
use kube::Client;

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
}

impl Folders {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
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

    pub(super) async fn remove_empty(&self, node: &str, name: &str) -> Result<(), Refused> {
        self.ask(http::Method::DELETE, &format!("{node}/{name}?onlyEmpty=true")).await.map(drop)
    }

    /// The folders that have nothing in them.
    pub(super) async fn empty(&self, node: &str) -> Result<Vec<String>, Refused> {
        let text = self.ask(http::Method::GET, node).await?;
        serde_json::from_str(&text).map_err(|error| Refused { code: 0, why: error.to_string() })
    }
}
