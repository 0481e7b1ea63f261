//! Leader election by Lease: of several processes with the same loops, one runs them.

mod fence;

use std::future::Future;
use std::time::Duration;

use crate::api::Api;
use ferry_tasks::Tasks;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;
use tokio::time::Instant;

pub use self::fence::{Fence, HEADER};
use crate::{Informer, Selection, write};

#[derive(Clone, Debug)]
pub struct Config {
    pub namespace: String,
    /// The Lease's name, as in `kube-controller-manager`.
    pub name: String,
    /// Unique among the candidates: `<host>_<uuid>`.
    pub identity: String,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl Config {
    pub fn new(name: &str, identity: &str) -> Self {
        Self {
            namespace: "kube-system".into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Waits until it is this candidate's turn, starts `lead` with a group of its own, and renews. What is led writes through
/// clients of the [`Fence`]. Returns once leadership is lost (false) or `tasks` stops (true); what was led has been told to
/// stop by then.
pub async fn run<F>(client: Client, config: Config, tasks: &Tasks, lead: F) -> bool
where
    F: FnOnce(Tasks, Fence),
{
    let stopping = tasks.stopping();
    let led = tasks.child("led");
    let mut election = Election {
        api: Api::namespaced(client, &config.namespace),
        fence: Fence::new(&config.namespace, &config.name, &config.identity, led.clone()),
        config,
        observed: None,
    };
    let acquired = stopping.run_until_cancelled(election.acquire(tasks)).await;
    if acquired.is_none() {
        return true;
    }
    tracing::info!(lease = election.config.name, identity = election.config.identity, "leading");
    lead(led.clone(), election.fence.clone());
    let stopped = stopping.run_until_cancelled(election.renew()).await.is_none();
    if !stopped {
        // Before anything is waited for: what is still under way must not write.
        election.fence.close();
        tracing::warn!(lease = election.config.name, "leadership lost");
    }
    led.stop(election.config.renew_deadline).await;
    if stopped {
        election.release().await;
    }
    election.fence.close();
    stopped
}

/// What an attempt came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Held,
    /// Somebody else has it.
    Taken,
    /// The server did not answer, or another candidate was faster.
    Failed,
}

struct Election {
    api: Api<Lease>,
    config: Config,
    fence: Fence,
    /// The record last seen and when it was first seen so: clocks of other machines are not believed.
    observed: Option<(LeaseSpec, Instant)>,
}

impl Election {
    async fn acquire(&mut self, tasks: &Tasks) {
        let watching = tasks.child("candidate");
        let only = Selection::fields(format!("metadata.name={}", self.config.name));
        let leases = Informer::over(self.api.clone(), &watching, only);
        let mut changes = leases.subscribe();
        while self.attempt().await != Outcome::Held {
            // Also where the watch tells nothing: then it is looked at again.
            let again = Instant::now() + self.config.retry_period.mul_f64(rand::random_range(1.0..2.2));
            loop {
                let due = self.ends().map_or(again, |ends| ends.min(again));
                let change = tokio::select! {
                    () = tokio::time::sleep_until(due) => break,
                    change = changes.next() => change,
                };
                let gone = matches!(change, crate::Change::Deleted(_));
                let spec = change.object().spec.clone().unwrap_or_default();
                // Given up: it is there for whoever is first.
                if gone || self.has_expired(&spec) {
                    break;
                }
            }
        }
        watching.stop(Duration::from_secs(1)).await;
    }

    /// Returns when the lease is another's, or could not be renewed in time.
    async fn renew(&mut self) {
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(self.config.retry_period).await;
            let left = self.config.renew_deadline.saturating_sub(last.elapsed());
            let begin = Instant::now();
            match tokio::time::timeout(left.max(self.config.retry_period), self.attempt()).await {
                Ok(Outcome::Held) => last = begin,
                Ok(Outcome::Taken) => return,
                _ if last.elapsed() >= self.config.renew_deadline => return,
                _ => {}
            }
        }
    }

    /// Takes or renews the lease. One that is led must not be taken from another: nothing of what was done in between is known.
    async fn attempt(&mut self) -> Outcome {
        let begin = Instant::now();
        match self.try_attempt().await {
            Ok(true) => {
                self.fence.hold_until(begin + self.config.lease_duration);
                Outcome::Held
            }
            Ok(false) => Outcome::Taken,
            Err(error) => {
                tracing::debug!(lease = self.config.name, "cannot take the lease: {}", write::short(&error));
                Outcome::Failed
            }
        }
    }

    async fn try_attempt(&mut self) -> Result<bool, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let Some(mut lease) = self.api.get_opt(&self.config.name).await? else {
            if self.fence.was_held() {
                return Ok(false);
            }
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() },
                spec: Some(LeaseSpec { acquire_time: Some(now.clone()), lease_transitions: Some(0), ..self.held(now) }),
            };
            self.api.create(&PostParams::default(), &lease).await?;
            return Ok(true);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.config.identity);
        if !ours && (self.fence.was_held() || !self.has_expired(&spec)) {
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            acquire_time: if ours { spec.acquire_time } else { Some(now.clone()) },
            lease_transitions: Some(if ours { transitions } else { transitions.saturating_add(1) }),
            ..self.held(now)
        });
        self.api.replace(&self.config.name, &PostParams::default(), &lease).await?;
        Ok(true)
    }

    fn held(&self, now: MicroTime) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.config.lease_duration.as_secs()).unwrap_or(15).max(1)),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }

    /// Notes what is seen of the lease, too.
    fn has_expired(&mut self, spec: &LeaseSpec) -> bool {
        if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
            return true;
        }
        if self.observed.as_ref().is_none_or(|(seen, _)| seen != spec) {
            self.observed = Some((spec.clone(), Instant::now()));
        }
        self.ends().is_some_and(|ends| ends <= Instant::now())
    }

    /// When the lease that was last seen ends unless it is renewed: after the time that its holder wrote into it.
    fn ends(&self) -> Option<Instant> {
        let (seen, since) = self.observed.as_ref()?;
        let seconds = seen.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        since
            .checked_add(seconds.filter(|seconds| *seconds > 0).map_or(self.config.lease_duration, Duration::from_secs))
    }

    /// Lets another candidate take over at once.
    async fn release(&self) {
        let released = within(Duration::from_secs(2), async {
            let Ok(mut lease) = self.api.get(&self.config.name).await else { return false };
            let Some(spec) = lease.spec.as_mut() else { return false };
            if spec.holder_identity.as_deref() != Some(&self.config.identity) {
                return false;
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            self.api.replace(&self.config.name, &PostParams::default(), &lease).await.is_ok()
        })
        .await;
        tracing::debug!(lease = self.config.name, released, "stopped leading");
    }
}

async fn within(deadline: Duration, attempt: impl Future<Output = bool>) -> bool {
    tokio::time::timeout(deadline, attempt).await.unwrap_or(false)
}
