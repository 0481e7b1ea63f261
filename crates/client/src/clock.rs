//! The time of day as loops see it, so that a test can move it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Tells the time: the machine's, unless something else is given.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Clock {
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now) }
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Now, in whole seconds as the wire knows it.
    pub fn seconds(&self) -> Timestamp {
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    /// The same, as objects have it.
    pub fn time(&self) -> Time {
        Time(self.seconds())
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}
