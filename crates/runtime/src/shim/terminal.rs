//! Terminals: the master's end comes from whoever makes the container, over a socket.

use std::io::{IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::termios::Winsize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{UnixListener, UnixStream};

use crate::protocol::Size;

pub(crate) struct Terminal(AsyncFd<std::fs::File>);

impl Terminal {
    fn new(master: OwnedFd) -> std::io::Result<Self> {
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

/// Waits for the terminal on a socket of its own.
pub(crate) struct Waiting(UnixListener);

impl Waiting {
    pub(crate) fn at(path: &Path) -> std::io::Result<Self> {
        let _ = std::fs::remove_file(path);
        Ok(Self(UnixListener::bind(path)?))
    }

    pub(crate) async fn receive(self) -> std::io::Result<Terminal> {
        let (stream, _) = self.0.accept().await?;
        stream.async_io(Interest::READABLE, || take(&stream)).await.and_then(Terminal::new)
    }
}

fn take(stream: &UnixStream) -> std::io::Result<OwnedFd> {
    let (mut name, mut space) = ([0; 4096], [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(stream, &mut [IoSliceMut::new(&mut name)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            return Ok(descriptor);
        }
    }
    Err(std::io::Error::other("no terminal came over the console's socket"))
}
