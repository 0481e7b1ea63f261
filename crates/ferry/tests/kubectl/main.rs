//! `ferry kubectl` against upstream's kubectl: the lines of each `testdata/kubectl/*lines.txt`, one after the other on a server of their own, must say
//! and end with what kubectl v1.37 did on another (`*recorded.txt`). Times, UIDs and versions are made equal first.
//!
//! `FERRY_KUBECTL_RECORD=/path/to/kubectl cargo test -p ferry --test kubectl` records anew.

#![expect(clippy::unwrap_used, reason = "a test: a missing value is a failure")]

mod lines;
mod own;
mod proxy;
mod server;

use std::fmt::Write;

use lines::{Answer, folder, recorded};
use server::Server;

#[test]
fn says_what_kubectl_says() {
    compare("lines.txt", "recorded.txt");
}

/// Templates, preferences, broken files and configurations: on another server, beside the first.
#[test]
fn says_what_kubectl_says_of_mistakes_and_preferences() {
    compare("more-lines.txt", "more-recorded.txt");
}

/// Objects with all their parts and statuses, and flags in combinations that nobody had tried.
#[test]
fn says_what_kubectl_says_of_odd_lines() {
    compare("odd-lines.txt", "odd-recorded.txt");
}

/// What people and their scripts type every day.
#[test]
fn says_what_kubectl_says_every_day() {
    compare("daily-lines.txt", "daily-recorded.txt");
}

/// Everything that `create`, `run` and `apply` make.
#[test]
fn says_what_kubectl_says_of_new_objects() {
    compare("made-lines.txt", "made-recorded.txt");
}

/// Own kinds, templates, selectors, pages, marks, deletions and waiting.
#[test]
fn says_what_kubectl_says_when_asked() {
    compare("asked-lines.txt", "asked-recorded.txt");
}

/// Configurations, pods without a node, global flags, changes of fields, nodes.
#[test]
fn says_what_kubectl_says_of_changes() {
    compare("changed-lines.txt", "changed-recorded.txt");
}

/// Pods that are waited for, ports, times, files that are half good, objects without a server, the order of errors.
#[test]
fn says_what_kubectl_says_at_the_end() {
    compare("rest-lines.txt", "rest-recorded.txt");
}

/// `--record`, and what scaling and patching print.
#[test]
fn says_what_kubectl_says_of_causes() {
    compare("causes-lines.txt", "causes-recorded.txt");
}

/// What new lines found: paths, templates, orders, plug-ins, configurations, generators.
#[test]
fn says_what_kubectl_says_where_it_did_not() {
    compare("found-lines.txt", "found-recorded.txt");
}

/// What is seldom used: preferences with empty fields, applysets, describing of every kind, forms of waiting, odd arguments.
#[test]
fn says_what_kubectl_says_seldom() {
    compare("seldom-lines.txt", "seldom-recorded.txt");
}

fn compare(lines: &str, answers: &str) {
    let recorder = std::env::var_os("FERRY_KUBECTL_RECORD");
    let server = Server::start();
    let mut found: Vec<(String, Answer)> = Vec::new();
    for line in lines::all(lines) {
        let answer = match &recorder {
            Some(kubectl) => server.run(kubectl.as_ref(), &[], &line),
            None => server.run(env!("CARGO_BIN_EXE_ferry").as_ref(), &["kubectl"], &line),
        };
        found.push((line, answer));
    }
    if recorder.is_some() {
        let text: String = found.iter().map(|(line, answer)| answer.written(line)).collect();
        std::fs::write(folder().join(answers), text).unwrap();
        return;
    }
    let expected = recorded(answers);
    assert_eq!(expected.len(), found.len(), "{lines} and {answers} do not belong together: record anew");
    let mut wrong = String::new();
    for ((line, answer), (recorded_line, recorded)) in found.iter().zip(&expected) {
        assert_eq!(line, recorded_line, "{lines} and {answers} do not belong together: record anew");
        if answer != recorded {
            let _ = write!(wrong, "\nkubectl:\n{}ferry:\n{}", recorded.written(line), answer.written(line));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The link that packages offer where there is no kubectl.
#[test]
fn is_kubectl_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferry"), &link).unwrap();
    let output = std::process::Command::new(&link).args(["version", "--client"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Client Version: v1.37.0\nKustomize Version: v5.8.1\n");
    let unknown = std::process::Command::new(link).arg("nonsense").output().unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&unknown.stderr), "error: unknown command \"nonsense\" for \"kubectl\"\n");
}
