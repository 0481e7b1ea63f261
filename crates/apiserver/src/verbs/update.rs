//! PUT of one object, or of its status.

use ferry_meta::ApiError;
use serde_json::Value;

use super::{answer, match_name};
use crate::request::call::Call;
use crate::request::context::Stage;
use crate::request::negotiate;
use crate::request::options::WriteOptions;
use crate::response::answer::Answer;
use crate::response::render;
use crate::storage::codec;
use crate::storage::objects::Stored;
use crate::write::lease_fast_path::Wanted;
use crate::write::{Change, Write};

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    let encoding = negotiate::input(&context.headers)?;
    let options = WriteOptions::read(&context.query, "UpdateOptions", None)?;
    let mut object = codec::decode_row(context, row, encoding, &body, options.field_validation)?;
    row.strategy.default(&mut object);
    context.stages.done(Stage::Decode);
    let info = &context.info;
    let write = Write::new(core, context, row, &options);
    write.match_namespace(&mut object)?;
    match_name(&object, &info.name)?;
    if let Some(json) = write.fast_path(Wanted::Whole(&object)).await? {
        return render::object(context, row, 200, &row.gvk, json);
    }
    answer(&write, &write.update(&Replaced(object)).await?)
}

/// The object that was sent takes the place of the live one.
struct Replaced(Value);

impl Change for Replaced {
    async fn apply(&self, write: &Write<'_>, live: Option<&Stored>) -> Result<Value, ApiError> {
        write.check_uid(&self.0, live)?;
        let mut new = self.0.clone();
        write.track_fields(&mut new, live.map(|l| &l.object))?;
        Ok(new)
    }
}
