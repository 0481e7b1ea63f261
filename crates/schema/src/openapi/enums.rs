//! Values of enumerations, by the Go types of the fields that have them, and what the documents say of each value.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The values of one enumeration, with what they mean.
type Values = Vec<(&'static str, &'static str)>;

static ENUMS: LazyLock<HashMap<&'static str, Values>> = LazyLock::new(|| {
    let mut all: HashMap<&'static str, Values> = HashMap::new();
    for line in include_str!("enums.tsv").lines().skip(1) {
        let mut cells = line.splitn(3, '\t');
        if let (Some(of), Some(value)) = (cells.next(), cells.next()) {
            all.entry(of).or_default().push((value, cells.next().unwrap_or_default()));
        }
    }
    all
});

/// The values that a Go type (`*v1.PullPolicy`) allows.
pub(super) fn values(go_type: &str) -> Option<&'static Values> {
    ENUMS.get(go_type.trim_start_matches('*').rsplit('.').next()?)
}

/// What stands below the description of a field: its values.
pub(super) fn explained(values: &Values) -> String {
    let mut text = String::from("Possible enum values:");
    for (value, meaning) in values {
        text += &format!("\n - `\"{value}\"`");
        if !meaning.is_empty() {
            text += " ";
            text += &meaning.replace("\\n", "\n");
        }
    }
    text
}
