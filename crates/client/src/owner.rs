//! Owner references: who controls an object, adoption and release.

use crate::api::Api;
use crate::codec::Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::write;

/// The owner that controls the object.
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

pub fn is_controlled_by<K: Resource, Owner: Resource>(object: &K, owner: &Owner) -> bool {
    match (controller_of(object), &owner.meta().uid) {
        (Some(reference), Some(uid)) => reference.uid == *uid,
        _ => false,
    }
}

/// Whether the owner is among the object's, as its controller or not.
pub fn is_owned_by<K: Resource, Owner: Resource>(object: &K, owner: &Owner) -> bool {
    let uid = owner.meta().uid.as_deref();
    object.meta().owner_references.iter().flatten().any(|reference| Some(reference.uid.as_str()) == uid)
}

/// A reference that makes `owner` the controller and lets foreground deletion wait for the object.
pub fn controller_reference<Owner>(owner: &Owner) -> OwnerReference
where
    Owner: Resource,
    Owner::DynamicType: Default,
{
    let (kind, meta) = (Owner::DynamicType::default(), owner.meta());
    OwnerReference {
        api_version: Owner::api_version(&kind).into_owned(),
        kind: Owner::kind(&kind).into_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Makes `owner` the object's controller. The uid in the patch makes it a conflict when the object is another one now.
pub async fn adopt<K>(api: &Api<K>, object: &K, owner: &OwnerReference) -> Result<K, kube::Error>
where
    K: Resource + Wire,
{
    let patch = json!({ "metadata": { "uid": object.meta().uid, "ownerReferences": [owner] } });
    let name = object.meta().name.as_deref().unwrap_or_default();
    api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await
}

/// Ends the owner's control. An object that is gone or is another one now needs no release.
pub async fn release<K>(api: &Api<K>, object: &K, owner_uid: &str) -> Result<(), kube::Error>
where
    K: Resource + Wire,
{
    let patch = json!({ "metadata": {
        "uid": object.meta().uid,
        "ownerReferences": [{ "$patch": "delete", "uid": owner_uid }],
    } });
    let name = object.meta().name.as_deref().unwrap_or_default();
    match api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if write::is_not_found(&error) || write::is_conflict(&error) || write::is_invalid(&error) => Ok(()),
        Err(error) => Err(error),
    }
}
