//! Quantities: `100m`, `1Gi`, `12e6`. Parsed and written in upstream's canonical form.

use std::borrow::Cow;

const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC: &str = "unable to parse numeric part of quantity";
const SUFFIX: &str = "unable to parse quantity's suffix";

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

struct Parts<'a> {
    positive: bool,
    /// Digits before the point, without leading zeros (`0` if there are none).
    number: &'a str,
    /// Digits behind the point.
    fraction: &'a str,
    /// Sign, digits and point, as they stand.
    value: &'a str,
    suffix: &'a str,
}

/// The text upstream writes for this quantity, or its error.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if text.is_empty() {
        return Err(FORMAT);
    }
    if text == "0" {
        return Ok(Cow::Borrowed(text));
    }
    let parts = split(text).ok_or(FORMAT)?;
    let (binary_shift, exponent, format) = interpret(parts.suffix).ok_or(SUFFIX)?;
    if parts.value.bytes().filter(|c| *c == b'.').count() > 1 || !parts.value.bytes().any(|c| c.is_ascii_digit()) {
        return Err(NUMERIC);
    }
    if let Some(result) = fast(text, &parts, binary_shift, exponent, format) {
        return Ok(result);
    }
    Ok(Cow::Owned(slow(&parts, binary_shift, exponent, format)))
}

fn split(text: &str) -> Option<Parts<'_>> {
    let bytes = text.as_bytes();
    let digit_end = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let positive = !text.starts_with('-');
    let mut at = usize::from(text.starts_with(['-', '+']));
    while bytes.get(at) == Some(&b'0') {
        at += 1;
    }
    let number_end = digit_end(at);
    let number = if number_end == at { "0" } else { &text[at..number_end] };
    at = number_end;
    let mut fraction = "";
    if bytes.get(at) == Some(&b'.') {
        let end = digit_end(at + 1);
        fraction = &text[at + 1..end];
        at = end;
    }
    let value = &text[..at];
    let suffix_start = at;
    while bytes.get(at).is_some_and(|c| b"eEinumkKMGTP".contains(c)) {
        at += 1;
    }
    if let Some(b'-' | b'+') = bytes.get(at) {
        at += 1;
    }
    (digit_end(at) == bytes.len()).then(|| Parts { positive, number, fraction, value, suffix: &text[suffix_start..] })
}

/// (power of two, power of ten, format) of a suffix.
fn interpret(suffix: &str) -> Option<(u32, i32, Format)> {
    let decimal = |exponent| Some((0, exponent, Format::Decimal));
    let binary = |shift| Some((shift, 0, Format::Binary));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
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
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
            // Far beyond what any quantity can hold; bounded so that no text is as long as its exponent says.
            Some((0, i32::try_from(exponent.clamp(-1000, 1000)).unwrap_or(0), Format::Exponent))
        }
    }
}

/// What fits 64 bits; upstream reuses the text when it is canonical already.
fn fast<'a>(text: &'a str, parts: &Parts<'_>, shift: u32, exponent: i32, format: Format) -> Option<Cow<'a, str>> {
    let (number, fraction) = (parts.number.len() as i32, parts.fraction.len() as i32);
    let precision = match format {
        Format::Binary if parts.fraction.is_empty() => 15 - number - (shift as f32 * 3.0 / 10.0) as i32 - 1,
        Format::Binary => -1,
        _ => 18 - (number + fraction),
    };
    let scale = exponent - fraction;
    if precision < 0 || scale < -9 {
        return None;
    }
    let shifted = format!("{}{}", parts.number, parts.fraction);
    let value: i64 = shifted.parse().ok()?;
    let result = value.checked_mul(1i64.checked_shl(shift)?)?;
    let reusable = match format {
        Format::Binary => value & 7 != 0,
        _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    };
    if reusable {
        return Some(Cow::Borrowed(text));
    }
    Some(Cow::Owned(write(parts.positive, u128::from(result.unsigned_abs()), scale, format)))
}

fn slow(parts: &Parts<'_>, shift: u32, exponent: i32, format: Format) -> String {
    let mut digits = format!("{}{}", parts.number, parts.fraction).trim_start_matches('0').to_owned();
    let mut scale = exponent - parts.fraction.len() as i32;
    if digits.is_empty() {
        return "0".to_owned();
    }
    if format != Format::Binary {
        round_up_to_nano(&mut digits, &mut scale);
        return write_digits(parts.positive, digits, scale, format);
    }
    const MAX: u128 = i64::MAX as u128;
    // Binary quantities are capped at 2^63-1, so longer numbers need no exact product.
    let product = if digits.len() > 38 { None } else { digits.parse::<u128>().ok() }
        .and_then(|value| value.checked_mul(1u128 << shift));
    let Some(product) = product else {
        return write(parts.positive, MAX, 0, Format::Binary);
    };
    let mut digits = product.to_string();
    round_up_to_nano(&mut digits, &mut scale);
    let value: u128 = digits.parse().unwrap_or(MAX);
    let one = 10u128.pow(scale.unsigned_abs().min(38));
    if value / one > MAX || (value / one == MAX && value % one > 0) {
        return write(parts.positive, MAX, 0, Format::Binary);
    }
    let format = if value < one { Format::Decimal } else { Format::Binary };
    write(parts.positive, value, scale, format)
}

fn round_up_to_nano(digits: &mut String, scale: &mut i32) {
    while *scale < -9 {
        let drop = ((-9 - *scale) as usize).min(digits.len());
        let lost = digits.split_off(digits.len() - drop);
        *scale += drop as i32;
        if digits.is_empty() {
            // Anything above zero is at least the smallest amount.
            *digits = "1".to_owned();
            *scale = -9;
        } else if lost.bytes().any(|c| c != b'0') {
            increment(digits);
        }
    }
}

fn increment(digits: &mut String) {
    let mut bytes = std::mem::take(digits).into_bytes();
    let mut carry = true;
    for digit in bytes.iter_mut().rev() {
        if *digit == b'9' {
            *digit = b'0';
        } else {
            *digit += 1;
            carry = false;
            break;
        }
    }
    if carry {
        bytes.insert(0, b'1');
    }
    *digits = String::from_utf8(bytes).unwrap_or_default();
}

fn write(positive: bool, value: u128, scale: i32, format: Format) -> String {
    if value == 0 {
        return "0".to_owned();
    }
    if format == Format::Binary {
        let divisor = 10u128.checked_pow(scale.unsigned_abs()).unwrap_or(u128::MAX);
        let whole = if scale >= 0 { value.checked_mul(divisor) } else { (value % divisor == 0).then(|| value / divisor) };
        if let Some(mut amount) = whole.filter(|w| *w >= 1024) {
            let mut times = 0;
            while amount >= 1024 && amount % 1024 == 0 {
                amount /= 1024;
                times += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(times).copied().unwrap_or_default();
            return format!("{}{amount}{suffix}", if positive { "" } else { "-" });
        }
        return write_digits(positive, value.to_string(), scale, Format::Decimal);
    }
    write_digits(positive, value.to_string(), scale, format)
}

fn write_digits(positive: bool, digits: String, scale: i32, format: Format) -> String {
    let mut digits = digits;
    let mut exponent = scale;
    while digits.len() > 1 && digits.ends_with('0') {
        digits.pop();
        exponent += 1;
    }
    while exponent % 3 != 0 {
        digits.push('0');
        exponent -= 1;
    }
    let sign = if positive { "" } else { "-" };
    let suffix = match (format, exponent) {
        (_, 0) => String::new(),
        (Format::Exponent, e) => format!("e{e}"),
        (_, -9) => "n".into(),
        (_, -6) => "u".into(),
        (_, -3) => "m".into(),
        (_, 3) => "k".into(),
        (_, 6) => "M".into(),
        (_, 9) => "G".into(),
        (_, 12) => "T".into(),
        (_, 15) => "P".into(),
        (_, 18) => "E".into(),
        // Upstream has no suffix for these and writes none.
        _ => String::new(),
    };
    format!("{sign}{digits}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_canonical() {
        for (text, expected) in [
            ("0", "0"),
            ("1", "1"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("100000000n", "100m"),
            ("0.0001", "100u"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1048576Ki", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1E", "1E"),
            ("12e6", "12e6"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("1000", "1k"),
            ("1001", "1001"),
            ("-5", "-5"),
            ("-1.5Gi", "-1536Mi"),
            ("0.1n", "1n"),
            ("10000000000000000000Ei", "9223372036854775807"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("00", "0"),
            ("0Mi", "0"),
            ("100Ki", "100Ki"),
            ("1000Ki", "1000Ki"),
            ("5G", "5G"),
            ("1.1E", "1100P"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for (text, error) in
            [("", FORMAT), ("abc", FORMAT), ("1GiB", FORMAT), ("1.2.3", FORMAT), ("1kk", SUFFIX), ("1ee", SUFFIX)]
        {
            assert_eq!(canonical(text), Err(error), "{text}");
        }
    }
}
