//! Ways between processes that can be cut, delayed, or left open in one direction. What is held back meanwhile arrives when the way is open
//! again, as packets that are sent again do.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a slow way takes, there and back again.
const DELAY: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Open,
    /// Nothing passes.
    Cut,
    /// What is sent arrives, and what is answered does not.
    OneWay,
    Slow,
}

/// A port of this machine that leads to another one.
pub struct Link {
    port: u16,
    state: watch::Sender<State>,
}

impl Link {
    /// Must be called within a runtime, for as long as which it leads on.
    #[expect(clippy::disallowed_methods, reason = "a way that ends with the test's runtime")]
    pub fn to(target: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let listener = TcpListener::from_std(listener).unwrap();
        let (state, seen) = watch::channel(State::Open);
        tokio::spawn(async move {
            while let Ok((incoming, _)) = listener.accept().await {
                tokio::spawn(lead(incoming, target, seen.clone()));
            }
        });
        Self { port, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

async fn lead(incoming: TcpStream, target: u16, mut state: watch::Receiver<State>) {
    if state.wait_for(|state| *state != State::Cut).await.is_err() {
        return;
    }
    let Ok(outgoing) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let _ = (incoming.set_nodelay(true), outgoing.set_nodelay(true));
    let ((from, back), (answers, to)) = (incoming.into_split(), outgoing.into_split());
    let closed = [State::Cut, State::OneWay];
    // When one direction ends the connection does: none of those who speak here closes one half.
    tokio::select! {
        () = pass(from, to, &closed[..1], state.clone()) => {}
        () = pass(answers, back, &closed, state) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, closed: &[State], mut state: watch::Receiver<State>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        if *state.borrow() == State::Slow {
            tokio::time::sleep(DELAY / 2).await;
        }
        if state.wait_for(|state| !closed.contains(state)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
