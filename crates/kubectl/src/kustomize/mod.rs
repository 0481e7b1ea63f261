//! Kustomizations: resources of folders, changed by the built-in transformers. `docs/kubectl.md` lists what is missing.
//!
//! Each folder is built for itself: what it takes from others, what it generates, then its changes, in kustomize's order.
//! Names change at the level that changes them, and references to them with it; hashes come last, at the top.

mod change;
mod generate;
mod order;
mod patches;
mod references;
mod replacements;

pub use change::is_in_cluster;
pub use generate::typed_hash;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

type Result<T> = std::result::Result<T, String>;

const FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// What kustomize knows and this does not: said, and not left out.
const MISSING: [&str; 8] = [
    "vars",
    "helmCharts",
    "helmChartInflationGenerator",
    "transformers",
    "generators",
    "validators",
    "openapi",
    "configurations",
];

/// Fields of older kustomizations, and those that took their place.
const OLD: [(&str, &str); 5] = [
    ("bases", "resources"),
    ("commonLabels", "labels"),
    ("imageTags", "images"),
    ("patchesJson6902", "patches"),
    ("patchesStrategicMerge", "patches"),
];

/// Folders below folders; a kustomization that goes deeper has no end.
const DEEPEST: usize = 32;

/// An object on its way.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub object: Value,
    /// The names it had, for those who still use them.
    names: Vec<String>,
    /// Its name gets a hash of what is in it.
    hashed: bool,
}

impl Item {
    fn new(object: Value) -> Self {
        Self { object, names: Vec::new(), hashed: false }
    }

    fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn has_name(&self, name: &str) -> bool {
        self.name() == name || self.names.iter().any(|known| known == name)
    }

    fn rename(&mut self, name: String) {
        let old = self.name().to_owned();
        if old != name {
            self.names.push(old);
            self.object["metadata"]["name"] = name.into();
        }
    }

    /// `Deployment.v1.apps/web.default`, as kustomize names it in errors.
    fn id(&self) -> String {
        let api_version = self.object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("[noGrp]", api_version));
        let namespace = self.object["metadata"]["namespace"].as_str().unwrap_or("[noNs]");
        format!("{}.{version}.{group}/{}.{namespace}", self.kind(), self.name())
    }
}

/// How a file of another machine is read.
type Fetch<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>>;

/// What who asks says; the kustomization says it else.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    pub sorted: Option<bool>,
    pub managed_by: bool,
}

/// The objects of a folder, with what it takes from other machines.
pub async fn build(folder: &str, asked: Asked) -> Result<Vec<Value>> {
    let (folder, runtime) = (folder.to_owned(), tokio::runtime::Handle::current());
    let fetch = move |url: &str| runtime.block_on(crate::fetch::get(url)).map_err(|error| error.inner());
    let built = tokio::task::spawn_blocking(move || build_with(&folder, asked, &fetch)).await;
    built.unwrap_or_else(|_| Err("the kustomization cannot be built".into()))
}

/// The objects in the order in which they are to be applied.
fn build_with(folder: &str, asked: Asked, fetch: Fetch<'_>) -> Result<Vec<Value>> {
    let root = directory(Path::new(folder), folder)?;
    let (mut items, kustomization) = load(&root, &[], fetch)?;
    let mut renamed = Vec::new();
    for item in items.iter_mut().filter(|item| item.hashed) {
        let name = format!("{}-{}", item.name(), generate::hash(&item.object));
        renamed.push((item.kind().to_owned(), item.name().to_owned(), name.clone()));
        item.rename(name);
    }
    references::follow(&mut items, &renamed);
    let managed_by = texts(&kustomization["buildMetadata"]).any(|name| name == "managedByLabel");
    for item in items.iter_mut().filter(|_| managed_by || asked.managed_by) {
        if !item.object["metadata"]["labels"].is_object() {
            item.object["metadata"]["labels"] = Value::Object(Map::new());
        }
        item.object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "kustomize-v5.8.1".into();
    }
    if asked.sorted.unwrap_or(kustomization["sortOptions"]["order"] != "fifo") {
        order::sort(&mut items);
    }
    Ok(items.into_iter().map(|item| item.object).collect())
}

fn directory(path: &Path, shown: &str) -> Result<PathBuf> {
    if shown.contains("://") || shown.starts_with("github.com/") || shown.starts_with("git@") {
        return Err(format!(
            "{shown:?}: kustomizations of other machines are not fetched; clone the repository and build the folder"
        ));
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match path.canonicalize() {
        Ok(found) if found.is_dir() => Ok(found),
        Ok(_) => Err(format!("must build at directory: '{shown}': file is not directory")),
        Err(_) => Err(format!(
            "must build at directory: not a valid directory: evalsymlink failure on '{shown}' : lstat {}: no such file or directory",
            absolute.display()
        )),
    }
}

fn parse(text: &[u8], path: &Path) -> Result<Vec<Value>> {
    crate::resource::files::documents(text).map_err(|why| format!("{}: {why}", path.display()))
}

/// A file of the folder or below it; others are not for this kustomization.
fn file(root: &Path, name: &str) -> Result<Vec<u8>> {
    let path = root.join(name);
    let found = path
        .canonicalize()
        .map_err(|_| format!("evalsymlink failure on '{0}' : lstat {0}: no such file or directory", path.display()))?;
    if !found.starts_with(root) {
        return Err(format!("security; file '{}' is not in or below '{}'", found.display(), root.display()));
    }
    std::fs::read(&found).map_err(|error| format!("{}: {error}", found.display()))
}

fn load(root: &Path, above: &[PathBuf], fetch: Fetch<'_>) -> Result<(Vec<Item>, Value)> {
    let kustomization = kustomization(root)?;
    let mut items = Vec::new();
    for name in texts(&kustomization["resources"]).chain(texts(&kustomization["bases"])) {
        items.extend(resources(root, name, above, fetch)?);
    }
    for name in texts(&kustomization["components"]) {
        let folder = directory(&root.join(name), name)?;
        let component = self::kustomization(&folder)?;
        if component["kind"] != "Component" {
            return Err(format!("expected kind 'Component' for path '{name}' but got 'Kustomization'"));
        }
        for name in texts(&component["resources"]) {
            items.extend(resources(&folder, name, above, fetch)?);
        }
        apply(&folder, &component, &mut items)?;
    }
    apply(root, &kustomization, &mut items)?;
    Ok((items, kustomization))
}

fn kustomization(root: &Path) -> Result<Value> {
    let found: Vec<PathBuf> = FILES.iter().map(|name| root.join(name)).filter(|path| path.is_file()).collect();
    let path = match &*found {
        [] => {
            return Err(format!(
                "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
                root.display()
            ));
        }
        [path] => path,
        _ => return Err(format!("Found multiple kustomization files under: {}", root.display())),
    };
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut documents = parse(&text, path)?;
    let value = if documents.is_empty() { Value::Object(Map::new()) } else { documents.remove(0) };
    if !value.is_object() {
        return Err(format!("invalid Kustomization: {} is no object", path.display()));
    }
    for (old, new) in OLD
        .iter()
        .filter(|(old, _)| value[*old].as_array().is_some_and(|all| !all.is_empty()) || value[*old].is_object())
    {
        crate::text::warn(format!(
            "# Warning: '{old}' is deprecated. Please use '{new}' instead. Run 'kustomize edit fix' to update your Kustomization automatically."
        ));
    }
    match MISSING.iter().find(|field| !value[**field].is_null()) {
        Some(field) => Err(format!("{}: {field} is not there yet", path.display())),
        None => Ok(value),
    }
}

/// A file of objects, or another folder.
fn resources(root: &Path, name: &str, above: &[PathBuf], fetch: Fetch<'_>) -> Result<Vec<Item>> {
    let path = root.join(name);
    if !path.is_dir() {
        let fail = |why: String| {
            let directory = directory(&path, &path.display().to_string()).err().unwrap_or_default();
            format!(
                "accumulating resources: accumulation err='accumulating resources from '{name}': {why}': {directory}"
            )
        };
        let is_file = crate::fetch::is_url(name) && [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end));
        if name.contains("://") && !is_file {
            return Err(directory(&path, name).err().unwrap_or_default());
        }
        let body = if is_file { fetch(name) } else { file(root, name) };
        let documents = parse(&body.map_err(fail)?, &path)?;
        let lists = documents.into_iter().flat_map(crate::resource::files::flattened);
        return lists.map(|object| checked(object, name)).collect();
    }
    let folder = directory(&path, name)?;
    if above.contains(&folder) || above.len() > DEEPEST || folder == *root {
        return Err(format!("cycle detected: candidate root '{}' contains visited root", folder.display()));
    }
    let mut above = above.to_vec();
    above.push(root.to_owned());
    load(&folder, &above, fetch).map(|(items, _)| items)
}

/// An object of the API: it has a kind and a name.
fn checked(object: Value, source: &str) -> Result<Item> {
    if !object["kind"].is_string() || !object["metadata"].is_object() || !object["metadata"]["name"].is_string() {
        return Err(format!("missing metadata.name in object {} of {source}", crate::print::compact(&object)));
    }
    Ok(Item::new(object))
}

/// The changes of one kustomization.
fn apply(root: &Path, kustomization: &Value, items: &mut Vec<Item>) -> Result<()> {
    generate::all(root, kustomization, items)?;
    same_twice(items)?;
    patches::all(root, kustomization, items)?;
    let renamed = change::names(kustomization, items);
    references::follow(items, &renamed);
    change::all(kustomization, items)?;
    replacements::all(root, kustomization, items)
}

fn same_twice(items: &[Item]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match items.iter().map(Item::id).find(|id| !seen.insert(id.clone())) {
        Some(id) => Err(format!("may not add resource with an already registered id: {id}")),
        None => Ok(()),
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn pairs(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    map.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_overlay_changes_its_base() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("base/kustomization.yaml", "resources: [pod.yaml]\nconfigMapGenerator: [{name: c, literals: [a=b]}]\n");
        write(
            "base/pod.yaml",
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: x, image: web, envFrom: [{configMapRef: {name: c}}]}]}}",
        );
        write(
            "top/kustomization.yaml",
            "resources: [../base]\nnamePrefix: n-\nnamespace: sea\nimages: [{name: web, newTag: '2'}]\n",
        );
        let objects = super::build_with(root.path().join("top").to_str().unwrap(), super::Asked::default(), &|_| {
            Err("no network".into())
        })
        .unwrap();
        assert_eq!(objects[0]["kind"], "ConfigMap");
        let name = objects[0]["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("n-c-"), "{name}");
        let pod = &objects[1];
        assert_eq!(pod["metadata"], serde_json::json!({"name": "n-p", "namespace": "sea"}));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["envFrom"][0]["configMapRef"]["name"], name);
        assert_eq!(container["image"], "web:2");
    }

    #[test]
    fn folders_that_need_each_other_have_an_end() {
        let root = tempfile::tempdir().unwrap();
        for (folder, other) in [("a", "b"), ("b", "a")] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
            let text = format!("resources: [../{other}]\n");
            std::fs::write(root.path().join(folder).join("kustomization.yaml"), text).unwrap();
        }
        let why = super::build_with(root.path().join("a").to_str().unwrap(), super::Asked::default(), &|_| {
            Err("no network".into())
        })
        .unwrap_err();
        assert!(why.contains("cycle detected"), "{why}");
    }

    #[test]
    fn files_of_other_folders_are_not_read() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("a")).unwrap();
        std::fs::write(root.path().join("secret"), "x").unwrap();
        std::fs::write(
            root.path().join("a/kustomization.yaml"),
            "configMapGenerator: [{name: c, files: [../secret]}]\n",
        )
        .unwrap();
        let why = super::build_with(root.path().join("a").to_str().unwrap(), super::Asked::default(), &|_| {
            Err("no network".into())
        })
        .unwrap_err();
        assert!(why.contains("is not in or below"), "{why}");
    }
}
