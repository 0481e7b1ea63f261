//! What scheduling reasons about: pods and nodes with everything parsed once, and the cache that holds them.

pub mod cache;
pub mod labels;
pub mod node;
pub mod node_sets;
pub mod pod;
pub mod resources;
pub mod spread;
pub mod taints;
pub mod tally;
pub mod topology;

pub use cache::Cache;
pub use labels::Selector;
pub use node::NodeInfo;
pub use pod::PodInfo;
pub use resources::Resources;
