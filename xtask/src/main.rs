//! Chores of the workspace: `cargo run -p xtask -- catalogue` makes the type catalogue anew, `promises` the page
//! of promises, `summary` ends `make test`.

mod catalogue;
mod promises;
mod summary;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some("catalogue") => {
            let text = catalogue::generate()?;
            let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/schema/data/catalogue.txt");
            std::fs::write(&target, &text).with_context(|| format!("write {}", target.display()))?;
            println!("wrote {} lines to {}", text.lines().count(), target.display());
            Ok(ExitCode::SUCCESS)
        }
        Some("promises") => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            std::fs::write(root.join("docs/promises.md"), promises::generate(&root)?)
                .context("write docs/promises.md")?;
            Ok(ExitCode::SUCCESS)
        }
        Some("summary") => {
            let folder = std::env::args_os().nth(2).context("usage: xtask summary FOLDER")?;
            let summary = summary::read(Path::new(&folder), std::env::var("CI").is_ok_and(|ci| ci == "true"))?;
            print!("{summary}");
            Ok(if summary.passed_all() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => bail!("usage: cargo run -p xtask -- catalogue | promises | summary FOLDER"),
    }
}
