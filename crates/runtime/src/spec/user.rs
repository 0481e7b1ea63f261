//! As whom a container runs, by the image's own lists of users and groups.

use std::io::Read;
use std::path::Path;

use ferry_cri::v1::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};
use ferry_podfs::Root;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

/// Lists longer than this are no lists of users.
const LONGEST_FILE: u64 = 4 * 1024 * 1024;

/// Reads a file of the image, never one outside of it.
fn read(rootfs: &Path, name: &str) -> String {
    let attempt = || -> std::io::Result<String> {
        let mut bytes = Vec::new();
        Root::open(rootfs)?.file(Path::new(name))?.take(LONGEST_FILE).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    attempt().unwrap_or_default()
}

/// The number of a user or group, where that is what is said. One out of range is never taken for a name: others have judged it
/// as a number, and the image could give that name to root.
fn identity(text: &str) -> Result<Option<u32>, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let number = text.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
    number.map(Some).ok_or_else(|| format!("user or group {text} is out of range"))
}

/// `context` goes before what the image says.
pub(crate) fn find(rootfs: &Path, context: &LinuxContainerSecurityContext, image_user: &str) -> Result<User, String> {
    let (passwd, group) = (read(rootfs, "etc/passwd"), read(rootfs, "etc/group"));
    let mut image = image_user.split(':');
    let image_name = image.next().unwrap_or_default();
    let image_group = image.next();
    let chosen = context.run_as_user.as_ref().map(|value| value.value.to_string());
    let by_context = chosen.is_some() || !context.run_as_username.is_empty();
    let wanted = chosen.unwrap_or_else(|| {
        let name = if context.run_as_username.is_empty() { image_name } else { &context.run_as_username };
        name.to_owned()
    });
    let wanted = if wanted.is_empty() { "0".to_owned() } else { wanted };
    let users: Vec<Vec<&str>> = passwd.lines().map(|line| line.split(':').collect()).collect();
    let number = |text: &str| text.parse::<u32>().ok();
    let chosen_uid = identity(&wanted)?;
    let entry = match chosen_uid {
        Some(uid) => users.iter().find(|user| user.get(2).and_then(|u| number(u)) == Some(uid)),
        None => users.iter().find(|user| user.first() == Some(&wanted.as_str())),
    };
    let uid = match (chosen_uid, entry) {
        (Some(uid), _) => uid,
        (None, Some(entry)) => entry.get(2).and_then(|u| number(u)).ok_or("a user without a number")?,
        (None, None) => {
            return Err(format!("no users found: unable to find user {wanted}: no matching entries in passwd file"));
        }
    };
    let groups: Vec<Vec<&str>> = group.lines().map(|line| line.split(':').collect()).collect();
    let group_number = |text: &str| match identity(text)? {
        Some(gid) => Ok(gid),
        None => {
            let named = groups.iter().find(|g| g.first() == Some(&text)).and_then(|g| number(g.get(2)?));
            named.ok_or_else(|| format!("unable to find group {text}"))
        }
    };
    let own_group = entry.and_then(|entry| number(entry.get(3)?));
    let gid = match &context.run_as_group {
        Some(value) => u32::try_from(value.value).map_err(|_| "a group out of range".to_owned())?,
        None => match image_group.filter(|_| !by_context) {
            Some(name) => group_number(name)?,
            None => own_group.unwrap_or(0),
        },
    };
    let mut all: Vec<u32> = vec![gid];
    if context.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge
        && let Some(name) = entry.and_then(|entry| entry.first())
    {
        let member = |g: &&Vec<&str>| g.get(3).is_some_and(|list| list.split(',').any(|m| m == *name));
        all.extend(groups.iter().filter(member).filter_map(|g| number(g.get(2)?)));
    }
    for group in &context.supplemental_groups {
        all.push(u32::try_from(*group).map_err(|_| format!("group {group} out of range"))?);
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|group| seen.insert(*group));
    let home = entry.and_then(|entry| entry.get(5)).filter(|home| !home.is_empty()).unwrap_or(&"/");
    Ok(User { uid, gid, groups: all, home: (*home).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_cri::v1::Int64Value;

    #[test]
    fn users_are_found_in_the_image() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("etc")).expect("a folder");
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/var/www:\n")
            .expect("written");
        std::fs::write(root.path().join("etc/group"), "root:x:0:\nweb:x:34:\nextra:x:50:web\n").expect("written");
        let value = |value| Some(Int64Value { value });
        let context = LinuxContainerSecurityContext::default();
        let check = |context: &LinuxContainerSecurityContext, image: &str, wanted: (u32, u32, &[u32])| {
            let user = find(root.path(), context, image).expect("a user");
            assert_eq!((user.uid, user.gid, &user.groups[..]), wanted, "{image}");
        };
        check(&context, "", (0, 0, &[0]));
        check(&context, "web", (33, 34, &[34, 50]));
        check(&context, "33:50", (33, 50, &[50]));
        check(&context, "1000", (1000, 0, &[0]));
        let own = LinuxContainerSecurityContext {
            run_as_user: value(33),
            run_as_group: value(7),
            supplemental_groups: vec![8],
            ..context.clone()
        };
        check(&own, "web:web", (33, 7, &[7, 50, 8]));
        let strict = LinuxContainerSecurityContext { supplemental_groups_policy: 1, ..own };
        check(&strict, "", (33, 7, &[7, 8]));
        assert!(find(root.path(), &context, "nobody").is_err());
        // The image calls root by a number that is too large to be one.
        std::fs::write(root.path().join("etc/passwd"), "4294967296:x:0:0::/:\n-1:x:0:0::/:\n").expect("written");
        std::fs::write(root.path().join("etc/group"), "4294967296:x:0:\n").expect("written");
        for user in ["4294967296", "-1", "2147483648", "5:4294967296"] {
            let why = find(root.path(), &context, user).expect_err("refused");
            assert!(why.contains("out of range"), "{user}: {why}");
        }
        let large = LinuxContainerSecurityContext { run_as_user: value(4_294_967_296), ..context.clone() };
        assert!(find(root.path(), &large, "").expect_err("refused").contains("out of range"));
        // A link out of the image is followed inside of it.
        std::fs::remove_file(root.path().join("etc/passwd")).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("etc/passwd")).expect("a link");
        assert!(find(root.path(), &context, "root").is_err());
    }
}
