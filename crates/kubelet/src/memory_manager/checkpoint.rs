//! The state on disk, in the place and form that upstream's kubelet has it: `memory_manager_state`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::state::{Assignments, Block, MachineState, MemoryState, NodeState};
use crate::checkpoint_file;

const FILE: &str = "memory_manager_state";

/// The same twice: `data` is what counts, the fields around it are for kubelets that do not know it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint {
    #[serde(default)]
    policy_name: String,
    #[serde(default)]
    machine_state: MachineState,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Assignments,
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
    machine_state: MachineState,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Assignments,
}

pub(super) fn path(root_dir: &Path) -> PathBuf {
    root_dir.join(FILE)
}

pub(super) fn text(policy: &str, state: &MemoryState) -> String {
    let (machine_state, entries) = (state.machine.clone(), state.assigned.clone());
    let data = Data { policy_name: policy.to_owned(), machine_state, entries };
    let told = serde_json::to_string(&data).unwrap_or_default();
    let Data { policy_name, machine_state, entries } = data;
    let checkpoint = Checkpoint {
        checksum: checksum(&policy_name, &machine_state, &entries),
        data_checksum: checkpoint_file::hash(&format!("(string){told}")),
        data: told,
        policy_name,
        machine_state,
        entries,
    };
    serde_json::to_string(&checkpoint).unwrap_or_default()
}

/// None where there is none.
pub(super) fn read(path: &Path, policy: &str) -> Result<Option<MemoryState>, String> {
    checkpoint_file::restore(path, "memory manager", |text| parse(text, policy))
}

fn parse(text: &str, policy: &str) -> Result<MemoryState, String> {
    let corrupt = || "checkpoint is corrupted".to_owned();
    let checkpoint: Checkpoint = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let is_newest = !checkpoint.data.is_empty() || checkpoint.data_checksum != 0;
    let Data { policy_name, machine_state, entries } = if is_newest {
        if checkpoint.data_checksum != checkpoint_file::hash(&format!("(string){}", checkpoint.data)) {
            return Err(format!("could not load v3 checkpoint: {}", corrupt()));
        }
        serde_json::from_str(&checkpoint.data).map_err(|error| format!("could not load v3 checkpoint: {error}"))?
    } else {
        // Of a kubelet before v1.37; the oldest have no checksum.
        let Checkpoint { policy_name, machine_state, entries, checksum: told, .. } = checkpoint;
        if told != 0 && told != checksum(&policy_name, &machine_state, &entries) {
            return Err(corrupt());
        }
        Data { policy_name, machine_state, entries }
    };
    if policy_name != policy {
        return Err(format!(
            "[memorymanager] configured policy {policy:?} differs from state checkpoint policy {policy_name:?}"
        ));
    }
    Ok(MemoryState { machine: machine_state, assigned: entries })
}

/// As upstream prints its own memory before it makes a hash of it.
fn checksum(policy: &str, machine: &MachineState, entries: &Assignments) -> u32 {
    let joined = |parts: Vec<String>| parts.join(" ");
    let numbers = |all: &[u32]| joined(all.iter().map(ToString::to_string).collect());
    let node = |(id, node): (&u32, &NodeState)| {
        let tables = node.memory_map.iter().map(|(kind, table)| {
            format!(
                "{kind}:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} \
                 Reserved:(uint64){} Free:(uint64){}}}",
                table.total, table.system_reserved, table.allocatable, table.reserved, table.free
            )
        });
        format!(
            "{id}:<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{}] \
             Cells:([]int)[{}]}}",
            node.number_of_assignments,
            joined(tables.collect()),
            numbers(&node.cells)
        )
    };
    let block = |block: &Block| {
        let nodes = numbers(&block.numa_affinity);
        format!("{{NUMAAffinity:([]int)[{nodes}] Type:(v1.ResourceName){} Size:(uint64){}}}", block.kind, block.size)
    };
    let pod = |(uid, containers): (&String, &BTreeMap<String, Vec<Block>>)| {
        let of = containers.iter().map(|(name, all)| format!("{name}:[{}]", joined(all.iter().map(block).collect())));
        format!("{uid}:map[{}]", joined(of.collect()))
    };
    let mut printed = format!("(*state.MemoryManagerCheckpoint){{PolicyName:(string){policy} ");
    let machine = joined(machine.iter().map(node).collect());
    let entries = joined(entries.iter().map(pod).collect());
    let _ = write!(
        printed,
        "MachineState:(state.NUMANodeMap)map[{machine}] Entries:(state.ContainerMemoryAssignments)map[{entries}] \
         Checksum:(checksum.Checksum)0}}"
    );
    checkpoint_file::hash(&printed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::state::MemoryTable;
    use super::*;

    fn state() -> MemoryState {
        let table = |numbers: [u64; 5]| MemoryTable {
            total: numbers[0],
            system_reserved: numbers[1],
            allocatable: numbers[2],
            reserved: numbers[3],
            free: numbers[4],
        };
        let node = |tables: &[(&str, [u64; 5])]| NodeState {
            number_of_assignments: 2,
            memory_map: tables.iter().map(|(kind, numbers)| ((*kind).to_owned(), table(*numbers))).collect(),
            cells: vec![0, 1],
        };
        let first = node(&[("hugepages-2Mi", [4, 0, 4, 4, 0]), ("memory", [100, 10, 90, 30, 60])]);
        let second = node(&[("memory", [0, 0, 0, 0, 0])]);
        let block = |kind: &str, size: u64| Block { numa_affinity: vec![0, 1], kind: kind.to_owned(), size };
        let main = vec![block("memory", 30), block("hugepages-2Mi", 4)];
        let containers = BTreeMap::from([("main".to_owned(), main), ("side".to_owned(), Vec::new())]);
        MemoryState {
            machine: BTreeMap::from([(0, first), (1, second)]),
            assigned: BTreeMap::from([("uid".to_owned(), containers)]),
        }
    }

    /// Both checksums are those that upstream's kubelet makes of the same state.
    #[test]
    fn the_file_is_as_upstreams_kubelet_writes_it() {
        let told: serde_json::Value = serde_json::from_str(&text("Static", &state())).expect("json");
        assert_eq!((&told["checksum"], &told["dataChecksum"]), (&1_296_124_522.into(), &1_294_042_682_u32.into()));
        assert_eq!(told["machineState"]["0"]["memoryMap"]["memory"]["systemReserved"], 10);
        assert_eq!(told["entries"]["uid"]["main"][1]["type"], "hugepages-2Mi");
        let none = r#"{"policyName":"None","machineState":{},"checksum":4236770233,"data":"{\"policyName\":\"None\",\"machineState\":{}}","dataChecksum":3093843326}"#;
        assert_eq!(text("None", &MemoryState::default()), none);
    }

    #[test]
    fn a_state_is_read_back_and_a_torn_or_foreign_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = path(folder.path());
        assert_eq!(read(&path, "Static"), Ok(None));
        checkpoint_file::save(&path, &text("Static", &state())).expect("written");
        assert_eq!(read(&path, "Static"), Ok(Some(state())));
        // An older kubelet writes less.
        let mut older: serde_json::Value = serde_json::from_str(&text("Static", &state())).expect("json");
        older.as_object_mut().expect("a map").retain(|key, _| !key.starts_with("data"));
        checkpoint_file::save(&path, &older.to_string()).expect("written");
        assert_eq!(read(&path, "Static"), Ok(Some(state())));
        let check = |text: &str, why: &str| {
            fs::write(&path, text).expect("written");
            let want = format!(
                "could not restore state from checkpoint: {why}, please drain this node and delete the memory manager \
                 checkpoint file \"{}\" before restarting Kubelet",
                path.display()
            );
            assert_eq!(read(&path, "None").expect_err("refused"), want);
        };
        check(
            &text("Static", &state()),
            "[memorymanager] configured policy \"None\" differs from state checkpoint policy \"Static\"",
        );
        check("{", "EOF while parsing an object at line 1 column 1");
        let corrupt = "checkpoint is corrupted";
        check(r#"{"policyName":"None","machineState":{},"checksum":1}"#, corrupt);
        let torn = r#"{"policyName":"None","data":"{}","dataChecksum":1}"#;
        check(torn, &format!("could not load v3 checkpoint: {corrupt}"));
    }
}
