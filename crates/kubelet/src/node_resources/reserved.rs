//! Amounts that are reserved: of processors, memory, disk and processes.

use std::collections::BTreeMap;

use ferry_meta::quantity::Quantity;

/// What one of `systemReserved` and `kubeReserved` keeps from pods; none of what it does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// In thousandths.
    pub(crate) cpu: Option<i64>,
    /// In bytes.
    pub(crate) memory: Option<i64>,
    /// In bytes.
    pub(crate) storage: Option<i64>,
    pub(crate) processes: Option<i64>,
    /// As it was written.
    pub(crate) given: BTreeMap<String, String>,
}

impl Reserved {
    pub(super) fn parse(given: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut reserved = Self { given: given.clone(), ..Self::default() };
        for (resource, text) in given {
            let place = match resource.as_str() {
                "cpu" => &mut reserved.cpu,
                "memory" => &mut reserved.memory,
                "ephemeral-storage" => &mut reserved.storage,
                "pid" => &mut reserved.processes,
                _ => return Err(format!("cannot reserve {resource:?} resource")),
            };
            let amount = Quantity::parse(text)
                .map_err(|why| format!("failed to parse quantity {text:?} for {resource:?} resource: {why}"))?;
            if amount.is_negative() {
                return Err(format!("resource quantity for {resource:?} cannot be negative: {text}"));
            }
            *place = Some(if resource == "cpu" { thousandths(&amount) } else { amount.value() });
        }
        Ok(reserved)
    }

    /// The same with whole CPUs instead of what it said of them.
    pub(super) fn with_cpus(mut self, count: Option<usize>) -> Self {
        self.cpu = count.map(|count| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000));
        match count {
            Some(count) => drop(self.given.insert("cpu".to_owned(), count.to_string())),
            None => drop(self.given.remove("cpu")),
        }
        self
    }
}

/// Rounded to the nearest.
fn thousandths(amount: &Quantity) -> i64 {
    let up = amount.milli_value();
    let over = Quantity::from_milli(up, amount.format()).sub(amount);
    // More than half of what was added is too much.
    if up > 0 && over.as_f64() > 0.000_5 { up - 1 } else { up }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_amounts_are_read() {
        let check = |given: &[(&str, &str)], want: Result<[Option<i64>; 4], &str>| {
            let map = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let got = Reserved::parse(&map).map(|r| [r.cpu, r.memory, r.storage, r.processes]);
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{given:?}"),
                (Err(got), Err(want)) => assert!(got.starts_with(want), "{got} instead of {want}"),
                (got, want) => panic!("{given:?}: {got:?} instead of {want:?}"),
            }
        };
        check(&[], Ok([None; 4]));
        let all = [("cpu", "1500m"), ("memory", "1Gi"), ("ephemeral-storage", "2G"), ("pid", "1k")];
        check(&all, Ok([Some(1500), Some(1 << 30), Some(2_000_000_000), Some(1000)]));
        check(&[("cpu", "0.0004")], Ok([Some(0), None, None, None]));
        check(&[("cpu", "0.0005")], Ok([Some(1), None, None, None]));
        check(&[("cpu", "0")], Ok([Some(0), None, None, None]));
        check(&[("memory", "100m")], Ok([None, Some(1), None, None]));
        check(&[("pods", "1")], Err("cannot reserve \"pods\" resource"));
        check(&[("hugepages-2Mi", "2Mi")], Err("cannot reserve \"hugepages-2Mi\" resource"));
        check(&[("memory", "-1Mi")], Err("resource quantity for \"memory\" cannot be negative: -1Mi"));
        check(&[("memory", "much")], Err("failed to parse quantity \"much\" for \"memory\" resource: "));
        check(&[("memory", "")], Err("failed to parse quantity \"\" for \"memory\" resource: "));
    }
}
