//! Numbers that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    Up,
    Down,
}

/// The number, or that percentage of `total`. Text that is no percentage counts as zero: validation keeps it out.
pub(crate) fn scaled(value: &IntOrString, total: i32, round: Round) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let Some(percent) = text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok()) else { return 0 };
            let hundredfold = i64::from(total).saturating_mul(percent);
            let part = match round {
                Round::Up => hundredfold.saturating_add(99).div_euclid(100),
                Round::Down => hundredfold.div_euclid(100),
            };
            i32::try_from(part).unwrap_or(i32::MAX)
        }
    }
}

/// A count as the API's integers; lists longer than that do not exist.
pub(crate) fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// All together, or as many as the API's integers tell: clients write the parts.
pub(crate) fn total(parts: impl IntoIterator<Item = i32>) -> i32 {
    parts.into_iter().fold(0, i32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, total: i32, up: i32, down: i32) {
        let value = value.parse().map_or_else(|_| IntOrString::String(value.into()), IntOrString::Int);
        assert_eq!((scaled(&value, total, Round::Up), scaled(&value, total, Round::Down)), (up, down), "{value:?}");
    }

    #[test]
    fn percentages_round_as_asked() {
        check("3", 10, 3, 3);
        check("25%", 10, 3, 2);
        check("25%", 3, 1, 0);
        check("100%", 7, 7, 7);
        check("0%", 7, 0, 0);
        check("nonsense", 7, 0, 0);
    }
}
