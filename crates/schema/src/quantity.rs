//! Quantities in upstream's canonical form: `1024Mi` is written `1Gi`.

use ferry_meta::quantity::{Quantity, QuantityError};

/// The text upstream writes for this quantity, or its error.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    Quantity::parse(text).map(|quantity| quantity.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    const SUFFIX: &str = "unable to parse quantity's suffix";

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
            assert_eq!(canonical(text).map_err(|e| e.to_string()), Err(error.to_owned()), "{text}");
        }
    }
}
