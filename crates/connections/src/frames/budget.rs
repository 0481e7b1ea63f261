//! How many frames the other end may still send for nothing.

use std::time::Duration;

/// What a connection begins with, and what time gives back to it.
pub(super) const FREE: u32 = 1000;
pub(super) const PER_SECOND: u32 = 100;
/// No more is saved up: a client can be so far behind with what it acknowledges.
pub(super) const MOST: u32 = 1 << 18;

/// For each request: its end, its windows, its priorities.
pub(super) const REQUEST: u32 = 8;
/// For each frame of data that was sent, and for so many bytes of it. Go's clients acknowledge every 4 KiB twice, once for
/// the stream and once for the connection; others acknowledge every frame.
pub(super) const DATA_SENT: u32 = 4;
pub(super) const BYTES_SENT: u32 = 512;
/// For so many bytes of data that were received: padded uploads pay for themselves.
pub(super) const BYTES_RECEIVED: u32 = 4096;

pub(super) struct Budget {
    left: u32,
    /// Until when time has been paid out.
    paid: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: FREE, paid: Duration::ZERO }
    }
}

impl Budget {
    pub(super) fn earn(&mut self, frames: u32) {
        self.left = self.left.saturating_add(frames).min(MOST);
    }

    /// Pays for one frame. The clock is looked at only where nothing is left.
    pub(super) fn spend(&mut self, age: impl FnOnce() -> Duration) -> bool {
        if self.left == 0 {
            let age = age();
            let passed = age.saturating_sub(self.paid).as_millis();
            let earned = passed.saturating_mul(u128::from(PER_SECOND)) / 1000;
            if earned == 0 {
                return false;
            }
            self.paid = age;
            self.left = u32::try_from(earned).unwrap_or(FREE).min(FREE);
        }
        self.left -= 1;
        true
    }
}
