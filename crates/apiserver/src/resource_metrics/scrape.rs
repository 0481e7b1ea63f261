//! Asks every kubelet for its figures: each in its turn, few at once, and one that does not answer less and less often.

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::GroupResource;
use futures::StreamExt;
use http::Request;
use tokio::time::Instant;

use super::page::Page;
use super::{ResourceMetrics, usage};
use crate::request::body::{self, Read};
use crate::response::answer::full;
use crate::server::Core;
use crate::subresources::kubelet_of;
use crate::transport::kubelet;

/// Who is due is looked up this often: a new node is asked soon, and a second time soon after that.
const TICK: Duration = Duration::from_secs(5);
const RESOLUTION: Duration = Duration::from_millis(usage::RESOLUTION_MS.unsigned_abs());
/// A kubelet that does not answer is asked after twice the time, up to this power of two.
const MOST_DOUBLINGS: u32 = 5;
/// Kubelets that are asked at the same time.
const AT_ONCE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(10);
/// A thousand containers take about 400 KB.
const LARGEST: usize = 8 << 20;

pub(crate) async fn run(core: Arc<Core>) {
    let Some(metrics) = &core.resource_metrics else { return std::future::pending().await };
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if metrics.is_aside() {
            continue;
        }
        let due = due(&core, metrics);
        futures::stream::iter(due)
            .for_each_concurrent(AT_ONCE, |node| {
                let core = &core;
                async move {
                    let outcome = tokio::time::timeout(PATIENCE, scrape(core, &node)).await;
                    let outcome = outcome.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
                    if let Err(why) = &outcome {
                        tracing::debug!("the kubelet of {node} tells no figures: {why}");
                    }
                    metrics.note(&node, outcome.ok());
                }
            })
            .await;
    }
}

/// The nodes whose turn it is; what is known of nodes that are gone is forgotten.
fn due(core: &Core, metrics: &ResourceMetrics) -> Vec<String> {
    let Some(nodes) = core.cache.find(&GroupResource::new("", "nodes")) else { return Vec::new() };
    let snapshot = nodes.snapshot();
    let mut known = metrics.nodes.lock();
    known.retain(|name, _| snapshot.get("", name).is_some());
    let now = Instant::now();
    let is_due = |name: &&str| known.get(*name).and_then(|node| node.due).is_none_or(|due| due <= now);
    snapshot.range("", None).map(|node| node.name()).filter(is_due).map(str::to_owned).collect()
}

async fn scrape(core: &Core, node: &str) -> Result<Page, String> {
    let target = kubelet_of(core, node, "/metrics/resource".to_owned()).map_err(|error| error.0.message.clone())?;
    let request = Request::get("/metrics/resource").body(full("")).map_err(|error| error.to_string())?;
    let answer = kubelet::forward(&core.tasks, &target, request).await.map_err(|error| error.0.message.clone())?;
    let status = answer.status();
    if !status.is_success() {
        return Err(format!("it answers {}", status.as_u16()));
    }
    match body::read(answer.into_body(), LARGEST).await.map_err(|error| error.to_string())? {
        Read::Whole(bytes) => {
            let text = std::str::from_utf8(&bytes).map_err(|error| error.to_string())?;
            Ok(Page::read(text, ferry_meta::time::now().as_millisecond()))
        }
        Read::TooLarge => Err(format!("it tells more than {LARGEST} bytes")),
        Read::TooSlow => Err("it did not answer in time".to_owned()),
    }
}

impl ResourceMetrics {
    /// What a node told, or that it told nothing.
    fn note(&self, node: &str, page: Option<Page>) {
        let mut nodes = self.nodes.lock();
        // Somebody else may serve the group by now.
        if self.is_aside() {
            return;
        }
        let known = nodes.entry(node.to_owned()).or_default();
        let now = Instant::now();
        let pause = match page {
            Some(page) => {
                known.record = Arc::new(known.record.after(page));
                known.answered = Some(now);
                known.failures = 0;
                // Ticks are not met to the millisecond: due a little before one, not a little behind.
                if known.record.wants_another_look() { TICK / 2 } else { RESOLUTION - TICK / 2 }
            }
            None => {
                known.failures = known.failures.saturating_add(1);
                RESOLUTION * (1 << known.failures.min(MOST_DOUBLINGS))
            }
        };
        known.due = Some(now + pause);
    }
}
