//! Files of variables that containers leave for others of their pod: `NAME='value'`, one after the other.
//!
//! A strict part of what a shell reads: values stand in single quotes, may have several lines, and are taken as they are.

use std::io::{self, Read};
use std::path::Path;

/// A longer line is no variable; a longer file is none of variables.
const LONGEST_LINE: usize = 64 << 10;
const LONGEST_FILE: u64 = 1 << 20;

/// A file in a volume that containers write to: whatever lies there, nothing beyond the volume is read, and not for ever.
pub(crate) fn read(volume: &Path, path: &str) -> io::Result<String> {
    let file = ferry_podfs::Root::open(volume)?.file(Path::new(path))?;
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(io::Error::other("the file is too long"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The value of the first variable of that name. What stands behind it is not looked at.
pub(crate) fn value(text: &str, name: &str) -> Result<Option<String>, String> {
    let invalid = |line: usize, why: &str| Err(format!("invalid environment variable format at line {line}: {why}"));
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    while let Some((number, line)) = lines.next() {
        if line.len() > LONGEST_LINE {
            return invalid(number, "the line is too long");
        }
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((found, rest)) = line.split_once('=') else { return invalid(number, "missing '='") };
        match found.trim_end_matches([' ', '\t']) {
            "" => return invalid(number, "empty variable name"),
            trimmed if trimmed != found => return invalid(number, "whitespace before '=' is not allowed"),
            _ => {}
        }
        if rest.starts_with([' ', '\t']) {
            // As for a shell: nothing is assigned.
            if found == name {
                return Ok(None);
            }
            continue;
        }
        let Some(mut rest) = rest.strip_prefix('\'') else {
            return invalid(number, "value must be enclosed in single quotes");
        };
        let mut value = String::new();
        let mut last = number;
        loop {
            if let Some((inside, after)) = rest.split_once('\'') {
                value.push_str(inside);
                let after = after.trim_start_matches([' ', '\t']);
                if !after.is_empty() && !after.starts_with('#') {
                    return invalid(last, "unexpected content after closing quote");
                }
                break;
            }
            value.push_str(rest);
            value.push('\n');
            let Some((at, line)) = lines.next() else {
                let why = "unclosed single quote";
                return Err(format!("invalid environment variable format starting at line {number}: {why}"));
            };
            (last, rest) = (at, line);
        }
        if found == name {
            return Ok(Some(value).filter(|value| !value.is_empty()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_volume_are_read() {
        let volume = tempfile::tempdir().expect("a folder");
        let path = |name: &str| volume.path().join(name);
        std::fs::write(path("vars"), "A='1'").expect("a file");
        std::os::unix::fs::symlink("/etc/passwd", path("link")).expect("a link");
        std::os::unix::fs::symlink("/vars", path("inside")).expect("a link");
        std::fs::create_dir(path("folder")).expect("a folder");
        std::fs::write(path("huge"), vec![b' '; 1 << 21]).expect("a file");
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, 0o666.into(), 0)
            .expect("a FIFO");
        assert_eq!(read(volume.path(), "vars").ok().as_deref(), Some("A='1'"));
        // A link leads where it leads for the container.
        assert_eq!(read(volume.path(), "inside").ok().as_deref(), Some("A='1'"));
        for bad in ["link", "folder", "huge", "fifo", "../vars", "none"] {
            assert!(read(volume.path(), bad).is_err() || bad == "../vars", "{bad}");
        }
    }

    #[test]
    fn files_are_read_strictly() {
        let at = |line: u32, why: &str| Err(format!("invalid environment variable format at line {line}: {why}"));
        let quotes = "value must be enclosed in single quotes";
        for (text, want) in [
            ("A='1'", Ok(Some("1"))),
            ("  \tA='1' # why", Ok(Some("1"))),
            ("# no\n\n  \nB='2'\nA='1'\nA='3'\n", Ok(Some("1"))),
            ("A='one\ntwo'\n", Ok(Some("one\ntwo"))),
            ("A='$(B) \\n \"x\"'", Ok(Some("$(B) \\n \"x\""))),
            ("A='1'\r\n", Ok(Some("1"))),
            ("B='2'", Ok(None)),
            ("", Ok(None)),
            // What is empty is as if it were absent.
            ("A=''", Ok(None)),
            ("A= '1'", Ok(None)),
            ("B= '1'\nA='2'", Ok(Some("2"))),
            // What stands behind is not looked at.
            ("A='1'\nnonsense", Ok(Some("1"))),
            ("nonsense\nA='1'", at(1, "missing '='")),
            ("\n='1'", at(2, "empty variable name")),
            ("A ='1'", at(1, "whitespace before '=' is not allowed")),
            ("A=1", at(1, quotes)),
            ("A=\"1\"", at(1, quotes)),
            ("A=", at(1, quotes)),
            ("A='1'2", at(1, "unexpected content after closing quote")),
            ("A='1\n2' x", at(2, "unexpected content after closing quote")),
            (
                "\nA='1\n2",
                Err("invalid environment variable format starting at line 2: unclosed single quote".to_owned()),
            ),
        ] {
            assert_eq!(value(text, "A"), want.map(|value| value.map(str::to_owned)), "{text:?}");
        }
        let long = format!("A='{}'", "x".repeat(LONGEST_LINE));
        assert!(value(&long, "A").is_err_and(|why| why.ends_with("line 1: the line is too long")));
    }
}
