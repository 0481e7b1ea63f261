//! Requests with large objects: few at once, and apart from the threads that serve everybody.
//!
//! An object takes many times the memory that its JSON has bytes, for a moment several times over, and is walked through a dozen
//! times on its way to the store. What all such requests take together is bounded here, and so is the share of one user, so that
//! nobody has to wait for more than one large request of another.

use std::sync::Arc;

use ferry_meta::bounds::{HEAVIEST, LARGEST_BODY};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::per_user::PerUser;

/// Objects of this many bytes are not counted.
pub(crate) const LIGHT: usize = 32 << 10;
/// Nor are bodies of this many while they come in.
const SMALL_BODY: usize = 64 << 10;

const MEBIBYTE: usize = 1 << 20;
/// What an object takes of the room, in times of its bytes. Most objects take less, none takes more than the heaviest.
const TIMES: usize = 24;
/// The least that is taken, so that not too many threads are busy with it.
const LEAST: usize = 8;
/// MiB of objects that are worked on at once.
const ROOM: usize = 2 * HEAVIEST / MEBIBYTE;
/// The share of one user.
const SHARE: usize = HEAVIEST / MEBIBYTE;
/// The bodies of one user that come in at once.
const BODIES: usize = 32 * MEBIBYTE / SMALL_BODY;

pub(crate) struct Heavy {
    room: Arc<Semaphore>,
    users: PerUser<Share>,
}

struct Share {
    objects: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
}

/// Room that is given back when it is dropped.
pub(crate) struct Room {
    _permits: Vec<OwnedSemaphorePermit>,
    _share: Option<Arc<Share>>,
}

impl Default for Heavy {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(ROOM)), users: PerUser::default() }
    }
}

impl Heavy {
    fn share(&self, user: &str) -> Arc<Share> {
        let make = || Share { objects: Arc::new(Semaphore::new(SHARE)), bodies: Arc::new(Semaphore::new(BODIES)) };
        self.users.of(user, make)
    }

    /// Waits until a body of this length may come in. `None`: nobody said how long it is.
    pub(crate) async fn body(&self, user: &str, length: Option<usize>) -> Room {
        let length = length.unwrap_or(LARGEST_BODY).min(LARGEST_BODY);
        if length <= SMALL_BODY {
            return Room { _permits: Vec::new(), _share: None };
        }
        let share = self.share(user);
        let permit = take(&share.bodies, length.div_ceil(SMALL_BODY)).await;
        Room { _permits: permit.into_iter().collect(), _share: Some(share) }
    }

    /// Does work on objects of this many bytes when there is room for it, on a thread of its own.
    pub(crate) async fn run<T>(&self, user: &str, bytes: usize, work: impl Future<Output = T>) -> T {
        let weight = (bytes.saturating_mul(TIMES) / MEBIBYTE).clamp(LEAST, SHARE);
        let share = self.share(user);
        let own = take(&share.objects, weight).await;
        let all = take(&self.room, weight).await;
        let _room = Room { _permits: own.into_iter().chain(all).collect(), _share: Some(share) };
        apart(work).await
    }
}

async fn take(semaphore: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
    // Nobody closes them.
    semaphore.clone().acquire_many_owned(u32::try_from(amount).unwrap_or(u32::MAX)).await.ok()
}

/// Work that takes long between two points where it waits. The thread that it keeps is replaced for all others meanwhile.
async fn apart<T>(work: impl Future<Output = T>) -> T {
    let here = Handle::current();
    match here.runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(|| here.block_on(work)),
        _ => work.await,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn one_user_does_not_keep_others_waiting() {
        let heavy = Heavy::default();
        let (go_on, held_up) = oneshot::channel::<()>();
        let mut first = pin!(heavy.run("mallory", LARGEST_BODY, held_up));
        assert!(poll!(&mut first).is_pending());
        let mut second = pin!(heavy.run("mallory", LARGEST_BODY, async { 2 }));
        assert!(poll!(&mut second).is_pending());
        assert_eq!(heavy.run("alice", LARGEST_BODY, async { 1 }).await, 1);
        assert!(poll!(&mut second).is_pending());
        drop(go_on);
        let _ = first.await;
        assert_eq!(second.await, 2);
        assert_eq!(heavy.room.available_permits(), ROOM);
    }

    #[tokio::test]
    async fn all_together_take_no_more_than_there_is() {
        let heavy = Heavy::default();
        let (_go_on, mut held_up) = oneshot::channel::<()>();
        let mut first = pin!(heavy.run("a", LARGEST_BODY, &mut held_up));
        let (_go_on, mut held_up) = oneshot::channel::<()>();
        let mut second = pin!(heavy.run("b", LARGEST_BODY, &mut held_up));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        let mut third = pin!(heavy.run("c", LARGEST_BODY, async {}));
        assert!(poll!(&mut third).is_pending());
        assert_eq!(heavy.room.available_permits(), 0);
    }

    #[tokio::test]
    async fn bodies_wait_for_those_of_their_user_alone() {
        let heavy = Heavy::default();
        let mut held = Vec::new();
        for _ in 0..BODIES * SMALL_BODY / LARGEST_BODY {
            held.push(heavy.body("mallory", None).await);
        }
        let mut waiting = Box::pin(heavy.body("mallory", None));
        assert!(poll!(&mut waiting).is_pending());
        assert!(poll!(pin!(heavy.body("mallory", Some(SMALL_BODY)))).is_ready());
        assert!(poll!(pin!(heavy.body("alice", None))).is_ready());
        held.pop();
        assert!(poll!(&mut waiting).is_ready());
        drop((waiting, held));
        // Who has nothing under way is forgotten.
        drop(heavy.body("bob", None).await);
        heavy.share("carol");
        assert_eq!(heavy.users.len(), 1);
    }
}
