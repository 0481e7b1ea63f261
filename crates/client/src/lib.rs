//! What every client-side loop is made of: shared informers, work queues, the one controller loop, expectations,
//! the event recorder, leader election, ownership and patches.
//!
//! A controller reads from an [`Informer`]'s cache, gets keys from a [`WorkQueue`] through [`controller::run`] and
//! writes through an [`Api`]. It never sees an event: handlers only turn changes into keys.
//! ReplicaSet in the `controllers` crate is the worked example.
//!
//! Must not depend on any server-side crate.

pub mod api;
pub mod clock;
pub mod codec;
pub mod controller;
pub mod discovery;
pub mod endpoint_slices;
pub mod expectations;
pub mod finishing;
pub mod informer;
pub mod key;
pub mod leader;
pub mod metrics;
pub mod owner;
pub mod queue;
pub mod recorder;
pub mod write;

pub use api::Api;
pub use clock::Clock;
pub use codec::Wire;
pub use controller::{Action, Error};
pub use expectations::Expectations;
pub use informer::{Change, Index, Informer, Informers, Object, Objects, Selection, Subscription};
pub use key::ObjectKey;
pub use metrics::Metrics;
pub use queue::WorkQueue;
pub use recorder::{EventRate, EventType, Recorder};
