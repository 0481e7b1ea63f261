//! Which fields differ between two objects, and which fields an object sets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::set::{Element, Set};
use super::walk::{Merge, Place, as_list, as_map, both_keys, child};
use crate::catalogue::{Catalogue, TypeId};

#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Comparison {
    fn attach(&mut self, element: &Element, inner: Self) {
        self.removed.attach(element, inner.removed);
        self.modified.attach(element, inner.modified);
        self.added.attach(element, inner.added);
    }

    /// Without what this request may not change anyway.
    pub(super) fn without(mut self, ignored: &Set) -> Self {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            set.remove_subtrees(ignored);
        }
        self
    }
}

/// From the left object to the right one.
pub(super) fn compare(catalogue: &Catalogue, id: TypeId, left: &Value, right: &Value) -> Comparison {
    let mut out = Comparison::default();
    Comparer { catalogue }.maps(&Merge::Struct(id), Some(left), Some(right), &mut out);
    out
}

struct Comparer<'c> {
    catalogue: &'c Catalogue,
}

impl<'c> Comparer<'c> {
    fn maps(&self, merge: &Merge<'c>, left: Option<&Value>, right: Option<&Value>, out: &mut Comparison) {
        let (left, right) = (as_map(left), as_map(right));
        for key in both_keys(left, right) {
            let Some(place) = child(self.catalogue, merge, key) else { continue };
            let (l, r) = (left.and_then(|m| m.get(key)), right.and_then(|m| m.get(key)));
            // Most of an object does not change: no need to look into what is equal.
            if l != r {
                self.values(Element::field(key), place, l, r, out);
            }
        }
    }

    fn values(
        &self,
        element: Element,
        place: Place<'c>,
        left: Option<&Value>,
        right: Option<&Value>,
        out: &mut Comparison,
    ) {
        if let (Some(l), Some(r)) = (left, right)
            && place.is_untyped()
            && l.is_object() != r.is_object()
        {
            // What became a map, or was one, is looked at as both.
            let map = place.merge(self.catalogue);
            let mut inner = Comparison::default();
            self.maps(&map, Some(l), Some(r), &mut inner);
            out.attach(&element, inner);
            out.modified.members.insert(element);
            return;
        }
        let merge = place.merge_of(self.catalogue, left, right);
        let both_empty = match merge {
            Merge::Leaf => true,
            Merge::List(_) => {
                as_list(left).is_none_or(<[Value]>::is_empty) && as_list(right).is_none_or(<[Value]>::is_empty)
            }
            _ => as_map(left).is_none_or(|m| m.is_empty()) && as_map(right).is_none_or(|m| m.is_empty()),
        };
        if both_empty {
            match (left, right) {
                (None, _) => out.added.members.insert(element),
                (_, None) => out.removed.members.insert(element),
                (Some(l), Some(r)) => l != r && out.modified.members.insert(element),
            };
            return;
        }
        let mut inner = Comparison::default();
        match merge {
            Merge::List(_) => self.lists(place, &merge, left, right, &mut inner),
            _ => self.maps(&merge, left, right, &mut inner),
        }
        out.attach(&element, inner);
        if left.is_none() {
            out.added.members.insert(element);
        } else if right.is_none() {
            out.removed.members.insert(element);
        }
    }

    fn lists(
        &self,
        place: Place<'c>,
        merge: &Merge<'c>,
        left: Option<&Value>,
        right: Option<&Value>,
        out: &mut Comparison,
    ) {
        let Merge::List(inner) = merge else { return };
        let mut items: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (index, side) in [left, right].into_iter().enumerate() {
            for item in as_list(side).unwrap_or_default() {
                if let Ok(element) = place.element(self.catalogue, inner, item) {
                    let sides = items.entry(element).or_default();
                    if index == 0 { sides.0.push(item) } else { sides.1.push(item) }
                }
            }
        }
        let item_place = Place::of_item(inner);
        for (element, (left, right)) in items {
            match (left.as_slice(), right.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.values(element, item_place, left.first().copied(), right.first().copied(), out);
                }
                // Items that stand twice are owned as a whole.
                ([_, _, ..], [_, _, ..]) => {
                    if left != right {
                        out.modified.members.insert(element);
                    }
                }
                ([_, _, ..], rest) => {
                    if let Some(one) = rest.first() {
                        self.values(element.clone(), item_place, None, Some(one), out);
                    }
                    out.removed.members.insert(element);
                }
                (rest, _) => {
                    if let Some(one) = rest.first() {
                        self.values(element.clone(), item_place, Some(one), None, out);
                    }
                    out.added.members.insert(element);
                }
            }
        }
    }
}

/// The fields an applied configuration sets.
pub(super) fn field_set(catalogue: &Catalogue, id: TypeId, value: &Value) -> Set {
    let mut out = Set::default();
    maps(catalogue, &Merge::Struct(id), value, &mut out);
    out
}

fn maps(catalogue: &Catalogue, merge: &Merge<'_>, value: &Value, out: &mut Set) {
    for (key, value) in as_map(Some(value)).into_iter().flatten() {
        let Some(place) = child(catalogue, merge, key) else { continue };
        let element = Element::field(key);
        // A key of a map is owned itself, and so is a field that its struct does not name; one that it names only through
        // what is in it.
        let named = matches!(merge, Merge::Struct(id) if catalogue.get(*id).field(key).is_some());
        let itself = value.is_null() || value.as_object().is_some_and(|m| m.is_empty()) || !named;
        values(catalogue, &element, place, value, out);
        if itself {
            out.members.insert(element);
        }
    }
}

fn values(catalogue: &Catalogue, element: &Element, place: Place<'_>, value: &Value, out: &mut Set) {
    let merge = place.merge_of(catalogue, Some(value), None);
    let mut inner = Set::default();
    match merge {
        Merge::Leaf => {
            out.members.insert(element.clone());
            return;
        }
        Merge::List(item) => {
            let item_place = Place::of_item(item);
            let mut seen: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
            for value in as_list(Some(value)).unwrap_or_default() {
                if let Ok(element) = place.element(catalogue, item, value) {
                    seen.entry(element).or_default().push(value);
                }
            }
            for (element, found) in seen {
                if let [one] = found.as_slice() {
                    values(catalogue, &element, item_place, one, &mut inner);
                }
                inner.members.insert(element);
            }
        }
        _ => maps(catalogue, &merge, value, &mut inner),
    }
    out.attach(element, inner);
}

/// The same set, in which structs on the way to a member are members too.
pub(super) fn with_named_fields(catalogue: &Catalogue, id: TypeId, set: &Set) -> Set {
    named(catalogue, &Merge::Struct(id), None, set)
}

fn named(catalogue: &Catalogue, merge: &Merge<'_>, list: Option<Place<'_>>, set: &Set) -> Set {
    let mut out = Set { members: set.members.clone(), children: BTreeMap::new() };
    for (element, inner) in &set.children {
        let place = match element {
            Element::Field(name) => {
                let place = child(catalogue, merge, name);
                if matches!(merge, Merge::Struct(_)) && place.is_some() {
                    out.members.insert(element.clone());
                }
                place
            }
            Element::Key(_) => list.and_then(|place| match place.merge(catalogue) {
                Merge::List(item) => Some(Place::of_item(item)),
                _ => None,
            }),
            _ => None,
        };
        let named = match place {
            Some(place) => named(catalogue, &place.merge(catalogue), Some(place), inner),
            None => inner.clone(),
        };
        out.children.insert(element.clone(), named);
    }
    out
}
