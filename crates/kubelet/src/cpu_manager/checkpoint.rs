//! The state on disk, in the place and form that upstream's kubelet has it: `cpu_manager_state`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CpuSet;
use super::state::{Assignments, CpuState};
use crate::checkpoint_file;

const FILE: &str = "cpu_manager_state";

/// What kubelets have hashed: the first form is the one that all of them read.
const NAMES: [&str; 3] = ["CPUManagerCheckpoint", "CPUManagerCheckpointV2", "CPUManagerCheckpointV3"];
const MORE: [&str; 2] = ["", " PodEntries:(state.PodCPUAssignments)map[]"];

type Entries = BTreeMap<String, BTreeMap<String, String>>;

/// The same twice: `data` is what counts, the fields around it are for kubelets that do not know it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint {
    #[serde(default)]
    policy_name: String,
    #[serde(default)]
    default_cpu_set: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Entries,
    #[serde(default)]
    checksum: u32,
    #[serde(default)]
    data: String,
    #[serde(default)]
    data_checksum: u32,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    #[serde(default)]
    policy_name: String,
    #[serde(default)]
    default_cpu_set: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Entries,
}

pub(crate) fn path(root_dir: &Path) -> PathBuf {
    root_dir.join(FILE)
}

/// As upstream prints its own memory before it makes a hash of it. Kubelets of other versions have other names for the same.
fn checksum(name: &str, policy: &str, shared: &str, entries: &Entries, more: &str) -> u32 {
    let pods = entries.iter().map(|(uid, sets)| {
        let sets = sets.iter().map(|(name, cpus)| format!("{name}:{cpus}"));
        format!("{uid}:map[{}]", sets.collect::<Vec<_>>().join(" "))
    });
    checkpoint_file::hash(&format!(
        "(*state.{name}){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} \
         Entries:(map[string]map[string]string)map[{}]{more} Checksum:(checksum.Checksum)0}}",
        pods.collect::<Vec<_>>().join(" ")
    ))
}

pub(crate) fn text(policy: &str, state: &CpuState) -> String {
    let sets =
        |sets: &BTreeMap<String, CpuSet>| sets.iter().map(|(name, cpus)| (name.clone(), cpus.to_string())).collect();
    let entries: Entries = state.assigned.iter().map(|(uid, of)| (uid.clone(), sets(of))).collect();
    let (policy_name, default_cpu_set) = (policy.to_owned(), state.shared.to_string());
    let data = Data { policy_name, default_cpu_set, entries };
    let told = serde_json::to_string(&data).unwrap_or_default();
    let Data { policy_name, default_cpu_set, entries } = data;
    let checkpoint = Checkpoint {
        checksum: checksum(NAMES[0], &policy_name, &default_cpu_set, &entries, MORE[0]),
        data_checksum: checkpoint_file::hash(&format!("(string){told}")),
        data: told,
        policy_name,
        default_cpu_set,
        entries,
    };
    serde_json::to_string(&checkpoint).unwrap_or_default()
}

/// None where there is none.
pub(crate) fn read(path: &Path, policy: &str) -> Result<Option<CpuState>, String> {
    checkpoint_file::restore(path, "CPU manager", |text| parse(text, policy))
}

fn parse(text: &str, policy: &str) -> Result<CpuState, String> {
    let corrupt = || "checkpoint is corrupted".to_owned();
    let checkpoint: Checkpoint = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Data { policy_name, default_cpu_set, entries } = if !checkpoint.data.is_empty() || checkpoint.data_checksum != 0
    {
        if checkpoint.data_checksum != checkpoint_file::hash(&format!("(string){}", checkpoint.data)) {
            return Err(format!("could not load v4 checkpoint: {}", corrupt()));
        }
        serde_json::from_str(&checkpoint.data).map_err(|error| format!("could not load v4 checkpoint: {error}"))?
    } else {
        // Of a kubelet before v1.37; the oldest have no checksum.
        let Checkpoint { policy_name, default_cpu_set, entries, checksum: told, .. } = checkpoint;
        let mut forms = NAMES.iter().flat_map(|name| MORE.iter().map(move |more| (name, more)));
        let is_whole = forms.any(|(name, more)| told == checksum(name, &policy_name, &default_cpu_set, &entries, more));
        if told != 0 && !is_whole {
            return Err(corrupt());
        }
        Data { policy_name, default_cpu_set, entries }
    };
    if policy_name != policy {
        return Err(format!("configured policy {policy:?} differs from state checkpoint policy {policy_name:?}"));
    }
    let shared = CpuSet::parse(&default_cpu_set)
        .map_err(|why| format!("could not parse default CPU set {default_cpu_set:?}: {why}"))?;
    let mut assigned = Assignments::new();
    for (uid, sets) in entries {
        for (container, cpus) in sets {
            let set = CpuSet::parse(&cpus).map_err(|why| {
                format!("could not parse cpuset {cpus:?} for container {container:?} in pod {uid:?}: {why}")
            })?;
            assigned.entry(uid.clone()).or_default().insert(container, set);
        }
    }
    Ok(CpuState { shared, assigned })
}

#[cfg(test)]
mod tests;
