//! Capacity of devices that several claims share: how much a request takes, and whether it is there.

use std::collections::BTreeMap;

use ferry_meta::Quantity;
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

pub(super) type Amounts = BTreeMap<String, Quantity>;

/// The API server admits no malformed amount; one that got in all the same is nothing.
pub(super) fn amount(wire: &WireQuantity) -> Quantity {
    Quantity::parse(&wire.0).unwrap_or_default()
}

#[derive(Clone, Debug)]
pub(super) struct Capacity {
    pub(super) value: Quantity,
    policy: Option<Policy>,
}

#[derive(Clone, Debug)]
struct Policy {
    default: Option<Quantity>,
    range: Option<Range>,
    values: Vec<Quantity>,
}

#[derive(Clone, Debug)]
struct Range {
    least: Quantity,
    most: Option<Quantity>,
    step: Option<Quantity>,
}

impl Policy {
    fn new(wire: &CapacityRequestPolicy) -> Self {
        let range = wire.valid_range.as_ref().map(|range| Range {
            least: amount(&range.min),
            most: range.max.as_ref().map(amount),
            // Steps are counted in whole units.
            step: range.step.as_ref().map(amount).filter(|step| step.value() > 0),
        });
        let values = wire.valid_values.iter().flatten().map(amount).collect();
        Self { default: wire.default.as_ref().map(amount), range, values }
    }

    /// Whether so much may be asked for.
    fn allows(&self, wanted: &Quantity) -> bool {
        if self.default.as_ref() == Some(wanted) {
            return true;
        }
        match &self.range {
            Some(range) => {
                let steps = range.step.as_ref().is_none_or(|step| {
                    let above = i128::from(wanted.value()) - i128::from(range.least.value());
                    above % i128::from(step.value()) == 0
                });
                range.most.as_ref().is_none_or(|most| wanted <= most) && steps
            }
            None => self.values.is_empty() || self.values.contains(wanted),
        }
    }
}

impl Range {
    /// Rounded up to what may be asked for.
    fn rounded(&self, wanted: &Quantity) -> Result<Quantity, String> {
        if *wanted < self.least {
            return Ok(self.least.clone());
        }
        let Some(step) = &self.step else { return Ok(wanted.clone()) };
        let broken =
            |why: &str| Err(format!("capacity request cannot be represented in the device's range arithmetic: {why}"));
        if *wanted > Quantity::from_units(i64::MAX, wanted.format()) {
            return broken(&format!("request {wanted} exceeds MaxInt64"));
        }
        let (asked, least, width) =
            (i128::from(wanted.value()), i128::from(self.least.value()), i128::from(step.value()));
        let above = asked - least;
        let steps = above / width + i128::from(above % width != 0);
        match i64::try_from(least + steps * width) {
            Ok(units) => Ok(Quantity::from_units(units, step.format())),
            Err(_) => broken(&format!("rounding request {wanted} up to the next step passes MaxInt64")),
        }
    }
}

impl Capacity {
    pub(super) fn new(wire: &DeviceCapacity) -> Self {
        Self { value: amount(&wire.value), policy: wire.request_policy.as_ref().map(Policy::new) }
    }

    /// How much of it a request takes; one that says nothing takes the default, or all.
    fn taken_by(&self, wanted: Option<&Quantity>) -> Result<Quantity, String> {
        let default = || self.policy.as_ref().and_then(|policy| policy.default.as_ref()).unwrap_or(&self.value).clone();
        let Some(wanted) = wanted else { return Ok(default()) };
        match &self.policy {
            Some(Policy { range: Some(range), .. }) => range.rounded(wanted),
            Some(Policy { values, .. }) => Ok(values.iter().find(|value| wanted <= *value).unwrap_or(wanted).clone()),
            None => Ok(wanted.clone()),
        }
    }
}

/// How much of each capacity a request takes.
pub(super) fn taken_by(wanted: Option<&Amounts>, capacity: &BTreeMap<String, Capacity>) -> Result<Amounts, String> {
    let mut taken = Amounts::new();
    for (name, capacity) in capacity {
        let one = capacity.taken_by(wanted.and_then(|wanted| wanted.get(name)));
        let one = one.map_err(|error| format!("capacity {name:?}: {error}"))?;
        if one.is_negative() {
            return Err(format!("capacity {name:?}: capacity value is negative"));
        }
        taken.insert(name.clone(), one);
    }
    Ok(taken)
}

/// Whether a device has what a request takes besides what others have of it. An error is the fault of the request.
pub(super) fn suffices(
    capacity: &BTreeMap<String, Capacity>,
    wanted: Option<&Amounts>,
    others: [Option<&Amounts>; 2],
) -> Result<bool, String> {
    if wanted.is_some_and(|wanted| wanted.keys().any(|name| !capacity.contains_key(name))) {
        return Ok(false);
    }
    let taken = taken_by(wanted, capacity)?;
    Ok(capacity.iter().all(|(name, capacity)| {
        let own = taken.get(name).cloned().unwrap_or_default();
        let allowed = capacity.policy.as_ref().is_none_or(|policy| policy.allows(&own));
        let used = others.iter().filter_map(|others| others.and_then(|others| others.get(name)));
        allowed && used.fold(own, |sum, used| sum.add(used)) <= capacity.value
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(policy: Value, wanted: Option<&str>, expected: Result<(&str, bool), &str>) {
        let capacity: DeviceCapacity =
            serde_json::from_value(json!({"value": "20", "requestPolicy": policy})).expect("a capacity");
        let capacity = BTreeMap::from([("c".to_owned(), Capacity::new(&capacity))]);
        let wanted = wanted.map(|text| Amounts::from([("c".to_owned(), Quantity::parse(text).expect("an amount"))]));
        let taken = taken_by(wanted.as_ref(), &capacity).map(|taken| taken["c"].to_string());
        let fits = suffices(&capacity, wanted.as_ref(), [None, None]);
        match expected {
            Ok((taking, fitting)) => {
                assert_eq!((taken, fits), (Ok(taking.to_owned()), Ok(fitting)), "{policy} {wanted:?}");
            }
            Err(words) => assert!(taken.expect_err("an error").contains(words), "{policy} {wanted:?}"),
        }
    }

    #[test]
    fn requests_are_rounded_up_to_what_may_be_asked_for() {
        let steps = json!({"default": "4", "validRange": {"min": "2", "max": "10", "step": "3"}});
        check(json!(null), None, Ok(("20", true)));
        check(json!(null), Some("5"), Ok(("5", true)));
        check(json!(null), Some("21"), Ok(("21", false)));
        check(steps.clone(), None, Ok(("4", true)));
        check(steps.clone(), Some("1"), Ok(("2", true)));
        check(steps.clone(), Some("3"), Ok(("5", true)));
        check(steps.clone(), Some("8"), Ok(("8", true)));
        check(steps.clone(), Some("9"), Ok(("11", false)));
        check(steps.clone(), Some("9223372036854775807"), Err("passes MaxInt64"));
        check(steps, Some("1e30"), Err("exceeds MaxInt64"));
        check(json!({"default": "1", "validRange": {"min": "2", "step": "0"}}), Some("7"), Ok(("7", true)));
        let values = json!({"default": "1", "validValues": ["1", "4", "16"]});
        check(values.clone(), Some("3"), Ok(("4", true)));
        check(values.clone(), Some("17"), Ok(("17", false)));
        check(values, None, Ok(("1", true)));
        check(json!(null), Some("-1"), Err("capacity value is negative"));
    }
}
