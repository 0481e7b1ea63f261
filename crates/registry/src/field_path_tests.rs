//! Every field that strategies name is one of the type catalogue's: a name with a typo would read as a field that is never there.

use std::fs;
use std::path::Path;

use ferry_schema::catalogue::{Catalogue, Item, Shape};

/// What takes the name of a field: methods of [`crate::cursor::Cursor`] and of JSON values.
const METHODS: [&str; 16] = [
    "array", "at", "entries", "flag", "get", "get_as", "has", "int", "is_true", "items", "map", "number", "quantity",
    "raw", "text", "texts",
];

/// Names that no type has.
const OTHERS: [&str; 14] = [
    // Upstream's errors call these fields so.
    "LoadBalancerSourceRanges",
    "Spec",
    "Type",
    "attachedRequired",
    "initiatorname",
    "ordinals.start",
    "persistentvolumesource",
    "spec.schedule",
    "template.spec",
    "{topologyKey, whenUnsatisfiable}",
    // Keys of labels, annotations and data.
    "endpointslice.kubernetes.io/managed-by",
    "ingressclass.kubernetes.io/is-default-class",
    "password",
    "ssh-privatekey",
];

/// The name in `.get("name")` at the beginning of a text, and what follows.
fn link(text: &str) -> Option<(&str, &str)> {
    let (method, text) = text.trim_start().strip_prefix('.')?.split_once("(\"")?;
    let (name, text) = text.split_once('"')?;
    let (_, after) = text.split_once(')')?;
    METHODS.contains(&method).then_some((name, after))
}

/// The names in `.get("a").text("b")` at the beginning of a text, and what follows.
fn chain(mut text: &str) -> (Vec<&str>, &str) {
    let mut names = Vec::new();
    while let Some((name, after)) = link(text) {
        names.push(name);
        text = after;
    }
    (names, text)
}

/// The first name that no type has below the ones before it. Maps and free JSON have any.
fn unknown<'t>(catalogue: &Catalogue, names: &[&'t str]) -> Option<&'t str> {
    let (first, rest) = names.split_first()?;
    let mut items: Vec<&Item> = catalogue.types().iter().filter_map(|of| Some(&of.field(first)?.item)).collect();
    if items.is_empty() {
        return Some(first);
    }
    for name in rest {
        let (mut below, mut is_free) = (Vec::new(), false);
        for item in &items {
            match &item.shape {
                Shape::Struct(id) => below.extend(catalogue.get(*id).field(name).map(|field| &field.item)),
                Shape::Map(_) | Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => is_free = true,
                shape => is_free |= shape.is_any(),
            }
        }
        if below.is_empty() {
            return (!is_free).then_some(name);
        }
        items = below;
    }
    None
}

/// All chains of the strategies' files, without their tests.
fn chains(folder: &Path, check: &mut impl FnMut(&Path, &[&str])) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            chains(&path, check);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("cursor.rs") {
            if path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests")) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a file");
            let mut rest = text.split("#[cfg(test)]").next().unwrap_or_default();
            while let Some(at) = rest.find('.') {
                let (names, after) = chain(&rest[at..]);
                rest = if names.is_empty() { &rest[at + 1..] } else { after };
                if !names.is_empty() {
                    check(&path, &names);
                }
            }
        }
    }
}

#[test]
fn strategies_name_fields_of_the_catalogue() {
    let (mut count, mut wrong) = (0, Vec::new());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    chains(&folder, &mut |path, names| {
        count += 1;
        if let Some(name) = unknown(ferry_schema::builtin(), names).filter(|name| !OTHERS.contains(name)) {
            wrong.push(format!("{}: {name:?} of {names:?}", path.display()));
        }
    });
    assert!(wrong.is_empty(), "no type has these fields: {wrong:#?}");
    assert!(count > 2500, "only {count} places name fields: are they written in another way now?");
}

#[test]
fn typos_are_found() {
    for (text, expected) in [
        (r#".get("spec").number("replicas")"#, None),
        (r#".get("spec").number("replcas")"#, Some("replcas")),
        (r#".items("containrs")"#, Some("containrs")),
        // Both are fields, but not one of the other.
        (r#".get("metadata").text("replicas")"#, Some("replicas")),
        (r#".get("capacity").text("storage")"#, None),
        ("\n    .get_as(\"status\", \"Status\")\n    .text(\"phase\")", None),
        (r#".join("nothing")"#, None),
    ] {
        assert_eq!(unknown(ferry_schema::builtin(), &chain(text).0), expected, "{text}");
    }
}
