//! A future that is polled when it was woken itself, and not whenever the task that it belongs to is. Connections wait for a few
//! things that hardly ever happen, and are polled several times for each request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

pub(crate) struct WhenWoken<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    has_rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F> WhenWoken<F> {
    pub(crate) fn new(future: F) -> Self {
        let bell = Arc::new(Bell { has_rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future: Box::pin(future), waker: bell.clone().into(), bell }
    }
}

impl<F: Future> Future for WhenWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        // Before the look: who rings after it finds the task.
        this.bell.task.register(context.waker());
        if !this.bell.has_rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        this.bell.has_rung.store(false, Ordering::Release);
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_when_it_was_woken_and_not_otherwise() {
        let (polls, notify) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let (counted, waited) = (polls.clone(), notify.clone());
        let mut notified = Box::pin(async move { waited.notified().await });
        let inner = std::future::poll_fn(move |context| {
            counted.fetch_add(1, Ordering::Relaxed);
            notified.as_mut().poll(context)
        });
        let mut woken = WhenWoken::new(inner);
        for _ in 0..5 {
            assert!(futures::poll!(&mut woken).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        let ringing = async {
            tokio::task::yield_now().await;
            notify.notify_one();
        };
        // Nothing but the bell wakes the task again.
        tokio::join!(woken, ringing);
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
