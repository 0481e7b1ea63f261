//! Amounts of a spec as whole numbers, rounded up.

use ferry_meta::quantity::Quantity as Parsed;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// In thousandths: what processors are counted in.
pub(crate) fn milli(quantity: &Quantity) -> Option<i64> {
    Parsed::parse(&quantity.0).ok().map(|q| q.milli_value())
}

/// In units: bytes, pieces.
pub(crate) fn value(quantity: &Quantity) -> Option<i64> {
    Parsed::parse(&quantity.0).ok().map(|q| q.value())
}
