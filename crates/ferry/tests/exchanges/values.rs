//! Parts of JSON values by paths such as `items.0.metadata.labels.a\.b`.

use serde_json::Value;

/// The names of a path; a dot after a backslash is part of a name.
fn names(path: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'.') => names.last_mut().unwrap().extend(letters.next()),
            '.' => names.push(String::new()),
            other => names.last_mut().unwrap().push(other),
        }
    }
    names
}

pub fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    names(path).iter().try_fold(value, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    })
}

pub fn get_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    names(path).iter().try_fold(value, |value, name| match value {
        Value::Array(items) => items.get_mut(name.parse::<usize>().ok()?),
        other => other.get_mut(name),
    })
}

/// Takes a field out, or puts a mark in place of a list's item. `*` stands for every name.
pub fn ignore(value: &mut Value, path: &str) {
    fn walk(value: &mut Value, names: &[String]) {
        let Some((name, rest)) = names.split_first() else { return };
        match value {
            Value::Object(fields) if name == "*" => fields.values_mut().for_each(|field| walk(field, rest)),
            Value::Array(items) if name == "*" => items.iter_mut().for_each(|item| walk(item, rest)),
            Value::Object(fields) if rest.is_empty() => drop(fields.remove(name)),
            Value::Object(fields) => fields.get_mut(name).into_iter().for_each(|field| walk(field, rest)),
            Value::Array(items) => {
                let Some(item) = name.parse::<usize>().ok().and_then(|index| items.get_mut(index)) else { return };
                match rest.is_empty() {
                    true => *item = "<ignored>".into(),
                    false => walk(item, rest),
                }
            }
            _ => {}
        }
    }
    walk(value, &names(path));
}
