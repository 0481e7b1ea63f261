//! Links to the logs of containers in one folder, whose names say pod, namespace, container and the container's id.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::pod;
use crate::volumes::blocking;

/// The file system takes no longer name.
const LONGEST_NAME: usize = 255;

fn name(of: &Pod, container: &str, id: &str) -> String {
    let end = format!("-{id}.log");
    let begin = format!("{}_{}_{container}", pod::name(of), pod::namespace(of));
    // All of it is plain letters: names of the API, and an id of the runtime.
    let most = LONGEST_NAME.saturating_sub(end.len());
    format!("{}{end}", begin.get(..most).unwrap_or(&begin))
}

/// Links a container's log. A link that cannot be made costs its collectors a log, and the container nothing.
pub(crate) async fn link(folder: &Path, of: &Pod, container: &str, id: &str, log: &Path) {
    let link = folder.join(name(of, container, id));
    match tokio::fs::symlink(log, &link).await {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            tracing::warn!("{} is not linked: {error}", log.display());
        }
        _ => {}
    }
}

/// Removes links to logs of this kubelet that are gone.
pub(crate) async fn remove_dangling(folder: &Path, logs: &Path) {
    let (folder, logs) = (folder.to_owned(), logs.to_owned());
    let removed = blocking(move || sweep(&folder, &logs).map_err(|error| error.to_string())).await;
    if let Err(why) = removed {
        tracing::debug!("links to logs that are gone are not removed: {why}");
    }
}

fn sweep(folder: &Path, logs: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let link: PathBuf = entry?.path();
        let Ok(target) = std::fs::read_link(&link) else { continue };
        let gone = std::fs::symlink_metadata(&target).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if target.starts_with(logs) && gone {
            std::fs::remove_file(&link)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn links_name_their_container_and_go_with_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let (links, logs) = (folder.path().join("containers"), folder.path().join("pods"));
        std::fs::create_dir_all(&links).expect("made");
        std::fs::create_dir_all(&logs).expect("made");
        let pod = serde_json::json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": []}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let (log, foreign) = (logs.join("0.log"), folder.path().join("foreign"));
        std::fs::write(&log, "line").expect("written");
        for _ in 0..2 {
            link(&links, &pod, "main", "abc", &log).await;
        }
        let place = links.join("web_shop_main-abc.log");
        assert_eq!(std::fs::read_to_string(&place).expect("a log"), "line");
        std::os::unix::fs::symlink(&foreign, links.join("foreign")).expect("linked");
        sweep(&links, &logs).expect("swept");
        assert!(place.exists());
        std::fs::remove_file(&log).expect("removed");
        sweep(&links, &logs).expect("swept");
        let left: Vec<_> = std::fs::read_dir(&links).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["foreign"], "what others have linked stays");
        assert_eq!(name(&pod, &"c".repeat(300), "abc").len(), LONGEST_NAME);
    }
}
