//! The order of merged lists.

use serde_json::Value;

use super::PatchError;
use super::convert::go_print;
use super::index::{Members, Places};
use super::strategic::{DIRECTIVE, ELEMENT_ORDER, Merged, bad_argument, no_merge_key};

/// Items of a patch must stand in the order that `$setElementOrder` gives.
pub(super) fn check_order(patch: &[Value], order: &[Value], merge_key: &str) -> Merged<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let deleted = |item: &Value| !merge_key.is_empty() && item.get(DIRECTIVE).is_some_and(|d| d == "delete");
    let kept: Vec<&Value> = patch.iter().filter(|item| !deleted(item)).collect();
    let (mut at, mut place) = (0, 0);
    while at < kept.len() && place < order.len() {
        if kept[at].get(DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        if key_of(kept[at], merge_key)? == key_of(&order[place], merge_key)? {
            at += 1;
        }
        place += 1;
    }
    if at < kept.len() && place >= order.len() {
        let show = |items: &[Value]| go_print(&Value::Array(items.to_vec()));
        return Err(PatchError::Internal(format!(
            "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
            show(patch),
            show(order)
        )));
    }
    Ok(())
}

/// What an item is known by: itself, or its merge key.
fn key_of<'a>(item: &'a Value, merge_key: &str) -> Merged<&'a Value> {
    if merge_key.is_empty() {
        return Ok(item);
    }
    let Value::Object(map) = item else { return Err(bad_argument("map[string]interface {}", item)) };
    map.get(merge_key).ok_or_else(|| no_merge_key(map, merge_key))
}

/// Items that `by` lists, and the others.
pub(super) fn partition(items: Vec<Value>, by: &[Value], merge_key: &str) -> Merged<(Vec<Value>, Vec<Value>)> {
    let (mut listed, mut rest) = (Vec::new(), Vec::new());
    let members = Members::new(by, merge_key);
    for item in items {
        let found = members.contains(key_of(&item, merge_key)?);
        if found { listed.push(item) } else { rest.push(item) }
    }
    Ok((listed, rest))
}

/// Those the patch lists in its order, the others in the server's, and both merged by the server's order; what the server
/// does not know comes first.
pub(super) fn in_order(
    mut listed: Vec<Value>,
    mut rest: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: &str,
    maps: bool,
) -> Merged<Vec<Value>> {
    if maps {
        // An order that names no keys is told apart from items that have none.
        if let Some(at) = patch_order.iter().position(|item| !item.is_object()) {
            return Err(PatchError::Internal(format!("value for key {at} is not a map")));
        }
        for item in listed.iter().chain(&rest).chain(patch_order).chain(server_order) {
            key_of(item, merge_key)?;
        }
    }
    // Items that are no maps are known by themselves.
    let field = maps.then_some(merge_key);
    let (in_patch, on_server) = (Places::new(patch_order, field), Places::new(server_order, field));
    listed.sort_by_cached_key(|item| in_patch.of(item));
    rest.sort_by_cached_key(|item| on_server.of(item));
    let mut all = Vec::with_capacity(listed.len() + rest.len());
    let (mut left, mut right) = (rest.into_iter().peekable(), listed.into_iter().peekable());
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) => match (on_server.of(l), on_server.of(r)) {
                (Some(l), Some(r)) => l < r,
                _ => false,
            },
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return Ok(all),
        };
        all.extend(if take_left { left.next() } else { right.next() });
    }
}
