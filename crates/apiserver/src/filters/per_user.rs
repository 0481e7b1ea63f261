//! Something of each user's own, for as long as they have something under way.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub(crate) struct PerUser<T>(Mutex<HashMap<Box<str>, Weak<T>>>);

impl<T> Default for PerUser<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> PerUser<T> {
    /// What this user has, or what is made for them.
    pub(crate) fn of(&self, user: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut users = self.0.lock();
        if let Some(own) = users.get(user).and_then(Weak::upgrade) {
            return own;
        }
        // Those who have nothing under way are forgotten.
        users.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(make());
        users.insert(user.into(), Arc::downgrade(&own));
        own
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
