use anyhow::Result;
pub fn run(_options: &crate::arguments::ClusterOptions) -> Result<()> { Ok(()) }
