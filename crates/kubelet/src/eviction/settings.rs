//! When the node counts as short of something: thresholds as users write them, `memory.available<100Mi`.

use std::collections::BTreeMap;
use std::time::Duration;

use ferry_meta::quantity::{Format, Quantity};

/// What is watched. The order is that in which shortages are dealt with: memory before all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    MemoryAvailable,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    PidAvailable,
}

/// A condition of the node that tells of a shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pressure {
    Memory,
    Disk,
    Processes,
}

impl Pressure {
    pub(crate) const fn condition(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Processes => "PIDPressure",
        }
    }
}

impl Signal {
    const ALL: [Self; 6] = [
        Self::MemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::PidAvailable,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// What is scarce, in the words of messages.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodeFsAvailable | Self::ImageFsAvailable => "ephemeral-storage",
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }

    pub(crate) const fn pressure(self) -> Pressure {
        match self {
            Self::MemoryAvailable => Pressure::Memory,
            Self::PidAvailable => Pressure::Processes,
            _ => Pressure::Disk,
        }
    }

    /// None for those that upstream knows and always derives from others.
    fn parse(name: &str) -> Result<Option<Self>, SettingsError> {
        if matches!(name, "containerfs.available" | "containerfs.inodesFree" | "allocatableMemory.available") {
            return Ok(None);
        }
        let found = Self::ALL.into_iter().find(|signal| signal.name() == name);
        found.map(Some).ok_or_else(|| SettingsError(format!("unsupported eviction signal {name}")))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    Fixed(Quantity),
    /// Of what there is in all; 0.1 is a tenth.
    Share(f32),
}

impl Amount {
    pub(crate) fn of(&self, capacity: i64) -> Quantity {
        match self {
            Self::Fixed(quantity) => quantity.clone(),
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a share of an amount")]
            Self::Share(share) => Quantity::from_units((capacity as f64 * f64::from(*share)) as i64, Format::BinarySi),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub(crate) signal: Signal,
    /// Less than this is too little.
    pub(crate) amount: Amount,
    /// How long it has to be so; zero for a hard threshold.
    pub(crate) grace: Duration,
    /// How much more than the amount has to be free before it is enough again.
    pub(crate) reclaim: Option<Amount>,
}

impl Threshold {
    pub(crate) fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// When pods have to go, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    pub thresholds: Vec<Threshold>,
    /// A condition stays at least this long after it was last seen.
    pub transition: Duration,
    /// The most seconds a pod gets to end after a soft threshold; negative leaves it its own.
    pub longest_grace: i64,
    /// With so many bytes free, no share of a disk counts as too little.
    pub enough_room: Option<u64>,
}

/// Upstream's.
impl Default for Eviction {
    fn default() -> Self {
        let share = |signal, percent: f32| Threshold {
            signal,
            amount: Amount::Share(percent / 100.0),
            grace: Duration::ZERO,
            reclaim: None,
        };
        let memory = Amount::Fixed(Quantity::from_units(100 << 20, Format::BinarySi));
        Self {
            thresholds: vec![
                Threshold { amount: memory, ..share(Signal::MemoryAvailable, 0.0) },
                share(Signal::NodeFsAvailable, 10.0),
                share(Signal::NodeFsInodesFree, 5.0),
                share(Signal::ImageFsAvailable, 15.0),
                share(Signal::ImageFsInodesFree, 5.0),
            ],
            transition: Duration::from_secs(300),
            longest_grace: 0,
            enough_room: None,
        }
    }
}

/// Thresholds as they stand in flags. Those not given are as upstream's defaults; an empty text is no threshold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statements<'a> {
    /// `memory.available<100Mi,nodefs.available<10%`
    pub hard: Option<&'a str>,
    pub soft: Option<&'a str>,
    /// `memory.available=1m30s`
    pub soft_grace: Option<&'a str>,
    /// `imagefs.available=2Gi`
    pub minimum_reclaim: Option<&'a str>,
}

/// Why a threshold is none, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl Eviction {
    /// Takes over the thresholds that were written out.
    pub fn with(mut self, statements: Statements<'_>) -> Result<Self, SettingsError> {
        if let Some(hard) = statements.hard {
            self.thresholds = thresholds(&pairs(hard, '<')?)?;
        }
        let grace = pairs(statements.soft_grace.unwrap_or_default(), '=')?;
        let mut soft = thresholds(&pairs(statements.soft.unwrap_or_default(), '<')?)?;
        let mut periods = BTreeMap::new();
        for (name, text) in &grace {
            let period = ferry_semantics::duration::parse_unsigned(text)
                .ok_or_else(|| SettingsError(format!("invalid eviction grace period {text:?} for {name}")))?;
            periods.extend(Signal::parse(name)?.map(|signal| (signal, period)));
        }
        for threshold in &mut soft {
            threshold.grace = *periods.get(&threshold.signal).ok_or_else(|| {
                let name = threshold.signal.name();
                SettingsError(format!("grace period must be specified for the soft eviction threshold {name}"))
            })?;
        }
        self.thresholds.append(&mut soft);
        for (name, text) in pairs(statements.minimum_reclaim.unwrap_or_default(), '=')? {
            let Some(signal) = Signal::parse(name)? else { continue };
            let reclaim = amount(name, text)?;
            for threshold in self.thresholds.iter_mut().filter(|t| t.signal == signal) {
                threshold.reclaim.clone_from(&reclaim);
            }
        }
        self.thresholds.sort_by_key(|threshold| threshold.signal);
        Ok(self)
    }

    /// How much of a signal hard thresholds keep back from pods.
    pub(crate) fn kept_back(&self, signal: Signal, capacity: i64) -> i64 {
        let hard = self.thresholds.iter().filter(|t| t.signal == signal && t.is_hard());
        hard.map(|t| t.amount.of(capacity).value()).max().unwrap_or(0)
    }
}

fn pairs(text: &str, separator: char) -> Result<Vec<(&str, &str)>, SettingsError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part
                .split_once(separator)
                .ok_or_else(|| SettingsError(format!("malformed pair {part:?}, expect signal{separator}value")))?;
            Ok((name.trim(), value.trim()))
        })
        .collect()
}

fn thresholds(pairs: &[(&str, &str)]) -> Result<Vec<Threshold>, SettingsError> {
    let mut all: Vec<Threshold> = Vec::new();
    for (name, text) in pairs {
        let (Some(signal), Some(amount)) = (Signal::parse(name)?, amount(name, text)?) else { continue };
        // As in a map: the last word counts.
        all.retain(|known| known.signal != signal);
        all.push(Threshold { signal, amount, grace: Duration::ZERO, reclaim: None });
    }
    Ok(all)
}

/// None where the threshold is turned off: 0% and 100%.
fn amount(name: &str, text: &str) -> Result<Option<Amount>, SettingsError> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f32 = percent.parse().map_err(|_| SettingsError(format!("{text:?} is no percentage")))?;
        return match percent {
            0.0 | 100.0 => Ok(None),
            p if p > 0.0 && p < 100.0 => Ok(Some(Amount::Share(p / 100.0))),
            p if p > 100.0 => {
                Err(SettingsError(format!("eviction percentage threshold {name} must be <= 100%: {text}")))
            }
            _ => Err(SettingsError(format!("eviction percentage threshold {name} must be >= 0%: {text}"))),
        };
    }
    let quantity = Quantity::parse(text).map_err(|why| SettingsError(format!("{name}: {why}")))?;
    if quantity.is_negative() || quantity.is_zero() {
        return Err(SettingsError(format!("eviction threshold {name} must be positive: {text}")));
    }
    Ok(Some(Amount::Fixed(quantity)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(eviction: &Eviction) -> Vec<String> {
        let amount = |amount: &Amount| match amount {
            Amount::Fixed(quantity) => quantity.to_string(),
            Amount::Share(share) => format!("{:.1}%", share * 100.0),
        };
        let one = |t: &Threshold| {
            let mut text = format!("{}<{}", t.signal.name(), amount(&t.amount));
            if !t.is_hard() {
                text += &format!(" for {}s", t.grace.as_secs());
            }
            if let Some(reclaim) = &t.reclaim {
                text += &format!(" +{}", amount(reclaim));
            }
            text
        };
        eviction.thresholds.iter().map(one).collect()
    }

    #[test]
    fn flags_become_thresholds() {
        let check = |statements: Statements<'_>, want: Result<&[&str], &str>| {
            let got = Eviction::default().with(statements).map(|e| printed(&e)).map_err(|e| e.to_string());
            let want = want.map(|w| w.iter().map(|t| (*t).to_owned()).collect()).map_err(str::to_owned);
            assert_eq!(got, want, "{statements:?}");
        };
        let none = Statements::default();
        let defaults = [
            "memory.available<100Mi",
            "nodefs.available<10.0%",
            "nodefs.inodesFree<5.0%",
            "imagefs.available<15.0%",
            "imagefs.inodesFree<5.0%",
        ];
        check(none, Ok(&defaults));
        check(Statements { hard: Some(""), ..none }, Ok(&[]));
        // What is given takes the place of all defaults.
        let two = Some("pid.available<10%,memory.available<1Gi");
        check(Statements { hard: two, ..none }, Ok(&["memory.available<1Gi", "pid.available<10.0%"]));
        check(Statements { hard: Some("nodefs.available<0%,imagefs.available<100%"), ..none }, Ok(&[]));
        check(Statements { hard: Some("containerfs.available<5%"), ..none }, Ok(&[]));
        let soft = Statements {
            hard: Some("memory.available<100Mi"),
            soft: Some("memory.available<1.5Gi"),
            soft_grace: Some("memory.available=1m30s"),
            minimum_reclaim: Some("memory.available=200Mi"),
        };
        check(soft, Ok(&["memory.available<100Mi +200Mi", "memory.available<1536Mi for 90s +200Mi"]));
        let refused = |hard, why| check(Statements { hard: Some(hard), ..none }, Err(why));
        refused("disk.available<1Gi", "unsupported eviction signal disk.available");
        refused("memory.available=1Gi", "malformed pair \"memory.available=1Gi\", expect signal<value");
        refused("memory.available<0", "eviction threshold memory.available must be positive: 0");
        refused("memory.available<-1Mi", "eviction threshold memory.available must be positive: -1Mi");
        refused("nodefs.available<101%", "eviction percentage threshold nodefs.available must be <= 100%: 101%");
        refused("nodefs.available<-1%", "eviction percentage threshold nodefs.available must be >= 0%: -1%");
        check(
            Statements { soft: Some("memory.available<1Gi"), ..none },
            Err("grace period must be specified for the soft eviction threshold memory.available"),
        );
    }
}
