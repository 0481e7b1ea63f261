//! Names of slices. A dash in one stands for a slice within another: `a-b.slice` is in `a.slice`.

use std::path::{Component, Path, PathBuf};

const SUFFIX: &str = ".slice";

/// A control group, named by plain parts, as systemd has it: `/kubepods/burstable/pod1-2` is
/// `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice`.
pub fn path(group: &Path) -> PathBuf {
    let (mut path, mut name) = (PathBuf::new(), String::new());
    for part in parts(group) {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&part.replace('-', "_"));
        path.push(format!("{name}{SUFFIX}"));
    }
    path
}

/// The unit of a control group, named by plain parts.
pub fn unit(group: &Path) -> String {
    let path = path(group);
    path.file_name().map_or_else(|| "-.slice".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The plain parts that a unit's name, or a path that ends with one, stands for: `/kubepods.slice/kubepods-pod1_2.slice` is
/// `kubepods/pod1-2`.
pub fn plain(name: &str) -> PathBuf {
    let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    last.strip_suffix(SUFFIX).unwrap_or(last).split('-').map(|part| part.replace('_', "-")).collect()
}

/// Whether a control group that somebody names is a slice.
pub fn is_slice(group: &str) -> bool {
    let name = group.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(SUFFIX).is_some_and(|name| name == "-" || !name.split('-').any(str::is_empty))
}

fn parts(group: &Path) -> impl Iterator<Item = &str> {
    group.components().filter_map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (plain parts, path, unit) as upstream's kubelet names them.
    const NAMES: &str = include_str!("slices/names.tsv");

    #[test]
    fn slices_are_named_as_upstream_names_them() {
        assert!(NAMES.lines().count() > 5);
        for line in NAMES.lines() {
            let [group, want_path, want_unit, back] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert_eq!(Path::new("/").join(path(Path::new(group))), Path::new(want_path), "{group}");
            assert_eq!(unit(Path::new(group)), want_unit, "{group}");
            assert_eq!(Path::new("/").join(plain(want_path)), Path::new(back), "{want_path}");
            assert!(is_slice(want_path) || want_path == "/", "{want_path}");
        }
    }

    #[test]
    fn only_slices_are_taken_for_slices() {
        for name in ["", "/", "/kubepods", "a.scope", ".slice", "/a--b.slice", "/-a.slice", "/a-.slice", "/a.slice/b"] {
            assert!(!is_slice(name), "{name:?}");
        }
        for name in ["-.slice", "a.slice", "/a.slice/a-b.slice", "system.slice"] {
            assert!(is_slice(name), "{name:?}");
        }
    }
}
