//! One question from bytes to bytes: through the plug-ins of its zone, in CoreDNS's order.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ferry_tasks::Tasks;
use futures::FutureExt;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::answer::{Outcome, reverse_address, shuffle};
use crate::cluster::Cluster;
use crate::message::{self, Question, Received, Reply};
use crate::metrics::{Exchange, Metrics, Transport};
use crate::plugins::cache::{Found, Key};
use crate::plugins::rewrite;
use crate::prepared::{Answers, Version};
use crate::settings::{Block, Settings};

/// A chain of external names longer than this is a loop.
const LONGEST_CHAIN: usize = 8;
/// For what is known elsewhere. Clients ask again after a few seconds.
const MOST_WAITED: Duration = Duration::from_secs(1);
/// Answers that are fetched again in the background.
const MOST_REFRESHES: usize = 64;

#[derive(Clone)]
pub(crate) struct Handler(Arc<Inner>);

struct Inner {
    settings: ArcSwap<Settings>,
    settings_version: AtomicU64,
    changed: Notify,
    cluster: Cluster,
    prepared: Answers,
    metrics: Arc<Metrics>,
    refreshes: Arc<Semaphore>,
    tasks: Tasks,
}

/// Where an answer may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// What this process knows.
    Memory,
    /// And whatever has to be waited for.
    Upstreams,
}

/// It takes time, and may not be asked for here.
#[derive(Debug)]
struct Later;

/// Who asks, and how.
struct Ask {
    client: IpAddr,
    dnssec_ok: bool,
    checking_disabled: bool,
    reach: Reach,
}

/// A question that has been read.
pub(crate) struct Asked {
    question: Box<Question>,
    client: IpAddr,
    transport: Transport,
    size: usize,
    since: Instant,
}

pub(crate) enum Handled {
    Answer(Vec<u8>),
    /// Nothing is sent.
    Ignored,
    /// Something has to be waited for: see [`Handler::later`].
    Later(Box<Asked>),
}

/// What a plug-in of this server says.
enum Local {
    Reply(Reply),
    Alias(Record, Name),
    Forward,
    /// It may be there, as others know by now.
    Unknown,
}

impl Handler {
    pub(crate) fn new(settings: Settings, cluster: Cluster, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        Self(Arc::new(Inner {
            settings: ArcSwap::from_pointee(settings),
            settings_version: AtomicU64::new(0),
            changed: Notify::new(),
            cluster,
            prepared: Answers::default(),
            metrics,
            refreshes: Arc::new(Semaphore::new(MOST_REFRESHES)),
            tasks,
        }))
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.0.settings.load_full()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.cluster.is_synced()
    }

    /// Answers by another Corefile from now on.
    pub(crate) fn replace(&self, settings: Settings) {
        self.0.settings.store(Arc::new(settings));
        self.0.settings_version.fetch_add(1, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// Ends when another Corefile is in force than at this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    fn version(&self) -> Version {
        Version { objects: self.0.cluster.version(), settings: self.0.settings_version.load(Ordering::Acquire) }
    }

    /// Answers what can be answered without waiting.
    pub(crate) fn at_once(&self, bytes: &[u8], client: IpAddr, transport: Transport) -> Handled {
        let since = Instant::now();
        // Before anything is looked at: what changes meanwhile makes the answer old.
        let version = self.version();
        if transport == Transport::Udp
            && let Some(prepared) = self.0.prepared.get(bytes, version)
        {
            let mut answer = prepared.bytes.to_vec();
            answer[..2].copy_from_slice(&bytes[..2]);
            let code = ResponseCode::NoError;
            let (kind, asked, answered) = (prepared.kind, bytes.len(), answer.len());
            prepared.counters.count(&Exchange { transport, client, kind, asked, answered, code }, since.elapsed());
            return Handled::Answer(answer);
        }
        let question = match message::read(bytes) {
            Received::Ignored => return Handled::Ignored,
            Received::Refused(answer) => return Handled::Answer(answer),
            Received::Question(question) => question,
        };
        let asked = Asked { question, client, transport, size: bytes.len(), since };
        match self.reply(&asked, Reach::Memory).now_or_never() {
            Some(Ok((reply, settings))) => {
                let answer = self.finish(&asked, &reply, &settings);
                let block = settings.of(asked.question.query.name());
                // One record alone: several are told in another order each time. And of the type that was asked for: what an
                // alias leads to may be known for a while only.
                let kind = asked.question.query.query_type();
                let one = matches!(reply.answers.as_slice(), [record] if record.record_type() == kind);
                let lasting = reply.authoritative && reply.code == ResponseCode::NoError && one;
                if let Some(block) = block
                    && lasting
                    && transport == Transport::Udp
                    && !block.log
                    && block.hosts.is_none()
                {
                    self.0.prepared.put(bytes, version, &answer, kind, block.counters.clone());
                }
                Handled::Answer(answer)
            }
            _ => Handled::Later(Box::new(asked)),
        }
    }

    /// Answers what takes time.
    pub(crate) async fn later(&self, asked: &Asked) -> Vec<u8> {
        match self.reply(asked, Reach::Upstreams).await {
            Ok((reply, settings)) => self.finish(asked, &reply, &settings),
            Err(Later) => asked.question.answer(&Reply::of(ResponseCode::ServFail), false),
        }
    }

    fn finish(&self, asked: &Asked, reply: &Reply, settings: &Settings) -> Vec<u8> {
        let question = &asked.question;
        let answer = question.answer(reply, asked.transport == Transport::Tcp);
        if let Some(block) = settings.of(question.query.name()) {
            let (transport, client, kind) = (asked.transport, asked.client, question.query.query_type());
            let exchange =
                Exchange { transport, client, kind, asked: asked.size, answered: answer.len(), code: reply.code };
            let took = asked.since.elapsed();
            block.counters.count(&exchange, took);
            if block.log {
                let name = question.query.name();
                tracing::info!("{client} {kind} {name} {transport:?} {} {took:?}", reply.code);
            }
        }
        answer
    }

    async fn reply(&self, asked: &Asked, reach: Reach) -> Result<(Reply, Arc<Settings>), Later> {
        let settings = self.0.settings.load_full();
        let query = &asked.question.query;
        let (name, kind) = (query.name(), query.query_type());
        if !asked.question.is_internet() || matches!(kind, RecordType::AXFR | RecordType::IXFR) {
            return Ok((Reply::of(ResponseCode::Refused), settings));
        }
        let Some(block) = settings.of(name) else { return Ok((Reply::of(ResponseCode::Refused), settings)) };
        let ask = Ask {
            client: asked.client,
            dnssec_ok: asked.question.dnssec_ok(),
            checking_disabled: asked.question.metadata.checking_disabled,
            reach,
        };
        let (wanted, wanted_kind, changed) = rewrite::change(&block.rewrites, name, kind);
        let mut reply = self.searched(&settings, block, &wanted, wanted_kind, &ask).await?;
        changed.restore(&mut reply);
        if block.loadbalance {
            shuffle(&mut reply.answers);
        }
        Ok((reply, settings))
    }

    /// With `autopath`, the name or the first of its search path that is there.
    async fn searched(
        &self,
        settings: &Settings,
        block: &Block,
        name: &Name,
        kind: RecordType,
        ask: &Ask,
    ) -> Result<Reply, Later> {
        let reply = self.chased(settings, block, name, kind, ask).await?;
        let Some(autopath) = &block.autopath else { return Ok(reply) };
        if reply.code != ResponseCode::NXDomain || !matches!(kind, RecordType::A | RecordType::AAAA) {
            return Ok(reply);
        }
        let zone = block.kubernetes.as_ref().and_then(|kubernetes| kubernetes.zone(name));
        for other in autopath.others(name, zone.map(|zone| zone.name())) {
            let Some(of_other) = settings.of(&other) else { continue };
            let mut found = self.chased(settings, of_other, &other, kind, ask).await?;
            if found.code == ResponseCode::NoError && !found.answers.is_empty() {
                let ttl = found.answers.iter().map(|record| record.ttl).min().unwrap_or(0);
                let alias = Record::from_rdata(name.clone(), ttl, RData::CNAME(CNAME(other)));
                found.answers.insert(0, alias);
                return Ok(found);
            }
        }
        Ok(reply)
    }

    /// Follows external names to where they lead.
    async fn chased(
        &self,
        settings: &Settings,
        block: &Block,
        name: &Name,
        kind: RecordType,
        ask: &Ask,
    ) -> Result<Reply, Later> {
        let (mut gathered, mut name, mut block) = (Vec::new(), name.clone(), block);
        while gathered.len() < LONGEST_CHAIN {
            let mut local = self.local(block, &name, kind);
            if matches!(local, Local::Unknown) {
                if ask.reach == Reach::Memory {
                    return Err(Later);
                }
                self.0.cluster.told(MOST_WAITED).await;
                local = self.local(block, &name, kind);
            }
            let mut reply = match local {
                Local::Unknown => Reply::of(ResponseCode::ServFail),
                Local::Reply(reply) => reply,
                Local::Forward => self.forwarded(block, &name, kind, ask).await?,
                Local::Alias(record, target) => {
                    gathered.push(record);
                    if kind == RecordType::CNAME {
                        break;
                    }
                    let Some(next) = settings.of(&target) else { break };
                    (name, block) = (target, next);
                    continue;
                }
            };
            if !gathered.is_empty() {
                reply.authoritative = true;
                // The alias is there, whatever it leads to.
                if reply.code == ResponseCode::NXDomain {
                    reply = Reply { authoritative: true, ..Reply::default() };
                }
                gathered.append(&mut reply.answers);
                reply.answers = gathered;
            }
            return Ok(reply);
        }
        Ok(Reply { authoritative: true, answers: gathered, ..Reply::default() })
    }

    fn local(&self, block: &Block, name: &Name, kind: RecordType) -> Local {
        if let Some(reply) = block.hosts.as_ref().and_then(|hosts| hosts.answer(name, kind)) {
            return Local::Reply(reply);
        }
        let Some(kubernetes) = &block.kubernetes else { return Local::Forward };
        let cluster = &self.0.cluster;
        let outcome = match (kubernetes.zone(name), reverse_address(name)) {
            (Some(zone), _) => zone.answer(cluster, name, kind),
            (None, Some(address)) if kubernetes.reverses(name) => match kubernetes.zones.first() {
                Some(zone) => zone.reverse(cluster, address, name, kind),
                None => return Local::Forward,
            },
            _ => return Local::Forward,
        };
        // An absence that is only ignorance would be remembered by clients.
        if !cluster.is_synced() {
            if cluster.is_untold() {
                return Local::Unknown;
            }
            return Local::Reply(Reply::of(ResponseCode::ServFail));
        }
        match outcome {
            // What came since the restart is not known yet.
            Outcome::NoSuchName(_) if cluster.is_untold() => Local::Unknown,
            Outcome::NoSuchName(_) if kubernetes.fallthrough.is_for(name) => Local::Forward,
            Outcome::NoSuchName(authority) => Local::Reply(Reply {
                code: ResponseCode::NXDomain,
                authoritative: true,
                authorities: vec![*authority],
                ..Reply::default()
            }),
            Outcome::Alias(record, target) => Local::Alias(*record, target),
            Outcome::Records { answers, additionals, authority } => Local::Reply(Reply {
                authoritative: true,
                answers,
                additionals,
                authorities: authority.into_iter().map(|record| *record).collect(),
                ..Reply::default()
            }),
        }
    }

    async fn forwarded(&self, block: &Block, name: &Name, kind: RecordType, ask: &Ask) -> Result<Reply, Later> {
        let Some(forward) = block.forward(name) else { return Ok(Reply::of(ResponseCode::Refused)) };
        let (dnssec_ok, checking_disabled) = (ask.dnssec_ok, ask.checking_disabled);
        let key = Key { name: name.clone(), kind, dnssec_ok, checking_disabled };
        let cache = block.cache.as_ref().filter(|cache| cache.is_for(name));
        // Who comes back with upstreams in reach has been counted already.
        let counted = ask.reach == Reach::Memory;
        if let Some(cache) = cache
            && let Found::Answer { reply, refresh } = cache.get(&key, Instant::now(), counted)
        {
            if refresh {
                self.refresh(forward.clone(), cache.clone(), key);
            }
            return Ok(reply);
        }
        if ask.reach == Reach::Memory {
            return Err(Later);
        }
        match forward.ask(ask.client, &key).await {
            Ok(answered) => {
                let reply = answered.reply.clone();
                let failed = reply.code == ResponseCode::ServFail;
                let Some(cache) = cache else { return Ok(reply) };
                let old = if failed { cache.last_resort(&key, Instant::now()) } else { None };
                Ok(old.unwrap_or_else(|| cache.put(key, reply, answered.size, Instant::now())))
            }
            Err(error) => {
                tracing::debug!("{name} {kind}: {error}");
                let old = cache.and_then(|cache| cache.last_resort(&key, Instant::now()));
                Ok(old.unwrap_or_else(|| Reply::of(ResponseCode::ServFail)))
            }
        }
    }

    /// Asks again in the background.
    fn refresh(&self, forward: Arc<crate::forward::Forward>, cache: Arc<crate::plugins::cache::Cache>, key: Key) {
        let Ok(permit) = self.0.refreshes.clone().try_acquire_owned() else { return cache.refreshed(&key) };
        self.0.tasks.spawn_until_stopped("dns refresh", async move {
            let _permit = permit;
            match forward.ask(IpAddr::from([0, 0, 0, 0]), &key).await {
                Ok(answered) if answered.reply.code != ResponseCode::ServFail => {
                    cache.put(key, answered.reply.clone(), answered.size, Instant::now());
                }
                _ => cache.refreshed(&key),
            }
        });
    }
}
