//! What HTTP/2 has buffered of the bodies of one connection. A client may send as much as its window has room for before
//! anybody asks for it, and nobody asks while a request waits for its turn.

use crate::connection::{Connection, Held};

/// Counted in steps of this size: most bodies are smaller and come and go at once.
const STEP: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Unread {
    bytes: usize,
    /// Bodies that somebody may still read.
    open: usize,
    /// What of it is among the bytes that are held.
    counted: usize,
}

impl Connection {
    pub(crate) fn body_begins(&self) {
        self.held.lock().unread.open += 1;
    }

    pub(crate) fn arrived(&self, bytes: usize) {
        self.change(|unread| unread.bytes = unread.bytes.saturating_add(bytes));
    }

    pub(crate) fn taken(&self, bytes: usize) {
        self.change(|unread| unread.bytes = unread.bytes.saturating_sub(bytes));
    }

    /// How much of a body was left is not known here; when none is open, nothing is.
    pub(crate) fn body_ends(&self) {
        self.change(|unread| {
            unread.open = unread.open.saturating_sub(1);
            if unread.open == 0 {
                unread.bytes = 0;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Unread)) {
        let has_grown = {
            let Held { bytes, released, unread } = &mut *self.held.lock();
            change(unread);
            let (before, now) = (unread.counted, unread.bytes / STEP * STEP);
            if *released || before == now {
                return;
            }
            unread.counted = now;
            // Under the lock: who releases them must find them counted.
            *bytes = *bytes + now - before;
            match now.checked_sub(before) {
                Some(more) => self.table.take(more),
                None => self.table.release(before - now),
            }
            now > before
        };
        if has_grown {
            self.table.bound();
        }
    }
}
