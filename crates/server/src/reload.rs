//! Configuration files that are read again when they change, while the process runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferry_tasks::Tasks;
use parking_lot::Mutex;

/// How often files are looked at. Upstream does so once a minute besides waiting for events, which those that are replaced
/// through a link do not have.
const LOOK: Duration = Duration::from_secs(10);

type Change = Box<dyn Fn() -> Result<()> + Send + Sync>;

struct File {
    path: PathBuf,
    /// What was there when it was looked at last.
    seen: Vec<u8>,
    changed: Change,
}

/// The files of this process that may change.
#[derive(Default)]
pub struct Reloads(Mutex<Vec<File>>);

impl Reloads {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Calls back after the file changed. It was read once already; a change that cannot be used leaves things as they are.
    pub fn watch(&self, path: &Path, changed: impl Fn() -> Result<()> + Send + Sync + 'static) -> Result<()> {
        let seen = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.0.lock().push(File { path: path.to_owned(), seen, changed: Box::new(changed) });
        Ok(())
    }

    pub fn look(&self) {
        for file in self.0.lock().iter_mut() {
            let content = match std::fs::read(&file.path) {
                Ok(content) if content != file.seen => content,
                Ok(_) => continue,
                Err(error) => {
                    tracing::error!(
                        "cannot read {}; its previous content stays in effect: {error}",
                        file.path.display()
                    );
                    continue;
                }
            };
            // Told once, not with every look.
            file.seen = content;
            match (file.changed)() {
                Ok(()) => tracing::info!("reloaded {}", file.path.display()),
                Err(error) => {
                    tracing::error!(
                        "cannot reload {}; its previous content stays in effect: {error:#}",
                        file.path.display()
                    );
                }
            }
        }
    }

    /// Looks from time to time for as long as the group runs.
    pub fn start(self: &Arc<Self>, tasks: &Tasks) {
        let reloads = self.clone();
        tasks.spawn_critical("configuration files", move || {
            let reloads = reloads.clone();
            async move {
                loop {
                    tokio::time::sleep(LOOK).await;
                    reloads.look();
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_change_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let reloads = Reloads::new();
        assert!(reloads.watch(&path, || Ok(())).is_err(), "it has to be there");
        std::fs::write(&path, "a").unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        reloads
            .watch(&path, move || {
                count.fetch_add(1, Ordering::Relaxed);
                anyhow::bail!("of no use")
            })
            .unwrap();
        for (content, wanted) in
            [(Some("a"), 0), (Some("b"), 1), (Some("b"), 1), (None, 1), (Some("b"), 1), (Some("c"), 2)]
        {
            match content {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            reloads.look();
            assert_eq!(told.load(Ordering::Relaxed), wanted, "{content:?}");
        }
    }
}
