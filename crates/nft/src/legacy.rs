//! Rules of the old kind (`iptables-legacy`), which `nft` does not show and of which the kernel tells no changes.

use std::path::PathBuf;
use std::process::Command;

use crate::foreign::{Passage, mark};

/// Where the kernel lists the old tables that were ever used.
const TABLES: &str = "/proc/net/ip_tables_names";
const IPV6_TABLES: &str = "/proc/net/ip6_tables_names";

/// Why rules of the old kind could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum LegacyError {
    #[error("cannot run {line}: {source}")]
    Start { line: String, source: std::io::Error },
    #[error("{line} failed: {message}")]
    Failed { line: String, message: String },
}

#[derive(Clone, Debug)]
pub struct Legacy {
    /// The command with leading arguments; empty: whichever is installed.
    pub command: Vec<String>,
    pub tables: PathBuf,
    /// Whether it is for addresses of IPv6.
    pub ipv6: bool,
}

impl Legacy {
    /// Those of this machine, for each family.
    pub fn both() -> Vec<Self> {
        let of = |tables: &str, ipv6| Self { command: Vec::new(), tables: tables.into(), ipv6 };
        vec![of(TABLES, false), of(IPV6_TABLES, true)]
    }

    /// Whether the kernel has filter rules of the old kind.
    fn is_in_use(&self) -> bool {
        std::fs::read_to_string(&self.tables).is_ok_and(|names| names.lines().any(|name| name == "filter"))
    }

    /// The command to use, if there is anything to do.
    fn command(&self) -> Option<Vec<String>> {
        if !self.is_in_use() {
            return None;
        }
        if !self.command.is_empty() {
            return Some(self.command.clone());
        }
        let names = if self.ipv6 { ["ip6tables-legacy", "ip6tables"] } else { ["iptables-legacy", "iptables"] };
        names.into_iter().find_map(|name| {
            let output = Command::new(name).arg("-V").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.contains("legacy").then(|| vec![name.to_owned()])
        })
    }

    /// Lets the passage through where the policy is to drop. Blocks.
    pub(crate) fn ensure(&self, passage: &Passage, anew: bool) -> Result<(), LegacyError> {
        let Some(command) = self.command() else { return Ok(()) };
        for (chain, rules) in wanted(passage, self.ipv6) {
            let text = run(&command, &["-S", chain])?;
            if !text.lines().any(|line| line == format!("-P {chain} DROP")) {
                continue;
            }
            let ours = ours(&text, &passage.mark());
            if ours.len() == rules.len() && !anew {
                continue;
            }
            // Before the old ones go, so that nothing is dropped meanwhile.
            for rule in rules {
                let words = [vec!["-I".to_owned(), chain.to_owned()], rule].concat();
                run(&command, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
            }
            delete(&command, &ours)?;
        }
        Ok(())
    }

    /// Takes the rules away. Blocks.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LegacyError> {
        let Some(command) = self.command() else { return Ok(()) };
        for chain in ["INPUT", "FORWARD"] {
            delete(&command, &ours(&run(&command, &["-S", chain])?, &mark(name)))?;
        }
        Ok(())
    }
}

fn delete(command: &[String], rules: &[Vec<String>]) -> Result<(), LegacyError> {
    for rule in rules {
        let words: Vec<&str> = std::iter::once("-D").chain(rule.iter().map(String::as_str)).collect();
        run(command, &words)?;
    }
    Ok(())
}

/// The rules of each chain, without the chain's name.
fn wanted(passage: &Passage, ipv6: bool) -> [(&'static str, Vec<Vec<String>>); 2] {
    let end = ["-m", "comment", "--comment", &passage.mark(), "-j", "ACCEPT"].map(str::to_owned);
    let rule = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).chain(end.clone()).collect::<Vec<_>>();
    let (mut forward, mut input) = (Vec::new(), Vec::new());
    for pods in passage.pods.iter().filter(|pods| pods.contains(':') == ipv6) {
        forward.extend([rule(&["-s", pods]), rule(&["-d", pods])]);
        let node = passage.node.iter();
        input.extend(node.map(|(protocol, port)| rule(&["-s", pods, "-p", protocol, "--dport", &port.to_string()])));
    }
    [("FORWARD", forward), ("INPUT", input)]
}

/// The marked rules of a listing, as they are deleted: the chain and the rest.
fn ours(listing: &str, mark: &str) -> Vec<Vec<String>> {
    let quoted = format!("\"{mark}\"");
    let lines = listing.lines().filter_map(|line| line.strip_prefix("-A ")?.split_once(quoted.as_str()));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    lines.map(|(before, after)| [words(before), vec![mark.to_owned()], words(after)].concat()).collect()
}

fn run(command: &[String], words: &[&str]) -> Result<String, LegacyError> {
    let mut program = command.iter();
    // Nobody gives an empty command; the kernel says of one that there is no such program.
    let mut process = Command::new(program.next().map_or("", String::as_str));
    let output = process.args(program).args(["-w", "5"]).args(words).output();
    let line = format!("`{} {}`", command.join(" "), words.join(" "));
    let output = match output {
        Ok(output) => output,
        Err(source) => return Err(LegacyError::Start { line, source }),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().chars().take(300).collect();
    Err(LegacyError::Failed { line, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_rules_are_found_and_no_others() {
        let listing = "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n\
            -A FORWARD -s 10.244.0.0/16 -m comment --comment \"pods of ferry (ferry0)\" -j ACCEPT\n\
            -A FORWARD -s 10.9.0.0/16 -m comment --comment \"pods of ferry (ferry01)\" -j ACCEPT\n";
        let found = ours(listing, "pods of ferry (ferry0)");
        let want =
            ["FORWARD", "-s", "10.244.0.0/16", "-m", "comment", "--comment", "pods of ferry (ferry0)", "-j", "ACCEPT"];
        assert_eq!(found, [want.map(str::to_owned).to_vec()]);
    }
}
