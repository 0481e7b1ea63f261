//! Names that are like another one: what was meant is often a letter away from what was written.

use ferry_meta::object;

use super::named;
use crate::world::World;

/// The list of the names that are there of a resource of which one is missing.
pub(crate) fn names_of(plural: &str) -> String {
    format!("names of {plural}")
}

/// The names that are there, the most similar to the missing one first.
pub(super) fn there(world: &World, plural: &str, missing: &str) -> String {
    let names: Vec<&str> = world.all(&names_of(plural)).iter().map(object::name).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("the namespace has {}", named(&sorted(missing, names))),
    }
}

/// The namespaces that have what is missing here.
pub(super) fn elsewhere(world: &World, plural: &str, missing: &str) -> String {
    match world.elsewhere(plural, missing) {
        [] => String::new(),
        namespaces => {
            format!("there is one in namespace {}: a pod uses those of its own namespace alone", named(namespaces))
        }
    }
}

/// Longer ones are not compared letter by letter.
const LONGEST: usize = 64;

/// The same names, the most similar first. Those that are equally far stay in their order.
pub(super) fn sorted<T: AsRef<str>>(wanted: &str, mut names: Vec<T>) -> Vec<T> {
    names.sort_by_cached_key(|name| distance(wanted, name.as_ref()));
    names
}

/// How many letters have to be changed, whether they are small or capital. The larger of the two lengths is far enough.
fn distance(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.chars().take(LONGEST).flat_map(char::to_lowercase).collect::<Vec<char>>();
    let (one, other) = (letters(one), letters(other));
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in one.iter().enumerate() {
        let mut diagonal = place;
        let mut left = place + 1;
        for (cell, known) in row.iter_mut().skip(1).zip(&other) {
            let above = *cell;
            let changed = diagonal + usize::from(letter != known);
            left = changed.min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = place + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_differ_are_counted() {
        for (one, other, want) in [
            ("web", "web", 0),
            ("Web", "web", 0),
            ("wel", "well", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("abc", "", 3),
        ] {
            assert_eq!(distance(one, other), want, "{one} {other}");
            assert_eq!(distance(other, one), want, "{other} {one}");
        }
        assert_eq!(distance(&"a".repeat(10_000), &"b".repeat(10_000)), LONGEST);
    }

    #[test]
    fn the_most_similar_comes_first() {
        assert_eq!(sorted("Web", vec!["cache", "db", "wob", "web"]), ["web", "wob", "db", "cache"]);
    }
}
