//! Taints of nodes and devices, and the tolerations that let pods and claims have them all the same.

use k8s_openapi::api::core::v1;
use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration};
use serde_json::Value;

pub const NO_SCHEDULE: &str = "NoSchedule";
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
pub const NO_EXECUTE: &str = "NoExecute";
/// What a cordoned node carries beside its flag.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A taint, of an object of the API or of its JSON. What is absent is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taint<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

/// A toleration, of an object of the API or of its JSON. What is absent is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Toleration<'a> {
    pub key: &'a str,
    pub operator: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

/// Nodes and devices have types of their own for the same fields.
macro_rules! read_from {
    ($taint:ty, $toleration:ty) => {
        impl<'a> From<&'a $taint> for Taint<'a> {
            fn from(taint: &'a $taint) -> Self {
                Self { key: &taint.key, value: taint.value.as_deref().unwrap_or_default(), effect: &taint.effect }
            }
        }

        impl<'a> From<&'a $toleration> for Toleration<'a> {
            fn from(toleration: &'a $toleration) -> Self {
                let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
                Self {
                    key: text(&toleration.key),
                    operator: text(&toleration.operator),
                    value: text(&toleration.value),
                    effect: text(&toleration.effect),
                }
            }
        }
    };
}

read_from!(v1::Taint, v1::Toleration);
read_from!(DeviceTaint, DeviceToleration);

impl<'a> From<&'a Value> for Taint<'a> {
    fn from(taint: &'a Value) -> Self {
        let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default();
        Self { key: text("key"), value: text("value"), effect: text("effect") }
    }
}

impl<'a> From<&'a Value> for Toleration<'a> {
    fn from(toleration: &'a Value) -> Self {
        let text = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or_default();
        Self { key: text("key"), operator: text("operator"), value: text("value"), effect: text("effect") }
    }
}

impl Toleration<'_> {
    /// An empty effect stands for all effects, an empty key for all keys.
    pub fn tolerates<'b>(&self, taint: impl Into<Taint<'b>>) -> bool {
        let taint = taint.into();
        if !(self.effect.is_empty() || self.effect == taint.effect) || !(self.key.is_empty() || self.key == taint.key) {
            return false;
        }
        let numbers = || Some((integer(taint.value)?, integer(self.value)?));
        match self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Gt" => numbers().is_some_and(|(tainted, bound)| tainted > bound),
            "Lt" => numbers().is_some_and(|(tainted, bound)| tainted < bound),
            _ => false,
        }
    }

    /// Whether its operator compares numbers, which upstream's API takes behind the gate
    /// TaintTolerationComparisonOperators only.
    pub fn compares(&self) -> bool {
        matches!(self.operator, "Gt" | "Lt")
    }
}

/// Whether one of the tolerations tolerates the taint.
pub fn tolerated<'t, T: Into<Toleration<'t>>>(
    tolerations: impl IntoIterator<Item = T>,
    taint: impl Into<Taint<'t>>,
) -> bool {
    let taint = taint.into();
    tolerations.into_iter().any(|toleration| toleration.into().tolerates(taint))
}

/// The first taint of these effects that no toleration tolerates.
pub fn untolerated<'a>(
    taints: &'a [v1::Taint],
    tolerations: &[v1::Toleration],
    effects: &[&str],
) -> Option<&'a v1::Taint> {
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .find(|taint| !tolerations.iter().any(|toleration| Toleration::from(toleration).tolerates(*taint)))
}

/// A number as comparing operators take it: without a plus, leading zeros or blanks, within 64 bits.
pub fn integer(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// What is wrong with the value of a toleration that compares numbers, in upstream's words.
pub fn integer_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if text.is_empty() {
        errors.push("must be non-empty".to_owned());
    } else if text != "0" && (!canonical || digits.starts_with('0')) {
        errors.push("must be a valid decimal integer in canonical form".to_owned());
    }
    if let Err(error) = text.parse::<i64>() {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        errors.push(format!("strconv.ParseInt: parsing {text:?}: {why}"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_as_the_api_says() {
        for (toleration, taint, expected) in [
            (json!({"operator": "Exists"}), "k=v:NoSchedule", true),
            (json!({"key": "k", "value": "v"}), "k=v:NoSchedule", true),
            (json!({"key": "k", "operator": "Equal", "value": "v"}), "k=v:NoSchedule", true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), "k=v:NoSchedule", false),
            (json!({"key": "k"}), "k=:NoSchedule", true),
            // The API refuses it; where it is stored, an empty key stands for all.
            (json!({"value": "v"}), "k=v:NoSchedule", true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), "k=v:NoSchedule", false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), "k=v:NoExecute", true),
            (json!({"key": "j", "operator": "Exists"}), "k=v:NoSchedule", false),
            (json!({"key": "k", "operator": "Gt", "value": "5"}), "k=7:NoSchedule", true),
            (json!({"key": "k", "operator": "Gt", "value": "7"}), "k=7:NoSchedule", false),
            (json!({"key": "k", "operator": "Lt", "value": "5"}), "k=7:NoSchedule", false),
            (json!({"key": "k", "operator": "Lt", "value": "5"}), "k=-7:NoSchedule", true),
            (json!({"key": "k", "operator": "Gt", "value": "x"}), "k=7:NoSchedule", false),
            (json!({"key": "k", "operator": "Gt", "value": "+5"}), "k=7:NoSchedule", false),
            (json!({"key": "k", "operator": "Gt", "value": "5"}), "k=007:NoSchedule", false),
            (json!({"key": "k", "operator": "Gt", "value": "5"}), "k=99999999999999999999:NoSchedule", false),
            (json!({"key": "k", "operator": "NotEqual", "value": "5"}), "k=7:NoSchedule", false),
        ] {
            let (key, rest) = taint.split_once('=').expect("a taint");
            let (value, effect) = rest.split_once(':').expect("a taint");
            let tainted =
                v1::Taint { key: key.into(), value: Some(value.into()), effect: effect.into(), time_added: None };
            let typed: v1::Toleration = serde_json::from_value(toleration.clone()).expect("a toleration");
            let view = Toleration::from(&toleration);
            assert_eq!(view, Toleration::from(&typed));
            assert_eq!(view.tolerates(&tainted), expected, "{toleration} {taint}");
            assert_eq!(tolerated([&typed], &json!({"key": key, "value": value, "effect": effect})), expected);
            let left =
                untolerated(std::slice::from_ref(&tainted), std::slice::from_ref(&typed), &[NO_SCHEDULE, NO_EXECUTE]);
            assert_eq!(left.is_none(), expected, "{toleration} {taint}");
        }
        let device =
            DeviceToleration { key: Some("k".into()), operator: Some("Exists".into()), ..DeviceToleration::default() };
        let taint = DeviceTaint { key: "k".into(), effect: NO_EXECUTE.into(), ..DeviceTaint::default() };
        assert!(Toleration::from(&device).tolerates(&taint));
        let tainted = v1::Taint { key: "k".into(), effect: PREFER_NO_SCHEDULE.into(), ..v1::Taint::default() };
        assert_eq!(untolerated(&[tainted], &[], &[NO_SCHEDULE]), None);
    }

    #[test]
    fn numbers_are_canonical() {
        const FORM: &str = "must be a valid decimal integer in canonical form";
        for (text, want) in [
            ("0", &[][..]),
            ("-5", &[]),
            ("9223372036854775807", &[]),
            ("", &["must be non-empty", "strconv.ParseInt: parsing \"\": invalid syntax"]),
            ("+5", &[FORM]),
            ("007", &[FORM]),
            ("-0", &[FORM]),
            ("-", &[FORM, "strconv.ParseInt: parsing \"-\": invalid syntax"]),
            ("1.5", &[FORM, "strconv.ParseInt: parsing \"1.5\": invalid syntax"]),
            ("9223372036854775808", &["strconv.ParseInt: parsing \"9223372036854775808\": value out of range"]),
        ] {
            assert_eq!(integer_errors(text), want, "{text}");
            assert_eq!(integer(text).is_some(), want.is_empty(), "{text}");
        }
    }
}
