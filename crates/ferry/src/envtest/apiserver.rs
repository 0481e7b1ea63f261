//! `kube-apiserver`: the API server with the flags that tests give it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, FromArgMatches};
use serde_json::Value;

use super::etcd::STORE_PAGE;
use crate::arguments::ApiserverOptions;
use crate::commands;

const ETCD_PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_ANSWER: u64 = 64 << 10;

pub fn run(words: Vec<String>) -> Result<()> {
    if let [only] = words.as_slice()
        && only == "--version"
    {
        println!("Kubernetes v1.37.0");
        return Ok(());
    }
    // envtest looks in the help text for flags of other versions.
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{}", command().render_long_help());
        return Ok(());
    }
    let (known, unknown) = sort_out(words);
    let mut options = parse(known)?;
    match options.etcd.address.etcd_servers.first().and_then(|url| ask(url)) {
        Some((data_dir, sync)) => {
            options.etcd.address.etcd_servers.clear();
            options.data_dir = data_dir;
            options.unsafe_no_fsync |= !sync;
        }
        // A real etcd has the state; certificates and keys are this server's own.
        None => {
            if let (Some(folder), true) = (&options.cert_dir, is_default(&options)) {
                options.data_dir = folder.join("ferry");
            }
        }
    }
    for flag in unknown {
        eprintln!("kube-apiserver: Ferry does not know --{flag}; it is ignored");
    }
    commands::apiserver::run(&options)
}

fn command() -> clap::Command {
    ApiserverOptions::augment_args(clap::Command::new("kube-apiserver").no_binary_name(true))
}

fn parse(words: Vec<String>) -> Result<ApiserverOptions> {
    let matches = command().try_get_matches_from(words).unwrap_or_else(|error| error.exit());
    Ok(ApiserverOptions::from_arg_matches(&matches)?)
}

fn is_default(options: &ApiserverOptions) -> bool {
    command()
        .get_arguments()
        .find(|argument| argument.get_long() == Some("data-dir"))
        .and_then(|argument| argument.get_default_values().first())
        .is_some_and(|default| PathBuf::from(default) == options.data_dir)
}

/// The flags that Ferry has, each as one word, and the names of the others. A flag that is given several times as a list and
/// holds one value here keeps its last one, as upstream's do.
fn sort_out(words: Vec<String>) -> (Vec<String>, Vec<String>) {
    let command = command();
    let flags: BTreeMap<&str, &clap::Arg> =
        command.get_arguments().filter_map(|argument| Some((argument.get_long()?, argument))).collect();
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    let mut single: BTreeMap<String, usize> = BTreeMap::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(rest) = word.strip_prefix("--") else { continue };
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (rest.to_owned(), words.next_if(|next| !next.starts_with("--"))),
        };
        let Some(argument) = flags.get(name.as_str()) else {
            unknown.push(name);
            continue;
        };
        let takes_value = !matches!(argument.get_action(), clap::ArgAction::SetTrue);
        let flag = match value {
            Some(value) if takes_value => format!("--{name}={value}"),
            Some(value) if value == "false" => continue,
            _ => format!("--{name}"),
        };
        if matches!(argument.get_action(), clap::ArgAction::Append) {
            known.push(flag);
        } else if let Some(place) = single.get(&name) {
            known[*place] = flag;
        } else {
            single.insert(name, known.len());
            known.push(flag);
        }
    }
    (known, unknown)
}

/// Where the stand-in for etcd at this address keeps its state, and whether writes are to reach the disk; None where
/// something else listens.
fn ask(url: &str) -> Option<(PathBuf, bool)> {
    let authority = url.strip_prefix("http://")?.trim_end_matches('/');
    let address = authority.to_socket_addrs().ok()?.find(|address| address.ip().is_loopback())?;
    let page = fetch(address, authority)
        .inspect_err(|error| tracing::debug!("{url} is no stand-in for etcd: {error:#}"))
        .ok()?;
    let store: Value = serde_json::from_str(&page).ok()?;
    Some((store["dataDir"].as_str()?.into(), store["sync"].as_bool()?))
}

fn fetch(address: std::net::SocketAddr, authority: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ETCD_PATIENCE)?;
    stream.set_read_timeout(Some(ETCD_PATIENCE))?;
    stream.set_write_timeout(Some(ETCD_PATIENCE))?;
    write!(stream, "GET {STORE_PAGE} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(LONGEST_ANSWER).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200 "), "it answered {:?}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_of_tests_are_taken_and_others_named() {
        let (known, unknown) = sort_out(words(
            "--bind-address=127.0.0.1 --secure-port 4443 --secure-port=4444 --allow-privileged=true \
             --service-account-issuer=https://a --service-account-issuer=https://b --profiling=false \
             --disable-admission-plugins=ServiceAccount --endpoint-reconciler-type none --v=2 --authorization-mode=RBAC",
        ));
        assert_eq!(unknown, ["profiling", "endpoint-reconciler-type", "v"]);
        let options = parse(known).unwrap();
        assert_eq!((options.secure_port, options.allow_privileged), (4444, true));
        assert_eq!(options.service_accounts.service_account_issuer, ["https://a", "https://b"]);
        assert_eq!(options.server.authorization.authorization_mode, ["RBAC"]);
        assert!(is_default(&options));
    }

    #[test]
    fn switches_may_be_said_to_be_off() {
        let (known, _) = sort_out(words("--unsafe-no-fsync=false"));
        assert!(!parse(known).unwrap().unsafe_no_fsync);
        let (known, _) = sort_out(words("--unsafe-no-fsync"));
        assert!(parse(known).unwrap().unsafe_no_fsync);
    }

    #[test]
    fn something_else_that_listens_is_no_stand_in() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        });
        assert_eq!(ask(&url), None);
        server.join().unwrap();
        assert_eq!(ask("https://127.0.0.1:1"), None, "a stand-in speaks no TLS");
        assert_eq!(ask("http://192.0.2.1:2379"), None, "a stand-in is on this machine");
    }
}
