//! A folder of backups: each has its time in its name, the newest are kept, and a command takes each elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

const BEGIN: &str = "ferry-";
const END: &str = ".backup";

/// The next one's name. Names sort as times do.
pub fn next(folder: &Path, now: Timestamp) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder.join(format!("{BEGIN}{}{END}", now.strftime("%Y%m%dT%H%M%SZ"))))
}

/// Removes the oldest until so many are left. Other files are none of its business.
pub fn keep(folder: &Path, count: usize) -> Result<Vec<PathBuf>> {
    let failed = || format!("cannot look at the backups in {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(failed)? {
        let name = entry.with_context(failed)?.file_name().to_string_lossy().into_owned();
        let time = name.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).unwrap_or_default();
        let digits = time.bytes().filter(u8::is_ascii_digit).count();
        if time.len() == "20260102T030405Z".len() && digits == 14 {
            names.push(name);
        }
    }
    names.sort();
    let old = names.len().saturating_sub(count);
    let mut removed = Vec::new();
    for name in names.drain(..old) {
        let path = folder.join(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        removed.push(path);
    }
    Ok(removed)
}

/// Runs a command of the shell with the file as `$1`, to take it elsewhere.
pub fn upload(command: &str, file: &Path) -> Result<()> {
    let mut shell = Command::new("/bin/sh");
    // As the last word, whatever is in its name.
    shell.args(["-c", &format!("{command} \"$1\""), "ferry-upload"]).arg(file).stdin(Stdio::null());
    let ended = shell.status().context("cannot run /bin/sh")?;
    ensure!(ended.success(), "the upload of {} failed ({ended}): {command}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |second: i64| next(folder.path(), Timestamp::from_second(1_800_000_000 + second).unwrap()).unwrap();
        let all = [at(0), at(3600), at(7200)];
        for path in &all {
            fs::write(path, "x").unwrap();
        }
        fs::write(folder.path().join("ferry-mine.backup"), "x").unwrap();
        assert_eq!(keep(folder.path(), 2).unwrap(), [all[0].clone()]);
        assert!(keep(folder.path(), 2).unwrap().is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);

        let copy = folder.path().join("it's a copy");
        upload(&format!("cp -t '{}' --", folder.path().display()), &copy).unwrap_err();
        fs::write(&copy, "x").unwrap();
        let target = tempfile::tempdir().unwrap();
        upload(&format!("cp -t '{}' --", target.path().display()), &copy).unwrap();
        assert!(target.path().join("it's a copy").exists());
        let error = upload("false", &copy).unwrap_err().to_string();
        assert!(error.contains("failed") && error.contains("false"), "{error}");
    }
}
