//! What a folder of a node cannot be. Nothing that a claim or a class asks for is left out in silence.

use ferry_meta::Quantity;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

/// Names that are told; there may be any number.
const MOST_NAMES: usize = 3;
const LONGEST_NAME: usize = 63;

/// How many bytes are asked for, or why no volume is made.
pub(super) fn check(claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<i64, String> {
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    if let Some(names) = class.parameters.as_ref().filter(|all| !all.is_empty()) {
        let told: Vec<String> = names.keys().take(MOST_NAMES).map(|name| format!("{:?}", cut(name))).collect();
        return Err(format!(
            "the StorageClass {class_name} has unknown parameters: {}. It takes none",
            told.join(", ")
        ));
    }
    if class.mount_options.as_ref().is_some_and(|all| !all.is_empty()) {
        return Err(format!("the StorageClass {class_name} has mountOptions. A folder is not mounted, and takes none"));
    }
    if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
        return Err(format!(
            "the StorageClass {class_name} has no volumeBindingMode: WaitForFirstConsumer. A folder is made on the node of \
             the pod that uses it"
        ));
    }
    let Some(spec) = &claim.spec else { return Err("the claim has no spec".to_owned()) };
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if let Some(mode) = modes.iter().find(|mode| !matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod")) {
        return Err(format!(
            "access mode {mode} is not supported: the volume is on one node. Use ReadWriteOnce or ReadWriteOncePod"
        ));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err("volumeMode Block is not supported: the volume is a folder. Use Filesystem".to_owned());
    }
    if spec.selector.is_some() {
        return Err("the claim has a selector, and a new volume has no labels. Leave it out".to_owned());
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Err("the claim has a data source, and folders are neither copied nor restored. Leave it out".to_owned());
    }
    if spec.volume_attributes_class_name.as_deref().is_some_and(|name| !name.is_empty()) {
        return Err("the claim has a volumeAttributesClassName, and a folder has no such attributes".to_owned());
    }
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).and_then(|size| Quantity::parse(&size.0).ok());
    match size.map(|size| size.value()) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("the claim requests no storage".to_owned()),
    }
}

fn cut(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}
