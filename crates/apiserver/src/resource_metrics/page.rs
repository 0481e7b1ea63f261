//! A kubelet's `/metrics/resource` as text: the few samples that matter here. Kubelets are not trusted: what cannot be read
//! is left out, and nothing is kept for what is left out.

use std::collections::HashMap;

/// Pods of one node that are kept at most, and containers of one pod.
const MOST_PODS: usize = 10_000;
const MOST_CONTAINERS: usize = 1_000;

/// What one look at a node or container showed. Times are milliseconds since 1970 by the node's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub at: i64,
    /// When the container was started, where that is told.
    pub started: Option<i64>,
    /// Processor time since it started, in nanoseconds of one core.
    pub cpu: Option<u64>,
    /// The working set, in bytes.
    pub memory: Option<u64>,
}

/// Namespace and name.
pub(super) type PodName = (String, String);

#[derive(Debug, Default)]
pub(super) struct Page {
    pub node: Look,
    pub pods: HashMap<PodName, HashMap<String, Look>>,
}

impl Page {
    /// `now` is the time of samples that bring none.
    pub(super) fn read(text: &str, now: i64) -> Self {
        let mut page = Self::default();
        for line in text.lines() {
            if let Some(sample) = Sample::read(line) {
                page.take(&sample, now);
            }
        }
        page
    }

    fn take(&mut self, sample: &Sample<'_>, now: i64) {
        let at = sample.at.unwrap_or(now);
        let look = match sample.name {
            "node_cpu_usage_seconds_total" | "node_memory_working_set_bytes" => Some(&mut self.node),
            "container_cpu_usage_seconds_total"
            | "container_memory_working_set_bytes"
            | "container_start_time_seconds" => self.container(sample),
            _ => None,
        };
        let Some(look) = look else { return };
        match sample.name {
            "container_start_time_seconds" => look.started = whole(sample.value, 1e3).and_then(|ms| ms.try_into().ok()),
            "node_memory_working_set_bytes" | "container_memory_working_set_bytes" => {
                look.memory = whole(sample.value, 1.0);
                // The time of both is that of the processor time, which a rate is made of.
                look.at = if look.cpu.is_none() { at } else { look.at };
            }
            _ => (look.cpu, look.at) = (whole(sample.value, 1e9), at),
        }
    }

    fn container(&mut self, sample: &Sample<'_>) -> Option<&mut Look> {
        let [namespace, pod, container] = ["namespace", "pod", "container"].map(|label| sample.label(label));
        let (pod, container) = ((namespace?, pod?), container?);
        if self.pods.len() >= MOST_PODS && !self.pods.contains_key(&pod) {
            return None;
        }
        let containers = self.pods.entry(pod).or_default();
        if containers.len() >= MOST_CONTAINERS && !containers.contains_key(&container) {
            return None;
        }
        Some(containers.entry(container).or_default())
    }
}

/// A figure times a factor as a whole number; None for what no figure here can be.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn whole(value: f64, factor: f64) -> Option<u64> {
    let scaled = (value * factor).round();
    // All that a double counts in single steps, and a thousand times that: 285 years of processor time.
    (0.0..9e18).contains(&scaled).then_some(scaled as u64)
}

/// One line: a name, labels, a value, and when it was taken.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
    at: Option<i64>,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let (name, labels, rest) = match line.find(['{', ' ']) {
            Some(at) if line.as_bytes().get(at) == Some(&b'{') => {
                let behind = line.get(at + 1..)?;
                let end = end_of_labels(behind)?;
                (line.get(..at)?, behind.get(..end)?, behind.get(end + 1..)?)
            }
            Some(at) => (line.get(..at)?, "", line.get(at..)?),
            None => return None,
        };
        let mut words = rest.split_ascii_whitespace();
        let value = words.next()?.parse().ok()?;
        let at = words.next().map(str::parse).transpose().ok()?;
        Some(Self { name, labels, value, at })
    }

    fn label(&self, wanted: &str) -> Option<String> {
        let mut rest = self.labels;
        loop {
            let (name, behind) = rest.trim_start_matches([',', ' ']).split_once("=\"")?;
            let (value, length) = quoted(behind)?;
            if name == wanted {
                return Some(value);
            }
            rest = behind.get(length..)?;
        }
    }
}

/// Where the brace is that closes the labels: one outside of quotes.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut inside, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b'}' if !inside => return Some(at),
            _ => {}
        }
    }
    None
}

/// A value up to its closing quote, and how many bytes it took with that.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    loop {
        match letters.next()? {
            (at, '"') => return Some((value, at + 1)),
            (_, '\\') => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            (_, letter) => value.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_read() {
        let page = Page::read(
            "# HELP node_cpu_usage_seconds_total text\n\
             node_cpu_usage_seconds_total 12.5 1700000000123\n\
             node_memory_working_set_bytes 1.048576e+06 1700000000124\n\
             container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} 0.25 1700000000200\n\
             container_memory_working_set_bytes{pod=\"p\",namespace=\"n\",container=\"a\"} 4096\n\
             container_start_time_seconds{container=\"a\",namespace=\"n\",pod=\"p\"} 1.7e+09\n\
             pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 3\n",
            7,
        );
        let node = Look { at: 1_700_000_000_123, cpu: Some(12_500_000_000), memory: Some(1_048_576), started: None };
        assert_eq!(page.node, node);
        let wanted = Look {
            at: 1_700_000_000_200,
            started: Some(1_700_000_000_000),
            cpu: Some(250_000_000),
            memory: Some(4096),
        };
        assert_eq!(page.pods[&("n".into(), "p".into())], HashMap::from([("a".to_owned(), wanted)]));
    }

    #[test]
    fn labels_are_unescaped_and_braces_in_them_are_text() {
        let line = r#"m{pod="a\"}b",namespace="x\\y\nz"} 1"#;
        let sample = Sample::read(line).expect("a sample");
        assert_eq!(sample.label("pod").as_deref(), Some("a\"}b"));
        assert_eq!(sample.label("namespace").as_deref(), Some("x\\y\nz"));
        assert_eq!((sample.label("other"), sample.value), (None, 1.0));
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        for line in [
            "container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} NaN",
            "container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} -1",
            "container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} 1e300",
        ] {
            let page = Page::read(line, 0);
            assert!(page.pods.values().flat_map(HashMap::values).all(|look| look.cpu.is_none()), "{line}");
        }
        for line in ["", "x", "x{", "x{a=\"", "x{a=\"}", "x{a=\"b\"}", "x y", "x 1 y", "é{ü=\"", "x{a} 1"] {
            let page = Page::read(line, 0);
            assert!(page.pods.is_empty() && page.node == Look::default(), "{line}");
        }
        let unlabelled = Page::read("container_cpu_usage_seconds_total{pod=\"p\"} 1", 0);
        assert!(unlabelled.pods.is_empty());
    }

    #[test]
    fn a_node_that_tells_of_everything_is_bounded() {
        let mut text = String::new();
        for number in 0..MOST_PODS + 10 {
            text.push_str(&format!(
                "container_memory_working_set_bytes{{container=\"c\",namespace=\"n\",pod=\"{number}\"}} 1\n"
            ));
        }
        assert_eq!(Page::read(&text, 0).pods.len(), MOST_PODS);
    }
}
