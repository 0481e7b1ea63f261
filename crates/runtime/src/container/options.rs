//! Options of mounts, as the OCI specification words them.

use super::system;

pub(super) struct Options {
    /// Bits of `MOUNT_ATTR_`, for the mount itself and for all mounts below it.
    pub(super) set: u64,
    /// How access times are kept is a number in some of the bits, replaced as a whole.
    pub(super) clear: u64,
    pub(super) set_all: u64,
    pub(super) recursive: bool,
    /// Bits of `MS_`, and whether they are for all mounts below.
    pub(super) propagation: Option<(u64, bool)>,
    /// Files are shown as those of the users of the container's namespace, and whether those of all mounts below.
    pub(super) map_owners: Option<bool>,
    /// What the file system itself understands.
    pub(super) data: Vec<(String, Option<String>)>,
}

const READ_ONLY: u64 = 0x1;
const NO_SET_USER_ID: u64 = 0x2;
const NO_DEVICES: u64 = 0x4;
const NO_EXECUTION: u64 = 0x8;
const NO_ACCESS_TIME: u64 = 0x10;
const STRICT_ACCESS_TIME: u64 = 0x20;
const ALL_ACCESS_TIMES: u64 = 0x70;
const NO_FOLDER_ACCESS_TIME: u64 = 0x80;
const NO_LINKS: u64 = 0x20_0000;

impl Options {
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            set: 0,
            clear: 0,
            set_all: 0,
            recursive: false,
            propagation: None,
            map_owners: None,
            data: Vec::new(),
        };
        for word in words {
            options.add(word)?;
        }
        Ok(options)
    }

    fn add(&mut self, word: &str) -> Result<(), String> {
        let (set, clear) = match word {
            "ro" => (READ_ONLY, 0),
            "nosuid" => (NO_SET_USER_ID, 0),
            "nodev" => (NO_DEVICES, 0),
            "noexec" => (NO_EXECUTION, 0),
            "nosymfollow" => (NO_LINKS, 0),
            "nodiratime" => (NO_FOLDER_ACCESS_TIME, 0),
            "noatime" => (NO_ACCESS_TIME, ALL_ACCESS_TIMES),
            "strictatime" => (STRICT_ACCESS_TIME, ALL_ACCESS_TIMES),
            "relatime" => (0, ALL_ACCESS_TIMES),
            // What the source is not allowed stays so: these only take back what was said before.
            "rw" | "suid" | "dev" | "exec" | "diratime" => {
                self.set &= !match word {
                    "rw" => READ_ONLY,
                    "suid" => NO_SET_USER_ID,
                    "dev" => NO_DEVICES,
                    "exec" => NO_EXECUTION,
                    _ => NO_FOLDER_ACCESS_TIME,
                };
                return Ok(());
            }
            "rro" => {
                self.set_all |= READ_ONLY;
                return Ok(());
            }
            "bind" | "defaults" | "async" => return Ok(()),
            "rbind" => {
                self.recursive = true;
                return Ok(());
            }
            "idmap" | "ridmap" => {
                self.map_owners = Some(word == "ridmap");
                return Ok(());
            }
            _ => return self.add_other(word),
        };
        self.set = self.set & !clear | set;
        self.clear |= clear;
        Ok(())
    }

    fn add_other(&mut self, word: &str) -> Result<(), String> {
        let (kind, recursive) = match word.strip_prefix('r') {
            Some(kind @ ("private" | "shared" | "slave" | "unbindable")) => (kind, true),
            _ => (word, false),
        };
        let bits = match kind {
            "private" => system::PRIVATE,
            "shared" => system::SHARED,
            "slave" => system::SLAVE,
            "unbindable" => system::UNBINDABLE,
            _ => {
                let (key, value) =
                    word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value.to_owned())));
                if key.is_empty() {
                    return Err(format!("mount option {word:?}"));
                }
                self.data.push((key.to_owned(), value));
                return Ok(());
            }
        };
        self.propagation = Some((bits, recursive));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_attributes() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Options::parse(&words).expect("options")
        };
        let usual = parse(&["nosuid", "noexec", "nodev", "ro"]);
        assert_eq!((usual.set, usual.clear), (0xF, 0));
        let bind = parse(&["rbind", "rslave", "rw"]);
        assert_eq!((bind.recursive, bind.propagation, bind.clear), (true, Some((system::SLAVE, true)), 0));
        let strict = parse(&["nosuid", "strictatime", "mode=755", "size=65536k", "newinstance"]);
        assert_eq!((strict.set, strict.clear), (0x22, ALL_ACCESS_TIMES));
        assert_eq!(strict.data[0], ("mode".to_owned(), Some("755".to_owned())));
        assert_eq!(strict.data[2], ("newinstance".to_owned(), None));
        assert_eq!(parse(&["rro"]).set_all, READ_ONLY);
        assert_eq!(
            [&["rbind"][..], &["idmap"], &["ridmap"]].map(|words| parse(words).map_owners),
            [None, Some(false), Some(true)]
        );
        assert!(Options::parse(&["=x".to_owned()]).is_err());
    }
}
