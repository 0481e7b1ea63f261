//! The keys that Secrets are encrypted with: a file made at the first start, or the one that the administrator keeps.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use ferry_meta::object::{items, text};
use ferry_registry::ResourceTable;
use ferry_store::{EncryptedStore, EncryptionConfig, ResourceOf, Store};
use ferry_tasks::Tasks;
use tokio::sync::Mutex;

use crate::configuration;
use crate::pki::write_private;
use crate::reload::Reloads;
use crate::server_options::read_document;

/// Where to find the keys.
pub struct Keys<'a> {
    /// Private to the cluster.
    pub folder: &'a Path,
    /// The file of a flag.
    pub given: Option<&'a Path>,
}

/// Where the keys are kept, and the store that uses them.
pub struct Encryption {
    file: PathBuf,
    /// False where the administrator gave the file: then nobody else writes it.
    own: bool,
    store: Arc<EncryptedStore>,
    /// One rotation at a time.
    rotating: Mutex<()>,
    tasks: Tasks,
}

/// Beside the keys of the data folder: they are not those that are in use.
const GIVEN: &str = "encryption.given";

/// Notes whether the administrator gave the keys, for `ferry token create --server`.
fn mark(keys: &Keys<'_>) -> Result<()> {
    let mark = keys.folder.join(GIVEN);
    match keys.given {
        Some(_) => write_private(&mark, "--encryption-provider-config\n"),
        None if mark.exists() => fs::remove_file(&mark).with_context(|| format!("cannot remove {}", mark.display())),
        None => Ok(()),
    }
}

/// Whether the keys of this folder are not those that its server uses.
pub fn is_given(folder: &Path) -> bool {
    folder.join(GIVEN).exists()
}

/// How long key management services are waited for: they may have been started together with this process.
const PATIENCE: Duration = Duration::from_secs(30);

impl Encryption {
    pub async fn open(keys: &Keys<'_>, store: Arc<dyn Store>, table: &ResourceTable, tasks: &Tasks) -> Result<Self> {
        let file = keys.given.map_or_else(|| keys.folder.join("encryption.json"), Path::to_owned);
        let own = keys.given.is_none();
        mark(keys)?;
        if own && !file.exists() {
            write_private(
                &file,
                &format!("{:#}\n", EncryptionConfig::document(&[("key1".to_owned(), EncryptionConfig::new_key()?)])),
            )?;
        }
        let config = load(&file, tasks).await?;
        let store = EncryptedStore::new(store, config, resource_of(table));
        Ok(Self { file, own, store, rotating: Mutex::default(), tasks: tasks.clone() })
    }

    /// Takes the administrator's file over whenever it changes. What cannot be used changes nothing.
    pub fn watch(self: &Arc<Self>, reloads: &Reloads) -> Result<()> {
        let this = self.clone();
        reloads.watch(&self.file, move || {
            parse(&this.file)?;
            let reading = this.clone();
            this.tasks.spawn_until_stopped("encryption configuration", async move {
                let _one = reading.rotating.lock().await;
                match load(&reading.file, &reading.tasks).await {
                    Ok(config) => reading.store.set_config(config),
                    Err(error) => tracing::error!(
                        "cannot reload the encryption configuration; the previous one stays in effect: {error:#}"
                    ),
                }
            });
            Ok(())
        })
    }

    pub fn store(&self) -> Arc<EncryptedStore> {
        self.store.clone()
    }

    /// Takes a new key (or the administrator's file as it stands now), and writes every value anew that an older one
    /// or none protects. Old keys stay in the file: backups are read with them. Says how many values were written.
    pub async fn rotate(&self) -> Result<usize> {
        let _one = self.rotating.lock().await;
        if self.own {
            let document = read_document(&self.file)?;
            let mut keys = Vec::new();
            for key in items(&document, "/resources/0/providers/0/aesgcm/keys") {
                let secret = base64::engine::general_purpose::STANDARD.decode(text(key, "/secret"))?;
                keys.push((text(key, "/name").to_owned(), secret));
            }
            let used = keys.iter().filter_map(|(name, _)| name.strip_prefix("key")?.parse::<u64>().ok());
            let name = format!("key{}", used.max().unwrap_or(0) + 1);
            keys.insert(0, (name, EncryptionConfig::new_key()?));
            // Durable before the first value needs it.
            write_private(&self.file, &format!("{:#}\n", EncryptionConfig::document(&keys)))?;
        }
        self.store.set_config(load(&self.file, &self.tasks).await?);
        Ok(self.store.rewrite_stale().await?)
    }
}

#[async_trait::async_trait]
impl ferry_apiserver::SecretRotation for Encryption {
    async fn rotate(&self) -> Result<usize, String> {
        Self::rotate(self).await.map_err(|error| format!("{error:#}"))
    }
}

fn parse(file: &Path) -> Result<EncryptionConfig> {
    let document = configuration::read(file, "EncryptionConfiguration")?;
    EncryptionConfig::parse(&document).with_context(|| file.display().to_string())
}

async fn load(file: &Path, tasks: &Tasks) -> Result<EncryptionConfig> {
    let config = parse(file)?;
    config.start(tasks, PATIENCE).await.with_context(|| file.display().to_string())?;
    Ok(config)
}

/// From a key to its resource: built-in resources by their prefix, custom ones have group and name in it.
fn resource_of(table: &ResourceTable) -> ResourceOf {
    let known: std::collections::HashMap<String, (String, String)> = table
        .rows()
        .iter()
        .filter(|row| row.stored)
        .map(|row| (row.storage_prefix.to_string(), (row.gvk.group.clone(), row.plural.clone())))
        .collect();
    Arc::new(move |key| {
        let rest = key.strip_prefix("/registry/")?;
        let first = rest.find('/')?;
        let second = rest[first + 1..].find('/').map(|at| first + 1 + at);
        let two = second.and_then(|at| known.get(&rest[..at]));
        if let Some((group, resource)) = two.or_else(|| known.get(&rest[..first])) {
            return Some((group.clone(), resource.clone()));
        }
        let resource = &rest[first + 1..second?];
        rest[..first].contains('.').then(|| (rest[..first].to_owned(), resource.to_owned()))
    })
}

/// Keeps the file's folder private.
pub fn folder(data_dir: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let folder = data_dir.join("pki");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use ferry_store::{EmbeddedStore, Op, Transaction};

    async fn put(store: &dyn Store, key: &str, value: &str) {
        let op = Op::Create { key: key.into(), value: value.to_owned().into(), lease: None };
        store.commit(Transaction::one(op)).await.unwrap();
    }

    /// Every byte below a folder.
    fn dump(folder: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            bytes.extend(if path.is_dir() { dump(&path) } else { fs::read(path).unwrap() });
        }
        bytes
    }

    fn holds(bytes: &[u8], text: &str) -> bool {
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    #[tokio::test]
    async fn the_folder_of_the_store_shows_no_secret_and_keys_can_be_changed() {
        let data = tempfile::tempdir().unwrap();
        let table = ResourceTable::builtin();
        let engine = EmbeddedStore::open(&data.path().join("store"), Default::default()).unwrap();
        let private = folder(data.path()).unwrap();
        let keys = |given| Keys { folder: &private, given };
        let tasks = Tasks::new("test");
        let encryption = Encryption::open(&keys(None), engine, &table, &tasks).await.unwrap();
        let store = encryption.store();
        put(&*store, "/registry/secrets/a/s", "swordfish-sesame").await;
        put(&*store, "/registry/configmaps/a/m", "plain-as-day").await;
        let mode = fs::metadata(private.join("encryption.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let bytes = dump(&data.path().join("store"));
        assert!(holds(&bytes, "plain-as-day") && !holds(&bytes, "swordfish-sesame"));
        assert!(holds(&bytes, "k8s:enc:aesgcm:v1:key1:"));

        assert_eq!(encryption.rotate().await.unwrap(), 1);
        assert_eq!(encryption.rotate().await.unwrap(), 1);
        let raw = dump(&data.path().join("store"));
        assert!(holds(&raw, "k8s:enc:aesgcm:v1:key3:") && !holds(&raw, "swordfish-sesame"));
        drop((store, encryption));

        // A new start reads what the old one wrote, and so does one with the administrator's own file.
        let file = private.join("encryption.json");
        for given in [None, Some(&*file)] {
            let engine = EmbeddedStore::open(&data.path().join("store"), Default::default()).unwrap();
            let encryption = Encryption::open(&keys(given), engine, &table, &tasks).await.unwrap();
            let got = encryption.store().get("/registry/secrets/a/s").await.unwrap().entry.unwrap();
            assert_eq!(got.value, "swordfish-sesame");
        }

        // The file is taken over while the server runs.
        let own = data.path().join("own.json");
        let document = |provider: &str| {
            let keys = serde_json::json!({ "keys": [{ "name": "k", "secret": "c2VjcmV0IGlzIHNlY3VyZSBhbmQgbG9uZyBlbm91Z2g=" }] });
            let mut first = serde_json::Map::new();
            first.insert(provider.to_owned(), keys);
            serde_json::json!({
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
                "resources": [{ "resources": ["*.*"], "providers": [first, { "identity": {} }] }],
            })
            .to_string()
        };
        fs::write(&own, document("aesgcm")).unwrap();
        let engine = EmbeddedStore::open(&data.path().join("other"), Default::default()).unwrap();
        let encryption = Arc::new(Encryption::open(&keys(Some(&own)), engine.clone(), &table, &tasks).await.unwrap());
        let reloads = Reloads::new();
        encryption.watch(&reloads).unwrap();
        put(&*encryption.store(), "/registry/pods/a/one", "x").await;
        let raw =
            async |name: &str| engine.get(&format!("/registry/pods/a/{name}")).await.unwrap().entry.unwrap().value;
        assert!(raw("one").await.starts_with(b"k8s:enc:aesgcm:v1:k:"));
        fs::write(&own, "{}").unwrap();
        reloads.look();
        fs::write(&own, document("secretbox")).unwrap();
        reloads.look();
        let mut number = 0;
        loop {
            // It is taken over beside this; every write until then is by the old one.
            number += 1;
            let name = format!("n{number}");
            put(&*encryption.store(), &format!("/registry/pods/a/{name}"), "x").await;
            if raw(&name).await.starts_with(b"k8s:enc:secretbox:v1:k:") {
                break;
            }
            tokio::task::yield_now().await;
        }
        tasks.stop(Duration::from_secs(10)).await;
    }
}
