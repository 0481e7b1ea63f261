//! Which pods end when, and how much time they get.

use std::time::Duration;

/// `system-cluster-critical` and those above it.
const CRITICAL: i32 = 2_000_000_000;

/// The time of the pods from this priority on, up to the next period's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownPeriod {
    pub priority: i32,
    pub seconds: i64,
}

impl ShutdownPeriod {
    /// What `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods` mean: the last part of the time is for critical pods.
    pub fn of(whole: Duration, critical: Duration) -> Vec<Self> {
        let Some(usual) = whole.checked_sub(critical).filter(|_| !whole.is_zero()) else { return Vec::new() };
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        vec![Self { priority: 0, seconds: seconds(usual) }, Self { priority: CRITICAL, seconds: seconds(critical) }]
    }
}

/// How long all of it may take.
pub(super) fn whole(periods: &[ShutdownPeriod]) -> Duration {
    let seconds = periods.iter().fold(0_i64, |sum, period| sum.saturating_add(period.seconds));
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// The pods of each period, lowest priority first. A pod below all periods goes with the first.
pub(super) fn groups<P>(periods: &[ShutdownPeriod], pods: Vec<(i32, P)>) -> Vec<(ShutdownPeriod, Vec<P>)> {
    let mut periods = periods.to_vec();
    periods.sort_by_key(|period| period.priority);
    let mut groups: Vec<(ShutdownPeriod, Vec<P>)> = periods.into_iter().map(|period| (period, Vec::new())).collect();
    for (priority, pod) in pods {
        let above = groups.partition_point(|(period, _)| period.priority <= priority);
        if let Some((_, group)) = groups.get_mut(above.saturating_sub(1)) {
            group.push(pod);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn periods(of: &[(i32, i64)]) -> Vec<ShutdownPeriod> {
        of.iter().map(|(priority, seconds)| ShutdownPeriod { priority: *priority, seconds: *seconds }).collect()
    }

    #[test]
    fn critical_pods_get_the_end_of_the_time() {
        let check = |whole: u64, critical: u64, want: &[(i32, i64)]| {
            let made = ShutdownPeriod::of(Duration::from_secs(whole), Duration::from_secs(critical));
            assert_eq!(made, periods(want), "{whole} {critical}");
        };
        check(30, 10, &[(0, 20), (CRITICAL, 10)]);
        check(30, 0, &[(0, 30), (CRITICAL, 0)]);
        check(10, 10, &[(0, 0), (CRITICAL, 10)]);
        check(0, 0, &[]);
        check(5, 10, &[]);
    }

    #[test]
    fn pods_end_by_priority() {
        let check = |of: &[(i32, i64)], pods: &[i32], want: &[(i64, &[i32])]| {
            let pods = pods.iter().map(|priority| (*priority, *priority)).collect();
            let groups = groups(&periods(of), pods);
            let seen: Vec<(i64, Vec<i32>)> = groups.into_iter().map(|(period, pods)| (period.seconds, pods)).collect();
            let want: Vec<(i64, Vec<i32>)> = want.iter().map(|(time, pods)| (*time, pods.to_vec())).collect();
            assert_eq!(seen, want);
        };
        // Given in any order, ended from low to high; a boundary belongs to the period that begins there.
        let three: &[(i32, i64)] = &[(100_000, 10), (0, 60), (10_000, 180)];
        check(
            three,
            &[0, 9_999, 10_000, 10_001, 100_000, 2_000_001_000],
            &[(60, &[0, 9_999]), (180, &[10_000, 10_001]), (10, &[100_000, 2_000_001_000])],
        );
        // Below all: with the lowest.
        check(&[(1000, 5), (2000, 7)], &[-5, 999, 1500], &[(5, &[-5, 999, 1500]), (7, &[])]);
        check(&[], &[0], &[]);
        assert_eq!(whole(&periods(three)), Duration::from_secs(250));
    }
}
