//! The newest revision, asked for once for all who wait for it.
//!
//! A read may take an answer only to a question that was sent after the read came. So while one question is under way, all
//! who come share the next one: however many readers there are, etcd is asked one thing at a time.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::Failed;
use crate::types::Revision;
use crate::{Result, StoreError};

type Outcome = std::result::Result<Revision, Failed>;
type Question = Shared<BoxFuture<'static, Outcome>>;

/// A question that takes longer does not hold up the next: a member that fell silent is told by a new one.
const PATIENCE: Duration = Duration::from_millis(50);
/// Between two questions while nobody leads: the first time, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// Clones share their questions.
#[derive(Clone, Default)]
pub(super) struct Newest {
    questions: Arc<Mutex<Questions>>,
}

#[derive(Default)]
struct Questions {
    /// Sent, and not to be joined.
    asked: Option<Question>,
    /// Not sent yet: whoever comes may join.
    next: Option<Question>,
}

impl Newest {
    /// The answer to a question that is sent after this call. `ask` sends it, again while waiting for a leader may help and `patience`
    /// lasts.
    pub(super) async fn get<F>(
        &self,
        patience: Duration,
        ask: impl Fn() -> F + Clone + Send + 'static,
    ) -> Result<Revision>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let end = Instant::now() + patience;
        let mut pause = PAUSE.0;
        loop {
            match self.once(ask.clone()).await {
                Err(failed) if failed.waits && Instant::now() + pause < end => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
                outcome => return outcome.map_err(|failed| failed.error),
            }
        }
    }

    async fn once<F>(&self, ask: impl FnOnce() -> F + Send + 'static) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let question = {
            let mut questions = self.questions.lock();
            match &questions.next {
                Some(next) => next.clone(),
                None => {
                    let next = self.question(questions.asked.clone(), ask);
                    questions.next = Some(next.clone());
                    next
                }
            }
        };
        // Whoever waits drives it on: it is not lost with the one who asked first.
        question.await
    }

    fn question<F>(&self, before: Option<Question>, ask: impl FnOnce() -> F + Send + 'static) -> Question
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let questions = self.questions.clone();
        let sent = async move {
            if let Some(before) = before {
                // What it answers is too old for those who wait here.
                let _ = tokio::time::timeout(PATIENCE, before).await;
            }
            {
                let mut questions = questions.lock();
                questions.asked = questions.next.take();
            }
            ask().await
        };
        // One that panicked would make everyone panic who looks at it, and the next question looks at the one before.
        let answered = AssertUnwindSafe(sent).catch_unwind().map(|outcome| {
            outcome.unwrap_or_else(|_| {
                tracing::error!("asking etcd for its revision panicked");
                Err(StoreError::Unavailable("etcd could not be asked for its revision".into()).into())
            })
        });
        answered.boxed().shared()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Answers with the number of the question, once it may.
    #[derive(Clone)]
    struct Etcd {
        asked: Arc<AtomicU64>,
        may: Arc<Semaphore>,
    }

    impl Etcd {
        fn new() -> Self {
            Self { asked: Arc::default(), may: Arc::new(Semaphore::new(0)) }
        }

        fn ask(&self) -> impl Fn() -> BoxFuture<'static, Outcome> + Clone + Send + 'static {
            let this = self.clone();
            move || {
                let this = this.clone();
                let number = this.asked.fetch_add(1, Ordering::SeqCst) + 1;
                async move {
                    this.may.acquire().await.expect("open").forget();
                    Ok(number)
                }
                .boxed()
            }
        }
    }

    #[tokio::test]
    async fn those_who_wait_share_a_question_that_is_younger_than_they_are() {
        let (newest, etcd) = (Newest::default(), Etcd::new());
        let mut first = std::pin::pin!(newest.get(LONG, etcd.ask()));
        assert!(futures::poll!(&mut first).is_pending());
        assert_eq!(etcd.asked.load(Ordering::SeqCst), 1);
        // They came after it was sent: its answer is not for them.
        let mut others: Vec<_> = (0..100).map(|_| Box::pin(newest.get(LONG, etcd.ask()))).collect();
        for other in &mut others {
            assert!(futures::poll!(other).is_pending());
        }
        assert_eq!(etcd.asked.load(Ordering::SeqCst), 1);
        // The one who would have asked goes away: the others ask.
        drop(others.remove(0));
        etcd.may.add_permits(2);
        assert_eq!(first.await.expect("an answer"), 1);
        for other in others {
            assert_eq!(other.await.expect("an answer"), 2);
        }
        etcd.may.add_permits(1);
        assert_eq!(newest.get(LONG, etcd.ask()).await.expect("an answer"), 3);
    }

    #[tokio::test]
    async fn a_question_that_panics_fails_those_who_asked_it_alone() {
        let (newest, etcd) = (Newest::default(), Etcd::new());
        let panics = || -> BoxFuture<'static, Outcome> { async { panic!("a bug") }.boxed() };
        assert!(matches!(newest.get(LONG, panics).await, Err(StoreError::Unavailable(_))));
        etcd.may.add_permits(2);
        assert_eq!(newest.get(LONG, etcd.ask()).await.expect("an answer"), 1);
        assert_eq!(newest.get(LONG, etcd.ask()).await.expect("an answer"), 2);
    }

    #[tokio::test]
    async fn a_question_without_an_answer_holds_up_nobody() {
        let (newest, etcd) = (Newest::default(), Etcd::new());
        let silent = || -> BoxFuture<'static, Outcome> { std::future::pending().boxed() };
        let mut first = std::pin::pin!(newest.get(LONG, silent));
        assert!(futures::poll!(&mut first).is_pending());
        etcd.may.add_permits(1);
        assert_eq!(newest.get(LONG, etcd.ask()).await.expect("an answer"), 1);
        assert!(futures::poll!(&mut first).is_pending());
    }

    #[tokio::test]
    async fn all_who_wait_for_a_leader_share_their_questions() {
        let newest = Newest::default();
        let asked = Arc::new(AtomicU64::new(0));
        let ask = {
            let asked = asked.clone();
            move || {
                let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
                async move {
                    // It takes a moment, so that others come meanwhile.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    let nobody_leads = Failed { error: StoreError::Unavailable("no leader".into()), waits: true };
                    if number < 8 { Err(nobody_leads) } else { Ok(number) }
                }
            }
        };
        let readers = (0..100).map(|_| newest.get(LONG, ask.clone()));
        for outcome in futures::future::join_all(readers).await {
            assert!(outcome.expect("an answer") >= 8);
        }
        let questions = asked.load(Ordering::SeqCst);
        assert!(questions < 50, "{questions} questions for 100 readers");
        // Patience ends before there is a leader.
        let nobody = || std::future::ready(Err(Failed { error: StoreError::Unavailable("no".into()), waits: true }));
        assert!(matches!(newest.get(Duration::from_millis(50), nobody).await, Err(StoreError::Unavailable(_))));
    }
}
