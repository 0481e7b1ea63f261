//! What one command has: its flags, the configuration, a client and the mapper, each made when it is first asked for.

use std::path::PathBuf;
use std::sync::PoisonError;

use tokio::sync::{Mutex, OnceCell};

use crate::client::Client;
use crate::config::{self, Chosen, Loaded};
use crate::discovery::{Mapper, Resource, folder};
use crate::error::{Error, Result};
use crate::flags::Parsed;
use crate::preferences::Policy;
use crate::resource::Info;

/// An object that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    /// None where the kind is not in namespaces.
    pub namespace: Option<String>,
    pub name: String,
}

pub struct Context {
    pub flags: Parsed,
    /// A table stays, and changes in its place.
    pub live: bool,
    applied: std::sync::Mutex<Vec<Applied>>,
    /// `kubectl get`.
    pub path: String,
    policy: Policy,
    loaded: OnceCell<Loaded>,
    chosen: OnceCell<Chosen>,
    client: OnceCell<Client>,
    mapper: Mutex<Option<Mapper>>,
}

impl Context {
    pub fn new(flags: Parsed, path: String, policy: Policy) -> Self {
        let (loaded, chosen, client) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        let (applied, mapper) = (std::sync::Mutex::default(), Mutex::new(None));
        Self { flags, live: false, applied, path, policy, loaded, chosen, client, mapper }
    }

    /// Remembers what was applied, for those who look after it.
    pub fn remember(&self, info: &Info) {
        let Resource { group, version, plural, kind, .. } = info.resource.clone();
        let applied =
            Applied { group, version, plural, kind, namespace: info.namespace.clone(), name: info.name.clone() };
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).push(applied);
    }

    pub fn applied(self) -> Vec<Applied> {
        self.applied.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn words(&self) -> &[String] {
        &self.flags.words
    }

    pub fn usage(&self, why: impl Into<String>) -> Error {
        Error::Usage { path: self.path.clone(), why: why.into() }
    }

    pub async fn loaded(&self) -> Result<&Loaded> {
        self.loaded.get_or_try_init(|| async { config::load(&self.flags) }).await
    }

    pub async fn chosen(&self) -> Result<&Chosen> {
        self.chosen.get_or_try_init(|| async { self.loaded().await?.choose(&self.flags) }).await
    }

    /// The namespace that is meant where none is written.
    pub async fn namespace(&self) -> Result<String> {
        Ok(self.chosen().await?.namespace.clone())
    }

    /// Whether a flag says it: objects of files must then be of it.
    pub fn namespace_is_explicit(&self) -> bool {
        self.flags.global("namespace").is_some()
    }

    pub fn timeout(&self) -> Result<i64> {
        let text = self.flags.text("request-timeout");
        if let Ok(seconds) = text.parse::<i64>() {
            return Ok(seconds.saturating_mul(1_000_000_000));
        }
        ferry_semantics::duration::parse(text).map_err(|_| {
            Error::say(
                "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a corresponding time unit (e.g. 1s | 2m | 3h)",
            )
        })
    }

    /// How much is told of the requests.
    pub fn verbosity(&self) -> i64 {
        self.flags.text("v").parse().unwrap_or_default()
    }

    pub async fn client(&self) -> Result<&Client> {
        let make = || async {
            let chosen = self.chosen().await?;
            let timeout = self.timeout()?;
            let told = config::exec::completed(chosen, &self.policy, self.outlives_credentials())?;
            let chosen = told.as_ref().unwrap_or(chosen);
            let asked = config::ask::completed(chosen)?;
            let chosen = asked.as_ref().unwrap_or(chosen);
            let config = config::connect::config(chosen, timeout).await?;
            let proxy = config::connect::proxy_of(chosen, &config)?;
            let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
            let (client, upgraded) =
                config::connect::clients(config, proxy).map_err(|error| match config::connect::chain(&error) {
                    why if why.contains("KeyMismatch") => Error::Connection {
                        host: String::new(),
                        refused: false,
                        why: "tls: private key does not match public key".into(),
                    },
                    why => Error::say(why),
                })?;
            let client = Client::new(client, upgraded, url, timeout, self.verbosity());
            if self.flags.global("match-server-version") == Some("true") {
                same_version(&client).await?;
            }
            Ok(client)
        };
        self.client.get_or_try_init(make).await
    }

    /// Warnings of the server are an error where that is asked for.
    pub fn warned(&self) -> Result<()> {
        let count = self.client.get().map_or(0, Client::warned);
        if count == 0 || !self.flags.is("warnings-as-errors") {
            return Ok(());
        }
        Err(Error::say(format!("{count} warning{} received", if count == 1 { "" } else { "s" })))
    }

    /// Whether it serves until it is interrupted.
    fn outlives_credentials(&self) -> bool {
        matches!(&*self.path, "kubectl proxy" | "kubectl port-forward")
    }

    pub fn cache_folder(&self) -> PathBuf {
        match self.flags.global("cache-dir") {
            Some(folder) => PathBuf::from(folder),
            None => std::env::var_os("KUBECACHEDIR")
                .filter(|dir| !dir.is_empty())
                .map_or_else(|| config::home().unwrap_or_else(std::env::temp_dir).join(".kube/cache"), PathBuf::from),
        }
    }

    /// Asks the mapper; where it does not know, the server is asked once more.
    pub async fn with_mapper<T>(&self, ask: impl Fn(&Mapper) -> Result<T>) -> Result<T> {
        let client = self.client().await?;
        let mut slot = self.mapper.lock().await;
        let mapper = match &mut *slot {
            Some(mapper) => mapper,
            empty => empty.insert(Mapper::load(client, folder(&self.cache_folder(), &client.host)).await?),
        };
        match ask(mapper) {
            Err(_) if mapper.is_old() => {
                mapper.refresh(client).await?;
                ask(mapper)
            }
            answer => answer,
        }
    }

    /// Discovery as it is now.
    pub async fn refresh(&self) -> Result<()> {
        let client = self.client().await?;
        let mut slot = self.mapper.lock().await;
        *slot = None;
        let mut mapper = Mapper::load(client, folder(&self.cache_folder(), &client.host)).await?;
        if mapper.is_old() {
            mapper.refresh(client).await?;
        }
        *slot = Some(mapper);
        Ok(())
    }

    pub async fn resource(&self, argument: &str) -> Result<Resource> {
        self.with_mapper(|mapper| mapper.resource(argument)).await
    }

    /// The resource of a kind that must be there, such as Pods.
    pub async fn kind(&self, api_version: &str, kind: &str) -> Result<Resource> {
        self.with_mapper(|mapper| {
            mapper
                .kind(api_version, kind)
                .cloned()
                .ok_or_else(|| Error::say(format!("no matches for kind {kind:?} in version {api_version:?}")))
        })
        .await
    }
}

/// The version that this kubectl is.
async fn same_version(client: &Client) -> Result<()> {
    let found = client.json(crate::client::Call::get("/version")).await?;
    match found["gitVersion"].as_str().unwrap_or_default() {
        "v1.37.0" => Ok(()),
        other => Err(Error::say(format!("server version ({other}) differs from client version (v1.37.0)"))),
    }
}
