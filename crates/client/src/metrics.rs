//! What queues tell of themselves, under upstream's names, in Prometheus' text format.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_metrics::{Family, Kind, Page, labels};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::queue::QueueMetrics;

/// Upper bounds of the histograms: from ten nanoseconds to ten seconds.
const BOUNDS: [(&str, Duration); 10] = [
    ("1e-08", Duration::from_nanos(10)),
    ("1e-07", Duration::from_nanos(100)),
    ("1e-06", Duration::from_micros(1)),
    ("9.999999999999999e-06", Duration::from_micros(10)),
    ("9.999999999999999e-05", Duration::from_micros(100)),
    ("0.001", Duration::from_millis(1)),
    ("0.01", Duration::from_millis(10)),
    ("0.1", Duration::from_millis(100)),
    ("1", Duration::from_secs(1)),
    ("10", Duration::from_secs(10)),
];

#[derive(Default)]
struct Histogram {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    fn record(&mut self, time: Duration) {
        if let Some(index) = BOUNDS.iter().position(|(_, bound)| time <= *bound) {
            self.buckets[index] += 1;
        }
        self.count += 1;
        self.sum += time;
    }

    fn write(&self, family: &mut Family<'_>, labels: &str) {
        let bounds = BOUNDS.iter().map(|(bound, _)| *bound);
        family.histogram(labels, bounds.zip(self.buckets), self.sum.as_secs_f64(), self.count);
    }
}

#[derive(Default)]
struct Figures {
    depth: usize,
    added: u64,
    retried: u64,
    waited: Histogram,
    worked: Histogram,
    /// Since when each key that is held now is held.
    held: Vec<Instant>,
}

impl Figures {
    fn unfinished(&self) -> (f64, f64) {
        let ages = self.held.iter().map(|since| since.elapsed().as_secs_f64());
        ages.fold((0.0, 0.0), |(sum, longest), age| (sum + age, age.max(longest)))
    }
}

type Queues = BTreeMap<&'static str, Arc<Mutex<Figures>>>;

/// Figures that somebody else writes.
type Text = Box<dyn Fn() -> String + Send + Sync>;

/// The figures of all queues made through it. Clones share them.
#[derive(Clone, Default)]
pub struct Metrics {
    queues: Arc<Mutex<Queues>>,
    others: Arc<Mutex<Vec<Text>>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The figures of the queue with that name; queues of the same name are counted together.
    pub fn queue(&self, name: &'static str) -> impl QueueMetrics + use<> {
        QueueFigures(self.queues.lock().entry(name).or_default().clone())
    }

    /// Asks for more figures whenever they are told.
    pub fn add_text(&self, text: impl Fn() -> String + Send + Sync + 'static) {
        self.others.lock().push(Box::new(text));
    }

    /// All of them as Prometheus reads them.
    pub fn text(&self) -> String {
        let queues: Vec<_> = self.queues.lock().iter().map(|(name, figures)| (*name, figures.clone())).collect();
        let mut page = Page::new();
        let mut family = |name: &str, kind: Kind, help: &str, write: &dyn Fn(&mut Family<'_>, &str, &Figures)| {
            let mut family = page.family(name, kind, help);
            for (queue, figures) in &queues {
                write(&mut family, &labels([("name", *queue)]), &figures.lock());
            }
        };
        family("workqueue_adds_total", Kind::Counter, "Keys added to the queue.", &|family, labels, figures| {
            family.sample(labels, figures.added);
        });
        family("workqueue_depth", Kind::Gauge, "Keys that wait for a worker.", &|family, labels, figures| {
            family.sample(labels, figures.depth);
        });
        let name = "workqueue_longest_running_processor_seconds";
        family(name, Kind::Gauge, "How long the longest-held key has been held.", &|family, labels, figures| {
            family.sample(labels, figures.unfinished().1);
        });
        let name = "workqueue_queue_duration_seconds";
        family(name, Kind::Histogram, "How long keys wait for a worker.", &|family, labels, figures| {
            figures.waited.write(family, labels);
        });
        family(
            "workqueue_retries_total",
            Kind::Counter,
            "Keys added again after a failure.",
            &|family, labels, figures| {
                family.sample(labels, figures.retried);
            },
        );
        let name = "workqueue_unfinished_work_seconds";
        family(name, Kind::Gauge, "How long all keys held now have been held.", &|family, labels, figures| {
            family.sample(labels, figures.unfinished().0);
        });
        let name = "workqueue_work_duration_seconds";
        family(name, Kind::Histogram, "How long workers hold keys.", &|family, labels, figures| {
            figures.worked.write(family, labels);
        });
        let help = "Events that were not written because too many waited.";
        page.family("ferry_events_lost_total", Kind::Counter, help).sample("", crate::recorder::lost());
        for text in self.others.lock().iter() {
            page.append(&text());
        }
        page.into_text()
    }
}

struct QueueFigures(Arc<Mutex<Figures>>);

impl QueueMetrics for QueueFigures {
    fn depth(&self, depth: usize) {
        self.0.lock().depth = depth;
    }

    fn added(&self) {
        self.0.lock().added += 1;
    }

    fn retried(&self) {
        self.0.lock().retried += 1;
    }

    fn taken(&self, waited: Duration, at: Instant) {
        let mut figures = self.0.lock();
        figures.waited.record(waited);
        figures.held.push(at);
    }

    fn finished(&self, since: Instant) {
        let mut figures = self.0.lock();
        figures.worked.record(since.elapsed());
        if let Some(index) = figures.held.iter().position(|at| *at == since) {
            figures.held.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkQueue;

    #[tokio::test]
    async fn queues_are_told_by_upstreams_names() {
        let metrics = Metrics::default();
        let queue = WorkQueue::with_metrics(metrics.queue("deployment"));
        queue.add("a");
        queue.add("b");
        let held = queue.next().await;
        let says = |line: &str| assert!(metrics.text().contains(&format!("{line}\n")), "{line}\n{}", metrics.text());
        says("workqueue_adds_total{name=\"deployment\"} 2");
        says("workqueue_depth{name=\"deployment\"} 1");
        says("workqueue_queue_duration_seconds_count{name=\"deployment\"} 1");
        says("workqueue_work_duration_seconds_count{name=\"deployment\"} 0");
        drop(held);
        queue.add_rate_limited("a");
        says("workqueue_work_duration_seconds_bucket{name=\"deployment\",le=\"+Inf\"} 1");
        says("workqueue_retries_total{name=\"deployment\"} 1");
        says("workqueue_unfinished_work_seconds{name=\"deployment\"} 0");
    }
}
