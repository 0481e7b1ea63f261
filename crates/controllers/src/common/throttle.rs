//! Selectors of very many pods: to go through all of them for every change of one would leave no time for anything else.

use std::time::Duration;

use ferry_client::{ObjectKey, WorkQueue};

/// So few that each change is looked at by itself.
const FEW: usize = 1000;
const REST_PER_POD: Duration = Duration::from_micros(10);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// What changes within a while, which grows with the number of pods, is looked at together: ten times a second where ten
/// thousand are selected. The first change after a calm is looked at immediately.
pub(crate) fn rest(queue: &WorkQueue<ObjectKey>, key: &ObjectKey, pods: usize) {
    if let Some(time) = time(pods) {
        queue.rest(key, time);
    }
}

fn time(pods: usize) -> Option<Duration> {
    let pods = u32::try_from(pods).unwrap_or(u32::MAX);
    (pods as usize > FEW).then(|| REST_PER_POD.saturating_mul(pods).min(LONGEST_REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_grows_with_the_crowd() {
        let cases = [(0, None), (1000, None), (1001, Some(10)), (10_000, Some(100)), (usize::MAX, Some(1000))];
        for (pods, expected) in cases {
            assert_eq!(time(pods).map(|time| time.as_millis()), expected, "{pods}");
        }
    }
}
