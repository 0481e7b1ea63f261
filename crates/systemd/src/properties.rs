//! What a file of a control group says, as the property by which systemd says the same. systemd writes its own properties into
//! the files whenever it looks at its units again: what stands in a file alone is gone after `systemctl daemon-reload`.

use crate::wire::{Property, PropertyValue};

/// Of processor time in a second, systemd keeps whole hundredths.
const HUNDREDTH: u64 = 10_000;
const SECOND: u64 = 1_000_000;
const USUAL_PERIOD: u64 = 100_000;

/// The property of one file of version 2, where systemd has one. What the file cannot have has none.
pub fn of_file(file: &str, value: &str) -> Vec<Property> {
    let value = value.trim();
    let amount = |name| number(value).map(|number| Property::long(name, number));
    let one = match file {
        "cpu.max" => return quota(value),
        "cpu.weight" => amount("CPUWeight"),
        // Zero is its word for `cpu.idle`.
        "cpu.idle" => (value == "1").then(|| Property::long("CPUWeight", 0)),
        "memory.max" => amount("MemoryMax"),
        "memory.high" => amount("MemoryHigh"),
        "memory.low" => amount("MemoryLow"),
        "memory.min" => amount("MemoryMin"),
        "memory.swap.max" => amount("MemorySwapMax"),
        // It takes no zero.
        "pids.max" => number(value).map(|number| Property::long("TasksMax", number.max(1))),
        "cpuset.cpus" => bits(value).map(|bits| Property { name: "AllowedCPUs", value: PropertyValue::Bytes(bits) }),
        "cpuset.mems" => {
            bits(value).map(|bits| Property { name: "AllowedMemoryNodes", value: PropertyValue::Bytes(bits) })
        }
        _ => None,
    };
    one.into_iter().collect()
}

/// The properties of several files; of two for one property, the last.
pub fn of_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Property> {
    let mut found: Vec<Property> = Vec::new();
    for property in files.into_iter().flat_map(|(file, value)| of_file(file, value)) {
        found.retain(|known| known.name != property.name);
        found.push(property);
    }
    found
}

/// What is to be written to a file, so that systemd does not write anything else there later: a quota is rounded up as systemd
/// rounds it.
pub fn written(file: &str, value: &str) -> String {
    let unchanged = || value.to_owned();
    let ("cpu.max", Some((quota, period))) = (file, quota_and_period(value)) else { return unchanged() };
    match quota {
        Some(quota) => format!("{} {period}", of_second(quota, period) * period / SECOND),
        None => unchanged(),
    }
}

fn number(value: &str) -> Option<u64> {
    if value == "max" { Some(u64::MAX) } else { value.parse().ok() }
}

fn quota_and_period(value: &str) -> Option<(Option<u64>, u64)> {
    let mut words = value.split_whitespace();
    let quota = match words.next()? {
        "max" => None,
        quota => Some(quota.parse().ok()?),
    };
    let period = words.next().map_or(Some(USUAL_PERIOD), |period| period.parse().ok())?;
    (period > 0).then_some((quota, period))
}

/// Microseconds of a second, rounded up.
fn of_second(quota: u64, period: u64) -> u64 {
    (quota.saturating_mul(SECOND) / period).next_multiple_of(HUNDREDTH)
}

fn quota(value: &str) -> Vec<Property> {
    let Some((quota, period)) = quota_and_period(value) else { return Vec::new() };
    let of_second = quota.map_or(u64::MAX, |quota| of_second(quota, period));
    vec![Property::long("CPUQuotaPeriodUSec", period), Property::long("CPUQuotaPerSecUSec", of_second)]
}

/// `0-1,8` as a bit for each, the lowest first; none for an empty list, which says nothing.
fn bits(list: &str) -> Option<Vec<u8>> {
    /// More than any machine has.
    const MOST: usize = 1 << 16;
    let mut bits = Vec::new();
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        for bit in first..=last {
            if bits.len() <= bit / 8 {
                bits.resize(bit / 8 + 1, 0);
            }
            bits[bit / 8] |= 1 << (bit % 8);
        }
    }
    (!bits.is_empty()).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (file, value, properties, what is written then) as upstream's library for control groups makes them.
    const PROPERTIES: &str = include_str!("properties/upstream.tsv");

    #[test]
    fn files_become_the_properties_that_upstream_makes_of_them() {
        assert!(PROPERTIES.lines().count() > 20);
        for line in PROPERTIES.lines() {
            let [file, value, want, file_after] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let show = |property: Property| match property.value {
                PropertyValue::Long(number) => format!("{}={number}", property.name),
                PropertyValue::Bytes(bytes) => format!("{}={bytes:?}", property.name),
                other => format!("{}={other:?}", property.name),
            };
            let mut seen: Vec<String> = of_file(file, value).into_iter().map(show).collect();
            seen.sort();
            assert_eq!(seen.join(" "), want, "{file} {value}");
            assert_eq!(written(file, value), file_after, "{file} {value}");
        }
    }

    #[test]
    fn of_two_values_the_last_counts() {
        let files = [("memory.max", "1"), ("cgroup.freeze", "0"), ("memory.max", "2"), ("hugetlb.2MB.max", "0")];
        assert_eq!(of_files(files), [Property::long("MemoryMax", 2)]);
    }

    #[test]
    fn nonsense_has_no_property() {
        for (file, value) in
            [("cpu.max", "a b"), ("cpu.max", "1 0"), ("memory.max", "-1"), ("cpuset.cpus", "3-1"), ("cpuset.cpus", "")]
        {
            assert_eq!(of_file(file, value), [], "{file} {value}");
            assert_eq!(written(file, value), value);
        }
    }
}
