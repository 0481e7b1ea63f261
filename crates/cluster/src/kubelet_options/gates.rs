//! The feature gates of a KubeletConfiguration: those that Ferry follows may be chosen, the others are as upstream's defaults are.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Every gate with its default.
const GATES: &str = include_str!("gates.tsv");
/// Those that may have another value than their default.
const FOLLOWED: [&str; 6] = [
    "DefaultPodSysctls",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "KubeletCrashLoopBackOffMax",
    "MemoryQoS",
    "ReduceDefaultCrashLoopBackOffDecay",
];

/// What was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates(BTreeMap<String, bool>);

impl Gates {
    pub(super) fn read(value: &Value) -> Result<Self> {
        let map = value.as_object().with_context(|| format!("featureGates is no map: {value}"))?;
        let mut chosen = BTreeMap::new();
        for (name, value) in map {
            let on = value.as_bool().with_context(|| format!("featureGates[{name}] is no bool: {value}"))?;
            allow(name, on)?;
            chosen.insert(name.clone(), on);
        }
        Ok(Self(chosen))
    }

    pub(super) fn given(self) -> BTreeMap<String, bool> {
        self.0
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or_else(|| spec(name).is_some_and(|spec| spec.default))
    }
}

struct Spec {
    default: bool,
    stage: &'static str,
    locked: bool,
}

fn spec(name: &str) -> Option<Spec> {
    let row = GATES.lines().find(|line| line.split('\t').next() == Some(name) && !name.starts_with('#'))?;
    let mut columns = row.split('\t').skip(1);
    let (default, stage) = (columns.next()? == "true", columns.next()?);
    Some(Spec { default, stage, locked: columns.next() == Some("locked") })
}

fn allow(name: &str, on: bool) -> Result<()> {
    match (name, on) {
        // No gate of this stage is on by default.
        ("AllAlpha", false) => return Ok(()),
        ("AllAlpha" | "AllBeta", _) => bail!("featureGates[{name}] cannot be set here: name each feature gate"),
        _ => {}
    }
    let Some(spec) = spec(name) else { bail!("unrecognized feature gate: {name}") };
    if on == spec.default || (FOLLOWED.contains(&name) && !spec.locked) {
        return Ok(());
    }
    ensure!(!spec.locked, "cannot set feature gate {name} to {on}, feature is locked to {}", spec.default);
    let why = if on { "Ferry does not have this feature" } else { "Ferry cannot turn this feature off" };
    bail!("featureGates[{name}]: {on} is not possible here ({}, default {}): {why}", spec.stage, spec.default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gates_are_followed_at_their_default_or_refused_by_name() {
        let check = |gates: Value, want: Result<(), &str>| match (Gates::read(&gates), want) {
            (Ok(_), Ok(())) => {}
            (Err(got), Err(want)) => assert!(got.to_string().contains(want), "{gates}: {got}"),
            (got, want) => panic!("{gates}: {got:?} instead of {want:?}"),
        };
        check(json!({}), Ok(()));
        check(json!({"NodeSwap": true, "GracefulNodeShutdown": true, "AllAlpha": false}), Ok(()));
        check(json!({"KubeletCrashLoopBackOffMax": false, "ReduceDefaultCrashLoopBackOffDecay": true}), Ok(()));
        check(json!({"NoSuchGate": true}), Err("unrecognized feature gate: NoSuchGate"));
        check(json!({"NodeSwap": false}), Err("cannot set feature gate NodeSwap to false, feature is locked to true"));
        check(
            json!({"InPlacePodVerticalScalingExclusiveCPUs": true}),
            Err("featureGates[InPlacePodVerticalScalingExclusiveCPUs]: true is not possible here (Alpha"),
        );
        check(json!({"ContainerRestartRules": false}), Err("Ferry cannot turn this feature off"));
        check(json!({"AllAlpha": true}), Err("featureGates[AllAlpha] cannot be set here"));
        check(json!({"AllBeta": false}), Err("featureGates[AllBeta] cannot be set here"));
        check(json!({"NodeSwap": "yes"}), Err("featureGates[NodeSwap] is no bool"));
        check(json!([[]]), Err("featureGates is no map"));
    }

    #[test]
    fn the_table_is_whole() {
        let rows: Vec<&str> = GATES.lines().filter(|line| !line.starts_with('#')).collect();
        let names: std::collections::BTreeSet<&str> = rows.iter().filter_map(|row| row.split('\t').next()).collect();
        assert!(names.len() == rows.len() && rows.len() > 200, "{} of {}", names.len(), rows.len());
        for row in rows {
            let columns: Vec<&str> = row.split('\t').collect();
            assert!(columns.len() == 4 && ["true", "false"].contains(&columns[1]), "{row}");
            assert!(["Alpha", "Beta", "GA", "Deprecated"].contains(&columns[2]), "{row}");
            assert!(["", "locked"].contains(&columns[3]), "{row}");
        }
        for followed in FOLLOWED {
            assert!(spec(followed).is_some_and(|spec| !spec.locked), "{followed}");
        }
        let gates = Gates::read(&json!({"MemoryQoS": false})).expect("taken");
        assert!(!gates.is_on("MemoryQoS") && gates.is_on("NodeSwap") && !gates.is_on("DefaultPodSysctls"));
    }
}
