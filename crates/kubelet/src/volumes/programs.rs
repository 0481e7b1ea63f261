//! Programs of this node that mount, check and make file systems. No shell is in between, each has a time limit, and only the
//! first part of what it says is kept.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::backoff::go_duration;

/// As much of a program's words fits into an Event.
const MOST_WORDS: usize = 2048;
/// Helpers that a program leaves running may keep its output open.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long a killed program has to end. One that waits for a dead disk or server in the kernel may not.
const DEATH: Duration = Duration::from_secs(2);

/// (program, the Debian package that has it)
const PACKAGES: [(&str, &str); 13] = [
    ("blkid", "util-linux"),
    ("fsck", "util-linux"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.ext2", "e2fsprogs"),
    ("mkfs.ext3", "e2fsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.f2fs", "f2fs-tools"),
    ("mkfs.ntfs", "ntfs-3g"),
    ("mkfs.vfat", "dosfstools"),
    ("mkfs.xfs", "xfsprogs"),
    ("mount", "mount"),
    ("mount.nfs", "nfs-common"),
    ("umount", "mount"),
];

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRun {
    #[error("{}", missing(.0))]
    Missing(String),
    #[error("an earlier {0} waits in the kernel and cannot be ended")]
    Stuck(String),
    #[error("{program} cannot be run: {source}")]
    Failed { program: String, source: io::Error },
}

/// What became of a program.
#[derive(Debug)]
pub(super) struct Ended {
    /// None where it did not end by itself.
    pub(super) code: Option<i32>,
    /// How it ended, in upstream's words.
    pub(super) how: String,
    /// Standard output and standard error as they came.
    pub(super) output: String,
}

impl Ended {
    pub(super) fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

pub(super) struct Programs {
    /// Where programs are looked for, the first ones first.
    folders: Vec<PathBuf>,
    /// Programs that outlived their signal, by what they work on.
    stuck: Mutex<HashMap<PathBuf, Group>>,
}

/// A program with all that it has started; none of them outlives it.
struct Group(Child);

impl Group {
    fn kill(&self) {
        // None once it has ended: its number may be another's by then.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Programs {
    pub(super) fn of_the_node() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
        Self::in_folders(std::env::split_paths(&path).filter(|folder| folder.is_absolute()).chain(usual).collect())
    }

    pub(super) fn in_folders(folders: Vec<PathBuf>) -> Self {
        Self { folders, stuck: Mutex::default() }
    }

    pub(super) fn find(&self, program: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file())
    }

    /// Runs a program on something, the last of its arguments, until it ends or the time is up.
    pub(super) async fn run(
        &self,
        program: &str,
        arguments: &[&OsStr],
        on: &Path,
        limit: Duration,
    ) -> Result<Ended, NotRun> {
        self.run_held(program, arguments, on, on, limit).await
    }

    /// The same on something that is open here: `held` is its name meanwhile, which means another thing later, and `on` the one
    /// that it is known by.
    pub(super) async fn run_held(
        &self,
        program: &str,
        arguments: &[&OsStr],
        held: &Path,
        on: &Path,
        limit: Duration,
    ) -> Result<Ended, NotRun> {
        let path = self.find(program).ok_or_else(|| NotRun::Missing(program.to_owned()))?;
        if self.is_stuck(on) {
            return Err(NotRun::Stuck(program.to_owned()));
        }
        let failed = |source| NotRun::Failed { program: program.to_owned(), source };
        let (reader, writer) = io::pipe().map_err(failed)?;
        let mut words =
            Words { pipe: pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(failed)?, kept: Vec::new() };
        let mut group = {
            // Its variables are none of theirs. The command holds the pipe open until it is dropped.
            let mut command = Command::new(path);
            command.args(arguments).arg(held).process_group(0).kill_on_drop(true).env_clear().env("LC_ALL", "C");
            command.env("PATH", std::env::join_paths(&self.folders).unwrap_or_default());
            command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
            Group(command.spawn().map_err(failed)?)
        };
        let ended = timeout(limit, async {
            let mut open = true;
            loop {
                tokio::select! {
                    status = group.0.wait() => return status,
                    more = words.read(), if open => open = more,
                }
            }
        });
        let (code, how) = match ended.await {
            Ok(status) => {
                let status = status.map_err(failed)?;
                let _ = timeout(LAST_WORDS, async { while words.read().await {} }).await;
                (status.code(), how(status))
            }
            Err(_) => {
                group.kill();
                if timeout(DEATH, group.0.wait()).await.is_err() {
                    self.stuck.lock().insert(on.to_owned(), group);
                }
                (None, format!("killed after {}", go_duration(limit)))
            }
        };
        Ok(Ended { code, how, output: words.text() })
    }

    fn is_stuck(&self, on: &Path) -> bool {
        let mut stuck = self.stuck.lock();
        stuck.retain(|_, group| matches!(group.0.try_wait(), Ok(None)));
        stuck.contains_key(on)
    }

    /// Mounts something. The error is in upstream's words.
    pub(super) async fn mount(
        &self,
        kind: &str,
        options: &str,
        source: &Path,
        target: &Path,
        limit: Duration,
    ) -> Result<(), String> {
        let mut arguments: Vec<&OsStr> = vec![OsStr::new("-t"), OsStr::new(kind)];
        if !options.is_empty() {
            arguments.extend([OsStr::new("-o"), OsStr::new(options)]);
        }
        arguments.extend([OsStr::new("--"), source.as_os_str()]);
        self.run_mount(&arguments, target, limit).await
    }

    /// Lets a file system that was mounted read-only be written to.
    pub(super) async fn remount_writable(&self, target: &Path, limit: Duration) -> Result<(), String> {
        self.run_mount(&["-o", "remount,rw", "--"].map(OsStr::new), target, limit).await
    }

    async fn run_mount(&self, arguments: &[&OsStr], target: &Path, limit: Duration) -> Result<(), String> {
        let ended =
            self.run("mount", arguments, target, limit).await.map_err(|error| format!("mount failed: {error}"))?;
        if ended.is_success() {
            return Ok(());
        }
        let all = arguments.iter().copied().chain([target.as_os_str()]);
        let all = all.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
        let Ended { how, output, .. } = ended;
        Err(format!("mount failed: {how}\nMounting command: mount\nMounting arguments: {all}\nOutput: {output}"))
    }

    /// Unmounts what is at a place; a lazy one is gone from there at once, whoever still has it open.
    pub(super) async fn unmount(&self, place: &Path, lazy: bool, limit: Duration) -> Result<(), String> {
        let arguments: &[&str] = if lazy { &["-l", "--"] } else { &["--"] };
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let ended = self.run("umount", &arguments, place, limit).await;
        match ended.map_err(|error| format!("unmount failed: {error}"))? {
            ended if ended.is_success() => Ok(()),
            Ended { how, output, .. } => {
                let place = place.display();
                Err(format!("unmount failed: {how}\nUnmounting arguments: {place}\nOutput: {output}"))
            }
        }
    }
}

/// What a program says: the first part of it.
struct Words {
    pipe: pipe::Receiver,
    kept: Vec<u8>,
}

impl Words {
    /// Reads on. False once nobody can say any more.
    async fn read(&mut self) -> bool {
        let mut piece = [0; 1024];
        match self.pipe.read(&mut piece).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                let room = MOST_WORDS.saturating_sub(self.kept.len());
                self.kept.extend_from_slice(&piece[..count.min(room)]);
                true
            }
        }
    }

    /// Without what moves a terminal's cursor.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        let shown = text.chars().filter(|letter| *letter == '\n' || *letter == '\t' || !letter.is_control());
        shown.collect::<String>().trim().to_owned()
    }
}

fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
    }
}

/// Says what to install.
pub(super) fn missing(program: &str) -> String {
    let package = PACKAGES.iter().find(|(known, _)| *known == program);
    let install = package.map(|(_, package)| format!("; install it with: apt-get install {package}"));
    format!("this node has no program {program}{}", install.unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Instant;

    use super::*;

    /// Another process writes it: a file that any thread here has open for writing cannot be run.
    pub(in crate::volumes) fn script(folder: &Path, name: &str, text: &str) {
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let file = folder.join(name);
        let written = std::process::Command::new("/bin/sh").arg("-c").arg(write).arg(file).arg(text).status();
        assert!(written.expect("a shell").success());
    }

    const LIMIT: Duration = Duration::from_secs(20);

    fn programs(folder: &Path) -> Programs {
        Programs::in_folders(vec![folder.to_owned(), "/usr/bin".into(), "/bin".into()])
    }

    #[tokio::test]
    async fn arguments_reach_a_program_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        script(folder.path(), "say", "for word; do echo \"[$word]\"; done; echo \"$HOME$LC_ALL\" >&2; exit 7");
        let arguments = ["-o", "a b,c", "$(touch x); `id`", "*"].map(OsStr::new);
        let ended = programs(folder.path()).run("say", &arguments, Path::new("/it's"), LIMIT).await.expect("run");
        assert_eq!(ended.output, "[-o]\n[a b,c]\n[$(touch x); `id`]\n[*]\n[/it's]\nC");
        assert_eq!((ended.code, ended.how.as_str()), (Some(7), "exit status 7"));
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_named_with_its_package() {
        let programs = Programs::in_folders(vec!["/nonexistent".into()]);
        let error = programs.run("mkfs.xfs", &[], Path::new("/dev/null"), LIMIT).await.expect_err("there is none");
        assert_eq!(error.to_string(), "this node has no program mkfs.xfs; install it with: apt-get install xfsprogs");
        let error = programs.mount("ext4", "", Path::new("/dev/null"), Path::new("/x"), LIMIT).await;
        assert!(error.is_err_and(|error| error.starts_with("mount failed: this node has no program mount;")));
        let error = programs.run("mkfs.other", &[], Path::new("/dev/null"), LIMIT).await.expect_err("there is none");
        assert_eq!(error.to_string(), "this node has no program mkfs.other");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let noted = folder.path().join("helper");
        script(folder.path(), "mount", &format!("echo waiting; sleep 1000 & echo $! > {}; wait", noted.display()));
        let (programs, started) = (programs(folder.path()), Instant::now());
        let error = programs
            .mount("nfs", "ro", Path::new("server:/path"), Path::new("/target"), Duration::from_secs(1))
            .await
            .expect_err("it hangs");
        assert_eq!(
            error,
            "mount failed: killed after 1s\nMounting command: mount\n\
             Mounting arguments: -t nfs -o ro -- server:/path /target\nOutput: waiting"
        );
        assert!(started.elapsed() < Duration::from_secs(15));
        assert!(!programs.is_stuck(Path::new("/target")));
        let helper = std::fs::read_to_string(noted).expect("noted");
        let ends = async {
            let stat = format!("/proc/{}/stat", helper.trim());
            while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, ends).await.expect("the helper ends");
    }

    /// A daemon that a helper leaves behind keeps the pipe; a flood of words is not kept.
    #[tokio::test]
    async fn words_are_bounded_in_time_and_size() {
        let folder = tempfile::tempdir().expect("a folder");
        script(folder.path(), "talk", "head -c 10000000 /dev/zero | tr '\\0' x; sleep 5 & exit 0");
        let started = Instant::now();
        let ended = programs(folder.path()).run("talk", &[], Path::new("/x"), LIMIT).await.expect("run");
        assert_eq!((ended.code, ended.output.len()), (Some(0), MOST_WORDS));
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    /// One at a time waits for a dead disk, however often it is tried.
    #[tokio::test]
    async fn nothing_is_started_beside_what_cannot_be_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = programs(folder.path());
        let mut sleep = Command::new("/bin/sleep");
        let group = Group(sleep.arg("1000").process_group(0).spawn().expect("started"));
        programs.stuck.lock().insert("/target".into(), group);
        let error = programs.unmount(Path::new("/target"), true, LIMIT).await.expect_err("stuck");
        assert_eq!(error, "unmount failed: an earlier umount waits in the kernel and cannot be ended");
        assert!(!programs.is_stuck(Path::new("/other")));
        // Whatever it is held by this time.
        let held = Path::new("/proc/self/fd/0");
        let again = programs.run_held("umount", &[], held, Path::new("/target"), LIMIT).await;
        assert!(matches!(again, Err(NotRun::Stuck(_))), "{again:?}");
        assert!(!programs.is_stuck(held));
        programs.stuck.lock().get("/target".as_ref() as &Path).expect("there").kill();
        let ends = async {
            while programs.is_stuck(Path::new("/target")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, ends).await.expect("it ends");
    }
}
