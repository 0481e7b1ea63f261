//! The schema engine from outside: one binary, data-driven.

mod applying;
mod bounds;
mod decoding;
mod patches;
mod recorded;
mod robust;
mod round_trip;

use ferry_meta::GroupVersionKind;
use ferry_schema::Type;

/// The type of a built-in kind.
fn kind(group: &str, version: &str, kind: &str) -> Type {
    let gvk = GroupVersionKind::new(group, version, kind);
    ferry_schema::builtin().kind(&gvk).unwrap_or_else(|| panic!("no kind {gvk:?}"))
}
