//! Label selectors as they stand in objects: `matchLabels` and `matchExpressions`.

use ferry_meta::object::{items, map, text};
use serde_json::{Map, Value};

/// An absent selector matches nothing, an empty one everything. An operator nobody knows matches nothing.
pub fn matches(selector: Option<&Value>, labels: &Map<String, Value>) -> bool {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else { return false };
    map(selector, "/matchLabels").iter().all(|(key, value)| labels.get(key) == Some(value))
        && items(selector, "/matchExpressions").iter().all(|requirement| {
            let value = labels.get(text(requirement, "/key"));
            let listed = value.is_some_and(|value| items(requirement, "/values").contains(value));
            match text(requirement, "/operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_as_upstream() {
        let labels = json!({"a": "1", "b": "2"});
        let labels = labels.as_object().expect("a map");
        for (selector, want) in [
            (json!(null), false),
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "3"]}]}), true),
            (json!({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["1"]}]}), true),
            (json!({"matchExpressions": [{"key": "c", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}), false),
        ] {
            assert_eq!(matches(Some(&selector), labels), want, "{selector}");
        }
    }
}
