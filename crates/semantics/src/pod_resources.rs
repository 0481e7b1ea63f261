//! What the containers of a pod take together at their peak.

use std::collections::BTreeMap;

use ferry_meta::Quantity;

/// Something that containers have an amount of, or of several things at once.
pub trait Amount: Clone + Default {
    fn add(&mut self, other: &Self);
    fn raise_to(&mut self, other: &Self);
}

impl Amount for i64 {
    fn add(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }

    fn raise_to(&mut self, other: &Self) {
        *self = (*self).max(*other);
    }
}

impl Amount for BTreeMap<String, Quantity> {
    fn add(&mut self, other: &Self) {
        for (name, amount) in other {
            let sum = self.get(name).map_or_else(|| amount.clone(), |known| known.add(amount));
            self.insert(name.clone(), sum);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other {
            if self.get(name).is_none_or(|known| amount > known) {
                self.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// Containers run together; init containers run before them, one after the other, beside the sidecars that were started
/// before. `init` says of each whether it is a sidecar, which restarts always and stays.
pub fn peak<A: Amount>(init: impl IntoIterator<Item = (bool, A)>, containers: impl IntoIterator<Item = A>) -> A {
    let mut running = A::default();
    for own in containers {
        running.add(&own);
    }
    let (mut sidecars, mut starting) = (A::default(), A::default());
    for (is_sidecar, own) in init {
        if is_sidecar {
            running.add(&own);
            sidecars.add(&own);
            starting.raise_to(&sidecars);
        } else {
            let mut together = sidecars.clone();
            together.add(&own);
            starting.raise_to(&together);
        }
    }
    running.raise_to(&starting);
    running
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_at_the_start_or_while_all_run() {
        let check = |init: &[(bool, i64)], containers: &[i64], expected: i64| {
            assert_eq!(peak(init.iter().copied(), containers.iter().copied()), expected, "{init:?} {containers:?}");
        };
        check(&[], &[], 0);
        check(&[], &[2, 3], 5);
        check(&[(false, 4)], &[2, 3], 5);
        check(&[(false, 9), (false, 7)], &[2, 3], 9);
        // A sidecar stays beside what comes after it.
        check(&[(true, 1)], &[2, 3], 6);
        check(&[(true, 1), (false, 9)], &[2, 3], 10);
        check(&[(false, 9), (true, 1)], &[2, 3], 9);
        check(&[(true, i64::MAX), (false, 1)], &[1], i64::MAX);
    }

    #[test]
    fn each_resource_has_its_own_peak() {
        let list = |pairs: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).expect("a quantity"))).collect()
        };
        let init = [(false, list(&[("cpu", "1")])), (true, list(&[("memory", "1Gi")]))];
        let containers = [list(&[("cpu", "200m"), ("memory", "1Gi")]), list(&[("cpu", "300m")])];
        assert_eq!(peak(init, containers), list(&[("cpu", "1"), ("memory", "2Gi")]));
    }
}
