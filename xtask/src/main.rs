//! Chores of the workspace that need its own code: `cargo run -p xtask -- catalogue`.

mod catalogue;

use std::path::Path;

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("catalogue") => {
            let text = catalogue::generate()?;
            let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/schema/data/catalogue.txt");
            std::fs::write(&target, &text).with_context(|| format!("write {}", target.display()))?;
            println!("wrote {} lines to {}", text.lines().count(), target.display());
            Ok(())
        }
        _ => bail!("usage: cargo run -p xtask -- catalogue"),
    }
}
