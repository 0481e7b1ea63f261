//! The selectors of access reviews: what can be read of them, and whether something could not.

use ferry_meta::object;
use ferry_meta::selector::{FieldSelector, LabelSelector};
use serde_json::Value;

/// How much of a selector was left out: `""` all of it, `"partially "` some.
type Unread = Option<&'static str>;

fn unread(failed: bool, some_left: bool) -> Unread {
    failed.then_some(if some_left { "partially " } else { "" })
}

/// Fields that must have one value, for the authorizers.
pub(super) fn fields(selector: &Value) -> (Vec<(String, String)>, Unread) {
    let requirements = object::items(selector, "/requirements");
    if requirements.is_empty() {
        return match FieldSelector::parse(object::text(selector, "/rawSelector")) {
            Ok(parsed) => {
                let terms = parsed.terms().iter().filter(|term| !term.negated);
                (terms.map(|term| (term.field.clone(), term.value.clone())).collect(), None)
            }
            Err(_) => (Vec::new(), Some("")),
        };
    }
    let (mut equal, mut read) = (Vec::new(), 0);
    for requirement in requirements {
        let (key, values) = (object::text(requirement, "/key"), object::items(requirement, "/values"));
        let [Value::String(value)] = values else { continue };
        match object::text(requirement, "/operator") {
            "In" => equal.push((key.to_owned(), value.clone())),
            "NotIn" => {}
            _ => continue,
        }
        read += 1;
    }
    (equal, unread(read < requirements.len(), read > 0))
}

pub(super) fn labels(selector: &Value) -> Unread {
    let requirements = object::items(selector, "/requirements");
    if requirements.is_empty() {
        return unread(LabelSelector::parse(object::text(selector, "/rawSelector")).is_err(), false);
    }
    let read = requirements.iter().filter(|requirement| is_label_requirement(requirement)).count();
    unread(read < requirements.len(), read > 0)
}

fn is_label_requirement(requirement: &Value) -> bool {
    let key = object::text(requirement, "/key");
    let values: Vec<&str> = object::items(requirement, "/values").iter().filter_map(Value::as_str).collect();
    let text = match (object::text(requirement, "/operator"), values.is_empty()) {
        ("In", false) => format!("{key} in ({})", values.join(",")),
        ("NotIn", false) => format!("{key} notin ({})", values.join(",")),
        ("Exists", true) => key.to_owned(),
        ("DoesNotExist", true) => format!("!{key}"),
        _ => return false,
    };
    !key.is_empty() && LabelSelector::parse(&text).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_told() {
        let good = json!({"key": "a", "operator": "In", "values": ["b"]});
        let odd = json!({"key": "a", "operator": "Odd", "values": ["b"]});
        assert_eq!(labels(&json!({"requirements": [good]})), None);
        assert_eq!(labels(&json!({"requirements": [odd]})), Some(""));
        assert_eq!(labels(&json!({"requirements": [good, odd]})), Some("partially "));
        assert_eq!(labels(&json!({"rawSelector": "a in"})), Some(""));
        assert_eq!(labels(&Value::Null), None);
        let pair = vec![("a".to_owned(), "b".to_owned())];
        assert_eq!(fields(&json!({"requirements": [good, odd]})), (pair.clone(), Some("partially ")));
        assert_eq!(fields(&json!({"rawSelector": "a=b,c!=d"})), (pair, None));
    }
}
