//! What is behind a subresource or a kind that is answered and never stored.

use std::sync::Arc;

use bytes::Bytes;
use ferry_meta::ApiError;
use ferry_registry::Resource;
use http::Request;

use crate::answer::{Answer, Body};
use crate::context::RequestContext;
use crate::route::not_found;
use crate::server::Core;

/// Subresources with a body of JSON: scale, binding, eviction, token, …
pub(crate) async fn handle(
    _core: &Arc<Core>,
    _context: &RequestContext,
    _row: &Arc<Resource>,
    _body: Bytes,
) -> Result<Answer, ApiError> {
    Err(not_found())
}

/// Reviews: a question in, the same object with its answer out.
pub(crate) async fn answered(
    _core: &Arc<Core>,
    _context: &RequestContext,
    _row: &Arc<Resource>,
    _body: Bytes,
) -> Result<Answer, ApiError> {
    Err(not_found())
}

/// Streams and tunnels.
pub(crate) async fn connect(
    _core: &Arc<Core>,
    _context: &RequestContext,
    _row: &Arc<Resource>,
    _request: Request<Body>,
) -> Result<Answer, ApiError> {
    Err(not_found())
}
