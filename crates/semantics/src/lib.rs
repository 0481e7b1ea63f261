//! What words of the Kubernetes API mean, written once: what validation accepts is what controllers, scheduler and kubelet do.
//!
//! Pure functions over text, JSON and the API's types: no runtime, no I/O, no clock. May depend on `meta` and on nothing
//! else of Ferry, so that every other crate can use it.
//!
//! One module per topic, with its rules and messages as upstream has them and its tests as tables. What needs a rule of the
//! API that another crate has already moves it here instead of writing it again.

pub mod backoff;
pub mod cidr;
pub mod cron;
pub mod duration;
pub mod host_ports;
pub mod local_volumes;
pub mod node_selector;
pub mod pod_resources;
pub mod qos;
pub mod quota;
pub mod taints;
pub mod token_bucket;
