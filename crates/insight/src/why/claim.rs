//! Claims without a volume: first the volumes that are there, then the class that could make one.

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::{Finding, Reason, fit, is_soon, is_young, named, said};
use crate::gather::ALL_PODS;
use crate::world::{World, standing, time_at};

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

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
    /// Its former claim is gone, and what is on it was kept.
    Released,
    Taken {
        by: String,
    },
}

pub(super) fn findings(world: &World, claim: &Value) -> Option<Finding> {
    let (name, namespace) = (object::name(claim), object::namespace(claim));
    match object::text(claim, "/status/phase") {
        "Bound" => return resizing(world, claim),
        "Lost" => {
            let volume = object::text(claim, "/spec/volumeName");
            let cause = format!("its volume {volume} is gone, and what was on it too");
            return Some(
                Finding::new(Reason::ClaimLost, claim, cause)
                    .advise(format!("delete the claim and create it anew: kubectl delete pvc -n {namespace} {name}")),
            );
        }
        _ => {}
    }
    named_volume(world, claim).or_else(|| by_class(world, claim))
}

fn resizing(world: &World, claim: &Value) -> Option<Finding> {
    let failed = world.event(claim, &["VolumeResizeFailed", "ExternalExpandFailed"]);
    for kind in ["ControllerResizeError", "NodeResizeError", "Resizing", "FileSystemResizePending"] {
        if let Some(condition) = standing(claim, kind, "True") {
            let size = object::text(claim, "/spec/resources/requests/storage");
            let finding =
                Finding::new(Reason::ClaimResizing, claim, format!("it is bound, and is to grow to {size}: {kind}"));
            let finding = finding.detail(said(condition)).detail(failed.map(said).unwrap_or_default());
            return Some(match kind {
                "FileSystemResizePending" => {
                    finding.advise("the file system grows when a pod uses the claim").underway()
                }
                "Resizing" if failed.is_none() => finding.underway(),
                _ => finding.advise("look at the log of the resizer of its class"),
            });
        }
    }
    None
}

/// A claim that names its volume waits for that one alone.
fn named_volume(world: &World, claim: &Value) -> Option<Finding> {
    let name = object::text(claim, "/spec/volumeName");
    let volumes = world.seen("persistentvolumes")?;
    if name.is_empty() {
        return None;
    }
    let Some(volume) = volumes.iter().find(|volume| object::name(volume) == name) else {
        let cause = format!("it names the PersistentVolume {name:?}, which does not exist");
        let finding = Finding::new(Reason::VolumeMissing, claim, cause);
        return Some(finding.advise(format!("create the PersistentVolume {name}, or a claim without volumeName")));
    };
    let misfits = misfits(claim, volume);
    (!misfits.is_empty()).then(|| explained(world, claim, volume, &misfits))
}

/// All that keeps a volume from a claim.
pub(super) fn misfits(claim: &Value, volume: &Value) -> Vec<Misfit> {
    let mut found = Vec::new();
    let class = object::text(claim, "/spec/storageClassName");
    let has = object::text(volume, "/spec/storageClassName");
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
        found.push(Misfit::Taken { by });
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
    if let Some(selector) = claim.pointer("/spec/selector")
        && !LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(object::labels(volume)))
    {
        found.push(Misfit::Selector);
    }
    found
}

/// What is to be said of the volume that comes nearest.
fn explained(_: &World, claim: &Value, volume: &Value, misfits: &[Misfit]) -> Finding {
    let name = object::name(volume);
    let wanted = object::text(claim, "/spec/resources/requests/storage");
    let class = object::text(claim, "/spec/storageClassName");
    let modes: Vec<&str> = object::items(claim, "/spec/accessModes").iter().filter_map(Value::as_str).collect();
    let modes = modes.join(", ");
    let sentence = |misfit: &Misfit| match misfit {
        Misfit::Class { has } => format!("is of class {has:?}, and the claim wants {class:?}"),
        Misfit::TooSmall { has } => format!("is too small: it has {has}, and the claim asks for {wanted}"),
        Misfit::AccessMode { has } => format!("has the access mode {has}, and the claim asks for {modes}"),
        Misfit::Mode { has } => format!("has volumeMode {has}, and the claim asks for the other"),
        Misfit::Selector => "does not have the labels of the claim's selector".to_owned(),
        Misfit::Released => {
            "is Released: it belonged to a claim that is gone, and is kept for what is on it".to_owned()
        }
        Misfit::Taken { by } => format!("belongs to the claim {by}"),
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
        Some(Misfit::Mode { has }) => (Reason::VolumeMode, format!("create the claim with volumeMode: {has}")),
        Some(Misfit::Selector) => (
            Reason::VolumeSelector,
            format!("correct spec.selector of the claim, or label the volume: kubectl get pv {name} --show-labels"),
        ),
        Some(Misfit::Taken { by }) => (
            Reason::VolumeTaken,
            format!("delete the claim {by} if it is not needed, or create another PersistentVolume"),
        ),
        None => (Reason::NoVolume, String::new()),
    };
    let all: Vec<String> = misfits.iter().map(sentence).collect();
    Finding::new(reason, claim, format!("no free PersistentVolume fits: the nearest, {name}, {}", all.join("; it ")))
        .advise(remedy)
}

/// The volume that nothing keeps from the claim.
fn fitting<'a>(world: &'a World, claim: &Value) -> Option<&'a Value> {
    world.seen("persistentvolumes")?.iter().find(|volume| misfits(claim, volume).is_empty())
}

/// Where no volume fits: the one of the claim's class with the least against it; without a class of its own, of any.
fn nearest<'a>(world: &'a World, claim: &Value) -> Option<(&'a Value, Vec<Misfit>)> {
    let all = world.seen("persistentvolumes")?.iter().map(|volume| (volume, misfits(claim, volume)));
    let taken = |list: &[Misfit]| list.iter().any(|one| matches!(one, Misfit::Taken { .. }));
    let mut candidates: Vec<(&Value, Vec<Misfit>)> = all.filter(|(_, list)| !taken(list)).collect();
    if candidates.iter().any(|(_, list)| list.is_empty()) {
        return None;
    }
    candidates.sort_by_key(|(_, list)| list.len());
    // A volume that has nothing in common with the claim is not what was meant.
    candidates.into_iter().next().filter(|(_, list)| list.len() <= 2)
}

fn by_class(world: &World, claim: &Value) -> Option<Finding> {
    let classes = world.seen("storageclasses");
    let asked = claim.pointer("/spec/storageClassName").and_then(Value::as_str);
    let size = object::text(claim, "/spec/resources/requests/storage");
    let finding = |reason: Reason, cause: String| Finding::new(reason, claim, cause);
    let class = asked.and_then(|name| classes?.iter().find(|class| object::name(class) == name));
    let provisioner = class.map(|class| object::text(class, "/provisioner")).unwrap_or_default();
    let by_hand = match class {
        Some(_) => provisioner == NO_PROVISIONER,
        None => classes.is_some() || asked == Some(""),
    };
    // Whether one of the volumes is for it, is found out when a pod uses it.
    let waits = class.is_some_and(waits_for_pod);
    if waits && users(world, claim).is_none_or(|users| users.is_empty()) {
        return Some(provisioned(world, claim, class, asked.unwrap_or_default(), provisioner));
    }
    if by_hand
        && !waits
        && let Some(volume) = fitting(world, claim)
    {
        let cause = format!("the PersistentVolume {} fits, and is not bound to it yet", object::name(volume));
        let early = is_young(world, claim) || is_young(world, volume);
        return Some(finding(Reason::VolumeUnbound, cause).underway_if(early).advise("see that the controllers run"));
    }
    // Where nobody makes volumes, the ones that are there are what counts.
    if by_hand && let Some((volume, misfits)) = nearest(world, claim) {
        let of_class = !misfits.iter().any(|one| matches!(one, Misfit::Class { .. }));
        if of_class || asked.is_none_or(str::is_empty) || misfits.len() == 1 {
            let found = explained(world, claim, volume, &misfits);
            return Some(match asked {
                Some(name) if class.is_none() && !name.is_empty() => {
                    found.detail(format!("there is no StorageClass {name:?}, and so nobody makes a volume for it"))
                }
                _ => found,
            });
        }
    }
    let none = match world.seen("persistentvolumes") {
        Some(_) => format!("no free PersistentVolume of {size} is there for it"),
        None => "the PersistentVolumes could not be looked at".to_owned(),
    };
    match asked {
        Some("") => Some(
            finding(Reason::NoVolume, format!("it wants a volume without a class, and {none}"))
                .advise("create a PersistentVolume without storageClassName, or name a class in the claim"),
        ),
        _ if classes.is_none() => {
            let class = asked.map_or_else(|| "a default one, if there is one".to_owned(), |name| format!("{name:?}"));
            let cause = format!("no volume is bound to it; its StorageClass ({class}) could not be looked at");
            let told = world.events(claim).pop().map(said).unwrap_or_default();
            let ask = "ask somebody who may list storageclasses";
            Some(finding(Reason::ClassUnseen, cause).underway_if(is_young(world, claim)).detail(told).advise(ask))
        }
        None => {
            let default = classes.and_then(|classes| classes.iter().find(|class| is_default(class)));
            let (cause, advice) = match default {
                Some(class) => (
                    "it names no class and was made before there was a default one".to_owned(),
                    format!("delete it and create it anew: it gets the class {}", object::name(class)),
                ),
                None => (
                    "it names no storageClassName, and the cluster has no default class".to_owned(),
                    match classes.and_then(<[Value]>::first) {
                        Some(class) => format!(
                            "make one the default: kubectl annotate storageclass {} {DEFAULT}=true",
                            object::name(class)
                        ),
                        None => {
                            "create a StorageClass with its provisioner, or a PersistentVolume that fits".to_owned()
                        }
                    },
                ),
            };
            Some(finding(Reason::NoDefaultClass, cause).advise(advice))
        }
        Some(name) if class.is_none() && classes.is_some() => {
            let names: Vec<&str> = classes.unwrap_or_default().iter().map(object::name).collect();
            let there = if names.is_empty() {
                "the cluster has no StorageClass at all".to_owned()
            } else {
                format!("there are {}", named(&names))
            };
            Some(
                finding(Reason::ClassMissing, format!("its StorageClass {name:?} does not exist, and {none}"))
                    .detail(there)
                    .advise("create the claim with a class that exists, or create the class with its provisioner"),
            )
        }
        Some(name) => Some(provisioned(world, claim, class, name, provisioner)),
    }
}

/// Its class is there.
fn provisioned(world: &World, claim: &Value, class: Option<&Value>, name: &str, provisioner: &str) -> Finding {
    let finding = |reason: Reason, cause: String| Finding::new(reason, claim, cause);
    let size = object::text(claim, "/spec/resources/requests/storage");
    let waits = class.is_some_and(waits_for_pod);
    let asked = world.event(claim, &["ExternalProvisioning", "Provisioning", "ProvisioningFailed"]);
    if waits && asked.is_none() {
        let cause = format!("its class {name} makes or chooses the volume when the first pod that uses it has a node");
        let found = finding(Reason::WaitForFirstConsumer, cause);
        return match users(world, claim).as_deref() {
            None => found.underway().detail("whether a pod uses it could not be looked at"),
            Some([]) => found.note().detail("no pod uses it so far").advise("start a pod that uses it"),
            Some([first, ..]) => {
                let pod = object::name(first);
                let found = found.underway().detail(format!("pod/{pod} uses it and has no node yet"));
                found.advise(format!("ferry why -n {} pod/{pod}", object::namespace(claim)))
            }
        };
    }
    if provisioner == NO_PROVISIONER {
        let cause = match world.seen("persistentvolumes") {
            Some(_) => {
                format!(
                    "no free PersistentVolume of class {name} and {size} fits, and nobody makes them for this class"
                )
            }
            None => format!(
                "no volume is bound to it, and nobody makes them for class {name}; the PersistentVolumes could not be looked at"
            ),
        };
        return finding(Reason::NoVolume, cause)
            .advise(format!("create a PersistentVolume with storageClassName: {name}"));
    }
    if let Some(failed) = asked.filter(|event| object::text(event, "/reason") == "ProvisioningFailed") {
        return finding(
            Reason::ProvisioningFailed,
            format!("the provisioner {provisioner} of class {name} could not make its volume"),
        )
        .detail(said(failed))
        .advise(format!("look at the log of {provisioner}, which tries again"));
    }
    let known = |list: &str, pointer: &str| {
        world.seen(list).map(|items| {
            items.iter().any(|item| match pointer {
                "" => object::name(item) == provisioner,
                pointer => {
                    object::items(item, pointer).iter().any(|driver| object::text(driver, "/name") == provisioner)
                }
            })
        })
    };
    if known("csidrivers", "") == Some(false) && known("csinodes", "/spec/drivers") != Some(true) {
        let cause = format!(
            "nobody makes its volume: the provisioner {provisioner} of class {name} is not there as a CSI driver"
        );
        return finding(Reason::ProvisionerMissing, cause)
            .probably()
            .detail("there is no CSIDriver of that name, and no node has registered it; a provisioner may also work without")
            .advise(format!("install {provisioner}, or create the claim with another class: kubectl get storageclass"));
    }
    let told = world.events(claim).pop().map(|event| object::text(event, "/message")).unwrap_or_default();
    // A class that waits for a pod asks for the volume when that has a node.
    let since = asked.and_then(|event| time_at(event, "/metadata/creationTimestamp"));
    let early = is_young(world, claim) || since.is_some_and(|then| is_soon(world, then));
    finding(Reason::Provisioning, format!("the provisioner {provisioner} has not made its volume yet"))
        .underway_if(early)
        .detail(told)
        .advise(format!("see that the pods of {provisioner} run, and what they log"))
}

fn waits_for_pod(class: &Value) -> bool {
    object::text(class, "/volumeBindingMode") == "WaitForFirstConsumer"
}

/// The pods that use a claim; None where pods could not be looked at.
pub(super) fn users<'a>(world: &'a World, claim: &Value) -> Option<Vec<&'a Value>> {
    let pods = world.seen("pods").or_else(|| world.seen(ALL_PODS))?;
    let uses = |pod: &&Value| {
        object::namespace(pod) == object::namespace(claim)
            && fit::volumes::claims(pod).iter().any(|name| name == object::name(claim))
    };
    Some(pods.iter().filter(uses).collect())
}

fn is_default(class: &Value) -> bool {
    object::annotations(class).get(DEFAULT).and_then(Value::as_str) == Some("true")
}
