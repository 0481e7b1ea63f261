//! A cluster's entry in the user's kubeconfig: put in beside what is there, and taken out again. Nothing else in the file
//! changes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::folders::read_if_there;

const LISTS: [&str; 3] = ["clusters", "users", "contexts"];
/// How long another program may hold the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// As kubectl finds it: the first file of $KUBECONFIG, else the one in the home folder.
pub fn usual_file() -> Result<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG")
        && let Some(first) = std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty())
    {
        return Ok(std::path::absolute(first)?);
    }
    let home = std::env::var_os("HOME").context("$HOME is not set; give the path with --kubeconfig")?;
    Ok(PathBuf::from(home).join(".kube/config"))
}

/// The kubeconfig that the server wrote for itself, as it is used from outside of its node and under another name.
pub fn renamed(written: &Path, server: &str, name: &str) -> Result<Value> {
    let mut document = read(written)?.with_context(|| format!("there is no {} yet", written.display()))?;
    for list in LISTS {
        ensure!(document[list][0].is_object(), "{} has no {list}", written.display());
        document[list][0]["name"] = name.into();
    }
    ensure!(document["clusters"][0]["cluster"].is_object(), "{} has an empty cluster", written.display());
    document["clusters"][0]["cluster"]["server"] = format!("https://{server}").into();
    document["contexts"][0]["context"] = json!({ "cluster": name, "user": name });
    document["current-context"] = name.into();
    Ok(document)
}

/// Fails where the file has something of this name, or cannot be read.
pub fn check_free(path: &Path, name: &str) -> Result<()> {
    let Some(document) = read(path)? else { return Ok(()) };
    for list in LISTS {
        ensure!(
            !entries(&document, list)?.iter().any(|entry| entry["name"] == name),
            "{} has an entry called {name} in its {list} already, which would be lost; remove it or choose another name for the cluster",
            path.display()
        );
    }
    Ok(())
}

/// Puts the one cluster, user and context of `entry` into the file and makes the context the current one.
pub fn merge(path: &Path, entry: &Value) -> Result<()> {
    change(path, |document| {
        for list in LISTS {
            let new = entry[list][0].clone();
            let mut all = entries(document, list)?;
            match all.iter_mut().find(|known| known["name"] == new["name"]) {
                Some(known) => *known = new,
                None => all.push(new),
            }
            document[list] = all.into();
        }
        document["current-context"] = entry["current-context"].clone();
        Ok(())
    })
}

/// Takes the entries of this name out of the file. One that is not there, or has none of them, stays as it is.
pub fn remove(path: &Path, name: &str) -> Result<()> {
    let Some(document) = read(path)? else { return Ok(()) };
    let mut there = document["current-context"] == name;
    for list in LISTS {
        there |= entries(&document, list)?.iter().any(|entry| entry["name"] == name);
    }
    if !there {
        return Ok(());
    }
    change(path, |document| {
        for list in LISTS {
            let mut all = entries(document, list)?;
            all.retain(|entry| entry["name"] != name);
            document[list] = all.into();
        }
        if document["current-context"] == name {
            document["current-context"] = "".into();
        }
        Ok(())
    })
}

fn entries(document: &Value, list: &str) -> Result<Vec<Value>> {
    match &document[list] {
        Value::Null => Ok(Vec::new()),
        Value::Array(all) => Ok(all.clone()),
        _ => bail!("its {list} is not a list"),
    }
}

fn read(path: &Path) -> Result<Option<Value>> {
    let Some(text) = read_if_there(path)? else { return Ok(None) };
    let (document, _) = ferry_schema::yaml::parse_value(&text)
        .map_err(|error| anyhow!("{} is not a kubeconfig, and stays as it is: {error}", path.display()))?;
    match document {
        Value::Null => Ok(None),
        Value::Object(_) => Ok(Some(document)),
        _ => bail!("{} is not a kubeconfig, and stays as it is", path.display()),
    }
}

/// Reads, changes and replaces the file while nobody else does; the old one stays until the new one is whole.
fn change(path: &Path, apply: impl FnOnce(&mut Value) -> Result<()>) -> Result<()> {
    // A link stays one.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let failed = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let _lock = Lock::take(&path)?;
    let mut document = read(&path)?.unwrap_or_else(|| json!({ "apiVersion": "v1", "kind": "Config" }));
    apply(&mut document).with_context(|| format!("{} stays as it is", path.display()))?;
    let old = fs::metadata(&path).ok();
    let new = with_ending(&path, "ferry-new");
    let mode = old.as_ref().map_or(0o600, |old| old.permissions().mode() & 0o777);
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).with_context(failed)?;
    let written = (|| {
        file.write_all(ferry_schema::yaml::to_yaml(&document).as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        if let Some(old) = old {
            // The file may be that of a user who calls this with sudo.
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.sync_all()?;
        fs::rename(&new, &path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.with_context(failed)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// The same file that kubectl takes for a lock.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> Result<Self> {
        let lock = with_ending(path, "lock");
        let begin = Instant::now();
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && begin.elapsed() < PATIENCE => {
                    std::thread::park_timeout(Duration::from_millis(50));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
                    "{} is locked by another program; if none writes to it, remove {}",
                    path.display(),
                    lock.display()
                ),
                Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, server: &str) -> Value {
        json!({
            "clusters": [{ "name": name, "cluster": { "server": server } }],
            "users": [{ "name": name, "user": { "token": "t" } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
            "current-context": name,
        })
    }

    #[test]
    fn entries_come_and_go_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/config");
        merge(&path, &entry("ferry-a", "https://a")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = "apiVersion: v1\nkind: Config\npreferences: {colors: true}\ncurrent-context: mine\nusers: null\nclusters:\n- name: mine\n  cluster: {server: 'https://x', extensions: [{name: n, extension: {a: 0777}}]}\ncontexts:\n- {name: mine, context: {cluster: mine, user: me}}\n";
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = read(&path).unwrap().unwrap();
        check_free(&path, "ferry-a").unwrap();
        assert!(check_free(&path, "mine").unwrap_err().to_string().contains("would be lost"));
        merge(&path, &entry("ferry-a", "https://a")).unwrap();
        merge(&path, &entry("ferry-a", "https://b")).unwrap();
        let with = read(&path).unwrap().unwrap();
        assert_eq!(with["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(with["clusters"][0], before["clusters"][0]);
        assert_eq!(with["clusters"][1]["cluster"]["server"], "https://b");
        assert_eq!((&with["current-context"], &with["preferences"]), (&json!("ferry-a"), &before["preferences"]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        remove(&path, "ferry-a").unwrap();
        let after = read(&path).unwrap().unwrap();
        assert_eq!((&after["clusters"], &after["contexts"]), (&before["clusters"], &before["contexts"]));
        assert_eq!(after["current-context"], "");
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["config"], "no lock or half-written file is left");
    }

    #[test]
    fn what_is_no_kubeconfig_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for text in ["a: [", "- a list\n", "clusters: {a: b}\n"] {
            fs::write(&path, text).unwrap();
            let error = format!("{:#}", merge(&path, &entry("ferry-a", "https://a")).unwrap_err());
            assert!(error.contains("stays as it is"), "{error}");
            assert!(remove(&path, "ferry-a").is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // A link to it is followed, and stays.
        let link = folder.path().join("link");
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        merge(&link, &entry("ferry-a", "https://a")).unwrap();
        assert!(link.is_symlink() && read(&path).unwrap().is_some());
    }
}
