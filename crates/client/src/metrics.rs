//! What queues tell of themselves, under upstream's names, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

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

    fn print(&self, out: &mut String, family: &str, queue: &str) {
        let mut below = 0;
        for (bucket, (bound, _)) in self.buckets.iter().zip(BOUNDS) {
            below += bucket;
            let _ = writeln!(out, "{family}_bucket{{name={queue:?},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(out, "{family}_bucket{{name={queue:?},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{family}_sum{{name={queue:?}}} {}", self.sum.as_secs_f64());
        let _ = writeln!(out, "{family}_count{{name={queue:?}}} {}", self.count);
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
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, print: &dyn Fn(&mut String, &str, &Figures)| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (queue, figures) in &queues {
                print(&mut out, queue, &figures.lock());
            }
        };
        family("workqueue_adds_total", "counter", "Keys added to the queue.", &|out, queue, figures| {
            let _ = writeln!(out, "workqueue_adds_total{{name={queue:?}}} {}", figures.added);
        });
        family("workqueue_depth", "gauge", "Keys that wait for a worker.", &|out, queue, figures| {
            let _ = writeln!(out, "workqueue_depth{{name={queue:?}}} {}", figures.depth);
        });
        let name = "workqueue_longest_running_processor_seconds";
        family(name, "gauge", "How long the longest-held key has been held.", &|out, queue, figures| {
            let _ = writeln!(out, "{name}{{name={queue:?}}} {}", figures.unfinished().1);
        });
        let name = "workqueue_queue_duration_seconds";
        family(name, "histogram", "How long keys wait for a worker.", &|out, queue, figures| {
            figures.waited.print(out, name, queue);
        });
        family("workqueue_retries_total", "counter", "Keys added again after a failure.", &|out, queue, figures| {
            let _ = writeln!(out, "workqueue_retries_total{{name={queue:?}}} {}", figures.retried);
        });
        let name = "workqueue_unfinished_work_seconds";
        family(name, "gauge", "How long all keys held now have been held.", &|out, queue, figures| {
            let _ = writeln!(out, "{name}{{name={queue:?}}} {}", figures.unfinished().0);
        });
        let name = "workqueue_work_duration_seconds";
        family(name, "histogram", "How long workers hold keys.", &|out, queue, figures| {
            figures.worked.print(out, name, queue);
        });
        let name = "ferry_events_lost_total";
        let _ =
            writeln!(out, "# HELP {name} Events that were not written because too many waited.\n# TYPE {name} counter");
        let _ = writeln!(out, "{name} {}", crate::recorder::lost());
        out.extend(self.others.lock().iter().map(|text| text()));
        out
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
