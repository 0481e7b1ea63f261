//! The control group of a container as a scope: systemd makes it around the container's first process, and takes it away with
//! the last.

use std::io;

use ferry_systemd::{Property, Systemd, slices};

const SUFFIX: &str = ".scope";
/// Before the id of a container; tools that look for containers find the id behind a dash.
const PREFIX: &str = "ferry-";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    unit: String,
    slice: String,
}

impl Scope {
    /// Of a group that is named as one.
    pub(super) fn of(group: &str) -> Option<Self> {
        let (above, unit) = group.trim_matches('/').rsplit_once('/').unwrap_or(("-.slice", group.trim_matches('/')));
        let slice = above.rsplit('/').next().unwrap_or_default();
        let is_ours = unit.starts_with(PREFIX) && unit.ends_with(SUFFIX) && slices::is_slice(slice);
        is_ours.then(|| Self { unit: unit.to_owned(), slice: slice.to_owned() })
    }

    /// Makes it, with a process in it.
    pub(super) async fn start(&self, process: i32, limits: Vec<Property>) -> io::Result<()> {
        let id = self.unit.trim_start_matches(PREFIX).trim_end_matches(SUFFIX);
        let process = u32::try_from(process).map_err(io::Error::other)?;
        let mut properties = ferry_systemd::scope(&self.slice, format!("Ferry container {id}"), process);
        // Where nothing is said, systemd limits processes; a container without a limit has its pod's.
        if !limits.iter().any(|limit| limit.name == "TasksMax") {
            properties.push(Property::long("TasksMax", u64::MAX));
        }
        properties.extend(limits);
        Ok(Systemd::default().start_scope(&self.unit, properties).await?)
    }

    pub(super) async fn limit(&self, limits: Vec<Property>) -> io::Result<()> {
        Ok(Systemd::default().set(&self.unit, limits).await?)
    }
}

/// The group of a container in one that its pod has; where systemd makes groups, that has to be a slice.
pub(crate) fn name(is_systemd: bool, parent: &str, id: &str) -> Result<String, String> {
    if !is_systemd {
        let parent = if parent.is_empty() { "/ferry" } else { parent.trim_end_matches('/') };
        return Ok(format!("{parent}/{id}"));
    }
    let parent = if parent.is_empty() { "system.slice" } else { parent };
    if !slices::is_slice(parent) {
        return Err(format!("cgroup_parent {parent:?} is no slice, and the cgroup driver is systemd"));
    }
    let slice = slices::path(&slices::plain(parent));
    Ok(std::path::Path::new("/").join(slice).join(format!("{PREFIX}{id}{SUFFIX}")).to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_scopes_in_the_slice_of_their_pod() {
        let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice";
        for (is_systemd, parent, want) in [
            (false, "", Ok("/ferry/abc".to_owned())),
            (false, "/kubepods/pod1/", Ok("/kubepods/pod1/abc".to_owned())),
            (true, slice, Ok(format!("{slice}/ferry-abc.scope"))),
            (true, "kubepods-burstable-pod1_2.slice", Ok(format!("{slice}/ferry-abc.scope"))),
            (true, "", Ok("/system.slice/ferry-abc.scope".to_owned())),
            (
                true,
                "/kubepods/pod1",
                Err("cgroup_parent \"/kubepods/pod1\" is no slice, and the cgroup driver is systemd".to_owned()),
            ),
        ] {
            assert_eq!(name(is_systemd, parent, "abc"), want, "{parent}");
        }
    }

    #[test]
    fn scopes_are_known_by_their_names() {
        let scope = |unit: &str, slice: &str| Some(Scope { unit: unit.to_owned(), slice: slice.to_owned() });
        for (group, want) in [
            ("/a.slice/a-b.slice/ferry-1.scope", scope("ferry-1.scope", "a-b.slice")),
            ("/ferry-1.scope", scope("ferry-1.scope", "-.slice")),
            ("/a.slice/other-1.scope", None),
            ("/kubepods/pod1/ferry-1.scope", None),
            ("/kubepods/pod1/abc", None),
        ] {
            assert_eq!(Scope::of(group), want, "{group}");
        }
    }
}
