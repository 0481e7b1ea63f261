//! The API server as a process runs it: its flags under upstream's names, its configuration files, its certificates, the keys of
//! what is encrypted at rest, and the store it stands on. `front_door` puts them together.
//!
//! Above the API server's library and everything it consists of. It knows no controller, no scheduler and nothing of a node.

pub mod certificate_rotation;
pub mod configuration;
pub mod encryption;
pub mod etcd_options;
pub mod front_door;
pub mod front_proxy;
pub mod legacy_tokens;
pub mod migration;
pub mod pki;
pub mod reload;
pub mod server_options;
pub mod state;
pub mod store_socket;
pub mod trust;
