//! `/openapi/v2` and `/openapi/v3`.

use ferry_meta::ApiError;

use crate::answer::Answer;
use crate::context::RequestContext;
use crate::server::Core;

pub(crate) fn handle(_core: &Core, _context: &RequestContext, _rest: &[&str]) -> Result<Answer, ApiError> {
    Ok(Answer::no_such_page())
}
