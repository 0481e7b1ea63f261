//! The cache of an informer: objects by key, and indexes over them.
//!
//! It does not know the type of what it holds, so that it is compiled once and not for every kind.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Cached, Change, Shared};
use crate::key::ObjectKey;

/// An object of any kind.
pub trait Object: Any + Send + Sync {
    fn object_meta(&self) -> &ObjectMeta;
}

impl<K: Cached> Object for K {
    fn object_meta(&self) -> &ObjectMeta {
        self.meta()
    }
}

pub(super) type Held = Arc<dyn Object>;

/// The object as its kind. Everything an informer holds is of the informer's kind.
pub(super) fn typed<K: Cached>(object: Held) -> Option<Arc<K>> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().ok()
}

pub(super) fn all_typed<K: Cached>(objects: Vec<Held>) -> Vec<Arc<K>> {
    objects.into_iter().filter_map(typed).collect()
}

pub(super) fn key_of(object: &dyn Object) -> ObjectKey {
    let meta = object.object_meta();
    ObjectKey { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
}

/// The key of an object without a copy of it.
fn names_of(object: &dyn Object) -> (&str, &str) {
    let meta = object.object_meta();
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

pub(super) type IndexFunction = Box<dyn Fn(&dyn Object) -> Vec<String> + Send + Sync>;

struct IndexState {
    function: IndexFunction,
    /// By value, in the order of their keys. Mostly there is one.
    entries: HashMap<Box<str>, Vec<Held>>,
}

pub(super) struct Cache {
    objects: BTreeMap<ObjectKey, Held>,
    indexes: HashMap<&'static str, IndexState>,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self { objects: BTreeMap::new(), indexes: HashMap::new() }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Held> {
        self.objects.get(key).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn list(&self) -> Vec<Held> {
        self.objects.values().cloned().collect()
    }

    pub(super) fn list_in(&self, namespace: &str) -> Vec<Held> {
        let first = ObjectKey::new(namespace, "");
        self.objects
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub(super) fn add_index(&mut self, name: &'static str, function: IndexFunction) {
        if self.indexes.contains_key(name) {
            return;
        }
        let mut index = IndexState { function, entries: HashMap::new() };
        for object in self.objects.values() {
            index.insert(object);
        }
        self.indexes.insert(name, index);
    }

    pub(super) fn indexed(&self, name: &str, value: &str) -> Vec<Held> {
        let entries = self.indexes.get(name).and_then(|index| index.entries.get(value));
        entries.cloned().unwrap_or_default()
    }

    pub(super) fn apply(&mut self, new: Held) -> Vec<Change<dyn Object>> {
        let key = key_of(&*new);
        let old = self.objects.insert(key.clone(), new.clone());
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.remove(old);
            }
            index.insert(&new);
        }
        match old {
            None => vec![Change::Added(new)],
            // A watch that resumes may repeat what is known already.
            Some(old) if same_version(&*old, &*new) => Vec::new(),
            Some(old) if old.object_meta().uid != new.object_meta().uid => {
                vec![Change::Deleted(old), Change::Added(new)]
            }
            Some(old) => vec![Change::Modified { old, new }],
        }
    }

    pub(super) fn remove(&mut self, last: Held) -> Option<Change<dyn Object>> {
        let key = key_of(&*last);
        let old = self.objects.remove(&key)?;
        for index in self.indexes.values_mut() {
            index.remove(&old);
        }
        Some(Change::Deleted(last))
    }

    pub(super) fn replace(&mut self, objects: Vec<Held>) -> Vec<Change<dyn Object>> {
        let mut gone = std::mem::take(&mut self.objects);
        let mut changes = Vec::new();
        // Old entries go back in one by one, so that `apply` sees what was known before.
        for object in objects {
            let key = key_of(&*object);
            if let Some(old) = gone.remove(&key) {
                self.objects.insert(key, old);
            }
            changes.extend(self.apply(object));
        }
        for old in gone.into_values() {
            for index in self.indexes.values_mut() {
                index.remove(&old);
            }
            changes.push(Change::Deleted(old));
        }
        changes
    }
}

fn same_version(old: &dyn Object, new: &dyn Object) -> bool {
    let (old, new) = (old.object_meta(), new.object_meta());
    old.resource_version.is_some() && old.resource_version == new.resource_version && old.uid == new.uid
}

impl IndexState {
    fn insert(&mut self, object: &Held) {
        for value in (self.function)(&**object) {
            let objects = self.entries.entry(value.into()).or_default();
            match place_of(objects, object) {
                Ok(place) => objects[place] = object.clone(),
                Err(place) => {
                    if objects.is_empty() {
                        objects.reserve_exact(1);
                    }
                    objects.insert(place, object.clone());
                }
            }
        }
    }

    fn remove(&mut self, object: &Held) {
        for value in (self.function)(&**object) {
            if let Some(objects) = self.entries.get_mut(&*value) {
                if let Ok(place) = place_of(objects, object) {
                    objects.remove(place);
                }
                if objects.is_empty() {
                    self.entries.remove(&*value);
                }
            }
        }
    }
}

/// Where the object of that name is among those, or should be.
fn place_of(objects: &[Held], object: &Held) -> Result<usize, usize> {
    objects.binary_search_by(|known| names_of(&**known).cmp(&names_of(&**object)))
}

/// A handle to one index of an informer.
pub struct Index<K> {
    name: &'static str,
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { name: self.name, shared: self.shared.clone(), kind: PhantomData }
    }
}

impl<K: Cached> Index<K> {
    pub(super) fn new(name: &'static str, shared: Arc<Shared>) -> Self {
        Self { name, shared, kind: PhantomData }
    }

    /// The objects under that value, ordered by namespace and name.
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        all_typed(self.shared.cache.read().indexed(self.name, value))
    }
}
