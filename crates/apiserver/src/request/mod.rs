//! A request as it is read: what it asks for, in which form, with which options, and the row of the table that it names.

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod info;
pub(crate) mod negotiate;
pub(crate) mod options;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod verb;
