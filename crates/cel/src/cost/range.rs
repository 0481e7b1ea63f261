//! Ranges of sizes and costs; nothing overflows, it is just very much.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

fn by_factor(value: u64, factor: f64) -> u64 {
    let product = (value as f64 * factor).ceil();
    if product >= 18_446_744_073_709_551_616.0 { u64::MAX } else { product as u64 }
}

impl Range {
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub fn new(min: u64, max: u64) -> Self {
        Self { min, max }
    }

    pub fn exactly(value: u64) -> Self {
        Self { min: value, max: value }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    #[must_use]
    pub fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { min: by_factor(self.min, factor), max: by_factor(self.max, factor) }
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
