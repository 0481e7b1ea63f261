//! Connections whose TLS handshake is under way: so many and no more, so that half-open ones keep nobody out.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// When more are under way, the oldest is cut off: a client in earnest is done in milliseconds.
const MOST: usize = 2048;

#[derive(Default)]
struct UnderWay {
    next: u64,
    /// Dropping a sender cuts its handshake off.
    begun: BTreeMap<u64, oneshot::Sender<()>>,
}

#[derive(Clone, Default)]
pub(crate) struct Handshakes(Arc<Mutex<UnderWay>>);

/// One that is under way; it is over when this is dropped.
pub(crate) struct Handshake {
    number: u64,
    /// Resolves when it has to give way.
    pub(crate) cut_off: oneshot::Receiver<()>,
    all: Handshakes,
}

impl Handshakes {
    pub(crate) fn begin(&self) -> Handshake {
        let (keep, cut_off) = oneshot::channel();
        let mut under_way = self.0.lock();
        under_way.next += 1;
        let number = under_way.next;
        under_way.begun.insert(number, keep);
        if under_way.begun.len() > MOST {
            under_way.begun.pop_first();
        }
        Handshake { number, cut_off, all: self.clone() }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.0.lock().begun.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way() {
        let all = Handshakes::default();
        let gives_way = |one: &mut Handshake| one.cut_off.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        let mut first = all.begin();
        drop(all.begin());
        let mut others: Vec<Handshake> = (1..MOST).map(|_| all.begin()).collect();
        assert!(!gives_way(&mut first));
        others.push(all.begin());
        assert!(gives_way(&mut first));
        assert!(!others.iter_mut().any(gives_way));
        drop((first, others));
        assert!(all.0.lock().begun.is_empty());
    }
}
