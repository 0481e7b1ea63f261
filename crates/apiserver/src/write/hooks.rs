//! What kinds add to the stages of a write, by the flag of their row. Everything else knows no kind.

use bytes::Bytes;
use ferry_meta::{ApiError, FieldErrors, object};
use ferry_registry::WriteHook;
use ferry_store::{LeaseId, Op};
use serde_json::Value;

use super::allocate::{self, Allocation};
use super::lease_fast_path::{self, Wanted};
use super::{Write, device_rights, policy_rights, signing_rights};

impl Write<'_> {
    fn hook(&self) -> WriteHook {
        self.row.strategy.plain().write_hook
    }

    /// The answer to an ordinary change that needs no closer look, carried out; None where nothing was done.
    pub(crate) async fn fast_path(&self, wanted: Wanted<'_>) -> Result<Option<Bytes>, ApiError> {
        match self.hook() {
            WriteHook::LeaseRenewal => lease_fast_path::renew(self, wanted).await,
            _ => Ok(None),
        }
    }

    /// A Namespace is admitted as if it stood in itself.
    pub(super) fn stands_in_itself(&self) -> bool {
        self.hook() == WriteHook::Namespace
    }

    /// Chooses what the object needs of things that exist once in the cluster, and notes what it has no more.
    pub(super) fn allocate(&self, object: &mut Value, old: Option<&Value>) -> Result<Allocation, ApiError> {
        match self.hook() {
            WriteHook::ServiceAddresses => allocate::of_service(self.core, self.row, object, old, self.options.dry_run),
            _ => Ok(Allocation::default()),
        }
    }

    /// What the deletion of an object gives back.
    pub(super) async fn releases(&self, old: &Value) -> Result<Vec<Op>, ApiError> {
        match self.hook() {
            WriteHook::ServiceAddresses => allocate::releases(self.core, old).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Rights that a change needs beside those of its verb.
    pub(super) async fn missing_rights(&self, object: &Value, old: &Value) -> FieldErrors {
        match self.hook() {
            WriteHook::DeviceRights => {
                device_rights::errors(self.core, self.context, self.subresource, object, old).await
            }
            _ => FieldErrors::new(),
        }
    }

    /// The same for what is sound: who may not write it is told what is wrong with it first.
    pub(super) async fn missing_rights_of_sound(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        match (self.hook(), old) {
            (WriteHook::SigningRights, Some(old)) => {
                signing_rights::errors(self.core, self.context, self.subresource, object, old).await
            }
            (WriteHook::PolicyRights, old) => {
                policy_rights::errors(self.core, self.context, self.subresource, object, old).await
            }
            _ => FieldErrors::new(),
        }
    }

    /// The lease of the store that the object goes with. Events are forgotten after an hour.
    pub(super) async fn lease(&self) -> Result<Option<LeaseId>, ApiError> {
        match self.hook() {
            WriteHook::Expiry => self.core.event_leases.current(&*self.core.store).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Whether finalizers keep a deleted object from going. Those of a Namespace are in its spec too.
    pub(crate) fn is_held(&self, object: &Value) -> bool {
        object::finalizers(object).next().is_some() || self.is_emptied_first(object)
    }

    /// A Namespace goes when its controller has emptied it.
    pub(crate) fn is_emptied_first(&self, object: &Value) -> bool {
        self.hook() == WriteHook::Namespace && !object::items(object, "/spec/finalizers").is_empty()
    }

    /// A Namespace is marked as terminating while it is held.
    pub(crate) fn terminates_first(&self) -> bool {
        self.hook() == WriteHook::Namespace
    }

    /// Whether dependents may have been left behind for the garbage collector to see. Events have none.
    pub(crate) fn has_dependents(&self) -> bool {
        self.hook() != WriteHook::Expiry
    }
}
