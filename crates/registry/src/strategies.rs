//! Which kinds have a strategy of their own.

use std::sync::Arc;

use ferry_meta::GroupVersionKind;

use crate::core;
use crate::plain::Plain;
use crate::strategy::Strategy;

/// The strategy of a kind; `plain` carries what the table's data says and is the answer where nothing else is known.
pub(crate) fn of(kind: &GroupVersionKind, plain: Plain) -> Arc<dyn Strategy> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => Arc::new(core::pod::Pod(plain)),
        ("", "PersistentVolumeClaim") => Arc::new(core::persistent_volume_claim::PersistentVolumeClaim(plain)),
        _ => Arc::new(plain),
    }
}
