//! File descriptors that this process was started with: a shell or a supervisor may have left some open.

use std::io;

/// The first beside input, output and errors.
const FIRST: u32 = 3;
const CLOSE_ON_EXEC: libc::c_uint = 4;

/// No program that this process starts gets what this process has inherited: one that runs longer would keep it open.
pub fn close_on_exec() {
    // Where the kernel cannot do that, they get it.
    let _ = close_range(CLOSE_ON_EXEC);
}

/// Closes what was inherited beside input, output and errors. To be called before this process has opened anything.
pub(crate) fn close() -> io::Result<()> {
    close_range(0)
}

fn close_range(flags: libc::c_uint) -> io::Result<()> {
    #[expect(unsafe_code, reason = "close_range has no other form")]
    // SAFETY: either nothing is closed now, or this process has opened nothing yet, so no owner of a descriptor is cheated.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    #[test]
    fn what_was_inherited_is_not_passed_on() {
        let (read, _write) = std::io::pipe().unwrap();
        fcntl_setfd(&read, FdFlags::empty()).unwrap();
        super::close_on_exec();
        assert_eq!(fcntl_getfd(&read).unwrap(), FdFlags::CLOEXEC);
    }
}
