//! `forward`: names outside of the cluster, asked of other resolvers, with bounds on time and on how many wait.
//!
//! Equal questions that are under way are asked once. That also ends a loop through another resolver: a question that comes
//! back waits for itself, and both end in time.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::Name;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::corefile::{CorefileError, Directive};
use crate::exchange::{Answered, exchange};
use crate::metrics::Metrics;
use crate::plugins::cache::Key;
use crate::plugins::{Words, zone, zones};
use crate::settings::Surroundings;
use crate::shares::Shares;
use crate::upstreams::Follow;
use crate::{Upstreams, exchange};

/// For one try of one upstream. A client's own patience is five seconds as a rule.
const TRY: Duration = Duration::from_secs(2);
const ALL_TRIES: Duration = Duration::from_secs(4);
/// Questions under way. Each holds a socket; beyond this the client is told to try again.
const MOST_AT_ONCE: usize = 512;
/// Those of one client.
const MOST_OF_ONE: usize = 128;
/// An upstream that did not answer is asked last for this long.
const AVOIDED: Duration = Duration::from_secs(10);
const MOST_UPSTREAMS: usize = 15;

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("there is no upstream resolver")]
    NoUpstream,
    #[error("too many questions are waiting for upstream resolvers")]
    Busy,
    #[error("no upstream resolver answered: {0}")]
    NoAnswer(String),
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    Random,
    RoundRobin,
    Sequential,
}

type Outcome = Result<Arc<Answered>, ForwardError>;

#[derive(Debug)]
pub(crate) struct Forward {
    from: Name,
    except: Vec<Name>,
    to: Vec<Follow>,
    policy: Policy,
    force_tcp: bool,
    places: Shares,
    turn: AtomicUsize,
    avoided: Mutex<HashMap<SocketAddr, Instant>>,
    under_way: Mutex<HashMap<Key, watch::Receiver<Option<Outcome>>>>,
    metrics: Arc<Metrics>,
}

impl Forward {
    pub(crate) fn read(
        directive: &Directive,
        surroundings: &Surroundings,
        complaints: &mut Vec<String>,
    ) -> Result<Self, CorefileError> {
        let words = Words::of(directive);
        let from = zone(words.at(&directive.arguments, 0)?, directive.line)?;
        let (mut to, mut given) = (Vec::new(), Vec::new());
        for word in directive.arguments[1..].iter().take(MOST_UPSTREAMS) {
            match word.strip_prefix("dns://").unwrap_or(word) {
                "/etc/resolv.conf" => to.push(surroundings.upstreams.clone()),
                file if file.starts_with('/') => to.push(Upstreams::File(file.into())),
                other if other.contains("://") => {
                    complaints.push(format!("line {}: forward: {other}: only plain DNS is known", directive.line));
                }
                address => given
                    .push(upstream(address).ok_or_else(|| words.wrong(format_args!("{address:?} is not an address")))?),
            }
        }
        if !given.is_empty() {
            to.push(Upstreams::These(given));
        }
        if to.is_empty() {
            return Err(words.wrong("it names no resolver that can be asked"));
        }
        let (mut except, mut policy, mut force_tcp, mut most) = (Vec::new(), Policy::Random, false, MOST_AT_ONCE);
        for line in &directive.lines {
            match words.at(line, 0)? {
                "except" => except.extend(zones(&line[1..], directive.line)?),
                "force_tcp" => force_tcp = true,
                "policy" => {
                    policy = match words.at(line, 1)? {
                        "random" => Policy::Random,
                        "round_robin" => Policy::RoundRobin,
                        "sequential" => Policy::Sequential,
                        other => return Err(words.wrong(format_args!("policy {other:?} is not known"))),
                    }
                }
                "max_concurrent" => most = words.number::<usize>(words.at(line, 1)?)?.clamp(1, 4 * MOST_AT_ONCE),
                // Upstreams are judged by the questions they get.
                "prefer_udp" | "expire" | "max_fails" | "health_check" | "failfast_all_unhealthy_upstreams" => {}
                other => complaints.push(format!("line {}: forward: {other} is not known", directive.line)),
            }
        }
        let own = surroundings.own.clone();
        Ok(Self {
            from,
            except,
            to: to.into_iter().map(|upstreams| Follow::new(upstreams, own.clone())).collect(),
            policy,
            force_tcp,
            places: Shares::new(most, MOST_OF_ONE.min(most)),
            turn: AtomicUsize::new(0),
            avoided: Mutex::default(),
            under_way: Mutex::default(),
            metrics: surroundings.metrics.clone(),
        })
    }

    /// How many labels of a name it is for; nothing where it is not.
    pub(crate) fn covers(&self, name: &Name) -> Option<u8> {
        let not = self.except.iter().any(|zone| zone.zone_of(name));
        (self.from.zone_of(name) && !not).then(|| self.from.num_labels())
    }

    /// Learns of the upstreams before the first question.
    pub(crate) async fn prepare(&self) {
        for upstreams in &self.to {
            upstreams.now().await;
        }
    }

    /// The answer of the first upstream that gives one.
    pub(crate) async fn ask(&self, client: IpAddr, key: &Key) -> Outcome {
        let busy = || {
            self.metrics.rejected();
            ForwardError::Busy
        };
        let place = self.places.take(client).ok_or_else(busy)?;
        let (sender, receiver) = watch::channel(None);
        let others = {
            let mut under_way = self.under_way.lock();
            let others = under_way.get(key).cloned();
            if others.is_none() {
                under_way.insert(key.clone(), receiver);
            }
            others
        };
        if let Some(mut others) = others {
            let outcome = tokio::select! {
                outcome = tokio::time::timeout(ALL_TRIES, others.wait_for(Option::is_some)) => outcome,
                () = place.given_up() => return Err(busy()),
            };
            return match outcome {
                Ok(Ok(outcome)) => outcome.clone().unwrap_or(Err(ForwardError::Busy)),
                _ => Err(ForwardError::NoAnswer("the same question is waiting".into())),
            };
        }
        let _first = First { forward: self, key };
        let outcome = tokio::select! {
            outcome = self.tries(key) => outcome,
            () = place.given_up() => return Err(busy()),
        };
        let _ = sender.send(Some(outcome.clone()));
        outcome
    }

    async fn tries(&self, key: &Key) -> Outcome {
        let upstreams = self.ordered().await;
        if upstreams.is_empty() {
            return Err(ForwardError::NoUpstream);
        }
        let mut problem = String::new();
        let mut failed = None;
        let deadline = Instant::now() + ALL_TRIES;
        for upstream in upstreams {
            let until = deadline.min(Instant::now() + TRY);
            let asked = Instant::now();
            match tokio::time::timeout_at(until, exchange(upstream, key, self.force_tcp)).await {
                Ok(Ok(answered)) => {
                    self.metrics.exchanged(upstream, answered.reply.code, asked.elapsed());
                    let answered = Arc::new(answered);
                    // Another one may know better.
                    if matches!(answered.reply.code, ResponseCode::ServFail | ResponseCode::Refused) {
                        failed.get_or_insert(answered);
                        continue;
                    }
                    self.avoided.lock().remove(&upstream);
                    return Ok(answered);
                }
                Ok(Err(error)) => problem = format!("{upstream}: {error}"),
                Err(_) => problem = format!("{upstream}: no answer in time"),
            }
            self.metrics.broken(upstream);
            self.avoid(upstream);
            if Instant::now() >= deadline {
                break;
            }
        }
        failed.ok_or(ForwardError::NoAnswer(problem))
    }

    fn avoid(&self, upstream: SocketAddr) {
        let now = Instant::now();
        let mut avoided = self.avoided.lock();
        avoided.retain(|_, until| *until > now);
        avoided.insert(upstream, now + AVOIDED);
    }

    async fn ordered(&self) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for upstreams in &self.to {
            all.extend(upstreams.now().await.iter().copied());
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match self.policy {
            Policy::Sequential => {}
            Policy::Random => rand::seq::SliceRandom::shuffle(all.as_mut_slice(), &mut rand::rng()),
            Policy::RoundRobin if all.is_empty() => {}
            Policy::RoundRobin => {
                let by = turn % all.len();
                all.rotate_left(by);
            }
        }
        let now = Instant::now();
        let avoided = self.avoided.lock();
        all.sort_by_key(|upstream| avoided.get(upstream).is_some_and(|until| *until > now));
        all
    }
}

/// The one that asks, until it is done or gave up: then the next one asks anew.
struct First<'a> {
    forward: &'a Forward,
    key: &'a Key,
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.forward.under_way.lock().remove(self.key);
    }
}

fn upstream(text: &str) -> Option<SocketAddr> {
    let address = || text.trim_matches(['[', ']']).split('%').next()?.parse::<IpAddr>().ok();
    text.parse().ok().or_else(|| address().map(|address| SocketAddr::new(address, exchange::PORT)))
}
