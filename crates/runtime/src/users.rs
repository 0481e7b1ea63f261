//! The users of a pod that has a user namespace: which ids of the machine stand behind them.

use ferry_cri::v1::{IdMapping, NamespaceMode, NamespaceOption};
use serde::{Deserialize, Serialize};

/// The kernel reads no more lines.
const MOST_RANGES: usize = 340;

/// A range of ids, as the OCI specification words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    #[serde(rename = "containerID")]
    pub(crate) container: u32,
    #[serde(rename = "hostID")]
    pub(crate) host: u32,
    pub(crate) size: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Users {
    pub(crate) uids: Vec<Range>,
    pub(crate) gids: Vec<Range>,
}

impl Users {
    /// None where the pod's users are the machine's.
    pub(crate) fn of(options: &NamespaceOption) -> Result<Option<Self>, String> {
        let Some(told) = &options.userns_options else { return Ok(None) };
        match told.mode() {
            NamespaceMode::Node => return Ok(None),
            NamespaceMode::Pod => {}
            other => return Err(format!("a user namespace of mode {} is not supported", other.as_str_name())),
        }
        let shared = [("network", options.network()), ("IPC", options.ipc()), ("processes", options.pid())];
        if let Some((what, _)) = shared.into_iter().find(|(_, mode)| *mode == NamespaceMode::Node) {
            return Err(format!("a pod with a user namespace cannot share the machine's {what}"));
        }
        Ok(Some(Self { uids: ranges("user", &told.uids)?, gids: ranges("group", &told.gids)? }))
    }

    /// The id of the machine that a user of the pod has.
    pub(crate) fn uid(&self, inside: u32) -> Option<u32> {
        find(&self.uids, inside)
    }

    pub(crate) fn gid(&self, inside: u32) -> Option<u32> {
        find(&self.gids, inside)
    }

    /// Who is root in the pod.
    pub(crate) fn root(&self) -> (u32, u32) {
        (self.uid(0).unwrap_or(u32::MAX), self.gid(0).unwrap_or(u32::MAX))
    }

    /// The highest of the groups from 0 on that are all the pod's.
    pub(crate) fn last_group(&self) -> u32 {
        let first = self.gids.iter().find(|range| range.container == 0);
        first.map_or(0, |range| range.size.saturating_sub(1))
    }

    /// Whether a mount is to show its files as this pod's.
    pub(crate) fn are(&self, uids: &[IdMapping], gids: &[IdMapping]) -> bool {
        ranges("user", uids).as_ref() == Ok(&self.uids) && ranges("group", gids).as_ref() == Ok(&self.gids)
    }

    /// Without an id of the machine nobody can be this user.
    pub(crate) fn check(&self, uid: u32, gids: &[u32]) -> Result<(), String> {
        let outside = |kind: &str, id: u32| format!("{kind} {id} is none of those of the pod's user namespace");
        if self.uid(uid).is_none() {
            return Err(outside("user", uid));
        }
        gids.iter().find(|gid| self.gid(**gid).is_none()).map_or(Ok(()), |gid| Err(outside("group", *gid)))
    }
}

/// As the kernel reads them.
pub(crate) fn lines(ranges: &[Range]) -> String {
    ranges.iter().map(|range| format!("{} {} {}\n", range.container, range.host, range.size)).collect()
}

fn find(ranges: &[Range], inside: u32) -> Option<u32> {
    let range = ranges.iter().find(|range| inside >= range.container && inside - range.container < range.size)?;
    range.host.checked_add(inside - range.container)
}

fn ranges(kind: &str, told: &[IdMapping]) -> Result<Vec<Range>, String> {
    let ranges: Vec<Range> =
        told.iter().map(|one| Range { container: one.container_id, host: one.host_id, size: one.length }).collect();
    let ends = |range: &Range| [range.container, range.host].iter().all(|id| id.checked_add(range.size).is_some());
    if ranges.len() > MOST_RANGES || ranges.iter().any(|range| range.size == 0 || !ends(range)) {
        return Err(format!("the {kind} ids of the pod's user namespace are no ranges"));
    }
    if find(&ranges, 0).is_none() {
        return Err(format!("the pod's user namespace has no {kind} 0"));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use ferry_cri::v1::UserNamespace;

    use super::*;

    fn options(mode: NamespaceMode, ids: &[(u32, u32, u32)]) -> NamespaceOption {
        let ids: Vec<IdMapping> = ids
            .iter()
            .map(|(container_id, host_id, length)| IdMapping {
                host_id: *host_id,
                container_id: *container_id,
                length: *length,
            })
            .collect();
        let pid = NamespaceMode::Container.into();
        let userns_options = Some(UserNamespace { mode: mode.into(), uids: ids.clone(), gids: ids });
        NamespaceOption { pid, userns_options, ..Default::default() }
    }

    #[test]
    fn users_have_ids_of_the_machine() {
        let users = Users::of(&options(NamespaceMode::Pod, &[(0, 131_072, 65_536)])).expect("users").expect("its own");
        assert_eq!(
            (users.root(), users.uid(33), users.gid(65_535)),
            ((131_072, 131_072), Some(131_105), Some(196_607))
        );
        assert_eq!((users.uid(65_536), users.last_group()), (None, 65_535));
        assert_eq!(lines(&users.uids), "0 131072 65536\n");
        assert_eq!(users.check(0, &[0, 65_535]), Ok(()));
        assert!(users.check(65_536, &[]).is_err_and(|why| why.contains("user 65536")));
        assert!(users.check(0, &[0, 70_000]).is_err_and(|why| why.contains("group 70000")));
        assert_eq!(Users::of(&NamespaceOption::default()), Ok(None));
        assert_eq!(Users::of(&options(NamespaceMode::Node, &[])), Ok(None));
    }

    #[test]
    fn what_is_no_user_namespace_is_refused() {
        for ids in [&[][..], &[(0, 65_536, 0)], &[(1, 65_536, 10)], &[(0, u32::MAX, 65_536)]] {
            assert!(Users::of(&options(NamespaceMode::Pod, ids)).is_err(), "{ids:?}");
        }
        let mut shared = options(NamespaceMode::Pod, &[(0, 65_536, 65_536)]);
        shared.network = NamespaceMode::Node.into();
        assert!(Users::of(&shared).is_err_and(|why| why.contains("network")));
        assert!(Users::of(&options(NamespaceMode::Target, &[(0, 65_536, 65_536)])).is_err());
    }
}
