//! Events to another server, in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ferry_outbound::Remote;
use ferry_tasks::Tasks;
use rand::Rng;
use tokio::sync::{mpsc, oneshot};

use crate::batch::{self, Bucket};
use crate::{Backend, Receipt};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebhookMode {
    /// Requests do not wait.
    #[default]
    Batch,
    /// Every event is sent before its request goes on.
    Blocking,
    BlockingStrict,
}

#[derive(Clone, Debug)]
pub struct WebhookOptions {
    pub mode: WebhookMode,
    /// Events that wait to be sent; more are dropped.
    pub buffer: usize,
    pub max_batch: usize,
    /// A batch that is not full is sent after this.
    pub max_wait: Duration,
    /// Batches in a second, and how many at once.
    pub rate: Option<(f64, usize)>,
    pub first_pause: Duration,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            mode: WebhookMode::Batch,
            buffer: 10_000,
            max_batch: 400,
            max_wait: Duration::from_secs(30),
            rate: Some((10.0, 15)),
            first_pause: Duration::from_secs(10),
        }
    }
}

/// An unreachable server is asked so often for one batch, as upstream does.
const ATTEMPTS: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Webhook {
    events: mpsc::Sender<Queued>,
    mode: WebhookMode,
    lost: Arc<AtomicU64>,
}

impl Webhook {
    pub fn start(remote: Remote, options: WebhookOptions, tasks: &Tasks) -> Self {
        let (events, queue) = mpsc::channel(options.buffer.max(1));
        let mode = options.mode;
        let lost = Arc::new(AtomicU64::new(0));
        let sender = Sender { remote: Arc::new(remote), options, tasks: tasks.clone(), lost: lost.clone() };
        tasks.spawn("audit webhook", sender.run(queue));
        Self { events, mode, lost }
    }
}

impl Backend for Webhook {
    fn write(&self, event: &Bytes) -> Option<Receipt> {
        let (sender, receipt) = match self.mode {
            WebhookMode::Batch => (None, None),
            _ => {
                let (sender, receipt) = oneshot::channel();
                (Some(sender), Some(receipt))
            }
        };
        if self.events.try_send((event.clone(), sender)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::error!("an audit event was dropped: the webhook's buffer is full");
        }
        receipt
    }

    fn is_strict(&self) -> bool {
        self.mode == WebhookMode::BlockingStrict
    }

    fn name(&self) -> &'static str {
        "webhook"
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

struct Sender {
    remote: Arc<Remote>,
    options: WebhookOptions,
    tasks: Tasks,
    lost: Arc<AtomicU64>,
}

type Queued = (Bytes, Option<oneshot::Sender<Result<(), String>>>);

impl Sender {
    async fn run(self, mut queue: mpsc::Receiver<Queued>) {
        let stopping = self.tasks.stopping();
        let mut bucket = Bucket::new(self.options.rate);
        loop {
            let first = tokio::select! {
                () = stopping.cancelled() => break,
                first = queue.recv() => first,
            };
            let Some(first) = first else { return };
            if first.1.is_some() {
                // Somebody waits for this one alone; others must not wait for its answer.
                let (remote, options, lost) = (self.remote.clone(), self.options.clone(), self.lost.clone());
                self.tasks.spawn("audit event", async move { send(&remote, &options, vec![first], &lost).await });
                continue;
            }
            let (max_batch, max_wait) = (self.options.max_batch, self.options.max_wait);
            let batch = batch::collect(first, &mut queue, max_batch, max_wait, &self.tasks).await;
            bucket.take().await;
            let (remote, options, lost) = (self.remote.clone(), self.options.clone(), self.lost.clone());
            self.tasks.spawn("audit batch", async move { send(&remote, &options, batch, &lost).await });
        }
        // What was written before the end is sent before the end.
        queue.close();
        let mut rest = Vec::new();
        while let Some(event) = queue.recv().await {
            rest.push(event);
        }
        while !rest.is_empty() {
            let tail = rest.split_off(rest.len().min(self.options.max_batch));
            let once = WebhookOptions { first_pause: Duration::ZERO, ..self.options.clone() };
            send(&self.remote, &once, std::mem::replace(&mut rest, tail), &self.lost).await;
        }
    }
}

async fn send(remote: &Remote, options: &WebhookOptions, batch: Vec<Queued>, lost: &AtomicU64) {
    let mut body =
        BytesMut::from(&br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#[..]);
    for (index, (event, _)) in batch.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(event);
    }
    body.put_slice(b"]}");
    let body = body.freeze();
    let mut pause = options.first_pause;
    let mut outcome = Ok(());
    for attempt in 1..=ATTEMPTS {
        outcome = match remote.post(body.clone(), PATIENCE).await {
            Ok(answer) if answer.is_success() => Ok(()),
            Ok(answer) => Err((answer.code >= 500 || answer.code == 429, format!("it answered {}", answer.code))),
            Err(error) => Err((true, error.to_string())),
        };
        let again = matches!(&outcome, Err((true, _))) && attempt < ATTEMPTS && !pause.is_zero();
        if !again {
            break;
        }
        let jitter = rand::rng().random_range(0.0..0.2);
        tokio::time::sleep(pause.mul_f64(1.0 + jitter)).await;
        pause = pause.mul_f64(1.5);
    }
    let outcome = outcome.map_err(|(_, why)| why);
    if let Err(why) = &outcome {
        lost.fetch_add(batch.len() as u64, Ordering::Relaxed);
        tracing::error!("{} audit events were lost: {} could not be reached: {why}", batch.len(), remote.url());
    }
    for (_, waiting) in batch {
        if let Some(waiting) = waiting {
            let _ = waiting.send(outcome.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A server that answers each request with the next code and hands over the bodies.
    async fn server(codes: Vec<u16>) -> (String, mpsc::UnboundedReceiver<Value>, Tasks) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/audit", listener.local_addr().expect("an address"));
        let (sender, bodies) = mpsc::unbounded_channel();
        let tasks = Tasks::new("test");
        tasks.spawn_until_stopped("server", async move {
            for code in codes {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut bytes = Vec::new();
                let body = loop {
                    stream.read_buf(&mut bytes).await.expect("bytes");
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).unwrap_or("0");
                    if body.len() >= length.parse().expect("a length") {
                        break body.to_owned();
                    }
                };
                let _ = sender.send(serde_json::from_str(&body).expect("JSON"));
                let answer = format!("HTTP/1.1 {code} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("written");
            }
            std::future::pending::<()>().await;
        });
        (url, bodies, tasks)
    }

    fn event(number: u32) -> Bytes {
        Bytes::from(format!("{{\"auditID\":\"{number}\"}}"))
    }

    #[tokio::test]
    async fn events_go_out_in_batches_and_again_when_refused() {
        let (url, mut bodies, tasks) = server(vec![503, 200, 200]).await;
        let remote = Remote::new(&url, None, &tasks).expect("a client");
        let options = WebhookOptions {
            max_batch: 2,
            first_pause: Duration::from_millis(1),
            max_wait: Duration::from_secs(3600),
            ..WebhookOptions::default()
        };
        let webhook = Webhook::start(remote, options, &tasks);
        for number in 0..2 {
            assert!(webhook.write(&event(number)).is_none());
        }
        let refused = bodies.recv().await.expect("a batch");
        assert_eq!(refused, bodies.recv().await.expect("the same batch"));
        assert_eq!((&refused["kind"], refused["items"].as_array().map(Vec::len)), (&"EventList".into(), Some(2)));
        for number in 2..4 {
            webhook.write(&event(number));
        }
        assert_eq!(bodies.recv().await.expect("a batch")["items"][0]["auditID"], "2");
        tasks.stop(Duration::from_secs(10)).await;
    }

    #[tokio::test]
    async fn a_blocking_webhook_says_what_became_of_each_event() {
        let (url, mut bodies, tasks) = server(vec![200, 400]).await;
        let remote = Remote::new(&url, None, &tasks).expect("a client");
        let options = WebhookOptions { mode: WebhookMode::BlockingStrict, ..WebhookOptions::default() };
        let webhook = Webhook::start(remote, options, &tasks);
        assert_eq!(webhook.write(&event(1)).expect("a receipt").await.expect("sent"), Ok(()));
        assert!(webhook.write(&event(2)).expect("a receipt").await.expect("sent").is_err());
        assert_eq!(bodies.recv().await.expect("a body")["items"][0]["auditID"], "1");
        tasks.stop(Duration::from_secs(10)).await;
    }
}
