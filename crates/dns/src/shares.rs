//! The places of the questions that are under way, shared among clients: who asks much keeps nobody else from asking.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// One question under way.
#[derive(Debug)]
struct Taken {
    number: u64,
    given_up: Arc<Notify>,
}

#[derive(Debug, Default)]
struct InFlight {
    next: u64,
    count: usize,
    /// By client, the oldest first.
    taken: HashMap<IpAddr, VecDeque<Taken>>,
}

#[derive(Debug)]
pub(crate) struct Shares {
    most: usize,
    most_of_one: usize,
    state: Mutex<InFlight>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    shares: &'a Shares,
    client: IpAddr,
    number: u64,
    given_up: Arc<Notify>,
}

impl Shares {
    pub(crate) fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, state: Mutex::default() }
    }

    /// A place for a question of this client. Where all are taken, the client with the most gives up its oldest one, if it
    /// has more than this one would have then.
    pub(crate) fn take(&self, client: IpAddr) -> Option<Share<'_>> {
        let mut state = self.state.lock();
        let own = state.taken.get(&client).map_or(0, VecDeque::len);
        if own >= self.most_of_one {
            return None;
        }
        if state.count >= self.most {
            let (heaviest, questions) = state.taken.iter_mut().max_by_key(|(_, questions)| questions.len())?;
            if questions.len() <= own + 1 {
                return None;
            }
            let (heaviest, oldest) = (*heaviest, questions.pop_front()?);
            oldest.given_up.notify_one();
            state.gave(heaviest);
        }
        let number = state.next;
        state.next += 1;
        state.count += 1;
        let given_up = Arc::new(Notify::new());
        state.taken.entry(client).or_default().push_back(Taken { number, given_up: given_up.clone() });
        Some(Share { shares: self, client, number, given_up })
    }
}

impl InFlight {
    /// A place of this client is free again.
    fn gave(&mut self, client: IpAddr) {
        self.count -= 1;
        if self.taken.get(&client).is_some_and(VecDeque::is_empty) {
            self.taken.remove(&client);
        }
    }
}

impl Share<'_> {
    /// Returns once another client needs the place more.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        let Some(questions) = state.taken.get_mut(&self.client) else { return };
        // One that was given up is not there any more.
        let Some(at) = questions.iter().position(|taken| taken.number == self.number) else { return };
        questions.remove(at);
        state.gave(self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[tokio::test]
    async fn who_asks_much_gives_way() {
        let shares = Shares::new(8, 6);
        let greedy: Vec<_> = (0..6).map(|_| shares.take(client(1)).expect("a place")).collect();
        assert!(shares.take(client(1)).is_none(), "nobody has more than that");
        let second: Vec<_> = (0..2).map(|_| shares.take(client(2)).expect("a place")).collect();
        // All are taken: the first client gives up its oldest ones, until the others have as much.
        let third: Vec<_> = (0..2).map(|_| shares.take(client(3)).expect("a place")).collect();
        greedy[0].given_up().await;
        greedy[1].given_up().await;
        let third: Vec<_> = third.into_iter().chain(shares.take(client(3))).collect();
        assert_eq!(third.len(), 3);
        assert!(shares.take(client(3)).is_none(), "it would have the most then");
        drop((greedy, second, third));
        let state = shares.state.lock();
        assert_eq!((state.count, state.taken.len()), (0, 0));
    }
}
