//! Claims without a volume.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Hop, said};
use crate::world::World;

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) fn unbound(world: &World, claim: &Value) -> Option<Finding> {
    match object::text(claim, "/status/phase") {
        "Bound" => return None,
        "Lost" => {
            let volume = object::text(claim, "/spec/volumeName");
            let cause = format!("its volume {volume} is gone, and what was on it too");
            return Some(Finding::new(Hop::Storage, claim, cause).advise("delete the claim and create it anew"));
        }
        _ => {}
    }
    let classes = world.seen("storageclasses");
    let asked = claim.pointer("/spec/storageClassName").and_then(Value::as_str);
    let size = object::text(claim, "/spec/resources/requests/storage");
    let finding = |cause: String| Finding::new(Hop::Storage, claim, cause);
    if let Some(failed) = world.event(claim, &["ProvisioningFailed", "FailedBinding", "VolumeMismatch"]) {
        let missing_class = asked.is_some_and(|name| !name.is_empty() && is_missing(classes, name));
        if object::text(failed, "/reason") != "FailedBinding" && !missing_class {
            return Some(
                finding("no volume could be made for it".into())
                    .detail(said(failed))
                    .advise("look at the log of the provisioner of its class"),
            );
        }
    }
    match asked {
        Some("") => Some(
            finding(format!("it wants a volume without a class, and no free PersistentVolume of {size} fits"))
                .advise("create a PersistentVolume, or name a storageClassName"),
        ),
        None => Some(
            finding(match classes {
                Some(classes) if classes.iter().any(is_default) => {
                    "it names no class and was made before there was a default one".into()
                }
                _ => "it names no storageClassName, and the cluster has no default class".into(),
            })
            .advise(format!("name one, or mark a class as the default with the annotation {DEFAULT}=true")),
        ),
        Some(name) if is_missing(classes, name) => Some(
            finding(format!("its storageClassName {name:?} does not exist"))
                .detail(match classes {
                    Some(classes) if !classes.is_empty() => {
                        let names: Vec<&str> = classes.iter().map(object::name).collect();
                        format!("there are {}", super::named(&names))
                    }
                    _ => "the cluster has none at all".to_owned(),
                })
                .advise("name one that exists, or create it with its provisioner"),
        ),
        Some(name) => {
            let class = classes.unwrap_or_default().iter().find(|class| object::name(class) == name);
            let waits = class.is_some_and(|class| object::text(class, "/volumeBindingMode") == "WaitForFirstConsumer");
            if waits && world.event(claim, &["ExternalProvisioning", "Provisioning"]).is_none() {
                let cause = format!("its class {name} makes the volume when the first pod that uses it has a node");
                return Some(finding(cause).advise("nothing is wrong: start a pod that uses it").underway());
            }
            let provisioner = class.map(|class| object::text(class, "/provisioner")).unwrap_or_default();
            let told = world.events(claim).pop().map(|event| object::text(event, "/message")).unwrap_or_default();
            Some(match provisioner {
                "kubernetes.io/no-provisioner" => {
                    finding(format!("no free PersistentVolume of class {name} and {size} fits, and nobody makes them"))
                        .advise("create a PersistentVolume of that class")
                }
                _ => finding(format!("the provisioner {provisioner} has not made its volume yet"))
                    .detail(told)
                    .advise(format!("see that the provisioner {provisioner} runs in the cluster")),
            })
        }
    }
}

fn is_default(class: &Value) -> bool {
    object::annotations(class).get(DEFAULT).and_then(Value::as_str) == Some("true")
}

fn is_missing(classes: Option<&[Value]>, name: &str) -> bool {
    classes.is_some_and(|classes| !classes.iter().any(|class| object::name(class) == name))
}
