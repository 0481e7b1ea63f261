//! The cells of tables: ages and lists as kubectl's readers expect them.

use ferry_meta::time;
use jiff::Timestamp;
use serde_json::Value;

/// The value of a column's expression: `.a.b` a field, `len .a.b` a count, `age` the object's age; nothing gives an empty text.
pub fn evaluate(expression: &str, object: &Value, now: Timestamp) -> Value {
    if expression == "age" {
        return age(object, now).into();
    }
    if let Some(path) = expression.strip_prefix("len ") {
        let length = match at(object, path) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        };
        return length.into();
    }
    match at(object, expression) {
        None | Some(Value::Null) => Value::String(String::new()),
        Some(value) => value.clone(),
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.strip_prefix('.')?;
    path.split('.').try_fold(object, |value, part| value.get(part))
}

/// How long ago the object was created.
pub fn age(object: &Value, now: Timestamp) -> String {
    since(ferry_meta::object::text(object, "/metadata/creationTimestamp"), now)
}

/// How long ago a time on the wire was, or `<unknown>`.
pub fn since(text: &str, now: Timestamp) -> String {
    match time::parse(text) {
        Some(at) => human_duration(now.as_second() - at.as_second()),
        None => "<unknown>".to_owned(),
    }
}

/// Seconds as upstream shortens them: two units while both tell something, then one.
pub fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        let tail = if small == 0 { String::new() } else { format!("{small}{small_unit}") };
        format!("{big}{big_unit}{tail}")
    };
    match seconds {
        s if s < -1 => "<invalid>".to_owned(),
        s if s < 0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s / MINUTE % 60, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s / HOUR % 24, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s / DAY % 365, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// `a,b,c` of a list of texts, or `<none>`.
pub fn joined<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let text = items.collect::<Vec<_>>().join(",");
    if text.is_empty() { "<none>".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_upstream() {
        let check = |seconds: i64, want: &str| assert_eq!(human_duration(seconds), want, "{seconds}");
        check(-5, "<invalid>");
        check(-1, "0s");
        check(119, "119s");
        check(120, "2m");
        check(599, "9m59s");
        check(3600, "60m");
        check(3 * 3600, "3h");
        check(3 * 3600 + 60, "3h1m");
        check(8 * 3600 + 60, "8h");
        check(2 * 86400 + 3600, "2d1h");
        check(8 * 86400, "8d");
        check(3 * 365 * 86400 + 86400, "3y1d");
        check(9 * 365 * 86400, "9y");
    }
}
