//! The strategy of a kind that has nothing of its own, and the base of those that have little.

use crate::strategy::{Strategy, subdomain_name};

/// How an object of this kind may be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    #[default]
    Subdomain,
    Label,
    /// Anything that may stand in a path.
    PathSegment,
}

/// What the API server does for a kind beside the common stages of a write, because it takes more than the object itself:
/// the store, the authorizers, the cluster's networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteHook {
    #[default]
    None,
    /// Admitted as if it stood in itself, and held by the finalizers of its spec too.
    Namespace,
    /// Forgotten after an hour.
    Expiry,
    /// Cluster IPs and node ports are taken and given back with it.
    ServiceAddresses,
    /// What its status says of devices needs rights of its own.
    DeviceRights,
    /// What its status says needs the right to sign for its signer.
    SigningRights,
    /// What it names as parameters needs the right to read it.
    PolicyRights,
    /// Renewed every few seconds, by a change of its stored bytes.
    LeaseRenewal,
}

/// What the table's data says of a kind.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    pub has_status: bool,
    pub has_generation: bool,
    pub create_on_update: bool,
    /// Updates must name the resourceVersion they stand on.
    pub conditional: bool,
    /// A write to `status` leaves labels, annotations and their like alone.
    pub status_only: bool,
    pub returns_object: bool,
    pub orphans: bool,
    pub name_rule: NameRule,
    pub write_hook: WriteHook,
    /// One expression per column: see `cells::evaluate`.
    pub cells: Vec<String>,
}

impl Plain {
    pub fn name(&self, name: &str, prefix: bool) -> Vec<String> {
        match self.name_rule {
            NameRule::Subdomain => subdomain_name(name, prefix),
            NameRule::Label => crate::strategy::label_name(name, prefix),
            NameRule::PathSegment => ferry_meta::names::path_segment_name(name, prefix),
        }
    }
}

impl Strategy for Plain {
    fn plain(&self) -> &Plain {
        self
    }
}
