//! `ferry store`: check and history of the embedded store, also while a server has it open; `backup` has the rest.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use ferry_server::state::store_folder;
use ferry_server::store_socket::{Answer, event_line, summary_line};
use ferry_store::EmbeddedStore;
use serde_json::Value;

use super::backup;
use crate::arguments::{StoreCommand, StoreOptions};

pub fn run(options: &StoreOptions) -> Result<()> {
    let data_dir = std::path::absolute(&options.data_dir)?;
    match &options.command {
        StoreCommand::Backup(options) => backup::run(&data_dir, options),
        StoreCommand::Restore(options) => backup::restore(&data_dir, options),
        StoreCommand::Migrate(options) => ferry_cluster::migration::run(&data_dir, options),
        StoreCommand::Check { backup: Some(file) } => {
            say(&format!("the backup {} is whole: {}", file.display(), backup::check(file)?))
        }
        StoreCommand::Check { backup: None } => check(&data_dir),
        StoreCommand::History { key, values } => history(&data_dir, key, *values),
    }
}

pub fn told(found: &Value) -> String {
    let number = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or_default();
    format!(
        "revision {}, {} objects, {} changes kept since revision {}",
        number("revision"),
        number("objects"),
        number("records"),
        number("compacted")
    )
}

pub fn say(text: &str) -> Result<()> {
    println!("{text}");
    Ok(())
}

/// A missing folder is told apart from one that is no store: the flag is what is wrong.
pub fn must_be_there(data_dir: &Path) -> Result<()> {
    ensure!(data_dir.is_dir(), "there is no folder {}; give the cluster's own with --data-dir", data_dir.display());
    let folder = store_folder(data_dir);
    ensure!(
        folder.is_dir(),
        "{} holds no store; give the cluster's folder with --data-dir (an etcd of your own is backed up with etcd's own tools)",
        data_dir.display()
    );
    Ok(())
}

fn check(data_dir: &Path) -> Result<()> {
    must_be_there(data_dir)?;
    let found = match Answer::of(data_dir, "check")? {
        Some(mut answer) => answer.next_value()?.context("the running server answered nothing")?,
        None => summary_line(&EmbeddedStore::check(&store_folder(data_dir))?),
    };
    say(&format!("{} is whole: {}", store_folder(data_dir).display(), told(&found)))
}

fn history(data_dir: &Path, key: &str, values: bool) -> Result<()> {
    ferry_store::key::check_key(key)?;
    must_be_there(data_dir)?;
    let mut count = 0;
    let mut show = |event: &Value| {
        count += 1;
        show_change(event, values)
    };
    match Answer::of(data_dir, &format!("history {key}"))? {
        Some(mut answer) => {
            while let Some(event) = answer.next_value()? {
                show(&event)?;
            }
        }
        None => {
            let mut outcome = Ok(());
            EmbeddedStore::history_of_folder(&store_folder(data_dir), key, |event| {
                outcome = show(&event_line(event));
                outcome.is_ok()
            })?;
            outcome?;
        }
    }
    if count == 0 {
        bail!("no change of {key} is kept: it never existed, or its history is compacted");
    }
    Ok(())
}

fn show_change(event: &Value, values: bool) -> Result<()> {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| event.get(name).and_then(Value::as_u64).unwrap_or_default();
    say(&format!("{:>12}  {:<6}  {:>8} bytes", number("revision"), text("change"), number("bytes")))?;
    if values && text("change") != "delete" {
        let value = base64::engine::general_purpose::STANDARD.decode(text("value"))?;
        say(&String::from_utf8_lossy(&value))?;
    }
    Ok(())
}
