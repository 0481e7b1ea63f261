//! The books on disk, in the place and form that upstream's kubelet has them: tools read that file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_plugins::Message;
use ferry_plugins::deviceplugin::ContainerAllocateResponse;
use serde::{Deserialize, Serialize};

use super::ledger::{Allocation, Ledger};

pub(super) const FILE: &str = "kubelet_internal_checkpoint";
/// Devices whose place is not known stand under this number.
const NOWHERE: &str = "-1";

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Checkpoint {
    data: Data,
    /// Upstream's is a hash of its own memory; the file is whole because it is renamed into place.
    checksum: u64,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: Option<BTreeMap<String, Vec<String>>>,
}

#[derive(Deserialize, Serialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container_name: String,
    #[serde(rename = "ResourceName")]
    resource_name: String,
    /// By NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<String, Vec<String>>,
    /// The plug-in's answer as protobuf, in base64.
    #[serde(rename = "AllocResp")]
    answer: String,
}

pub(super) fn text(ledger: &Ledger) -> String {
    let entries = ledger.entries().map(|(uid, container, resource, allocation)| Entry {
        pod_uid: uid.to_owned(),
        container_name: container.to_owned(),
        resource_name: resource.to_owned(),
        device_ids: BTreeMap::from([(NOWHERE.to_owned(), allocation.devices.iter().cloned().collect())]),
        answer: STANDARD.encode(allocation.answer.encode_to_vec()),
    });
    let data = Data { pod_device_entries: Some(entries.collect()), registered_devices: Some(ledger.registered()) };
    serde_json::to_string(&Checkpoint { data, checksum: 0 }).unwrap_or_default()
}

pub(super) fn write(folder: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let half = folder.join(format!("{FILE}.new"));
    fs::write(&half, text)?;
    fs::rename(half, folder.join(FILE))
}

/// The books as they were left. Resources are known again, their devices only when their plug-ins tell of them.
pub(super) fn read(folder: &Path, now: Instant) -> Result<Ledger, String> {
    let text = match fs::read(folder.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ledger::default()),
        Err(error) => return Err(error.to_string()),
    };
    let checkpoint: Checkpoint = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let mut ledger = Ledger::default();
    for entry in checkpoint.data.pod_device_entries.into_iter().flatten() {
        let answer = STANDARD.decode(&entry.answer).map_err(|error| error.to_string())?;
        let answer = ContainerAllocateResponse::decode(&*answer).map_err(|error| error.to_string())?;
        let allocation = Allocation { devices: entry.device_ids.into_values().flatten().collect(), answer };
        ledger.give(&entry.pod_uid, &entry.container_name, &entry.resource_name, allocation);
    }
    for resource in checkpoint.data.registered_devices.unwrap_or_default().keys() {
        ledger.remember(resource, now);
    }
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_are_read_back_and_a_torn_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = Instant::now();
        assert!(read(folder.path(), now).expect("nothing").holders().is_empty());
        let mut ledger = Ledger::default();
        let answer = ContainerAllocateResponse {
            envs: [("A".to_owned(), "1".to_owned())].into(),
            ..ContainerAllocateResponse::default()
        };
        let allocation = Allocation { devices: ["x".to_owned()].into(), answer };
        ledger.give("uid", "main", "example.com/gpu", allocation.clone());
        ledger.told("example.com/gpu", Vec::new());
        write(folder.path(), &text(&ledger)).expect("written");
        let again = read(folder.path(), now).expect("read");
        assert_eq!(again.allocation("uid", "main", "example.com/gpu"), Some(&allocation));
        assert!(again.knows("example.com/gpu"));
        fs::write(folder.path().join(FILE), "{").expect("torn");
        assert!(read(folder.path(), now).is_err());
    }

    #[test]
    fn a_file_of_upstreams_kubelet_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/a",
            "DeviceIDs":{"0":["x"],"1":["y"]},"AllocResp":""}],"RegisteredDevices":{"example.com/a":["x","y"]}},
            "Checksum":1234567890}"#;
        fs::write(folder.path().join(FILE), text).expect("written");
        let ledger = read(folder.path(), Instant::now()).expect("read");
        let allocation = ledger.allocation("u", "c", "example.com/a").expect("an allocation");
        assert_eq!(allocation.devices.iter().collect::<Vec<_>>(), ["x", "y"]);
    }
}
