//! `ferry store`: backup, restore, check and history of the embedded store, also while a server has it open.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use ferry_store::{EmbeddedStore, Summary};
use serde_json::Value;

use crate::arguments::{StoreCommand, StoreOptions};
use crate::state::store_folder;
use crate::store_socket::{Answer, event_line, summary_line};

pub fn run(options: &StoreOptions) -> Result<()> {
    let data_dir = std::path::absolute(&options.data_dir)?;
    match &options.command {
        StoreCommand::Backup { file } => backup(&data_dir, file),
        StoreCommand::Restore { file } => restore(&data_dir, file),
        StoreCommand::Check { backup: Some(file) } => {
            let found = ferry_store::read_backup(file)?;
            say(&format!("the backup {} is whole: {}", file.display(), told(&summary_line(&found))))
        }
        StoreCommand::Check { backup: None } => check(&data_dir),
        StoreCommand::History { key, values } => history(&data_dir, key, *values),
    }
}

fn told(found: &Value) -> String {
    let number = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or_default();
    format!(
        "revision {}, {} objects, {} changes kept since revision {}",
        number("revision"),
        number("objects"),
        number("records"),
        number("compacted")
    )
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to the standard output")
}

/// A missing folder is told apart from one that is no store: the flag is what is wrong.
fn must_be_there(data_dir: &Path) -> Result<()> {
    ensure!(data_dir.is_dir(), "there is no folder {}; give the cluster's own with --data-dir", data_dir.display());
    let folder = store_folder(data_dir);
    ensure!(
        folder.is_dir(),
        "{} holds no store; give the cluster's folder with --data-dir (a cluster on etcd is backed up with etcd's own tools)",
        data_dir.display()
    );
    Ok(())
}

fn backup(data_dir: &Path, file: &Path) -> Result<()> {
    must_be_there(data_dir)?;
    let found: Summary = match Answer::of(data_dir, "backup")? {
        Some(answer) => ferry_store::receive(answer.bytes(), file)
            .context("the running server did not send a whole backup, or it could not be kept")?,
        None => EmbeddedStore::backup_folder(&store_folder(data_dir), file)?,
    };
    say(&format!("wrote {}: {}", file.display(), told(&summary_line(&found))))
}

fn restore(data_dir: &Path, file: &Path) -> Result<()> {
    ensure!(file.exists(), "there is no file {}", file.display());
    let folder = store_folder(data_dir);
    let found = EmbeddedStore::restore(file, &folder)?;
    say(&format!("restored {}: {}", folder.display(), told(&summary_line(&found))))
}

fn check(data_dir: &Path) -> Result<()> {
    must_be_there(data_dir)?;
    let found = match Answer::of(data_dir, "check")? {
        Some(mut answer) => answer.next()?.context("the running server answered nothing")?,
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
            while let Some(event) = answer.next()? {
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
