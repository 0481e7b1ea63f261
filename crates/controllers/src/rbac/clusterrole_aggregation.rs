//! ClusterRole aggregation: roles that are the sum of others, such as `admin`, `edit` and `view`.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::Context;
use crate::common::selector::Selector;

const NAME: &str = "clusterrole-aggregation-controller";

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let roles = context.informers.of::<ClusterRole>();
    let queue: WorkQueue<ObjectKey> = context.queue("ClusterRoleAggregator");

    let (keys, known) = (queue.clone(), roles.clone());
    roles.on_change(move |change| {
        let states = change.old().into_iter().chain([change.object()]);
        let labels: Vec<_> = states.map(|role| role.metadata.labels.clone()).collect();
        for role in known.list() {
            let itself = role.metadata.name == change.object().metadata.name;
            if is_sum(&role) && (itself || labels.iter().any(|labels| selects(&role, labels.as_ref()))) {
                keys.add(ObjectKey::of(&*role));
            }
        }
    });

    let synced = roles.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 5, ready, move |key: ObjectKey| {
        let (api, roles) = (Api::all(client.clone()), roles.clone());
        async move { reconcile(&api, &roles, &key).await }
    });
}

async fn reconcile(api: &Api<ClusterRole>, roles: &Informer<ClusterRole>, key: &ObjectKey) -> Result<Action, Error> {
    let Some(role) = roles.get_key(key) else { return Ok(Action::Done) };
    if let Some(rules) = plan(&role, &roles.list()) {
        // Applied, so that whoever applies the rest of the role keeps it.
        let wanted = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": key.name, "uid": role.metadata.uid }, "rules": rules,
        });
        match api.patch(&key.name, &PatchParams::apply(NAME).force(), &Patch::Apply(&wanted)).await {
            // One that is gone does not come back by being applied to: its identifier is asked for.
            Err(error) if !write::is_not_found(&error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(Action::Done)
}

fn is_sum(role: &ClusterRole) -> bool {
    role.aggregation_rule.is_some()
}

fn selects(role: &ClusterRole, labels: Option<&crate::common::selector::Labels>) -> bool {
    let selectors = role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    selectors.into_iter().any(|selector| Selector::new(Some(selector)).matches(labels))
}

/// The rules the role should have, or none when it has them: those of the roles it selects, selector by selector and by
/// name, each once.
fn plan(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    if !is_sum(role) {
        return None;
    }
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten()) {
        let selector = Selector::new(Some(selector));
        let is_part = |part: &&Arc<ClusterRole>| {
            part.metadata.name != role.metadata.name && selector.matches(part.metadata.labels.as_ref())
        };
        let mut parts: Vec<&Arc<ClusterRole>> = all.iter().filter(is_part).collect();
        parts.sort_by_key(|part| part.name_any());
        for rule in parts.into_iter().flat_map(|part| part.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    (role.rules.clone().unwrap_or_default() != rules).then_some(rules)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, label: &str, verbs: &[&str]) -> ClusterRole {
        let rules: Vec<_> = verbs.iter().map(|verb| json!({ "verbs": [verb] })).collect();
        let json = json!({ "metadata": { "name": name, "labels": { label: "true" } }, "rules": rules });
        serde_json::from_value(json).expect("a role")
    }

    #[test]
    fn rules_are_summed_once_and_come_to_rest() {
        let mut sum = role("sum", "part", &["old"]);
        sum.aggregation_rule =
            serde_json::from_value(json!({ "clusterRoleSelectors": [{ "matchLabels": { "part": "true" } }] })).ok();
        let all = [
            Arc::new(role("b", "part", &["get", "list"])),
            Arc::new(role("a", "part", &["list"])),
            Arc::new(role("c", "other", &["delete"])),
            Arc::new(sum.clone()),
        ];
        let rules = plan(&sum, &all).expect("a change");
        assert_eq!(rules.iter().map(|rule| rule.verbs[0].as_str()).collect::<Vec<_>>(), ["list", "get"]);
        sum.rules = Some(rules);
        assert_eq!(plan(&sum, &all), None);
        // In the order of the selectors.
        let selectors = json!({ "clusterRoleSelectors": [{ "matchLabels": { "other": "true" } }, { "matchLabels": { "part": "true" } }] });
        sum.aggregation_rule = serde_json::from_value(selectors).ok();
        let rules = plan(&sum, &all).expect("a change");
        assert_eq!(rules.iter().map(|rule| rule.verbs[0].as_str()).collect::<Vec<_>>(), ["delete", "list", "get"]);
        assert_eq!(plan(&all[0], &all), None);
    }
}
