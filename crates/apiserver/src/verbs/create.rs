//! POST to a collection.

use ferry_meta::{ApiError, object};

use crate::request::call::Call;
use crate::request::context::Stage;
use crate::request::negotiate;
use crate::request::options::WriteOptions;
use crate::request::verb::Subresource;
use crate::response::answer::Answer;
use crate::storage::codec;
use crate::write::Write;

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    core.definitions.check_create(row)?;
    let encoding = negotiate::input(&context.headers)?;
    let mut options = WriteOptions::read(&context.query, "CreateOptions", None)?;
    let mut object = codec::decode_row(context, row, encoding, &body, options.field_validation)?;
    options.bare_labels = object::labels(&object).is_empty();
    row.strategy.default(&mut object);
    context.stages.done(Stage::Decode);
    let subresource = &Subresource::Main;
    let write = Write { subresource, name: "", ..Write::new(core, context, row, &options) };
    super::answer(&write, &write.create(object).await?)
}
