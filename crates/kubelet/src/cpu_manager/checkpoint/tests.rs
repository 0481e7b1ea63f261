use std::fs;

use super::*;
use crate::checkpoint_file::{self, hash};

fn state() -> CpuState {
    let set = |text: &str| CpuSet::parse(text).expect("a set");
    let sets = BTreeMap::from([("main".to_owned(), set("2-3")), ("side".to_owned(), set("1"))]);
    CpuState { shared: set("0,4-7"), assigned: BTreeMap::from([("uid".to_owned(), sets)]) }
}

#[test]
fn a_state_is_read_back_and_a_torn_or_foreign_one_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = path(folder.path());
    assert_eq!(read(&path, "static"), Ok(None));
    checkpoint_file::save(&path, &text("static", &state())).expect("written");
    assert_eq!(read(&path, "static"), Ok(Some(state())));
    let refused = |why: &str| {
        let got = read(&path, "none").expect_err("refused");
        let want = format!(
            "could not restore state from checkpoint: {why}, please drain this node and delete the CPU manager \
             checkpoint file \"{}\" before restarting Kubelet",
            path.display()
        );
        assert_eq!(got, want);
    };
    refused("configured policy \"none\" differs from state checkpoint policy \"static\"");
    for (text, why) in [
        ("{", "EOF while parsing an object at line 1 column 1"),
        (
            r#"{"policyName":"none","data":"{}","dataChecksum":1}"#,
            "could not load v4 checkpoint: checkpoint is corrupted",
        ),
        (r#"{"policyName":"none","dataChecksum":1}"#, "could not load v4 checkpoint: checkpoint is corrupted"),
        (r#"{"policyName":"none","defaultCpuSet":"0-3","checksum":1}"#, "checkpoint is corrupted"),
        (
            r#"{"policyName":"none","defaultCpuSet":"x"}"#,
            "could not parse default CPU set \"x\": \"x\" is no number of a CPU",
        ),
        (
            r#"{"policyName":"none","entries":{"p":{"c":"3-1"}}}"#,
            "could not parse cpuset \"3-1\" for container \"c\" in pod \"p\": invalid range \"3-1\" (3 > 1)",
        ),
    ] {
        fs::write(&path, text).expect("written");
        refused(why);
    }
}

#[test]
fn the_file_is_as_upstreams_kubelet_writes_it() {
    let told: serde_json::Value = serde_json::from_str(&text("static", &state())).expect("json");
    assert_eq!(told["policyName"], "static");
    assert_eq!(told["defaultCpuSet"], "0,4-7");
    assert_eq!(told["entries"]["uid"]["main"], "2-3");
    let data = r#"{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"uid":{"main":"2-3","side":"1"}}}"#;
    assert_eq!(told["data"], data);
    let printed = "(*state.CPUManagerCheckpoint){PolicyName:(string)static DefaultCPUSet:(string)0,4-7 \
                   Entries:(map[string]map[string]string)map[uid:map[main:2-3 side:1]] Checksum:(checksum.Checksum)0}";
    assert_eq!(told["checksum"], hash(printed));
    assert_eq!(told["dataChecksum"], hash(&format!("(string){data}")));
    // A file without the newer part is read too.
    let folder = tempfile::tempdir().expect("a folder");
    let path = path(folder.path());
    let mut older = told;
    older.as_object_mut().expect("a map").retain(|key, _| !key.starts_with("data"));
    fs::write(&path, older.to_string()).expect("written");
    assert_eq!(read(&path, "static"), Ok(Some(state())));
}
