//! Taints and what tolerates them.

use k8s_openapi::api::core::v1::{Taint, Toleration};

pub const NO_SCHEDULE: &str = "NoSchedule";
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
pub const NO_EXECUTE: &str = "NoExecute";
/// What a cordoned node carries beside its flag.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    let (wanted, value) = (toleration.value.as_deref().unwrap_or_default(), taint.value.as_deref().unwrap_or_default());
    let numbers = || Some((value.parse::<i64>().ok()?, wanted.parse::<i64>().ok()?));
    match toleration.operator.as_deref().unwrap_or_default() {
        // An empty key with Equal would tolerate taints of one value whatever their key: the API forbids it.
        "" | "Equal" => wanted == value,
        "Exists" => true,
        "Gt" => numbers().is_some_and(|(value, wanted)| value > wanted),
        "Lt" => numbers().is_some_and(|(value, wanted)| value < wanted),
        _ => false,
    }
}

/// Whether some taint keeps the pod away for good.
pub fn is_repelled(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect == NO_SCHEDULE || taint.effect == NO_EXECUTE)
        .any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_as_the_api_says() {
        for (toleration, taint, expected) in [
            (json!({"operator": "Exists"}), "k=v:NoSchedule", true),
            (json!({"key": "k", "value": "v"}), "k=v:NoSchedule", true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), "k=v:NoSchedule", false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), "k=v:NoSchedule", false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), "k=v:NoExecute", true),
            (json!({"key": "j", "operator": "Exists"}), "k=v:NoSchedule", false),
            (json!({"key": "k", "operator": "Gt", "value": "5"}), "k=7:NoSchedule", true),
            (json!({"key": "k", "operator": "Lt", "value": "5"}), "k=7:NoSchedule", false),
            (json!({"key": "k", "operator": "Gt", "value": "x"}), "k=7:NoSchedule", false),
        ] {
            let (key, rest) = taint.split_once('=').expect("a taint");
            let (value, effect) = rest.split_once(':').expect("a taint");
            let taint = Taint { key: key.into(), value: Some(value.into()), effect: effect.into(), time_added: None };
            let parsed: Toleration = serde_json::from_value(toleration.clone()).expect("a toleration");
            assert_eq!(tolerates(&parsed, &taint), expected, "{toleration} {taint:?}");
        }
    }
}
