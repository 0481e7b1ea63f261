//! Deployments and ReplicaSets.

use serde_json::Value;

use super::parts::{conditions, controller, date, head, marks, selector, text};
use super::pod::template;
use crate::error::Result;
use crate::print::go_value::show;
use crate::print::table::show_labels;
use crate::resource::{Selection, list};
use crate::session::Context;

pub async fn deployment(context: &Context, object: &Value) -> Result<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let mut out = head(object, true);
    out.push_str(&format!("CreationTimestamp:\t{}\n", date(text(&object["metadata"], "creationTimestamp"))));
    out.push_str(&marks(object));
    out.push_str(&format!("Selector:\t{}\n", selector(&spec["selector"])));
    out.push_str(&format!(
        "Replicas:\t{} desired | {} updated | {} total | {} available | {} unavailable\n",
        spec["replicas"].as_i64().unwrap_or(0),
        number("updatedReplicas"),
        number("replicas"),
        number("availableReplicas"),
        number("unavailableReplicas")
    ));
    out.push_str(&format!("StrategyType:\t{}\n", text(&spec["strategy"], "type")));
    out.push_str(&format!("MinReadySeconds:\t{}\n", spec["minReadySeconds"].as_i64().unwrap_or(0)));
    let rolling = &spec["strategy"]["rollingUpdate"];
    if rolling.is_object() {
        out.push_str(&format!(
            "RollingUpdateStrategy:\t{} max unavailable, {} max surge\n",
            show(&rolling["maxUnavailable"]),
            show(&rolling["maxSurge"])
        ));
    }
    out.push_str(&template(&spec["template"]));
    out.push_str(&conditions(&status["conditions"]));
    let sets = replica_sets(context, object).await?;
    if !sets.is_empty() {
        let (new, old): (Vec<&Value>, Vec<&Value>) =
            sets.iter().partition(|set| same(&set["spec"]["template"], &spec["template"]));
        out.push_str(&format!("OldReplicaSets:\t{}\nNewReplicaSet:\t{}\n", shown(&old), shown(&new)));
    }
    Ok(out)
}

/// Equal but for the label that tells ReplicaSets apart.
pub fn same(a: &Value, b: &Value) -> bool {
    let plain = |template: &Value| {
        let mut template = template.clone();
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            labels.remove("pod-template-hash");
        }
        template
    };
    plain(a) == plain(b)
}

fn shown(sets: &[&Value]) -> String {
    if sets.is_empty() {
        return "<none>".into();
    }
    let all: Vec<String> = sets
        .iter()
        .map(|set| {
            format!(
                "{} ({}/{} replicas created)",
                text(&set["metadata"], "name"),
                set["status"]["replicas"].as_i64().unwrap_or(0),
                set["spec"]["replicas"].as_i64().unwrap_or(0)
            )
        })
        .collect();
    all.join(", ")
}

/// Those that a Deployment owns.
pub async fn replica_sets(context: &Context, deployment: &Value) -> Result<Vec<Value>> {
    let resource = context.kind("apps/v1", "ReplicaSet").await?;
    let namespace = deployment["metadata"]["namespace"].as_str().map(str::to_owned);
    let labels = crate::commands::selector_of(deployment).unwrap_or_default();
    let selection = Selection { resource, namespace, labels, fields: String::new() };
    let mut found = list(context, &selection, 500).await?;
    let uid = &deployment["metadata"]["uid"];
    found
        .retain(|set| super::parts::list(&set["metadata"]["ownerReferences"]).iter().any(|owner| owner["uid"] == *uid));
    Ok(found)
}

pub async fn replica_set(context: &Context, object: &Value) -> Result<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true);
    out.push_str(&format!("Selector:\t{}\n", selector(&spec["selector"])));
    out.push_str(&marks(object));
    if let Some(owner) = controller(object) {
        out.push_str(&format!("Controlled By:\t{owner}\n"));
    }
    out.push_str(&format!(
        "Replicas:\t{} current / {} desired\n",
        status["replicas"].as_i64().unwrap_or(0),
        spec["replicas"].as_i64().unwrap_or(0)
    ));
    out.push_str(&pods_status(context, object).await);
    out.push_str(&template(&spec["template"]));
    out.push_str(&conditions(&status["conditions"]));
    Ok(out)
}

pub async fn replication_controller(context: &Context, object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true);
    out.push_str(&format!("Selector:\t{}\n", show_labels(&spec["selector"])));
    out.push_str(&marks(object));
    let count = |part: &Value| part["replicas"].as_i64().unwrap_or(0);
    out.push_str(&format!("Replicas:\t{} current / {} desired\n", count(status), count(spec)));
    out.push_str(&pods_status(context, object).await);
    out.push_str(&template(&spec["template"]));
    out.push_str(&conditions(&status["conditions"]));
    out
}

/// How many of its pods are in which phase.
pub async fn pods_status(context: &Context, object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let labels = crate::commands::selector_of(object).unwrap_or_default();
    let pods = match crate::commands::list_pods(context, namespace, &labels, "").await {
        Ok(pods) => pods,
        Err(error) => return format!("Pods Status:\terror in fetching pods: {}\n", error.inner()),
    };
    let uid = &object["metadata"]["uid"];
    let mine = |pod: &&Value| super::parts::list(&pod["metadata"]["ownerReferences"]).iter().any(|o| o["uid"] == *uid);
    let count = |phase: &str| pods.iter().filter(mine).filter(|pod| pod["status"]["phase"] == phase).count();
    format!(
        "Pods Status:\t{} Running / {} Waiting / {} Succeeded / {} Failed\n",
        count("Running"),
        count("Pending"),
        count("Succeeded"),
        count("Failed")
    )
}
