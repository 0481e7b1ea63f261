//! Native histograms: buckets of one relative width, made where values fall.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// An octave has two to the power of this many buckets, so that one is at most 10% wider than the one before it.
const SCHEMA: i32 = 3;
const PER_OCTAVE: usize = 1 << SCHEMA;
/// Where the buckets of an octave end, by its beginning.
const ENDS: [f64; PER_OCTAVE] = [
    1.0905077326652577,
    1.189207115002721,
    1.2968395546510096,
    std::f64::consts::SQRT_2,
    1.5422108254079407,
    1.681792830507429,
    1.8340080864093424,
    2.0,
];
/// Values from a microsecond to an hour have buckets of their own; the outermost ones take what lies beyond.
const OCTAVES: usize = 32;
const LOWEST_POWER: i32 = -20;
/// With more buckets than this, two of them are shown as one.
const MOST_BUCKETS: usize = 160;

/// Counts values without a lock, and without memory for octaves in which none fell.
#[derive(Debug, Default)]
pub struct NativeHistogram {
    octaves: [OnceLock<Box<[AtomicU64; PER_OCTAVE]>>; OCTAVES],
    zeros: AtomicU64,
}

/// The buckets of a native histogram at one moment, as the format has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeBuckets {
    pub(crate) schema: i32,
    pub(crate) zeros: u64,
    /// Runs of buckets: how far behind the run before it one begins, and how long it is.
    pub(crate) spans: Vec<(i32, u32)>,
    /// Each count as its difference from the one before it.
    pub(crate) deltas: Vec<i64>,
    pub(crate) count: u64,
}

impl NativeHistogram {
    pub fn record(&self, value: f64) {
        let counter = match index_of(value) {
            None => &self.zeros,
            Some(index) => {
                let octave = self.octaves.get(index / PER_OCTAVE).map(|octave| octave.get_or_init(Box::default));
                let Some(counter) = octave.and_then(|octave| octave.get(index % PER_OCTAVE)) else { return };
                counter
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn reset(&self) {
        self.zeros.store(0, Ordering::Relaxed);
        for counter in self.octaves.iter().filter_map(OnceLock::get).flat_map(|octave| octave.iter()) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub fn buckets(&self) -> NativeBuckets {
        let mut counts: Vec<(i32, u64)> = Vec::new();
        let mut key = LOWEST_POWER * PER_OCTAVE as i32;
        for octave in &self.octaves {
            for at in 0..PER_OCTAVE {
                key += 1;
                let count = octave.get().map_or(0, |octave| octave[at].load(Ordering::Relaxed));
                if count > 0 {
                    counts.push((key, count));
                }
            }
        }
        let mut schema = SCHEMA;
        while counts.len() > MOST_BUCKETS {
            schema -= 1;
            counts = halved(&counts);
        }
        let zeros = self.zeros.load(Ordering::Relaxed);
        let (spans, deltas) = spans(&counts);
        let count = counts.iter().map(|(_, count)| count).sum::<u64>() + zeros;
        NativeBuckets { schema, zeros, spans, deltas, count }
    }
}

/// Which bucket a value falls into. None: it is nothing.
fn index_of(value: f64) -> Option<usize> {
    if value.is_nan() || value <= 0.0 {
        return None;
    }
    let (least, most) = (f64::powi(2.0, LOWEST_POWER), f64::powi(2.0, LOWEST_POWER + OCTAVES as i32));
    if value <= least {
        return Some(0);
    }
    if value >= most {
        return Some(OCTAVES * PER_OCTAVE - 1);
    }
    // The octave of a value at its end is the one that ends there.
    let power = value.log2().ceil() as i32;
    let power = if value <= f64::powi(2.0, power - 1) { power - 1 } else { power };
    let octave = usize::try_from(power - 1 - LOWEST_POWER).ok()?;
    let start = f64::powi(2.0, power - 1);
    let at = ENDS.iter().position(|end| value <= start * end).unwrap_or(PER_OCTAVE - 1);
    Some(octave * PER_OCTAVE + at)
}

/// The same values in buckets that are twice as wide.
fn halved(counts: &[(i32, u64)]) -> Vec<(i32, u64)> {
    let mut wider: Vec<(i32, u64)> = Vec::with_capacity(counts.len());
    for (key, count) in counts {
        let key = (key + 1).div_euclid(2);
        match wider.last_mut() {
            Some((last, sum)) if *last == key => *sum += count,
            _ => wider.push((key, *count)),
        }
    }
    wider
}

/// Gaps of one or two buckets are cheaper as empty buckets than as a new run.
fn spans(counts: &[(i32, u64)]) -> (Vec<(i32, u32)>, Vec<i64>) {
    let mut spans: Vec<(i32, u32)> = Vec::new();
    let mut deltas = Vec::new();
    let (mut next, mut before) = (0, 0_i64);
    for (key, count) in counts {
        let gap = key - next;
        match spans.last_mut() {
            Some((_, length)) if gap <= 2 => {
                *length += gap.unsigned_abs() + 1;
                for _ in 0..gap {
                    deltas.push(-before);
                    before = 0;
                }
            }
            _ => spans.push((gap, 1)),
        }
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        before = count;
        next = key + 1;
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> NativeBuckets {
        let histogram = NativeHistogram::default();
        for value in values {
            histogram.record(*value);
        }
        histogram.buckets()
    }

    #[test]
    fn a_bucket_ends_with_its_bound() {
        // Bucket 0 ends at 1, bucket 8 at 2; the bound itself belongs to the bucket.
        for (value, key) in [(1.0, 0), (1.0001, 1), (1.09, 1), (1.1, 2), (2.0, 8), (0.5, -8), (0.51, -7), (3.9, 16)] {
            assert_eq!(of(&[value]).spans, [(key, 1)], "{value}");
        }
        let beyond = of(&[0.0, -1.0, f64::NAN, 1e-9, 1e9, f64::INFINITY]);
        assert_eq!((beyond.zeros, beyond.spans), (3, vec![(-159, 1), (254, 1)]));
        assert_eq!((beyond.deltas, beyond.count), (vec![1, 1], 6));
    }

    #[test]
    fn the_ends_are_powers_of_the_eighth_root_of_two() {
        for (at, end) in ENDS.iter().enumerate() {
            let exact = f64::powf(2.0, (at + 1) as f64 / PER_OCTAVE as f64);
            assert!((exact - end).abs() < 1e-15, "{at}");
        }
    }

    #[test]
    fn short_gaps_are_filled() {
        let seen = of(&[1.0, 1.0, 1.0, 2.0, 1.3, 1.4]);
        // Buckets 0, 4 and 8 with 3, 2 and 1 values: 1.3 and 1.4 fall into 4, and into 4 as well.
        assert_eq!(seen.count, 6);
        assert_eq!(spans(&[(0, 3), (1, 1), (4, 5), (8, 2)]), (vec![(0, 5), (3, 1)], vec![3, -2, -1, 0, 5, -3]));
    }

    #[test]
    fn many_buckets_become_fewer() {
        let values: Vec<f64> = (0..256).map(|at| f64::powf(2.0, (f64::from(at) - 159.5) / 8.0)).collect();
        let seen = of(&values);
        assert_eq!((seen.schema, seen.count, seen.deltas.len()), (2, 256, 128));
        assert_eq!(
            halved(&[(-3, 1), (-2, 1), (-1, 1), (0, 1), (1, 1), (2, 1), (3, 1)]),
            [(-1, 2), (0, 2), (1, 2), (2, 1)]
        );
    }

    #[test]
    fn what_is_reset_begins_anew() {
        let histogram = NativeHistogram::default();
        histogram.record(0.3);
        histogram.record(0.0);
        histogram.reset();
        assert_eq!(histogram.buckets(), NativeHistogram::default().buckets());
    }
}
