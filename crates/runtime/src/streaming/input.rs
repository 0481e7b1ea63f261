//! What a client types, on its way to the shim.

use bytes::Bytes;
use tokio::io::AsyncWrite;

use crate::protocol::{Frame, Kind, write_frame};

/// A message of a client may be longer than any frame.
const PIECE: usize = 64 * 1024;

pub(super) struct ToShim<W> {
    shim: Option<W>,
}

impl<W: AsyncWrite + Unpin> ToShim<W> {
    pub(super) fn new(shim: W) -> Self {
        Self { shim: Some(shim) }
    }

    /// A command that has ended takes nothing more, while its last words are still on their way to the client: what the client
    /// types then goes nowhere, and is no failure.
    pub(super) async fn send(&mut self, kind: Kind, mut data: Bytes) {
        loop {
            let Some(shim) = &mut self.shim else { return };
            let piece = data.split_to(data.len().min(PIECE));
            if write_frame(shim, &Frame::new(kind, piece)).await.is_err() {
                self.shim = None;
            }
            if data.is_empty() {
                return;
            }
        }
    }
}
