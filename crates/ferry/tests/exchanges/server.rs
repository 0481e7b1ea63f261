//! The API server under test, and requests to it as they were recorded: over HTTP/1.1, with nothing added.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

/// How long something that must come may take. Long: a loaded machine is slow, and nothing is judged by time.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    process: Child,
    folder: tempfile::TempDir,
    address: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// What users show. Some recorded requests have these tokens in their bodies.
fn token(user: &str) -> Option<String> {
    (user != "anonymous").then(|| format!("{user}token"))
}

impl Server {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        let users = [("admin", "system:masters"), ("bob", "devs")];
        let lines = users.map(|(user, group)| format!("{},{user},{user}-uid,\"{group}\"\n", token(user).unwrap()));
        std::fs::write(&tokens, lines.concat()).unwrap();
        let port = ferry_testkit::free_port();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_ferry"))
            .args(["apiserver", "--bind-address=127.0.0.1", "--secure-port", &port.to_string()])
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .arg("--token-auth-file")
            .arg(tokens)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ferry runs");
        let address = format!("https://127.0.0.1:{port}");
        let mut config = kube::Config::new(address.parse().unwrap());
        config.accept_invalid_certs = true;
        let tls = kube::client::ConfigExt::rustls_client_config(&config).unwrap();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let mut server = Self { process, folder, address, client };
        let ready = async {
            while !server
                .request("admin", "GET", "/readyz", HeaderMap::new(), None)
                .await
                .is_ok_and(|a| a.status() == 200)
            {
                server.assert_alive();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.expect("the API server is ready");
        server
    }

    /// The answer as it begins; the body may go on for ever.
    pub async fn request(
        &self,
        user: &str,
        method: &str,
        path: &str,
        headers: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.address));
        if let Some(token) = token(user) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        // Writers are known by the first word of this, also in the recorded answers.
        request = request.header("Accept", "application/json").header("User-Agent", "replay/1.0");
        if body.is_some() {
            request = request.header("Content-Type", "application/json");
        }
        let mut request = request.body(Full::from(body.unwrap_or_default())).map_err(|e| format!("{path}: {e}"))?;
        request.headers_mut().extend(headers);
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request)).await;
        answer.map_err(|_| format!("{method} {path}: no answer"))?.map_err(|e| format!("{method} {path}: {e:?}"))
    }

    pub fn assert_alive(&mut self) {
        let ended = self.process.try_wait().unwrap();
        assert!(ended.is_none(), "the API server ended: {ended:?}\n{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
