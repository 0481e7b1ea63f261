//! Amounts as Kubernetes writes them (`100m`, `1.5`, `64Mi`, `2e3`), read as whole numbers, rounded up.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// In thousandths: what processors are counted in.
pub fn milli(quantity: &Quantity) -> Option<i64> {
    scaled(&quantity.0, 3)
}

/// In units: bytes, pieces.
pub fn value(quantity: &Quantity) -> Option<i64> {
    scaled(&quantity.0, 0)
}

/// `text` times ten to the `extra`, rounded up; none for what is no quantity or too big.
fn scaled(text: &str, extra: i32) -> Option<i64> {
    let text = text.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() + fraction.len() > 30 {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (binary, ten) = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        exponent => (0, exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok().filter(|e| (-30..=30).contains(e))?),
    };
    let exponent = ten + extra - i32::try_from(fraction.len()).ok()?;
    let mut amount = digits.checked_mul(1_i128 << binary)?;
    if exponent >= 0 {
        amount = amount.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?)?;
    } else {
        let divisor = 10_i128.checked_pow(exponent.unsigned_abs())?;
        amount = amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0);
    }
    i64::try_from(if negative { -amount } else { amount }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_rounded_up() {
        let check = |text: &str, millis: Option<i64>, units: Option<i64>| {
            let quantity = Quantity(text.into());
            assert_eq!((milli(&quantity), value(&quantity)), (millis, units), "{text}");
        };
        check("100m", Some(100), Some(1));
        check("1.5", Some(1500), Some(2));
        check("64Mi", Some(67_108_864_000), Some(67_108_864));
        check("1.5Gi", Some(1_610_612_736_000), Some(1_610_612_736));
        check("2e3", Some(2_000_000), Some(2000));
        check("1E", None, Some(1_000_000_000_000_000_000));
        check("", None, None);
        check("1.2.3", None, None);
        check("9e99", None, None);
        check("0", Some(0), Some(0));
    }
}
