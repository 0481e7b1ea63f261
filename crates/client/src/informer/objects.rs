//! An informer for those who need of its objects only what all kinds have.

use std::sync::Arc;

use super::cache::Object;
use super::{Change, Shared};

/// The objects of an informer, whatever their kind. Clones share it.
#[derive(Clone)]
pub struct Objects {
    shared: Arc<Shared>,
}

impl Objects {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// As [`super::Informer::on_change`].
    pub fn on_change<F>(&self, handler: F)
    where
        F: Fn(&Change<dyn Object>) + Send + Sync + 'static,
    {
        self.shared.add_handler(Box::new(handler));
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<dyn Object>> {
        self.shared.cache.read().list()
    }

    /// Waits until the cache has seen the first complete list.
    pub async fn synced(&self) {
        self.shared.synced().await;
    }
}
