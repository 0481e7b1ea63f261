//! What keeps a volume from a claim, and what can be done about it.

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::provisioner::class_of;
use super::{Finding, Reason, fit};

/// Why a volume that is there is not for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    Class {
        has: String,
    },
    TooSmall {
        has: String,
    },
    AccessMode {
        has: String,
    },
    Mode {
        has: String,
    },
    Selector,
    /// Another VolumeAttributesClass.
    Attributes {
        has: String,
    },
    /// Its former claim is gone, and what is on it was kept.
    Released,
    Taken {
        by: String,
    },
    /// Somebody keeps it for a claim that is not bound to it.
    Kept {
        by: String,
    },
}

/// All that keeps a volume from a claim.
pub(super) fn misfits(claim: &Value, volume: &Value) -> Vec<Misfit> {
    let mut found = Vec::new();
    let class = class_of(claim).unwrap_or_default();
    let has = class_of(volume).unwrap_or_default();
    if class != has {
        found.push(Misfit::Class { has: has.to_owned() });
    }
    let bound = volume.pointer("/spec/claimRef").filter(|bound| {
        let same = object::text(bound, "/name") == object::name(claim)
            && object::text(bound, "/namespace") == object::namespace(claim);
        let uid = object::text(bound, "/uid");
        !(same && (uid.is_empty() || uid == object::uid(claim)))
    });
    if matches!(object::text(volume, "/status/phase"), "Released" | "Failed") {
        found.push(Misfit::Released);
    } else if let Some(bound) = bound {
        let by = format!("{}/{}", object::text(bound, "/namespace"), object::text(bound, "/name"));
        let bound = !object::text(bound, "/uid").is_empty();
        found.push(if bound { Misfit::Taken { by } } else { Misfit::Kept { by } });
    }
    let size = |item: &Value, pointer: &str| Quantity::parse(object::text(item, pointer)).ok();
    let (wanted, capacity) = (size(claim, "/spec/resources/requests/storage"), size(volume, "/spec/capacity/storage"));
    if let (Some(wanted), Some(capacity)) = (wanted, capacity)
        && capacity.as_f64() < wanted.as_f64()
    {
        found.push(Misfit::TooSmall { has: capacity.to_string() });
    }
    let modes = |item: &Value| -> Vec<String> {
        object::items(item, "/spec/accessModes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (wanted, offered) = (modes(claim), modes(volume));
    if !wanted.iter().all(|mode| offered.contains(mode)) {
        found.push(Misfit::AccessMode { has: offered.join(", ") });
    }
    let mode = |item: &Value| match object::text(item, "/spec/volumeMode") {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    };
    if mode(claim) != mode(volume) {
        found.push(Misfit::Mode { has: mode(volume) });
    }
    let attributes = |item: &Value| object::text(item, "/spec/volumeAttributesClassName").to_owned();
    if attributes(claim) != attributes(volume) {
        found.push(Misfit::Attributes { has: attributes(volume) });
    }
    if let Some(selector) = claim.pointer("/spec/selector")
        && !LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(object::labels(volume)))
    {
        found.push(Misfit::Selector);
    }
    found
}

/// What is to be said of the volume that comes nearest.
pub(super) fn explained(claim: &Value, volume: &Value, misfits: &[Misfit]) -> Finding {
    let name = object::name(volume);
    let wanted = object::text(claim, "/spec/resources/requests/storage");
    let class = class_of(claim).unwrap_or_default();
    let modes: Vec<&str> = object::items(claim, "/spec/accessModes").iter().filter_map(Value::as_str).collect();
    let modes = modes.join(", ");
    let mode = match object::text(claim, "/spec/volumeMode") {
        "" => "Filesystem",
        mode => mode,
    };
    let selector = claim.pointer("/spec/selector").map(fit::selector_text).unwrap_or_default();
    let attributes = object::text(claim, "/spec/volumeAttributesClassName");
    let sentence = |misfit: &Misfit| match misfit {
        Misfit::Class { has } => format!("is of class {has:?}, and the claim wants {class:?}"),
        Misfit::TooSmall { has } => format!("is too small: it has {has}, and the claim asks for {wanted}"),
        Misfit::AccessMode { has } => format!("has the access mode {has}, and the claim asks for {modes}"),
        Misfit::Mode { has } => format!("has volumeMode {has}, and the claim asks for {mode}"),
        Misfit::Selector => format!("does not have the labels of the claim's selector, {selector}"),
        Misfit::Attributes { has } if has.is_empty() => {
            format!("has no volumeAttributesClassName, and the claim wants {attributes:?}")
        }
        Misfit::Attributes { has } => {
            format!("has the volumeAttributesClassName {has:?}, and the claim wants {attributes:?}")
        }
        Misfit::Released => {
            "is Released: it belonged to a claim that is gone, and is kept for what is on it".to_owned()
        }
        Misfit::Taken { by } => format!("belongs to the claim {by}"),
        Misfit::Kept { by } => format!("is kept for the claim {by} (spec.claimRef)"),
    };
    let (reason, remedy) = match misfits.first() {
        Some(Misfit::TooSmall { .. }) => (
            Reason::VolumeTooSmall,
            format!(
                "ask for less than {wanted}, or create a larger PersistentVolume; a claim's request cannot shrink: delete it and create it anew"
            ),
        ),
        Some(Misfit::Released) => (
            Reason::VolumeReleased,
            format!(
                "if what is on it may be used again: kubectl patch pv {name} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'"
            ),
        ),
        Some(Misfit::AccessMode { has }) => (
            Reason::VolumeAccessMode,
            format!("create the claim with the access mode {has}, or a volume that offers {modes}"),
        ),
        Some(Misfit::Class { has }) => (
            Reason::VolumeClass,
            format!("create the claim with storageClassName: {has:?}, or the volume with {class:?}"),
        ),
        Some(Misfit::Attributes { has }) => (
            Reason::VolumeAttributes,
            match has.as_str() {
                "" => "create the claim without volumeAttributesClassName".to_owned(),
                has => format!("create the claim with volumeAttributesClassName: {has:?}"),
            },
        ),
        Some(Misfit::Mode { has }) => (Reason::VolumeMode, format!("create the claim with volumeMode: {has}")),
        Some(Misfit::Selector) => (
            Reason::VolumeSelector,
            format!("correct spec.selector of the claim, or label the volume: kubectl get pv {name} --show-labels"),
        ),
        Some(Misfit::Taken { by }) => (
            Reason::VolumeTaken,
            format!("delete the claim {by} if it is not needed, or create another PersistentVolume"),
        ),
        Some(Misfit::Kept { .. }) => (
            Reason::VolumeTaken,
            format!(
                "create another PersistentVolume; or, if this one need not be kept: kubectl patch pv {name} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'"
            ),
        ),
        None => (Reason::NoVolume, String::new()),
    };
    let all: Vec<String> = misfits.iter().map(sentence).collect();
    let which = match object::text(claim, "/spec/volumeName") {
        "" => format!("no free PersistentVolume fits: the nearest, {name},"),
        _ => format!("the PersistentVolume that it names does not fit: {name}"),
    };
    Finding::new(reason, claim, format!("{which} {}", all.join("; it "))).advise(remedy)
}
