//! Slices that were written and not yet seen so. Pods change in quick succession: what is planned on the slice before
//! the last write would only meet a conflict.

use std::collections::HashMap;

use ferry_client::{Change, Informer, ObjectKey};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;

pub(super) struct Written {
    slices: Informer<EndpointSlice>,
    /// The generation that was written.
    unseen: Mutex<HashMap<ObjectKey, i64>>,
}

impl Written {
    pub(super) fn new(slices: Informer<EndpointSlice>) -> Self {
        Self { slices, unseen: Mutex::default() }
    }

    /// The server's answer to a write.
    pub(super) fn note(&self, slice: &EndpointSlice) {
        let (key, written) = (ObjectKey::of(slice), generation(slice));
        // Held while the cache is asked: an event that comes after that waits, and finds what is noted.
        let mut unseen = self.unseen.lock();
        let behind = self
            .slices
            .get_key(&key)
            .is_some_and(|known| known.metadata.uid == slice.metadata.uid && generation(&known) < written);
        if behind {
            unseen.insert(key, written);
        }
    }

    pub(super) fn seen(&self, change: &Change<EndpointSlice>) {
        let slice = change.object();
        let mut unseen = self.unseen.lock();
        let key = ObjectKey::of(&**slice);
        let gone = matches!(change, Change::Deleted(_));
        if unseen.get(&key).is_some_and(|written| gone || *written <= generation(slice)) {
            unseen.remove(&key);
        }
    }

    pub(super) fn is_unseen(&self, slice: &EndpointSlice) -> bool {
        self.unseen.lock().contains_key(&ObjectKey::of(slice))
    }
}

fn generation(slice: &EndpointSlice) -> i64 {
    slice.metadata.generation.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(uid: &str, generation: i64) -> EndpointSlice {
        let mut slice = EndpointSlice::default();
        slice.metadata.namespace = Some("default".into());
        slice.metadata.name = Some("web-1".into());
        slice.metadata.uid = Some(uid.into());
        slice.metadata.resource_version = Some(format!("{uid}{generation}"));
        slice.metadata.generation = Some(generation);
        slice
    }

    #[test]
    fn a_write_is_unseen_until_the_cache_has_it_or_the_slice_is_gone() {
        let informer: Informer<EndpointSlice> = Informer::detached();
        let written = std::sync::Arc::new(Written::new(informer.clone()));
        let hears = written.clone();
        informer.on_change(move |change| hears.seen(change));
        informer.apply(slice("a", 1));
        let unseen = || written.is_unseen(&slice("a", 1));

        written.note(&slice("a", 3));
        assert!(unseen());
        informer.apply(slice("a", 2));
        assert!(unseen(), "an older write");
        informer.apply(slice("a", 3));
        assert!(!unseen());
        // The event came before the answer, or the slice is another now.
        written.note(&slice("a", 3));
        written.note(&slice("b", 7));
        assert!(!unseen());
        written.note(&slice("a", 4));
        assert!(unseen());
        informer.remove(slice("a", 3));
        assert!(!unseen());
    }
}
