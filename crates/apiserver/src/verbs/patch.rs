//! PATCH of one object: JSON patch, merge patch, strategic merge patch, or server-side apply.

use ferry_meta::ApiError;
use ferry_schema::patch::PatchKind;
use serde_json::Value;

use super::{answer, match_name};
use crate::request::call::Call;
use crate::request::context::Stage;
use crate::request::options::WriteOptions;
use crate::response::answer::Answer;
use crate::response::render;
use crate::storage::objects::Stored;
use crate::write::lease_fast_path::Wanted;
use crate::write::patching::{Patch, PatchType};
use crate::write::{Change, Write};

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    let of = context.patch_type()?;
    of.check(row)?;
    let mut options = WriteOptions::read(&context.query, "PatchOptions", Some(of == PatchType::Apply))?;
    let patch = Patch::read(context, of, &body)?;
    context.stages.done(Stage::Decode);
    if let Patch::Apply(config, _) = &patch {
        options.bare_labels = ferry_meta::object::labels(config).is_empty();
    }
    let write = Write::new(core, context, row, &options);
    if of == PatchType::Change(PatchKind::Merge)
        && let Some(json) = write.fast_path(Wanted::Merge(&body)).await?
    {
        return render::object(context, row, 200, &row.gvk, json);
    }
    answer(&write, &write.update(&Patched(patch)).await?)
}

/// The live object with the patch applied, and defaulted.
struct Patched(Patch);

impl Change for Patched {
    fn creates(&self) -> bool {
        matches!(self.0, Patch::Apply(..))
    }

    async fn apply(&self, write: &Write<'_>, live: Option<&Stored>) -> Result<Value, ApiError> {
        let live = live.map(|l| &l.object);
        let mut object = self.0.apply(write, live)?;
        if self.creates() {
            write.row.strategy.default_applied(&mut object);
        } else {
            write.row.strategy.default(&mut object);
            write.track_fields(&mut object, live)?;
        }
        if live.is_none() {
            write.refuse_uid(&object)?;
        }
        write.match_namespace(&mut object)?;
        match_name(&object, write.name)?;
        Ok(object)
    }
}
