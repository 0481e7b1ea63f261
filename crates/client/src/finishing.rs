//! Writes that are under way when their tasks stop.
//!
//! Whoever follows reads the state and decides by it. A write of its predecessor that arrives after that is unknown to both: a
//! device or a place is given twice. So what was sent is heard out before a group counts as stopped, and nothing more is sent.

use std::future::Future;
use std::time::Duration;

use ferry_tasks::Tasks;
use http::{Method, Request, Response};
use kube::client::Body;
use kube::{Client, Error};

/// How long a group that stops hears out a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) fn writes(request: &Request<Body>) -> bool {
    !matches!(*request.method(), Method::GET | Method::HEAD)
}

/// A client whose writes come to their end in `tasks`, whatever becomes of those who made them.
pub fn client(client: Client, tasks: &Tasks) -> Client {
    let (tasks, namespace) = (tasks.clone(), client.default_namespace().to_owned());
    let finishing = tower::service_fn(move |request: Request<Body>| {
        let (tasks, client) = (tasks.clone(), client.clone());
        async move {
            match writes(&request) {
                true => finish(&tasks, async move { client.send(request).await }).await,
                false => client.send(request).await,
            }
        }
    });
    Client::new(finishing, namespace)
}

/// Sends a write in a task of the group, which is waited for when the group stops.
pub(crate) async fn finish(
    tasks: &Tasks,
    write: impl Future<Output = Result<Response<Body>, Error>> + Send + 'static,
) -> Result<Response<Body>, Error> {
    let stopping = tasks.stopping();
    if stopping.is_cancelled() {
        return Err(Error::Service("the component stops: nothing was written".into()));
    }
    let (answer, answered) = tokio::sync::oneshot::channel();
    tasks.spawn("write", async move {
        let patience = async {
            stopping.cancelled().await;
            tokio::time::sleep(PATIENCE).await;
        };
        tokio::select! {
            biased;
            // Nobody may be left to hear it.
            outcome = write => drop(answer.send(outcome)),
            () = patience => {}
        }
    });
    answered.await.unwrap_or_else(|_| Err(Error::Service("the component stopped before there was an answer".into())))
}
