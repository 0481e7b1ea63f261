//! The vocabulary every other crate speaks: names, group/version/kind, selectors, quantities, field paths, `Status`.
//!
//! Must not depend on an async runtime, on I/O, or on any other Ferry crate.

pub mod bounds;
pub mod error;
pub mod field;
pub mod field_errors;
pub mod gvk;
pub mod names;
pub mod object;
pub mod quantity;
pub mod reader;
pub mod selector;
mod selector_index;
pub mod time;
pub mod user;

pub use error::{ApiError, Reason, Status};
pub use field::{ErrorType, FieldError, Path};
pub use field_errors::FieldErrors;
pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use quantity::Quantity;
pub use reader::ObjectReader;
pub use user::UserInfo;
