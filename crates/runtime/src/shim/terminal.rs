//! Terminals: the end of one that belongs to whoever types and reads.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::termios::Winsize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::protocol::Size;

pub(crate) struct Terminal(AsyncFd<std::fs::File>);

impl Terminal {
    pub(super) fn new(master: OwnedFd) -> std::io::Result<Self> {
        rustix::io::ioctl_fionbio(&master, true)?;
        #[expect(unsafe_code, reason = "waiting for a terminal has no other form")]
        // SAFETY: the descriptor is owned by the `AsyncFd` itself, so it stays open and the same for as long as it is registered.
        let master = unsafe { AsyncFd::register(std::fs::File::from(master)) }?;
        Ok(Self(master))
    }

    /// Zero at the end, which for a terminal is when its last user has gone.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> usize {
        let read = self.0.async_io(Interest::READABLE, |file| (&*file).read(buffer)).await;
        read.unwrap_or(0)
    }

    pub(crate) async fn write(&self, mut data: &[u8]) -> std::io::Result<()> {
        while !data.is_empty() {
            let written = self.0.async_io(Interest::WRITABLE, |file| (&*file).write(data)).await?;
            data = &data[written..];
        }
        Ok(())
    }

    pub(crate) fn resize(&self, size: Size) {
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = rustix::termios::tcsetwinsize(self.0.get_ref(), size);
    }
}
