//! Volumes that are folders of a node: the names that the provisioner, the API server and the kubelet agree on.

/// Who makes them, as StorageClasses and volumes say it.
pub const PROVISIONER: &str = "ferry.dev/local-path";
/// A node whose annotation says so makes such folders: the folder that has them.
pub const SERVES: &str = "ferry.dev/local-volumes";
/// Where they are, below the data folder of the node.
pub const FOLDER: &str = "local-path";

const PREFIX: &str = "pvc-";
/// `8-4-4-4-12` hexadecimal digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// The name of the volume, and of its folder, for the claim of a UID. None for what is no UID.
pub fn name_for(uid: &str) -> Option<String> {
    let name = format!("{PREFIX}{uid}");
    is_name(&name).then_some(name)
}

/// Whether something may name such a folder. Nothing else comes near a path.
pub fn is_name(name: &str) -> bool {
    let Some(uid) = name.strip_prefix(PREFIX) else { return false };
    let lengths = uid.split('-').map(str::len);
    uid.len() == 36 && lengths.eq(GROUPS) && uid.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_claims_name_folders() {
        const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
        assert_eq!(name_for(UID).as_deref(), Some("pvc-0f8fad5b-d9cb-469f-a165-70867728950e"));
        for (name, want) in [
            ("pvc-0f8fad5b-d9cb-469f-a165-70867728950e", true),
            ("0f8fad5b-d9cb-469f-a165-70867728950e", false),
            ("pvc-0F8FAD5B-d9cb-469f-a165-70867728950e", false),
            ("pvc-0f8fad5bd-9cb-469f-a165-70867728950e", false),
            ("pvc-0f8fad5b-d9cb-469f-a165-70867728950e-", false),
            ("pvc-0f8fad5b-d9cb-469f-a165-70867728950g", false),
            ("pvc-../../../../../../../../../../../etc", false),
            ("pvc-0f8fad5b-d9cb-469f-a165-7086772895/e", false),
            ("pvc-0f8fad5b-d9cb-469f-a165-7086772895.e", false),
            ("pvc-", false),
            ("..", false),
            ("", false),
        ] {
            assert_eq!(is_name(name), want, "{name}");
        }
        assert_eq!(name_for("../x"), None);
    }
}
