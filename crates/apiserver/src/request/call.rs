//! A request at its handler.

use std::sync::Arc;

use bytes::Bytes;
use ferry_registry::Resource;

use crate::request::context::RequestContext;
use crate::server::Core;

/// What every handler is given.
pub(crate) struct Call<'a> {
    pub core: &'a Arc<Core>,
    pub context: &'a RequestContext,
    pub row: &'a Arc<Resource>,
    /// Empty for a request that reads.
    pub body: Bytes,
}
