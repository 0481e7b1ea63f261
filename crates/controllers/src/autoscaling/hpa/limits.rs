//! What behaviour makes of a recommendation: stabilisation, policies per period, smallest and largest number.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};
use tokio::time::Instant;

const LONGEST_PERIOD: Duration = Duration::from_secs(3600);

/// What happened to one autoscaler, as far back as its behaviour looks.
#[derive(Default)]
pub(super) struct History {
    recommended: VecDeque<(Instant, i32)>,
    /// By how much replicas were changed.
    changed: VecDeque<(Instant, i32)>,
}

impl History {
    pub(super) fn scaled(&mut self, by: i32, now: Instant) {
        self.changed.push_back((now, by));
        forget(&mut self.changed, now);
    }

    fn within(&self, seconds: i32, now: Instant, upward: bool) -> i32 {
        let period = Duration::from_secs(seconds.unsigned_abs().into());
        let recent = self.changed.iter().filter(|(at, _)| now.saturating_duration_since(*at) < period);
        recent.map(|(_, by)| if upward { (*by).max(0) } else { (-*by).max(0) }).fold(0, i32::saturating_add)
    }
}

fn forget(list: &mut VecDeque<(Instant, i32)>, now: Instant) {
    while list.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > LONGEST_PERIOD) {
        list.pop_front();
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) replicas: i32,
    /// Why it is not what was recommended: reason and message of the condition.
    pub(super) limited: Option<(&'static str, &'static str)>,
    pub(super) stabilized: Option<bool>,
}

pub(super) struct Bounds<'a> {
    pub(super) least: i32,
    pub(super) most: i32,
    pub(super) behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
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
        stabilization_window_seconds: given.stabilization_window_seconds.or(Some(if upward { 0 } else { 300 })),
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
    let up = rules(bounds.behavior.and_then(|behavior| behavior.scale_up.as_ref()), true);
    let down = rules(bounds.behavior.and_then(|behavior| behavior.scale_down.as_ref()), false);
    history.recommended.push_back((now, recommended));
    forget(&mut history.recommended, now);
    let seen = |rules: &HPAScalingRules| {
        let seconds = rules.stabilization_window_seconds.unwrap_or_default().unsigned_abs();
        let window = Duration::from_secs(seconds.into());
        let recent = history.recommended.iter().filter(move |(at, _)| now.saturating_duration_since(*at) <= window);
        recent.map(|(_, replicas)| *replicas)
    };
    // Up goes the least of the window, down the most of it.
    let floor = seen(&up).fold(recommended, i32::min);
    let ceiling = seen(&down).fold(recommended, i32::max);
    let mut stable = current;
    if stable < floor {
        stable = floor;
    }
    if stable > ceiling {
        stable = ceiling;
    }
    let stabilized = (stable != recommended).then_some(stable > recommended);
    let (replicas, limited) = if stable > current {
        let most = upper(history, current, &up, now).max(current);
        let bound = most.min(bounds.most);
        match stable {
            _ if stable <= bound => (stable, None),
            _ if bounds.most <= most => (bound, Some(TOO_MANY)),
            _ => (
                bound,
                Some(("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")),
            ),
        }
    } else if stable < current {
        let least = lower(history, current, &down, now).min(current);
        let bound = least.max(bounds.least);
        match stable {
            _ if stable >= bound => (stable, None),
            _ if bounds.least >= least => (bound, Some(TOO_FEW)),
            _ => (
                bound,
                Some(("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")),
            ),
        }
    } else {
        (stable, None)
    };
    let limited = if replicas > bounds.most {
        Some(TOO_MANY)
    } else if replicas < bounds.least {
        Some(TOO_FEW)
    } else {
        limited
    };
    Decision { replicas: replicas.clamp(bounds.least, bounds.most.max(bounds.least)), limited, stabilized }
}

pub(super) const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
pub(super) const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

fn select(rules: &HPAScalingRules, upward: bool, limits: impl Iterator<Item = i32>) -> Option<i32> {
    // "Max" is the policy that allows the larger change.
    let larger = rules.select_policy.as_deref() != Some("Min");
    if larger == upward { limits.max() } else { limits.min() }
}

fn upper(history: &History, current: i32, rules: &HPAScalingRules, now: Instant) -> i32 {
    if rules.select_policy.as_deref() == Some("Disabled") {
        return current;
    }
    let limits = rules.policies.iter().flatten().map(|policy| {
        let start = current.saturating_sub(history.within(policy.period_seconds, now, true));
        if policy.type_ == "Pods" { start.saturating_add(policy.value) } else { grown(start, policy.value) }
    });
    select(rules, true, limits).unwrap_or(current)
}

fn lower(history: &History, current: i32, rules: &HPAScalingRules, now: Instant) -> i32 {
    if rules.select_policy.as_deref() == Some("Disabled") {
        return current;
    }
    let limits = rules.policies.iter().flatten().map(|policy| {
        let start = current.saturating_add(history.within(policy.period_seconds, now, false));
        if policy.type_ == "Pods" { start.saturating_sub(policy.value) } else { shrunk(start, policy.value) }
    });
    select(rules, false, limits).unwrap_or(current)
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
        let (mut history, mut current, begin) = (History::default(), start, Instant::now());
        for (second, recommended, expected) in steps {
            let now = begin + Duration::from_secs(*second);
            let bounds = Bounds { least: 1, most: 100, behavior: behavior.as_ref() };
            let decision = decide(&mut history, current, *recommended, &bounds, now);
            assert_eq!(decision.replicas, *expected, "{behavior:?} at {second}");
            history.scaled(decision.replicas - current, now);
            current = decision.replicas;
        }
    }

    #[test]
    fn defaults_grow_fast_and_shrink_slowly() {
        // Four pods or double in 15 seconds, whichever is more.
        check(json!(null), 1, &[(0, 50, 5), (1, 50, 5), (15, 50, 10), (30, 50, 20), (45, 50, 40), (60, 50, 50)]);
        check(json!(null), 10, &[(0, 10, 10), (60, 2, 10), (299, 2, 10), (301, 2, 2)]);
        check(json!(null), 10, &[(0, 500, 20), (15, 500, 40), (30, 500, 80), (45, 500, 100)]);
        check(json!(null), 10, &[(0, 0, 1)]);
    }

    #[test]
    fn policies_and_windows_are_kept() {
        let slow = json!({ "scaleUp": { "policies": [{ "type": "Pods", "value": 1, "periodSeconds": 60 }] },
            "scaleDown": { "stabilizationWindowSeconds": 0, "policies": [{ "type": "Percent", "value": 10, "periodSeconds": 60 }] } });
        check(slow.clone(), 5, &[(0, 50, 6), (30, 50, 6), (60, 50, 7)]);
        check(slow, 50, &[(0, 1, 45), (30, 1, 45), (61, 1, 40)]);
        check(
            json!({ "scaleDown": { "selectPolicy": "Disabled", "stabilizationWindowSeconds": 0 } }),
            9,
            &[(0, 1, 9), (400, 1, 9)],
        );
        check(json!({ "scaleUp": { "stabilizationWindowSeconds": 60 } }), 2, &[(0, 2, 2), (30, 5, 2), (61, 5, 5)]);
        let least = json!({ "scaleUp": { "selectPolicy": "Min", "policies": [
            { "type": "Pods", "value": 1, "periodSeconds": 15 }, { "type": "Percent", "value": 100, "periodSeconds": 15 }] } });
        check(least, 10, &[(0, 50, 11)]);
    }

    #[test]
    fn limits_are_told() {
        let mut history = History::default();
        let bounds = Bounds { least: 2, most: 6, behavior: None };
        let mut reason = |current, recommended| {
            let decision = decide(&mut history, current, recommended, &bounds, Instant::now());
            decision.limited.map(|(reason, _)| reason)
        };
        assert_eq!(reason(4, 50), Some("TooManyReplicas"));
        assert_eq!(reason(2, 50), Some("TooManyReplicas"));
        let mut history = History::default();
        let wide = Bounds { least: 2, most: 600, behavior: None };
        let decision = decide(&mut history, 2, 50, &wide, Instant::now());
        assert_eq!((decision.replicas, decision.limited.map(|(reason, _)| reason)), (6, Some("ScaleUpLimit")));
        let mut history = History::default();
        let decision = decide(&mut history, 4, 0, &bounds, Instant::now());
        assert_eq!((decision.replicas, decision.limited.map(|(reason, _)| reason)), (2, Some("TooFewReplicas")));
    }
}
