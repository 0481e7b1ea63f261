//! `/console/why/…` and `/console/trace/…`: what `ferry why` and `ferry trace` say, found out with the caller's credential.

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::{ApiError, Reason};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::Pages;
use crate::filters::per_user::PerUser;
use crate::observe::flight::{json_answer, named};
use crate::request::context::RequestContext;
use crate::response::answer::Answer;
use crate::server::Core;
use crate::transport::inprocess::InProcess;

/// So many are found out at once: each reads the lists around an object.
const AT_ONCE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// What is asked about which object.
#[derive(Clone, Debug)]
pub struct InsightRequest {
    /// `why` or `trace`.
    pub what: &'static str,
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    pub namespace: String,
    pub name: String,
}

/// Finds it out through a client that acts as the caller.
pub type Insight =
    Box<dyn Fn(kube::Client, InsightRequest) -> BoxFuture<'static, Result<Value, ApiError>> + Send + Sync>;

pub(super) struct Insights {
    ask: Insight,
    room: Semaphore,
    /// A user waits in line once, however much they ask.
    turns: PerUser<Semaphore>,
}

impl Insights {
    pub(super) fn new(ask: Insight) -> Self {
        Self { ask, room: Semaphore::new(AT_ONCE), turns: PerUser::default() }
    }

    async fn in_turn<T>(&self, user: &str, work: impl Future<Output = T>) -> T {
        let turn = self.turns.of(user, || Semaphore::new(1));
        let _turn = turn.acquire().await;
        let _room = self.room.acquire().await;
        work.await
    }
}

impl Pages {
    pub(crate) fn set_insight(&self, ask: Insight) {
        self.insight.store(Some(Arc::new(Insights::new(ask))));
    }
}

pub(super) async fn answer(
    core: &Arc<Core>,
    pages: &Pages,
    context: &RequestContext,
    what: &str,
    path: &str,
) -> Result<Answer, ApiError> {
    let (Some(insights), Some((row, info))) = (pages.insight.load_full(), named(core, &format!("/{path}"))) else {
        return Ok(Answer::no_such_page());
    };
    let gvk = &row.gvk;
    let request = InsightRequest {
        what: if what == "why" { "why" } else { "trace" },
        group: gvk.group.clone(),
        version: gvk.version.clone(),
        plural: row.plural.clone(),
        kind: gvk.kind.clone(),
        namespaced: row.namespaced,
        namespace: if row.namespaced { info.namespace.clone() } else { String::new() },
        name: info.name.clone(),
    };
    let client = InProcess::of_caller(core.clone(), &context.headers, &context.peer).client();
    let found = tokio::time::timeout(PATIENCE, insights.in_turn(&context.user.name, (insights.ask)(client, request)));
    let late = || ApiError::new(504, Reason::Timeout, "it could not be found out in time");
    Ok(json_answer(&found.await.map_err(|_| late())??))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::{FutureExt, poll};

    use super::*;

    /// Whoever asked a thousand times had all the places, and everybody else waited until it was too late.
    #[tokio::test]
    async fn one_user_does_not_keep_others_waiting() {
        let insights = Insights::new(Box::new(|_, _| async { Ok(Value::Null) }.boxed()));
        let asked = (0..100).map(|_| insights.in_turn("mallory", std::future::pending::<()>()));
        let mut asked: Vec<_> = asked.map(Box::pin).collect();
        for one in &mut asked {
            assert!(poll!(one).is_pending());
        }
        let mut other = pin!(insights.in_turn("alice", async {}));
        assert!(poll!(&mut other).is_ready());
    }
}
