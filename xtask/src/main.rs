//! Chores of the workspace: `cargo run -p xtask -- catalogue` makes the type catalogue and the descriptions of its
//! types anew, `promises` the page of promises, `summary` ends `make test`.

mod catalogue;
mod promises;
mod schemas;
mod summary;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

fn write(target: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(target, bytes).with_context(|| format!("write {}", target.display()))?;
    println!("wrote {} bytes to {}", bytes.len(), target.display());
    Ok(())
}

fn main() -> Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some("catalogue") => {
            let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/schema/data");
            let text = catalogue::generate()?;
            write(&data.join("catalogue.txt"), text.as_bytes())?;
            let mut packed = GzEncoder::new(Vec::new(), Compression::best());
            serde_json::to_writer(&mut packed, &schemas::descriptions())?;
            write(&data.join("descriptions.json.gz"), &packed.finish()?)?;
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
