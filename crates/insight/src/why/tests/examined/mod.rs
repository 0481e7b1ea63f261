//! Situations as a cluster holds them, read through an API as a real one is: what users meet every day, and what they meet
//! rarely. The objects are complete as far as anything is found in them.

mod again;
mod cluster;
mod hints;
mod hostile;
mod last;
mod later_others;
mod later_pods;
mod left_alone;
mod make;
mod network;
mod others;
mod pods;
mod scalers;
mod scheduled;
mod storage;
mod tasks;
mod told_pods;
mod told_services;
mod told_storage;
mod well;
mod window;
mod workloads;

use serde_json::Value;

use super::super::{Reason, Verdict, findings, render, verdict};
use super::api::seen;
use super::{merge, node};
use make::{crashing, log, made, owner, pod, serving, unscheduled, waiting, warned, with};

/// What is to be said first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Stuck(Reason),
    Way(Reason),
    /// Nothing but a note.
    Note(Reason),
    Well,
}
use Said::{Note, Stuck, Way, Well};

/// What it is about, the object, all that there is, and the words that are shown; those with `!` are not.
type Case<'a> = (&'a str, &'a str, Value, Said, &'a [&'a str]);

/// All that went wrong at once: what is false, and what stops too early.
fn examine(cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for (what, object, objects, said, words) in cases {
        let mut objects = objects.clone();
        let all = objects.as_array_mut().unwrap();
        if !all.iter().any(|one| one["kind"] == "Node") {
            all.push(node("n", "True"));
        }
        let world = seen(object, &objects);
        let found = findings(&world);
        let shown = render(&world, &found);
        let told = found.first().map(|first| (verdict(&world, &found), first.reason));
        let is_right = match (*said, told) {
            (Well, None) => true,
            (Stuck(reason), Some((Verdict::Stuck, told))) => reason == told,
            (Way(reason), Some((Verdict::OnItsWay, told))) => reason == told,
            (Note(reason), Some((Verdict::Fine, told))) => reason == told,
            _ => false,
        };
        let is_false = |word: &&&str| word.strip_prefix('!').is_some_and(|word| shown.contains(word));
        let is_missing = |word: &&&str| !word.starts_with('!') && !shown.contains(**word);
        if !is_right {
            wrong.push(format!("false: {what}: not {said:?}: {shown}"));
        } else if let Some(word) = words.iter().find(is_false) {
            wrong.push(format!("false: {what}: {word:?} is in {shown}"));
        } else if let Some(word) = words.iter().find(is_missing) {
            wrong.push(format!("early: {what}: {word:?} is not in {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
