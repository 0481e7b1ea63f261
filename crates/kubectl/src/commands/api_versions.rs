//! `kubectl api-versions`.

use super::{Command, leaf};
use crate::error::Result;
use crate::session::Context;
use crate::text::line;

pub const COMMAND: Command = leaf("api-versions", "", ABOUT, Vec::new, |c| Box::pin(run(c)));

const ABOUT: &str = "Print the supported API versions on the server, in the form of \"group/version\"";

async fn run(context: &Context) -> Result<()> {
    if !context.words().is_empty() {
        return Err(context.usage(format!("unexpected arguments: [{}]", context.words().join(" "))));
    }
    context.refresh().await?;
    let mut versions = context.with_mapper(|mapper| Ok(mapper.found.versions.clone())).await?;
    versions.sort();
    versions.iter().for_each(line);
    Ok(())
}
