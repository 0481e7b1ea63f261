//! Reads the committed catalogue.
//!
//! Lines, with tabs between cells:
//! - `!p package group version`: the types that follow are of this package;
//! - `!t name flags`: a type; `k` kind, `a` atomic, `p` has a protobuf message;
//! - `name expression flags number [keys [merge-key [default]]]`: a field of it; flags `e` omitempty, `z` omitzero,
//!   `i` inlined, `r` required, list types `m` map, `s` set, `a` atomic, `g` granular
//!   though its type is atomic, patch strategies `M` merge, `K` retainKeys,
//!   `P` replace;
//! - `!a name target`: another name of a type.
//!
//! Expressions: `*X` pointer, `[X` list, `{X` or `{(key)X` map, `~name:X` named type (`~name:%X` with a message of its own),
//! `@type;` struct, and one letter for everything else.

use std::collections::HashMap;

use super::names::Names;
use super::{Catalogue, Declared, Field, Item, ListType, PatchStrategy, Shape, TypeDef, TypeId};
use ferry_meta::GroupVersionKind;

/// A type as read, before references are resolved and inlined structs flattened.
struct Raw<'a> {
    definition: TypeDef,
    fields: Vec<RawField<'a>>,
}

struct RawField<'a> {
    expression: &'a str,
    inline: bool,
    field: Field,
}

pub(super) fn load(text: &str) -> Catalogue {
    let mut raws: Vec<Raw<'_>> = Vec::with_capacity(1400);
    let mut aliases = Vec::new();
    let (mut package, mut group, mut version) = ("", "", "");
    for line in text.lines() {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().unwrap_or_default();
        match cell() {
            "!p" => (package, group, version) = (cell(), cell(), cell()),
            "!t" => raws.push(raw_type(package, group, version, cell(), cell())),
            "!a" => aliases.push((cell(), cell())),
            comment if comment.starts_with('#') => {}
            name => {
                let (expression, flags, number) = (cell(), cell(), cell());
                let (keys, merge_key, default) = (cell(), cell(), cell());
                let field = raw_field(name, expression, flags, number, keys, merge_key, default);
                if let Some(raw) = raws.last_mut() {
                    raw.fields.push(field);
                }
            }
        }
    }
    let mut names: HashMap<Box<str>, TypeId> = HashMap::with_capacity(raws.len());
    for (id, raw) in (0..).zip(&raws) {
        names.insert(raw.definition.name.clone(), id);
    }
    for (alias, target) in aliases {
        if let Some(id) = names.get(target).copied() {
            names.insert(alias.into(), id);
        }
    }
    resolve(&mut raws, &names);
    let ids: Vec<TypeId> = (0..).take(raws.len()).collect();
    let mut types = Vec::with_capacity(raws.len());
    for id in ids {
        types.push(flatten(&raws, id));
    }
    let kinds = kinds(&types);
    Catalogue { types, names, kinds, custom: None }
}

fn raw_type<'a>(package: &str, group: &str, version: &str, leaf: &str, flags: &str) -> Raw<'a> {
    let short = package.rsplit('.').next().unwrap_or_default();
    Raw {
        definition: TypeDef {
            name: format!("{package}.{leaf}").into(),
            leaf: leaf.into(),
            go_name: format!("{short}.{leaf}").into(),
            group: group.into(),
            version: version.into(),
            is_kind: flags.contains('k'),
            is_message: flags.contains('p'),
            atomic: flags.contains('a'),
            ..TypeDef::default()
        },
        fields: Vec::new(),
    }
}

fn raw_field<'a>(
    name: &str,
    expression: &'a str,
    flags: &str,
    number: &str,
    keys: &str,
    merge_key: &str,
    default: &str,
) -> RawField<'a> {
    let has = |letter: char| flags.contains(letter);
    let list_type = if has('m') {
        ListType::Map
    } else if has('s') {
        ListType::Set
    } else {
        ListType::Atomic
    };
    let item = Item { shape: Shape::Any, pointer: false, go_type: Box::default(), wrapped: false };
    RawField {
        expression,
        inline: has('i'),
        field: Field {
            name: name.into(),
            item,
            omit_empty: has('e'),
            omit_zero: has('z'),
            required: has('r'),
            list_type,
            list_keys: keys.split(',').filter(|k| !k.is_empty()).map(Into::into).collect(),
            patch: PatchStrategy { merge: has('M'), replace: has('P'), retain_keys: has('K') },
            merge_key: merge_key.into(),
            atomic_map: has('a'),
            granular: has('g'),
            default: if default.is_empty() { None } else { serde_json::from_str(default).ok() },
            number: number.parse().unwrap_or(0),
        },
    }
}

fn resolve(raws: &mut [Raw<'_>], names: &HashMap<Box<str>, TypeId>) {
    let go_names: Vec<Box<str>> = raws.iter().map(|r| r.definition.go_name.clone()).collect();
    for raw in raws {
        for field in &mut raw.fields {
            field.field.item = Expression { rest: field.expression, names, go_names: &go_names }.item();
        }
    }
}

struct Expression<'a> {
    rest: &'a str,
    names: &'a HashMap<Box<str>, TypeId>,
    go_names: &'a [Box<str>],
}

impl<'a> Expression<'a> {
    fn take(&mut self, prefix: char) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    fn until(&mut self, end: char) -> &'a str {
        let (before, after) = self.rest.split_once(end).unwrap_or((self.rest, ""));
        self.rest = after;
        before
    }

    fn item(&mut self) -> Item {
        let pointer = self.take('*');
        let named = if self.take('~') { Some(self.until(':')) } else { None };
        let wrapped = self.take('%');
        let (shape, go_type) = self.shape();
        Item { shape, pointer, go_type: named.map_or(go_type, Into::into), wrapped }
    }

    fn shape(&mut self) -> (Shape, Box<str>) {
        if self.take('[') {
            let inner = self.item();
            let go_type = format!("[]{}{}", if inner.pointer { "*" } else { "" }, inner.go_type).into();
            return (Shape::List(Box::new(inner)), go_type);
        }
        if self.take('{') {
            let key = if self.take('(') { self.until(')') } else { "string" };
            let inner = self.item();
            let go_type = format!("map[{key}]{}{}", if inner.pointer { "*" } else { "" }, inner.go_type).into();
            return (Shape::Map(Box::new(inner)), go_type);
        }
        if self.take('@') {
            return match self.names.get(self.until(';')).copied() {
                Some(id) => (Shape::Struct(id), self.go_names[id as usize].clone()),
                None => (Shape::Any, "interface {}".into()),
            };
        }
        let letter = self.rest.chars().next().unwrap_or('a');
        self.rest = self.rest.get(letter.len_utf8()..).unwrap_or_default();
        let (shape, go_type) = match letter {
            's' => (Shape::String, "string"),
            'b' => (Shape::Bool, "bool"),
            'i' => (Shape::Int32, "int32"),
            'l' => (Shape::Int64, "int64"),
            'u' => (Shape::Uint32, "uint32"),
            'v' => (Shape::Uint64, "uint64"),
            'd' => (Shape::Float, "float64"),
            'y' => (Shape::Bytes, "[]uint8"),
            'Q' => (Shape::Quantity, "resource.Quantity"),
            'T' => (Shape::Time, "string"),
            'M' => (Shape::MicroTime, "string"),
            'D' => (Shape::Duration, "string"),
            'I' => (Shape::IntOrString, "int32"),
            'R' => (Shape::Raw, "runtime.RawExtension"),
            'F' => (Shape::Fields, "v1.FieldsV1"),
            'J' => (Shape::Json, "v1.JSON"),
            '1' => (Shape::SchemaOrArray, "v1.JSONSchemaPropsOrArray"),
            '2' => (Shape::SchemaOrBool, "v1.JSONSchemaPropsOrBool"),
            '3' => (Shape::SchemaOrStrings, "v1.JSONSchemaPropsOrStringArray"),
            _ => (Shape::Any, "interface {}"),
        };
        (shape, go_type.into())
    }
}

fn flatten(raws: &[Raw<'_>], id: TypeId) -> TypeDef {
    let raw = &raws[id as usize];
    let mut definition = raw.definition.clone();
    for raw_field in &raw.fields {
        match (&raw_field.field.item.shape, raw_field.inline) {
            (Shape::Struct(inner), true) => {
                definition.declared.push(Declared::Inline { id: *inner, number: raw_field.field.number });
                // Inlined structs never contain themselves, so this ends.
                definition.fields.extend(flatten(raws, *inner).fields);
            }
            _ => {
                definition.declared.push(Declared::Field(definition.fields.len()));
                definition.fields.push(raw_field.field.clone());
            }
        }
    }
    definition.always =
        (0u16..).zip(&definition.fields).filter(|(_, field)| is_always_written(field)).map(|(i, _)| i).collect();
    definition.by_name = Names::of(&definition.fields);
    definition.numbered = numbered(&definition);
    definition
}

fn numbered(definition: &TypeDef) -> Vec<(u32, u16)> {
    let number = |declared: &Declared| match declared {
        Declared::Field(index) => definition.fields[*index].number,
        Declared::Inline { number, .. } => *number,
    };
    let mut numbered: Vec<(u32, u16)> =
        (0u16..).zip(&definition.declared).map(|(i, d)| (number(d), i)).filter(|(n, _)| *n > 0).collect();
    numbered.sort_unstable();
    numbered
}

/// Go writes what has no omitempty, and structs held by value even with it.
fn is_always_written(field: &Field) -> bool {
    if field.omit_zero {
        return false;
    }
    if !field.omit_empty {
        return true;
    }
    !field.item.pointer
        && matches!(
            field.item.shape,
            Shape::Struct(_)
                | Shape::Quantity
                | Shape::Time
                | Shape::MicroTime
                | Shape::Duration
                | Shape::IntOrString
                | Shape::Raw
                | Shape::Json
                | Shape::SchemaOrArray
                | Shape::SchemaOrBool
                | Shape::SchemaOrStrings
        )
}

fn kinds(types: &[TypeDef]) -> HashMap<GroupVersionKind, TypeId> {
    let mut kinds = HashMap::with_capacity(types.len() / 3);
    for (id, definition) in (0..).zip(types).filter(|(_, t)| t.is_kind && !t.version.is_empty()) {
        let gvk = GroupVersionKind::new(&*definition.group, &*definition.version, &*definition.leaf);
        kinds.insert(gvk, id);
    }
    kinds
}
