//! Amounts of resources such as `100m`, `1.5Gi` or `12e6`: read, compared, added and printed as upstream does.
//!
//! A quantity is a whole number times a power of ten no smaller than nano. How it was written (binary, decimal or with an
//! exponent) decides how it prints.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    #[default]
    DecimalSi,
}

/// Equality and order are by amount alone: `1` equals `1000m`.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    mantissa: i128,
    /// A power of ten, at least `NANO`.
    exponent: i32,
    format: Format,
    /// The text it was read from, where upstream prints that again.
    text: Option<String>,
}

/// Why a text is no quantity, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i32 = -9;
/// More digits than this are beyond any amount; the rest only moves the point.
const MAX_DIGITS: usize = 36;
const LARGEST: i128 = i64::MAX as i128;

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            None => return Err(QuantityError::Format),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let digits_end = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits_end);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        if !is_suffix(suffix) {
            return Err(QuantityError::Format);
        }
        if whole.is_empty() && fraction.is_empty() {
            // Upstream takes a lone sign or point for zero only when nothing follows it.
            return if suffix.is_empty() && !unsigned.is_empty() {
                Ok(Self::default())
            } else {
                Err(QuantityError::Numeric)
            };
        }
        let (base_two, power, format) = interpret(suffix).ok_or(QuantityError::Suffix)?;
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let (mantissa, dropped) = digits(whole, fraction);
        let mantissa = if negative { -mantissa } else { mantissa };
        let point = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let exponent = dropped.saturating_sub(point);
        if base_two {
            return Ok(binary(mantissa, exponent, power, whole, fraction, text));
        }
        let exponent = exponent.saturating_add(power);
        let mut quantity = Self { mantissa, exponent, format, text: None }.rounded_up_to(NANO);
        let shifted_is_plain = {
            let last = if fraction.is_empty() { whole } else { fraction };
            let ends_in_zeros = format!("{whole}{fraction}").ends_with("000");
            !whole.starts_with('0') && !ends_in_zeros && !last.is_empty()
        };
        if whole.len() + fraction.len() <= 18 && exponent >= NANO && exponent % 3 == 0 && shifted_is_plain {
            quantity.text = Some(text.to_owned());
        }
        Ok(quantity)
    }
}

/// Letters of the suffixes, then an optional exponent.
fn is_suffix(suffix: &str) -> bool {
    let letters = suffix.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let rest = &suffix[letters..];
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}

/// Whether the suffix counts in powers of two, the power, and the format it stands for.
fn interpret(suffix: &str) -> Option<(bool, i32, Format)> {
    let decimal = |power| Some((false, power, Format::DecimalSi));
    let binary = |power| Some((true, power, Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = power.clamp(-1_000_000, 1_000_000);
            Some((false, i32::try_from(power).ok()?, Format::DecimalExponent))
        }
    }
}

/// The number of the digits, and the power of ten of those beyond what is kept.
fn digits(whole: &str, fraction: &str) -> (i128, i32) {
    let mut number: i128 = 0;
    let mut dropped = 0;
    let significant = whole.bytes().chain(fraction.bytes()).skip_while(|b| *b == b'0');
    for (index, digit) in significant.enumerate() {
        if index < MAX_DIGITS {
            number = number * 10 + i128::from(digit - b'0');
        } else {
            dropped += 1;
        }
    }
    (number, dropped)
}

fn binary(mantissa: i128, exponent: i32, power: i32, whole: &str, fraction: &str, text: &str) -> Quantity {
    let scaled = mantissa.saturating_mul(1 << power);
    let mut quantity =
        Quantity { mantissa: scaled, exponent, format: Format::BinarySi, text: None }.rounded_up_to(NANO);
    let largest = Quantity { mantissa: LARGEST, ..Quantity::default() };
    if quantity > largest {
        quantity = Quantity { format: Format::BinarySi, ..largest };
    }
    let one = Quantity { mantissa: 1, ..Quantity::default() };
    if !fraction.is_empty() && quantity.mantissa > 0 && quantity < one {
        quantity.format = Format::DecimalSi;
    }
    let fits = 15 - whole.len() as i64 - i64::from(power) * 3 / 10 > 0;
    if fraction.is_empty() && fits && mantissa & 7 != 0 {
        quantity.text = Some(text.to_owned());
    }
    quantity
}

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        text.parse()
    }

    pub fn from_units(units: i64, format: Format) -> Self {
        Self { mantissa: units.into(), exponent: 0, format, text: None }
    }

    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self { mantissa: milli.into(), exponent: -3, format, text: None }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// Whole units, rounded away from zero.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Thousandths, rounded away from zero.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    fn scaled(&self, exponent: i32) -> i64 {
        let rounded = self.clone().rounded_up_to(exponent);
        let shift = u32::try_from(rounded.exponent - exponent).unwrap_or_default();
        let number = power_of_ten(shift)
            .map_or(if rounded.mantissa == 0 { 0 } else { i128::MAX * rounded.mantissa.signum() }, |power| {
                rounded.mantissa.saturating_mul(power)
            });
        i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
    }

    /// The nearest number that a double can hold.
    pub fn as_f64(&self) -> f64 {
        format!("{}e{}", self.mantissa, self.exponent).parse().unwrap_or_default()
    }

    /// Whether it is a whole number of units.
    pub fn is_integer(&self) -> bool {
        self.clone().rounded_up_to(0) == *self
    }

    /// Rounded away from zero to a multiple of a power of ten (`-3`: to thousandths).
    #[must_use]
    pub fn round_up(&self, exponent: i32) -> Self {
        let rounded = self.clone().rounded_up_to(exponent);
        if rounded == *self { self.clone() } else { Self { text: None, ..rounded } }
    }

    fn rounded_up_to(mut self, exponent: i32) -> Self {
        if self.exponent >= exponent {
            return self;
        }
        let shift = u32::try_from(exponent - self.exponent).unwrap_or(u32::MAX);
        let sign = self.mantissa.signum();
        self.mantissa = match power_of_ten(shift) {
            Some(power) => self.mantissa / power + if self.mantissa % power == 0 { 0 } else { sign },
            None => sign,
        };
        self.exponent = exponent;
        self
    }

    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        let (left, right, exponent) = aligned(self, other);
        let format = if self.is_zero() { other.format } else { self.format };
        Self { mantissa: left.saturating_add(right), exponent, format, text: None }
    }

    #[must_use]
    pub fn sub(&self, other: &Self) -> Self {
        let (left, right, exponent) = aligned(self, other);
        let format = if self.is_zero() { other.format } else { self.format };
        Self { mantissa: left.saturating_sub(right), exponent, format, text: None }
    }

    pub fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

fn power_of_ten(power: u32) -> Option<i128> {
    10_i128.checked_pow(power)
}

/// Both mantissas at the smaller exponent; one too large for that stands at the limit, beyond any other.
fn aligned(left: &Quantity, right: &Quantity) -> (i128, i128, i32) {
    let exponent = left.exponent.min(right.exponent);
    let at = |q: &Quantity| {
        let shift = u32::try_from(q.exponent - exponent).unwrap_or(u32::MAX);
        match power_of_ten(shift) {
            Some(power) => q.mantissa.saturating_mul(power),
            None if q.mantissa == 0 => 0,
            None => i128::MAX * q.mantissa.signum(),
        }
    };
    (at(left), at(right), exponent)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right, _) = aligned(self, other);
        left.cmp(&right)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        let small = Self::from_units(1024, Format::DecimalSi);
        let magnitude = Self { mantissa: self.mantissa.saturating_abs(), ..self.clone() };
        if self.format == Format::BinarySi && magnitude >= small && self.is_integer() {
            return self.write_binary(f);
        }
        self.write_decimal(f)
    }
}

impl Quantity {
    fn write_binary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut amount = i128::from(self.value());
        let mut power = 0;
        while amount % 1024 == 0 && amount.abs() >= 1024 && power < 6 {
            amount /= 1024;
            power += 1;
        }
        write!(f, "{amount}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power])
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut amount, mut exponent) = (self.mantissa, self.exponent);
        while amount % 10 == 0 {
            amount /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            amount = amount.saturating_mul(10);
            exponent -= 1;
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 { write!(f, "{amount}") } else { write!(f, "{amount}e{exponent}") };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            // Upstream has no suffix beyond these and prints none.
            _ => "",
        };
        write!(f, "{amount}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn quantities_print_in_canonical_form() {
        let check = |text: &str, want: &str| assert_eq!(quantity(text).to_string(), want, "{text}");
        check("0", "0");
        check("0Mi", "0");
        check("1000m", "1");
        check("1500m", "1500m");
        check("0.5", "500m");
        check("1.5", "1500m");
        check("100000000n", "100m");
        check("12e6", "12e6");
        check("1024Mi", "1Gi");
        check("1048576Ki", "1Gi");
        check("1000Mi", "1000Mi");
        check("1.5Gi", "1536Mi");
        check("1E", "1E");
        check("3Mi", "3Mi");
        check("0.1Ki", "102400m");
        check("1000", "1k");
        check("1023", "1023");
        check("-1", "-1");
        check("-0.5", "-500m");
        check("0.0000000001", "1n");
        check("9223372036854775807", "9223372036854775807");
        check("100Ei", "9223372036854775807");
        check("1e3", "1e3");
        check("1000e3", "1e6");
        check("007", "007");
        check("1.500", "1.500");
    }

    #[test]
    fn wrong_texts_say_why() {
        let check = |text: &str, want: QuantityError| assert_eq!(text.parse::<Quantity>(), Err(want), "{text}");
        check("", QuantityError::Format);
        check("abc", QuantityError::Format);
        check("1GiB", QuantityError::Format);
        check("true", QuantityError::Format);
        check("1 ", QuantityError::Format);
        check("1KI", QuantityError::Format);
        check("1nn", QuantityError::Suffix);
    }

    #[test]
    fn amounts_compare_and_add() {
        assert_eq!(quantity("1"), quantity("1000m"));
        assert!(quantity("1Gi") > quantity("1G"));
        assert!(quantity("1e900000") > quantity("1Ei"));
        assert!(quantity("-1e900000") < quantity("0"));
        assert_eq!(quantity("100m").add(&quantity("1")).to_string(), "1100m");
        assert_eq!(quantity("1Gi").sub(&quantity("512Mi")).to_string(), "512Mi");
        assert_eq!(quantity("1.5").milli_value(), 1500);
        assert_eq!(quantity("100u").milli_value(), 1);
        assert_eq!(quantity("1500m").value(), 2);
        assert_eq!(quantity("0.0001").round_up(-3).to_string(), "1m");
        assert!(!quantity("1500m").is_integer() && quantity("2k").is_integer());
    }
}
