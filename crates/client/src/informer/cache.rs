//! The cache of an informer: objects by key, and indexes over them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use kube::Resource;

use super::{Change, Shared};
use crate::key::ObjectKey;

pub(super) type IndexFunction<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

struct IndexState<K> {
    function: IndexFunction<K>,
    entries: HashMap<String, BTreeMap<ObjectKey, Arc<K>>>,
}

pub(super) struct Cache<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    indexes: HashMap<&'static str, IndexState<K>>,
}

impl<K: Resource> Cache<K> {
    pub(super) fn new() -> Self {
        Self { objects: BTreeMap::new(), indexes: HashMap::new() }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn list(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub(super) fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = ObjectKey::new(namespace, "");
        self.objects
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub(super) fn add_index(&mut self, name: &'static str, function: IndexFunction<K>) {
        if self.indexes.contains_key(name) {
            return;
        }
        let mut index = IndexState { function, entries: HashMap::new() };
        for (key, object) in &self.objects {
            index.insert(key, object);
        }
        self.indexes.insert(name, index);
    }

    fn indexed(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let entries = self.indexes.get(name).and_then(|index| index.entries.get(value));
        entries.map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn apply(&mut self, new: Arc<K>) -> Vec<Change<K>> {
        let key = ObjectKey::of(&*new);
        let old = self.objects.insert(key.clone(), new.clone());
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.remove(&key, old);
            }
            index.insert(&key, &new);
        }
        match old {
            None => vec![Change::Added(new)],
            // A watch that resumes may repeat what is known already.
            Some(old) if same_version(&*old, &*new) => Vec::new(),
            Some(old) if old.meta().uid != new.meta().uid => vec![Change::Deleted(old), Change::Added(new)],
            Some(old) => vec![Change::Modified { old, new }],
        }
    }

    pub(super) fn remove(&mut self, last: Arc<K>) -> Option<Change<K>> {
        let key = ObjectKey::of(&*last);
        let old = self.objects.remove(&key)?;
        for index in self.indexes.values_mut() {
            index.remove(&key, &old);
        }
        Some(Change::Deleted(last))
    }

    pub(super) fn replace(&mut self, objects: Vec<K>) -> Vec<Change<K>> {
        let mut gone = std::mem::take(&mut self.objects);
        let mut changes = Vec::new();
        // Old entries go back in one by one, so that `apply` sees what was known before.
        for object in objects {
            let key = ObjectKey::of(&object);
            if let Some(old) = gone.remove(&key) {
                self.objects.insert(key, old);
            }
            changes.extend(self.apply(Arc::new(object)));
        }
        for (key, old) in gone {
            for index in self.indexes.values_mut() {
                index.remove(&key, &old);
            }
            changes.push(Change::Deleted(old));
        }
        changes
    }
}

fn same_version<K: Resource>(old: &K, new: &K) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.resource_version.is_some() && old.resource_version == new.resource_version && old.uid == new.uid
}

impl<K> IndexState<K> {
    fn insert(&mut self, key: &ObjectKey, object: &Arc<K>) {
        for value in (self.function)(object) {
            self.entries.entry(value).or_default().insert(key.clone(), object.clone());
        }
    }

    fn remove(&mut self, key: &ObjectKey, object: &Arc<K>) {
        for value in (self.function)(object) {
            if let Some(objects) = self.entries.get_mut(&value) {
                objects.remove(key);
                if objects.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

/// A handle to one index of an informer.
pub struct Index<K> {
    name: &'static str,
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { name: self.name, shared: self.shared.clone() }
    }
}

impl<K: Resource> Index<K> {
    pub(super) fn new(name: &'static str, shared: Arc<Shared<K>>) -> Self {
        Self { name, shared }
    }

    /// The objects under that value, ordered by namespace and name.
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        self.shared.cache.read().indexed(self.name, value)
    }
}
