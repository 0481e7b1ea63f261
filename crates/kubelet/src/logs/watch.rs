//! Waiting for files to change: inotify on their folder, so that a rotation of a log is seen too.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::unix::AsyncFd;

pub(crate) struct Watch {
    inotify: AsyncFd<OwnedFd>,
}

impl Watch {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let what = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE;
        inotify::add_watch(&inotify, folder, what)?;
        #[expect(deprecated, reason = "its replacement is unsafe; an OwnedFd keeps the promise it asks for")]
        let inotify = AsyncFd::new(inotify)?;
        Ok(Self { inotify })
    }

    /// Returns once something happened in the folder since the last call.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(self.inotify.get_ref(), &mut buffer);
            let mut any = false;
            loop {
                match reader.next() {
                    Ok(_) => any = true,
                    Err(rustix::io::Errno::WOULDBLOCK) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if any {
                return Ok(());
            }
        }
    }
}
