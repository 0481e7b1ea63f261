//! Programs of the host that Ferry runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::container_runtime::ContainerRuntime;

/// Where the CNI project's own archives, and Debian, put network plug-ins.
const PLUGIN_FOLDERS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];

/// (program, the Debian package that has it)
const PROGRAMS: [(&str, &str); 3] = [("containerd", "containerd"), ("runc", "runc"), ("nft", "nftables")];

/// Names every missing program at once, and the packages that bring them.
pub fn check(runtime: &ContainerRuntime) -> Result<()> {
    let needed = |program: &str| match runtime {
        ContainerRuntime::Containerd => true,
        ContainerRuntime::Embedded | ContainerRuntime::Other(_) => !["containerd", "runc"].contains(&program),
    };
    let missing = PROGRAMS.iter().filter(|(program, _)| needed(program) && find(program).is_none());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("this machine lacks {}; install with: apt-get install {}", missing.join(", "), missing.join(" "))
}

/// Where the plug-ins of a network that is not Ferry's are.
pub fn plugin_folder() -> &'static Path {
    let folders = PLUGIN_FOLDERS.map(Path::new);
    folders.into_iter().find(|folder| folder.exists()).unwrap_or(folders[0])
}

pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Runs a program to its end; its error output is the error.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let path = find(program).unwrap_or_else(|| program.into());
    let output = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed: {}", arguments.join(" "), why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
