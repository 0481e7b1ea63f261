//! Flags of the API server. A server that joins has those of the server that made its token, with the files that they name:
//! what one server refuses, audits or encrypts, the others must too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, Command, FromArgMatches};
use ferry_server::pki::write_private;
use ferry_server::server_options::ServerOptions;

use crate::command_line::CommandLine;

/// Names without dashes in front, and what was given to each.
pub type Flags = BTreeMap<String, Vec<String>>;

/// They name files that are read: a server that joins gets those, too.
const FILES: [&str; 12] = [
    "admission-control-config-file",
    "audit-policy-file",
    "audit-webhook-config-file",
    "authentication-config",
    "authentication-token-webhook-config-file",
    "authorization-config",
    "authorization-webhook-config-file",
    "encryption-provider-config",
    "oidc-ca-file",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "requestheader-client-ca-file",
];

pub const ENCRYPTION: &str = "encryption-provider-config";

fn names_file(flag: &str) -> bool {
    FILES.contains(&flag)
}

fn command() -> Command {
    ServerOptions::augment_args(Command::new("ferry").no_binary_name(true))
}

/// The flags of the API server on the command line; files by their whole path.
pub fn given_to_server(line: &CommandLine) -> Result<Flags> {
    let all: Vec<String> = command().get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned)).collect();
    let mut found = line.given(&all);
    for (flag, values) in &mut found {
        for value in values.iter_mut().filter(|value| names_file(flag) && !value.is_empty()) {
            *value = std::path::absolute(&*value)?.display().to_string();
        }
    }
    Ok(found)
}

/// Makes the options of them.
pub fn options(flags: &Flags) -> Result<ServerOptions> {
    let words = flags.iter().flat_map(|(flag, values)| values.iter().map(move |value| format!("--{flag}={value}")));
    let matches = command().try_get_matches_from(words).context("the flags that the cluster handed over")?;
    Ok(ServerOptions::from_arg_matches(&matches)?)
}

/// Fails where flags on the command line of a server that joined are not the cluster's.
pub fn check_same(given: &Flags, known: &Flags) -> Result<()> {
    for (flag, values) in given {
        let same = match known.get(flag) {
            Some(theirs) if names_file(flag) => match (values.as_slice(), theirs.as_slice()) {
                ([one], [other]) => one == other || std::fs::read(one).ok() == std::fs::read(other).ok(),
                _ => false,
            },
            Some(theirs) => theirs == values,
            None => false,
        };
        ensure!(
            same,
            "--{flag} is not what the cluster has that this server joined; leave it out, or change it on the first server and \
             let this one join again with a new token"
        );
    }
    Ok(())
}

/// The content of each file that the flags name.
pub fn read_files(flags: &Flags) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for (flag, values) in flags.iter().filter(|(flag, _)| names_file(flag)) {
        let [path] = values.as_slice() else { continue };
        let text = std::fs::read_to_string(path).with_context(|| format!("--{flag}: cannot read {path}"))?;
        files.insert(flag.clone(), text);
    }
    Ok(files)
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("pki/flags")
}

/// Writes the files of another server's flags to this one, and returns the flags as they are here.
pub fn unpack(flags: &Flags, files: &BTreeMap<String, String>, data_dir: &Path) -> Result<Flags> {
    let folder = folder(data_dir);
    let mut own = flags.clone();
    for (flag, text) in files {
        ensure!(names_file(flag), "the cluster hands over a file for --{flag}, which is not known here");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let path = folder.join(flag);
        write_private(&path, text)?;
        own.insert(flag.clone(), vec![path.display().to_string()]);
    }
    // Before anything is begun with them.
    options(&own)?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> CommandLine {
        let up = crate::options::ClusterOptions::augment_args(Command::new("up"));
        let all = ["ferry", "up"].iter().chain(words).map(std::ffi::OsString::from);
        CommandLine::read(&Command::new("ferry").subcommand(up), all)
    }

    #[test]
    fn every_file_of_a_flag_is_handed_over() {
        for argument in command().get_arguments() {
            let flag = argument.get_long().unwrap();
            let is_path = argument.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
            // It is written, not read.
            assert_eq!(is_path && flag != "audit-log-path", names_file(flag), "{flag}");
        }
    }

    #[test]
    fn flags_are_the_same_after_the_handover() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let policy = here.path().join("policy.yaml");
        std::fs::write(&policy, "kind: Policy").unwrap();
        let file = format!("--audit-policy-file={}", policy.display());
        let lists = "--enable-admission-plugins=EventRateLimit,AlwaysPullImages";
        let given =
            given_to_server(&words(&[&file, "--anonymous-auth=false", lists, "--cluster-cidr=10.0.0.0/16"])).unwrap();
        assert_eq!(
            given.keys().collect::<Vec<_>>(),
            ["anonymous-auth", "audit-policy-file", "enable-admission-plugins"]
        );
        let own = unpack(&given, &read_files(&given).unwrap(), there.path()).unwrap();
        let options = options(&own).unwrap();
        let copy = options.audit.audit_policy_file.unwrap();
        assert!(copy.starts_with(there.path()) && std::fs::read_to_string(copy).unwrap() == "kind: Policy");
        assert!(!options.authentication.anonymous_auth);
        assert_eq!(options.admission.enable_admission_plugins, ["EventRateLimit", "AlwaysPullImages"]);

        // The same file elsewhere is the same.
        check_same(&given, &own).unwrap();
        std::fs::write(&policy, "kind: Other").unwrap();
        assert!(check_same(&given, &own).unwrap_err().to_string().contains("--audit-policy-file is not what"));
        let other = given_to_server(&words(&["--max-requests-inflight=1"])).unwrap();
        assert!(check_same(&other, &own).unwrap_err().to_string().contains("--max-requests-inflight is not what"));
        assert!(check_same(&Flags::new(), &own).is_ok());
        let strange = [("data-dir".to_owned(), "x".to_owned())].into();
        assert!(unpack(&given, &strange, there.path()).is_err());
    }
}
