//! Which credential plug-ins may run.

use std::path::{Path, PathBuf};

use super::Allowed;
use crate::text::quote;

/// What kuberc says of them; the default lets all run.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub kind: String,
    pub allowed: Option<Vec<Allowed>>,
}

impl Policy {
    pub fn validate(&self) -> Result<(), String> {
        match (&*self.kind, &self.allowed) {
            ("" | "AllowAll" | "DenyAll", None) => Ok(()),
            (kind @ ("" | "AllowAll" | "DenyAll"), Some(_)) => Err(format!(
                "misconfigured credential plugin allowlist: plugin policy is {} but allowlist is non-nil",
                quote(kind)
            )),
            ("Allowlist", None) => {
                Err("credential plugin policy set to \"Allowlist\", but allowlist is unspecified".into())
            }
            ("Allowlist", Some(list)) if list.is_empty() => Err(
                "credential plugin policy set to \"Allowlist\", but allowlist is empty; use \"DenyAll\" policy instead"
                    .into(),
            ),
            ("Allowlist", Some(list)) => list.iter().enumerate().try_for_each(|(at, entry)| {
                let clean = cleaned(&entry.command);
                if entry.command.is_empty() {
                    Err(format!("misconfigured credential plugin allowlist: empty allowlist entry #{}", at + 1))
                } else if clean != entry.command {
                    Err(format!("non-normalized file path: {} vs {}", quote(&entry.command), quote(&clean)))
                } else {
                    Ok(())
                }
            }),
            (other, _) => Err(format!("unknown plugin policy: {}", quote(other))),
        }
    }

    /// Whether this program may tell who asks.
    pub fn permits(&self, command: &str) -> Result<(), String> {
        match &*self.kind {
            "DenyAll" => Err(format!("plugin {} not allowed: policy set to \"DenyAll\"", quote(command))),
            "Allowlist" => {
                let entries = self.allowed.iter().flatten();
                let found = look_up(command);
                let mut entries = entries.filter(|entry| !entry.command.is_empty());
                let same =
                    |entry: &Allowed| entry.command == command || (found.is_some() && look_up(&entry.command) == found);
                match entries.any(same) {
                    true => Ok(()),
                    false => {
                        let path = found.map_or(command.to_owned(), |path| path.display().to_string());
                        Err(format!("plugin path {} is not permitted by the credential plugin allowlist", quote(&path)))
                    }
                }
            }
            _ => Ok(()),
        }
    }
}

/// Where the program is: in a folder of PATH, unless its name has a folder.
fn look_up(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|path| crate::commands::plugin::is_executable(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(|path| crate::commands::plugin::is_executable(path))
}

/// The path without `.`, `..` and doubled slashes.
pub fn cleaned(path: &str) -> String {
    let mut out = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(kind: &str, commands: Option<&[&str]>) -> Policy {
        let entry = |command: &&str| Allowed { command: (*command).to_owned(), ..Allowed::default() };
        Policy { kind: kind.into(), allowed: commands.map(|list| list.iter().map(entry).collect()) }
    }

    #[test]
    fn a_list_names_who_may_run() {
        // By its name or by its path, which differs between machines.
        let shell = look_up("sh").unwrap().display().to_string();
        let list = policy("Allowlist", Some(&[&shell, "nowhere-at-all"]));
        assert!(list.permits(&shell).is_ok() && list.permits("sh").is_ok());
        assert!(list.permits("nowhere-at-all").is_ok() && list.permits("/bin/true").is_err());
        assert!(policy("DenyAll", None).permits("/bin/sh").is_err());
        assert!(policy("", None).permits("/bin/sh").is_ok());
    }

    #[test]
    fn a_policy_that_means_nothing_is_refused() {
        for (kind, list, fine) in [
            ("", None, true),
            ("AllowAll", Some(&["a"][..]), false),
            ("Allowlist", None, false),
            ("Allowlist", Some(&[]), false),
            ("Allowlist", Some(&["a", "/b"]), true),
            ("Allowlist", Some(&["a/../b"]), false),
            ("Allowlist", Some(&[""]), false),
            ("Nonsense", None, false),
        ] {
            assert_eq!(policy(kind, list).validate().is_ok(), fine, "{kind} {list:?}");
        }
    }
}
