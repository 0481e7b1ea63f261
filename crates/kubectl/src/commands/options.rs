//! `kubectl options`.

use super::{Command, GLOBAL, leaf};
use crate::error::Result;
use crate::session::Context;
use crate::text::{line, print};

pub const COMMAND: Command =
    leaf("options", "", "Print the list of flags inherited by all commands", Vec::new, |c| Box::pin(run(c)));

async fn run(_: &Context) -> Result<()> {
    line("The following options can be passed to any command:\n");
    print(crate::help::options(GLOBAL));
    Ok(())
}
