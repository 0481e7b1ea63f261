//! Settings of the kernel that a kubelet wants, where the administrator has said that they are set already.

use std::fs;
use std::path::Path;

/// Upstream's. Where memory runs out the kernel kills a process and goes on; after an error of its own it starts anew.
const WANTED: [(&str, i64); 6] = [
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// What differs, in upstream's words. Nothing is changed.
pub(crate) fn check(proc_sys: &Path) -> Result<(), String> {
    let differs = |(flag, wanted): (&str, i64)| {
        let path = proc_sys.join(flag);
        let read = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
        let actual = read.and_then(|text| {
            text.trim().parse::<i64>().map_err(|error| format!("{}: {:?}: {error}", path.display(), text.trim()))
        });
        match actual {
            Ok(actual) if actual == wanted => None,
            Ok(actual) => {
                Some(format!("invalid kernel flag: {flag}, expected value: {wanted}, actual value: {actual}"))
            }
            Err(why) => Some(why),
        }
    };
    let all: Vec<String> = WANTED.into_iter().filter_map(differs).collect();
    match all.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_kernel_are_compared_and_left_alone() {
        let proc = tempfile::tempdir().expect("a folder");
        let write = |flag: &str, value: &str| {
            let path = proc.path().join(flag);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, value).expect("written");
        };
        for (flag, value) in WANTED {
            write(flag, &format!("{value}\n"));
        }
        assert_eq!(check(proc.path()), Ok(()));
        write("kernel/panic", "0\n");
        let panics = "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0";
        assert_eq!(check(proc.path()), Err(panics.to_owned()));
        write("vm/overcommit_memory", "0\n");
        let both = format!("[invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0, {panics}]");
        assert_eq!(check(proc.path()), Err(both));
        fs::remove_file(proc.path().join("vm/panic_on_oom")).expect("removed");
        assert!(check(proc.path()).is_err_and(|why| why.contains("vm/panic_on_oom: No such file")));
        assert_eq!(fs::read_to_string(proc.path().join("kernel/panic")).expect("there"), "0\n");
    }
}
