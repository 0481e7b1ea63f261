use anyhow::Result;
pub fn run(_options: &crate::arguments::ApiserverOptions) -> Result<()> { Ok(()) }
