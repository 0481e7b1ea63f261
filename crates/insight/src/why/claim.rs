//! Claims without a volume: first the volumes that are there, then the class that could make one.

use ferry_meta::object;
use ferry_semantics::local_volumes;
use serde_json::Value;

use super::misfit::{Misfit, explained, misfits};
use super::provisioner::{self, NO_PROVISIONER};
use super::{Finding, Reason, fit, growth, is_soon, is_young, named, near, said, source};
use crate::gather::ALL_PODS;
use crate::world::{World, time_at};

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// Before they had names of their own.
const OLD_DEFAULT: &str = "storageclass.beta.kubernetes.io/is-default-class";

pub(super) fn findings(world: &World, claim: &Value) -> Option<Finding> {
    match object::text(claim, "/status/phase") {
        "Bound" => return growth::claim(world, claim),
        "Lost" => return Some(lost(world, claim)),
        _ => {}
    }
    named_volume(world, claim).or_else(|| by_class(world, claim))
}

/// A claim that had a volume. The object that stands for a volume can go and leave what it stood for.
fn lost(world: &World, claim: &Value) -> Finding {
    let volume = object::text(claim, "/spec/volumeName");
    let finding = |cause: String| Finding::new(Reason::ClaimLost, claim, cause);
    let anew = format!(
        "delete the claim and create it anew: kubectl delete pvc -n {} {}",
        object::namespace(claim),
        object::name(claim)
    );
    if volume.is_empty() {
        return finding("it had a volume, and does not name it any more".to_owned()).advise(anew);
    }
    if let Some(found) = world.find("persistentvolumes", volume) {
        let of = |field: &str| object::text(found, &format!("/spec/claimRef/{field}"));
        let other = format!("{}/{}", of("namespace"), of("name"));
        return finding(format!("its volume {volume} is bound to another claim, {other}")).advise(anew);
    }
    finding(format!("its volume {volume} is gone: there is no PersistentVolume of that name"))
        .detail("where somebody has deleted it, or it was to be kept (Retain), what was on it may still be there")
        .advise(format!("if it is, create the PersistentVolume {volume} again for it: the claim takes it back"))
        .advise(format!("if it is not, {anew}"))
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
    (!misfits.is_empty()).then(|| explained(claim, volume, &misfits))
}

/// The volume that nothing keeps from the claim.
fn fitting<'a>(world: &'a World, claim: &Value) -> Option<&'a Value> {
    world.seen("persistentvolumes")?.iter().find(|volume| misfits(claim, volume).is_empty())
}

/// Where no volume fits: the one of the claim's class with the least against it. A free one comes before one that is taken.
fn nearest<'a>(world: &'a World, claim: &Value) -> Option<(&'a Value, Vec<Misfit>)> {
    let all = world.seen("persistentvolumes")?.iter().map(|volume| (volume, misfits(claim, volume)));
    let of_class = |list: &[Misfit]| !list.iter().any(|one| matches!(one, Misfit::Class { .. }));
    let taken = |list: &[Misfit]| list.iter().any(|one| matches!(one, Misfit::Taken { .. } | Misfit::Kept { .. }));
    let mut candidates: Vec<(&Value, Vec<Misfit>)> = all.filter(|(_, list)| of_class(list)).collect();
    candidates.sort_by_key(|(_, list)| (taken(list), list.len()));
    // A volume that has nothing in common with the claim is not what was meant.
    candidates.into_iter().next().filter(|(_, list)| !list.is_empty() && list.len() <= 2)
}

/// A volume that only its class keeps from the claim: it may be the one that was meant.
fn of_other_class(world: &World, claim: &Value) -> String {
    let only_class = |volume: &&Value| matches!(misfits(claim, volume).as_slice(), [Misfit::Class { .. }]);
    let found = world.all("persistentvolumes").iter().find(only_class);
    let told = found.map(|volume| {
        let class = object::text(volume, "/spec/storageClassName");
        format!("the PersistentVolume {} would fit, but is of class {class:?}", object::name(volume))
    });
    told.unwrap_or_default()
}

fn by_class(world: &World, claim: &Value) -> Option<Finding> {
    let classes = world.seen("storageclasses");
    let asked = provisioner::class_of(claim);
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
        let found = explained(claim, volume, &misfits);
        return Some(match asked {
            Some(name) if class.is_none() && !name.is_empty() => {
                found.detail(format!("there is no StorageClass {name:?}, and so nobody makes a volume for it"))
            }
            _ => found,
        });
    }
    let none = match world.seen("persistentvolumes") {
        Some(_) => format!("no free PersistentVolume of {size} is there for it"),
        None => "the PersistentVolumes could not be looked at".to_owned(),
    };
    match asked {
        Some("") => Some(
            finding(Reason::NoVolume, format!("it wants a volume without a class, and {none}"))
                .detail(of_other_class(world, claim))
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
            // The controller gives a claim without a class the default one, also one that became the default later.
            if let Some(class) = classes.unwrap_or_default().iter().find(|class| is_default(class)) {
                let name = object::name(class);
                let cause = format!("it names no class, and has not been given the default one yet, {name}");
                return Some(
                    finding(Reason::NoDefaultClass, cause)
                        .underway_if(is_young(world, claim) || is_young(world, class))
                        .advise("see that the controllers run: ferry up, ferry controller-manager or kube-controller-manager"),
                );
            }
            let cause = "it names no storageClassName, and the cluster has no default class".to_owned();
            // One for which probably nobody makes volumes would not help.
            let usable = |class: &&Value| !provisioner::is_unknown(world, object::text(class, "/provisioner"));
            let advice = match classes.and_then(|classes| classes.iter().find(usable)) {
                Some(class) => {
                    format!(
                        "make one the default: kubectl annotate storageclass {} {DEFAULT}=true --overwrite",
                        object::name(class)
                    )
                }
                None => "create a StorageClass with its provisioner, or a PersistentVolume that fits".to_owned(),
            };
            Some(finding(Reason::NoDefaultClass, cause).detail(of_other_class(world, claim)).advise(advice))
        }
        Some(name) if class.is_none() && classes.is_some() => {
            let names = near::sorted(name, classes.unwrap_or_default().iter().map(object::name).collect());
            let there = if names.is_empty() {
                "the cluster has no StorageClass at all".to_owned()
            } else {
                format!("there are {}", named(&names))
            };
            Some(
                finding(Reason::ClassMissing, format!("its StorageClass {name:?} does not exist, and {none}"))
                    .detail(there)
                    .detail(of_other_class(world, claim))
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
    // Where nobody makes volumes and none is there, a pod that uses the claim finds no node either.
    let used = users(world, claim).is_some_and(|users| !users.is_empty());
    let in_vain = provisioner == NO_PROVISIONER && used && world.seen("persistentvolumes").is_some();
    if waits && asked.is_none() && !(in_vain && fitting(world, claim).is_none()) {
        let cause = format!("its class {name} makes or chooses the volume when the first pod that uses it has a node");
        let found = finding(Reason::WaitForFirstConsumer, cause);
        return match users(world, claim).as_deref() {
            None => found.underway().detail("whether a pod uses it could not be looked at"),
            Some([]) => found.note().detail("no pod uses it so far").advise("start a pod that uses it"),
            Some([first, ..]) if is_bypassed(claim, first) => {
                let (pod, node) = (object::name(first), object::text(first, "/spec/nodeName"));
                let cause = format!(
                    "its class {name} waits until the scheduler chooses a node for a pod that uses it, and pod/{pod} has node {node} without the scheduler (spec.nodeName)"
                );
                finding(Reason::WaitForFirstConsumer, cause).advise(format!(
                    "take spec.nodeName away, and choose the node by nodeSelector: kubernetes.io/hostname: {node}"
                ))
            }
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
            .detail(of_other_class(world, claim))
            .advise(format!("create a PersistentVolume with storageClassName: {name}"));
    }
    // Who would make the volume has nothing to fill it with.
    if let Some(missing) = source::missing(world, claim) {
        return missing;
    }
    if let Some(failed) = asked.filter(|event| object::text(event, "/reason") == "ProvisioningFailed") {
        return finding(
            Reason::ProvisioningFailed,
            format!("the provisioner {provisioner} of class {name} could not make its volume"),
        )
        .detail(said(failed))
        .advise_all(source::grant(claim))
        .advise(match provisioner {
            local_volumes::PROVISIONER => {
                "change what the message names in the claim, its class or the node".to_owned()
            }
            _ => format!("look at the log of {provisioner}, which tries again"),
        });
    }
    if provisioner::is_unknown(world, provisioner) {
        let driver = provisioner::driver(provisioner);
        let cause = format!(
            "nobody makes its volume: the provisioner {provisioner} of class {name} is not there as a CSI driver"
        );
        return finding(Reason::ProvisionerMissing, cause)
            .probably()
            .detail(provisioner::no_driver(provisioner))
            .advise(format!("install {driver}, or create the claim with another class: kubectl get storageclass"));
    }
    let told = world.events(claim).pop().map(|event| object::text(event, "/message")).unwrap_or_default();
    // A class that waits for a pod asks for the volume when that has a node.
    let since = asked.and_then(|event| time_at(event, "/metadata/creationTimestamp"));
    let early = is_young(world, claim) || since.is_some_and(|then| is_soon(world, then));
    finding(Reason::Provisioning, format!("the provisioner {provisioner} has not made its volume yet"))
        .underway_if(early)
        .detail(told)
        .advise(match provisioner {
            local_volumes::PROVISIONER => "see that the controllers of ferry up run, and what ferry up logs".to_owned(),
            _ => format!("see that the pods of {provisioner} run, and what they log"),
        })
}

/// The pod has a node, and the scheduler has not told the claim of it.
fn is_bypassed(claim: &Value, pod: &Value) -> bool {
    !object::text(pod, "/spec/nodeName").is_empty()
        && !object::annotations(claim).contains_key("volume.kubernetes.io/selected-node")
}

fn waits_for_pod(class: &Value) -> bool {
    object::text(class, "/volumeBindingMode") == "WaitForFirstConsumer"
}

/// The pods that use a claim; None where pods could not be looked at.
pub(super) fn users<'a>(world: &'a World, claim: &Value) -> Option<Vec<&'a Value>> {
    let (all, around) = (world.seen(ALL_PODS), world.seen("pods"));
    all.or(around)?;
    let uses = |pod: &&Value| {
        object::namespace(pod) == object::namespace(claim)
            && fit::volumes::claims(pod).iter().any(|name| name == object::name(claim))
    };
    // Of the pods around a pod only that one is read: the others are among those of the cluster.
    let mut found: Vec<&Value> = Vec::new();
    for pod in around.into_iter().chain(all).flatten().filter(uses) {
        let is_it = |known: &&Value| object::uid(known) == object::uid(pod) && object::name(known) == object::name(pod);
        if !found.iter().any(is_it) {
            found.push(pod);
        }
    }
    Some(found)
}

fn is_default(class: &Value) -> bool {
    let marked = |name: &str| object::annotations(class).get(name).and_then(Value::as_str) == Some("true");
    marked(DEFAULT) || marked(OLD_DEFAULT)
}
