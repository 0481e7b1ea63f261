//! The systemd unit that a process runs as, if it does: whoever stops the process alone is undone by `Restart=`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::node::tools::run;

/// Stops the unit whose main process this is; false where there is none, and somebody else has to end the process.
pub fn stop(pid: i32) -> Result<bool> {
    // What systemd's own tools look at to learn whether it runs here.
    if !Path::new("/run/systemd/system").exists() {
        return Ok(false);
    }
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    for unit in units(&groups) {
        // A process that somebody started in a session is in the unit of that session, and is not its main process.
        let main = run("systemctl", &["show", "--property=MainPID", "--value", &unit]);
        if main.is_ok_and(|main| main.trim() == pid.to_string()) {
            run("systemctl", &["stop", &unit])?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// The services in the paths of a process's control groups, innermost first.
fn units(groups: &str) -> Vec<String> {
    let mut found = Vec::new();
    for path in groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
        for part in path.rsplit('/').filter(|part| part.ends_with(".service")) {
            if !found.iter().any(|known| known == part) {
                found.push(part.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_in_both_versions_of_control_groups() {
        assert_eq!(units("0::/system.slice/ferry.service/process\n"), ["ferry.service"]);
        assert_eq!(
            units("12:pids:/user.slice/user-0.slice/user@0.service/a.service\n1:name=systemd:/init.scope\n0::/\n"),
            ["a.service", "user@0.service"]
        );
        assert!(units("0::/user.slice/session-3.scope\n").is_empty());
    }
}
