//! How much is made of what a pod says. A pod of a few kilobytes refers to the same value again and again, and to values that
//! refer to others: what comes out is counted before it is there.

/// The kernel gives no program more than this, arguments and environment together, whatever its limits are.
const PROGRAM: usize = 6 << 20;
/// No path is longer.
const PATH: usize = 4096;
/// The files that a pod's volumes have of ConfigMaps, Secrets, fields and tokens; those of Secrets are in memory.
const VOLUMES: usize = 64 << 20;
/// What a file takes besides its bytes.
const FILE: usize = 256;
/// The files of variables of a container.
const FILES: usize = 16 << 20;
/// They are read from the beginning for each variable.
const LOOKED_THROUGH: usize = 256 << 20;

/// The room that is left.
#[derive(Debug)]
pub(crate) struct Room {
    left: usize,
    most: usize,
    what: &'static str,
}

impl Room {
    const fn new(what: &'static str, most: usize) -> Self {
        Self { left: most, most, what }
    }

    pub(crate) const fn of_environment() -> Self {
        Self::new("the environment", PROGRAM)
    }

    pub(crate) const fn of_arguments() -> Self {
        Self::new("the command with its arguments", PROGRAM)
    }

    pub(crate) const fn of_path() -> Self {
        Self::new("the path", PATH)
    }

    pub(crate) const fn of_volumes() -> Self {
        Self::new("the content of the pod's volumes of ConfigMaps, Secrets, fields and tokens", VOLUMES)
    }

    pub(crate) const fn of_files() -> Self {
        Self::new("what the files of variables hold", FILES)
    }

    pub(crate) const fn of_reading() -> Self {
        Self::new("what is to be read for variables of files", LOOKED_THROUGH)
    }

    /// So much is about to be made.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(format!("{} is longer than {} bytes", self.what, self.most)),
        }
    }

    /// A file of this length is.
    pub(crate) fn take_file(&mut self, bytes: usize) -> Result<(), String> {
        self.take(bytes.saturating_add(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_once() {
        let mut room = Room::of_path();
        assert_eq!(room.take(4000), Ok(()));
        assert_eq!(room.take(97), Err("the path is longer than 4096 bytes".to_owned()));
        assert_eq!((room.take(96), room.take(0)), (Ok(()), Ok(())));
        assert!(room.take(usize::MAX).is_err() && room.take_file(usize::MAX).is_err());
    }
}
