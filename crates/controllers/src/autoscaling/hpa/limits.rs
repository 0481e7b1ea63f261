//! What behaviour makes of a recommendation: stabilisation, policies per period, smallest and largest number.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};
use tokio::time::Instant;

const LONGEST_PERIOD: Duration = Duration::from_secs(3600);
/// An hour of looking every 15 seconds, and room for changes of the object in between.
const MOST_REMEMBERED: usize = 1000;

/// What happened to one autoscaler, as far back as its behaviour looks.
pub(super) struct History {
    recommended: VecDeque<(Instant, i32)>,
    /// By how much replicas were changed.
    changed: VecDeque<(Instant, i32)>,
}

impl History {
    /// What is found at first counts as recommended: who only just came does not take away what may be needed.
    pub(super) fn new(current: i32, now: Instant) -> Self {
        Self { recommended: VecDeque::from([(now, current)]), changed: VecDeque::new() }
    }

    pub(super) fn scaled(&mut self, by: i32, now: Instant) {
        remember(&mut self.changed, by, now);
    }

    /// How many replicas there were when a period that ends now began.
    fn at_start(&self, current: i32, seconds: i32, now: Instant) -> i32 {
        let period = Duration::from_secs(seconds.unsigned_abs().into());
        let recent = self.changed.iter().filter(|(at, _)| now.saturating_duration_since(*at) < period);
        recent.fold(current, |start, (_, by)| start.saturating_sub(*by))
    }

    fn recent(&self, window: Duration, now: Instant) -> impl Iterator<Item = i32> {
        let recent = self.recommended.iter().filter(move |(at, _)| now.saturating_duration_since(*at) < window);
        recent.map(|(_, replicas)| *replicas)
    }
}

fn remember(list: &mut VecDeque<(Instant, i32)>, what: i32, now: Instant) {
    list.push_back((now, what));
    let is_old = |at: Instant| now.saturating_duration_since(at) > LONGEST_PERIOD;
    while list.len() > MOST_REMEMBERED || list.front().is_some_and(|(at, _)| is_old(*at)) {
        list.pop_front();
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) replicas: i32,
    /// Why it is not what was recommended: reason and message of the condition.
    pub(super) limited: Option<(&'static str, &'static str)>,
    /// Whether what was recommended before kept it from shrinking, or from growing.
    pub(super) stabilized: Option<bool>,
}

pub(super) struct Bounds<'a> {
    pub(super) least: i32,
    pub(super) most: i32,
    pub(super) behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
    /// How long what was recommended holds against shrinking where nothing else is said.
    pub(super) window: Duration,
}

fn policy(kind: &str, value: i32) -> HPAScalingPolicy {
    HPAScalingPolicy { type_: kind.into(), value, period_seconds: 15 }
}

fn rules(given: Option<&HPAScalingRules>, upward: bool) -> HPAScalingRules {
    let given = given.cloned().unwrap_or_default();
    let defaults = if upward { vec![policy("Pods", 4), policy("Percent", 100)] } else { vec![policy("Percent", 100)] };
    HPAScalingRules {
        policies: given.policies.filter(|list| !list.is_empty()).or(Some(defaults)),
        select_policy: given.select_policy.or_else(|| Some("Max".into())),
        ..given
    }
}

/// The number of replicas that may be, of those that are recommended now.
pub(super) fn decide(
    history: &mut History,
    current: i32,
    recommended: i32,
    bounds: &Bounds<'_>,
    now: Instant,
) -> Decision {
    let (stable, (replicas, limited)) = match bounds.behavior {
        None => {
            let stable = history.recent(bounds.window, now).fold(recommended, i32::max);
            (stable, plainly(current, stable, bounds))
        }
        Some(behavior) => {
            let (up, down) = (rules(behavior.scale_up.as_ref(), true), rules(behavior.scale_down.as_ref(), false));
            let window = |rules: &HPAScalingRules, other: Duration| {
                let seconds = rules.stabilization_window_seconds.map(i32::unsigned_abs);
                seconds.map_or(other, |seconds| Duration::from_secs(seconds.into()))
            };
            // Up goes the least of the window, down the most of it.
            let floor = history.recent(window(&up, Duration::ZERO), now).fold(recommended, i32::min);
            let ceiling = history.recent(window(&down, bounds.window), now).fold(recommended, i32::max);
            let stable = current.max(floor).min(ceiling);
            (stable, by_policies(history, current, stable, bounds, (&up, &down), now))
        }
    };
    remember(&mut history.recommended, recommended, now);
    let limited = limited.filter(|_| replicas != stable);
    Decision { replicas, limited, stabilized: (stable != recommended).then_some(stable > recommended) }
}

type Limited = (i32, Option<(&'static str, &'static str)>);

/// Without a behaviour: double at once, or four.
fn plainly(current: i32, stable: i32, bounds: &Bounds<'_>) -> Limited {
    let rate = current.saturating_mul(2).max(4);
    if stable < bounds.least {
        (bounds.least, Some(TOO_FEW))
    } else if stable > bounds.most.min(rate) {
        (bounds.most.min(rate), Some(if bounds.most > rate { UP_TOO_FAST } else { TOO_MANY }))
    } else {
        (stable, None)
    }
}

fn by_policies(
    history: &History,
    current: i32,
    stable: i32,
    bounds: &Bounds<'_>,
    (up, down): (&HPAScalingRules, &HPAScalingRules),
    now: Instant,
) -> Limited {
    if stable > current {
        let rate = limit(history, current, up, true, now).max(current);
        if stable > bounds.most.min(rate) {
            return (bounds.most.min(rate), Some(if bounds.most > rate { UP_TOO_FAST } else { TOO_MANY }));
        }
    } else if stable < current {
        let rate = limit(history, current, down, false, now).min(current);
        if stable < bounds.least.max(rate) {
            return (bounds.least.max(rate), Some(if bounds.least < rate { DOWN_TOO_FAST } else { TOO_FEW }));
        }
    }
    (stable, None)
}

const UP_TOO_FAST: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_TOO_FAST: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

/// How far the policies let it go in this direction.
fn limit(history: &History, current: i32, rules: &HPAScalingRules, upward: bool, now: Instant) -> i32 {
    let selected = rules.select_policy.as_deref();
    if selected == Some("Disabled") {
        return current;
    }
    let limits = rules.policies.iter().flatten().map(|policy| {
        let start = history.at_start(current, policy.period_seconds, now);
        match (policy.type_ == "Pods", upward) {
            (true, true) => start.saturating_add(policy.value),
            (true, false) => start.saturating_sub(policy.value),
            (false, true) => grown(start, policy.value),
            (false, false) => shrunk(start, policy.value),
        }
    });
    // "Max" is the policy that allows the larger change.
    let larger = selected != Some("Min");
    (if larger == upward { limits.max() } else { limits.min() }).unwrap_or(current)
}

fn grown(start: i32, percent: i32) -> i32 {
    let more = (i64::from(start) * (100 + i64::from(percent)) + 99) / 100;
    i32::try_from(more).unwrap_or(i32::MAX)
}

fn shrunk(start: i32, percent: i32) -> i32 {
    i32::try_from(i64::from(start) * (100 - i64::from(percent)).max(0) / 100).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Recommendations at seconds, one after the other; what was decided is carried out.
    fn check(behavior: Value, start: i32, steps: &[(u64, i32, i32)]) {
        let behavior: Option<HorizontalPodAutoscalerBehavior> =
            serde_json::from_value(behavior.clone()).expect("a behaviour");
        let begin = Instant::now();
        let (mut history, mut current) = (History::new(start, begin), start);
        for (second, recommended, expected) in steps {
            let now = begin + Duration::from_secs(*second);
            let bounds = Bounds { least: 1, most: 100, behavior: behavior.as_ref(), window: Duration::from_secs(300) };
            let decision = decide(&mut history, current, *recommended, &bounds, now);
            assert_eq!(decision.replicas, *expected, "{behavior:?} at {second}");
            history.scaled(decision.replicas - current, now);
            current = decision.replicas;
        }
    }

    #[test]
    fn without_a_behaviour_it_doubles_and_shrinks_slowly() {
        check(json!(null), 1, &[(0, 50, 4), (1, 50, 8), (15, 50, 16), (30, 50, 32), (45, 50, 50)]);
        check(json!(null), 10, &[(0, 10, 10), (60, 2, 10), (299, 2, 10), (301, 2, 2)]);
        check(json!(null), 60, &[(0, 500, 100)]);
        // What is there when it is first seen counts as recommended.
        check(json!(null), 10, &[(0, 0, 10), (299, 0, 10), (300, 0, 1)]);
        // What was recommended and could not be had at once is still to be had.
        check(json!(null), 4, &[(0, 20, 8), (15, 8, 16), (30, 8, 20), (330, 8, 8)]);
    }

    #[test]
    fn the_defaults_of_a_behaviour_count_by_periods() {
        // Four pods or double in 15 seconds, whichever is more.
        check(json!({}), 1, &[(0, 50, 5), (1, 50, 5), (15, 50, 10), (30, 50, 20), (45, 50, 40), (60, 50, 50)]);
        check(json!({}), 10, &[(0, 0, 10), (299, 0, 10), (300, 0, 1)]);
    }

    #[test]
    fn policies_and_windows_are_kept() {
        let slow = json!({ "scaleUp": { "policies": [{ "type": "Pods", "value": 1, "periodSeconds": 60 }] },
            "scaleDown": { "stabilizationWindowSeconds": 0, "policies": [{ "type": "Percent", "value": 10, "periodSeconds": 60 }] } });
        check(slow.clone(), 5, &[(0, 50, 6), (30, 50, 6), (60, 50, 7)]);
        check(slow.clone(), 50, &[(0, 1, 45), (30, 1, 45), (61, 1, 40)]);
        // A period begins where both directions left it: what was just taken away may come back.
        check(slow, 50, &[(0, 1, 45), (30, 60, 51), (31, 60, 51)]);
        check(
            json!({ "scaleDown": { "selectPolicy": "Disabled", "stabilizationWindowSeconds": 0 } }),
            9,
            &[(0, 1, 9), (400, 1, 9)],
        );
        check(json!({ "scaleUp": { "selectPolicy": "Disabled" } }), 9, &[(0, 50, 9)]);
        check(json!({ "scaleUp": { "stabilizationWindowSeconds": 60 } }), 2, &[(0, 2, 2), (30, 5, 2), (61, 5, 5)]);
        let least = json!({ "scaleUp": { "selectPolicy": "Min", "policies": [
            { "type": "Pods", "value": 1, "periodSeconds": 15 }, { "type": "Percent", "value": 100, "periodSeconds": 15 }] } });
        check(least, 10, &[(0, 50, 11)]);
    }

    #[test]
    fn limits_and_windows_are_told() {
        let tell = |behavior: Value, (least, most), current, recommended| {
            let behavior: Option<HorizontalPodAutoscalerBehavior> = serde_json::from_value(behavior).expect("one");
            let mut history = History::new(current, Instant::now());
            let bounds = Bounds { least, most, behavior: behavior.as_ref(), window: Duration::from_secs(300) };
            let decision = decide(&mut history, current, recommended, &bounds, Instant::now());
            (decision.replicas, decision.limited.map_or("", |(reason, _)| reason), decision.stabilized)
        };
        let now = json!({ "scaleDown": { "stabilizationWindowSeconds": 0 } });
        let slow = json!({ "scaleDown": { "stabilizationWindowSeconds": 0,
            "policies": [{ "type": "Pods", "value": 1, "periodSeconds": 15 }] } });
        let late = json!({ "scaleUp": { "stabilizationWindowSeconds": 60 } });
        for (behavior, bounds, current, recommended, expected) in [
            (json!(null), (2, 6), 4, 50, (6, "TooManyReplicas", None)),
            (json!(null), (2, 4), 2, 50, (4, "TooManyReplicas", None)),
            (json!(null), (2, 600), 3, 50, (6, "ScaleUpLimit", None)),
            (json!(null), (2, 6), 4, 0, (4, "", Some(true))),
            (now.clone(), (2, 600), 3, 50, (7, "ScaleUpLimit", None)),
            (now.clone(), (2, 6), 3, 50, (6, "TooManyReplicas", None)),
            (now.clone(), (2, 6), 4, 0, (2, "TooFewReplicas", None)),
            (now, (0, 6), 4, 0, (0, "", None)),
            (slow, (2, 6), 4, 0, (3, "ScaleDownLimit", None)),
            (late, (2, 6), 4, 5, (4, "", Some(false))),
        ] {
            assert_eq!(tell(behavior.clone(), bounds, current, recommended), expected, "{behavior} {current}");
        }
    }
}
