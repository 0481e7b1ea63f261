//! Empty folders of huge pages: memory in large pieces, of the size that the pod asks for as a resource.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use rustix::mount::MountFlags;

use super::directory;
use crate::{pod, quantity};

const RESOURCE: &str = "hugepages-";

/// The size of the pages of a volume with this medium, in bytes; none where it is another medium.
pub(super) fn wanted(pod: &Pod, medium: &str) -> Result<Option<i64>, String> {
    let size_of = |text: &str| {
        let size = quantity::value(&k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned()));
        size.filter(|size| *size > 0).ok_or_else(|| format!("{text:?} is no size of huge pages"))
    };
    let asked = match medium.strip_prefix("HugePages") {
        Some("") => None,
        Some(size) => Some(size_of(size.strip_prefix('-').unwrap_or(size))?),
        None if matches!(medium, "" | "Memory") => return Ok(None),
        None => return Err(format!("unknown storage medium {medium:?}")),
    };
    let mut found = None;
    for name in requests(pod) {
        let size = size_of(&name)?;
        match (asked, found) {
            (Some(asked), _) if asked != size => {}
            (None, Some(before)) if before != size => {
                return Err(format!("medium: {medium} can't be used if container requests multiple huge page sizes"));
            }
            _ => found = Some(size),
        }
    }
    let missing = "hugePages storage requested, but there is no resource request for huge pages";
    found.map(Some).ok_or_else(|| format!("medium {medium}: {missing}"))
}

/// The sizes of huge pages that the pod requests anywhere.
fn requests(pod: &Pod) -> Vec<String> {
    let of_containers = pod::containers(pod).iter().chain(pod::init_containers(pod)).map(|c| c.resources.as_ref());
    let all = of_containers.chain([pod::spec(pod).resources.as_ref()]).flatten();
    let names = |resources: &ResourceRequirements| -> Vec<String> {
        let names = resources.requests.iter().flatten().map(|(name, _)| name);
        names.filter_map(|name| name.strip_prefix(RESOURCE).map(str::to_owned)).collect()
    };
    all.flat_map(names).collect()
}

/// Mounts them, once. Where the kernel has none of that size, that is the error.
pub(super) fn mount(folder: &Path, size: i64, group: Option<u32>) -> Result<(), String> {
    let make = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        if directory::is_mount_point(folder)? {
            return Ok(());
        }
        let options = std::ffi::CString::new(format!("pagesize={size}")).map_err(std::io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("nodev", folder, "hugetlbfs", flags, options.as_c_str())?;
        chown(folder, None, group)?;
        fs::set_permissions(folder, Permissions::from_mode(if group.is_some() { 0o2777 } else { 0o777 }))
    };
    make().map_err(|error| format!("mounting huge pages of {size} bytes: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pages_have_the_size_that_is_requested() {
        let none = "hugePages storage requested, but there is no resource request for huge pages";
        let several = "medium: HugePages can't be used if container requests multiple huge page sizes";
        let check = |medium: &str, sizes: &[&str], want: Result<Option<i64>, String>| {
            let requests: serde_json::Map<String, Value> =
                sizes.iter().map(|size| (format!("hugepages-{size}"), json!("1Gi"))).collect();
            let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {}, "spec": {"containers": containers}})).expect("a pod");
            assert_eq!(wanted(&pod, medium), want, "{medium} {sizes:?}");
        };
        check("", &[], Ok(None));
        check("Memory", &["2Mi"], Ok(None));
        check("HugePages", &["2Mi"], Ok(Some(2 << 20)));
        check("HugePages", &[], Err(format!("medium HugePages: {none}")));
        check("HugePages", &["2Mi", "1Gi"], Err(several.to_owned()));
        check("HugePages-1Gi", &["2Mi", "1Gi"], Ok(Some(1 << 30)));
        check("HugePages-1Gi", &["2Mi"], Err(format!("medium HugePages-1Gi: {none}")));
        check("HugePages-many", &["2Mi"], Err("\"many\" is no size of huge pages".to_owned()));
        check("Tape", &[], Err("unknown storage medium \"Tape\"".to_owned()));
    }
}
