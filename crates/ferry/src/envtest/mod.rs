//! Ferry in the place of the programs that tests of controllers start: `kube-apiserver`, `etcd` and `kubectl` by their names.
//!
//! controller-runtime's envtest starts an etcd, waits for its health, starts a kube-apiserver on it, and ends both. Here the
//! etcd is a small process that owns a data folder and says where it is; the API server keeps its state there, so that it
//! outlives a restart of the API server as it does upstream.

mod apiserver;
mod etcd;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferry_cluster::{folders, process};

/// The names that tests call.
const PROGRAMS: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];
const PARENT_LOOK: Duration = Duration::from_millis(250);

/// Runs what this program was called as; None where it is ferry itself. `kubectl` has been taken already.
pub fn called_by_name(mut all: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = PathBuf::from(all.next()?);
    let run: fn(Vec<String>) -> Result<()> = match name.file_name().and_then(OsStr::to_str)? {
        "kube-apiserver" => apiserver::run,
        "etcd" => etcd::run,
        _ => return None,
    };
    let words = all.map(|word| word.to_string_lossy().into_owned()).collect();
    process::allow_many_files();
    folders::keep_private();
    end_with_the_parent();
    Some(match run(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error:#}", name.display());
            ExitCode::FAILURE
        }
    })
}

/// A test that is killed leaves no server behind. The parent's death signal would come when its thread ends, and the threads
/// of a Go program come and go.
fn end_with_the_parent() {
    let parent = rustix::process::getppid();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            while rustix::process::getppid() == parent {
                tokio::time::sleep(PARENT_LOOK).await;
            }
        });
        std::process::exit(0);
    });
}

/// `ferry envtest`: the folder for KUBEBUILDER_ASSETS, with links to this program.
pub fn prepare(folder: Option<PathBuf>) -> Result<()> {
    let folder = match folder {
        Some(given) => given,
        None => default_folder()?,
    };
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    link(&program, &folder)?;
    // The only line, so that it can be the value of a variable.
    println!("{}", std::path::absolute(&folder).unwrap_or(folder).display());
    Ok(())
}

fn default_folder() -> Result<PathBuf> {
    let below = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = below("XDG_DATA_HOME").or_else(|| below("HOME").map(|home| home.join(".local/share")));
    Ok(data
        .context("neither XDG_DATA_HOME nor HOME is set; name a folder: ferry envtest FOLDER")?
        .join("ferry/envtest"))
}

/// Links that are there already are led here; anything else of that name is somebody's own.
fn link(program: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for name in PROGRAMS {
        let link = folder.join(name);
        match std::fs::symlink_metadata(&link) {
            Ok(there) if there.is_symlink() => {
                std::fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
            }
            Ok(_) => bail!("{} is no link; it is left as it is. Remove it, or choose another folder", link.display()),
            Err(_) => {}
        }
        symlink(program, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_again_and_files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let assets = folder.path().join("assets");
        for program in ["/first", "/second"] {
            link(Path::new(program), &assets).unwrap();
            for name in PROGRAMS {
                assert_eq!(std::fs::read_link(assets.join(name)).unwrap(), Path::new(program));
            }
        }
        std::fs::remove_file(assets.join("etcd")).unwrap();
        std::fs::write(assets.join("etcd"), "a real one").unwrap();
        let why = link(Path::new("/third"), &assets).unwrap_err().to_string();
        assert!(why.contains("left as it is"), "{why}");
        assert_eq!(std::fs::read_to_string(assets.join("etcd")).unwrap(), "a real one");
    }

    #[test]
    fn only_its_names_are_taken() {
        for name in ["ferry", "/usr/bin/ferry", "etcdctl", ""] {
            assert!(called_by_name([OsString::from(name), "--help".into()].into_iter()).is_none(), "{name}");
        }
    }
}
