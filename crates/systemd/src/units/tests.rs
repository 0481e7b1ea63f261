//! What is said to systemd, to a bus of the test's own; whether systemd does it is seen on a machine that it has started.

use std::path::Path;

use tokio::net::UnixListener;

use super::*;
use crate::wire::{ANSWER, ERROR, Message, SIGNAL};

const SYSTEMD: &str = ":1.0";

/// What becomes of a call.
#[derive(Clone, Copy)]
enum Becomes {
    /// A job that ends so.
    Job(&'static str),
    Done,
    Refused(&'static str),
}

/// Answers one connection as `answers` says, by member and in their order; gives the members that were asked for.
async fn bus(listener: UnixListener, mut answers: Vec<(&'static str, Becomes)>) -> Vec<String> {
    let mut bus = Bus::of(listener.accept().await.expect("a caller").0);
    for answer in ["OK 1234\r\n", "AGREE_UNIX_FD\r\n", ""] {
        bus.line().await.expect("a line");
        bus.write(answer.as_bytes()).await.expect("written");
    }
    let (mut asked, mut jobs) = (Vec::new(), 0);
    while let Ok(call) = bus.read().await {
        let unit = match call.values.first() {
            Some(Value::Text(unit)) if call.member != "AddMatch" => format!(" {unit}"),
            _ => String::new(),
        };
        asked.push(format!("{}{unit}", call.member));
        let place = answers.iter().position(|(member, _)| *member == call.member);
        let becomes = place.map_or(Becomes::Done, |place| answers.remove(place).1);
        let answer = Message { kind: ANSWER, answers: call.serial, sender: SYSTEMD.into(), ..Message::default() };
        match becomes {
            Becomes::Done => bus.send(answer).await.expect("sent"),
            Becomes::Refused(name) => {
                let values = vec![Value::Text("because".into())];
                let error = format!("org.freedesktop.systemd1.{name}");
                bus.send(Message { kind: ERROR, error, values, ..answer }).await.expect("sent")
            }
            Becomes::Job(result) => {
                jobs += 1;
                let job = Value::Text(format!("/job/{jobs}"));
                bus.send(Message { values: vec![job.clone()], ..answer }).await.expect("sent");
                // Another's, one that somebody else made up, and the one.
                let other = Value::Text("/job/9".into());
                for (sender, job, result) in
                    [(SYSTEMD, other, "failed"), (":1.7", job.clone(), "failed"), (SYSTEMD, job, result)]
                {
                    let result = Value::Text(result.into());
                    let signal = Message {
                        kind: SIGNAL,
                        path: OBJECT.into(),
                        interface: format!("{NAME}.Manager"),
                        member: "JobRemoved".into(),
                        sender: sender.into(),
                        values: vec![Value::Number(jobs), job, Value::Text("unit".into()), result],
                        ..Message::default()
                    };
                    bus.send(signal).await.expect("sent");
                }
                0
            }
        };
    }
    asked
}

async fn check<F: Future<Output = Result<(), SystemdError>>>(
    answers: &[(&'static str, Becomes)],
    work: impl FnOnce(Systemd) -> F,
    want: Result<(), &str>,
    asked: &[&str],
) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("bus");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let systemd = Systemd::at(&socket, Path::new("/nowhere"));
    let (seen, done) = tokio::join!(bus(listener, answers.to_vec()), work(systemd));
    assert_eq!(seen, [&["Hello"], asked].concat());
    assert_eq!(done.map_err(|error| error.to_string()), want.map_err(str::to_owned));
}

#[tokio::test]
async fn units_are_made_and_waited_for() {
    let scope = |systemd: Systemd| async move { systemd.start_scope("a.scope", scope("b.slice", "a".into(), 7)).await };
    let slice = |systemd: Systemd| async move {
        let limits = vec![Property::long("MemoryMax", 7)];
        systemd.start_slice("b.slice", slice("b.slice", "b".into()), limits).await
    };
    let start = ["AddMatch", "StartTransientUnit a.scope"];
    check(&[("StartTransientUnit", Becomes::Job("done"))], scope, Ok(()), &start).await;
    // What failed before is in the way, once.
    let exists = ("StartTransientUnit", Becomes::Refused("UnitExists"));
    let again = [&start[..], &["ResetFailedUnit a.scope", "StartTransientUnit a.scope"]].concat();
    check(&[exists, ("StartTransientUnit", Becomes::Job("done"))], scope, Ok(()), &again).await;
    let why = "a.scope: StartTransientUnit: org.freedesktop.systemd1.UnitExists: because";
    check(&[exists, exists], scope, Err(why), &again).await;
    let failed = [&start[..], &["ResetFailedUnit a.scope"]].concat();
    let why = "a.scope: systemd's job ended with \"failed\"";
    check(&[("StartTransientUnit", Becomes::Job("failed"))], scope, Err(why), &failed).await;
    // A slice that is there, or that the machine's owner describes in a file, is as good.
    let known = ["AddMatch", "StartTransientUnit b.slice", "SetUnitProperties b.slice", "StartUnit b.slice"];
    check(&[exists, ("StartUnit", Becomes::Job("done"))], slice, Ok(()), &known).await;
}

#[tokio::test]
async fn what_is_gone_is_stopped() {
    let stop = |systemd: Systemd| async move { systemd.stop("b.slice").await };
    let asked = ["AddMatch", "StopUnit b.slice", "ResetFailedUnit b.slice"];
    check(&[("StopUnit", Becomes::Job("done"))], stop, Ok(()), &asked).await;
    check(&[("StopUnit", Becomes::Refused("NoSuchUnit"))], stop, Ok(()), &asked).await;
    let why = "b.slice: StopUnit: org.freedesktop.systemd1.NoSuchJob: because";
    check(&[("StopUnit", Becomes::Refused("NoSuchJob"))], stop, Err(why), &asked).await;
}

#[tokio::test]
async fn a_systemd_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let systemd = Systemd::at(folder.path().join("bus"), folder.path().join("private"));
    let why = systemd.version().await.expect_err("nobody is there").to_string();
    assert!(why.starts_with("systemd cannot be reached: "), "{why}");
    // Nothing to say needs nobody to say it to.
    assert!(systemd.set("a.slice", Vec::new()).await.is_ok());
}

#[test]
fn units_say_where_they_belong() {
    let find = |properties: Vec<Property>, name: &str| properties.into_iter().find(|one| one.name == name);
    let above = |unit: &str| find(slice(unit, String::new()), "Wants").map(|one| one.value);
    assert_eq!(above("a.slice"), None);
    assert_eq!(above("a-b-c_d.slice"), Some(PropertyValue::Texts(vec!["a-b.slice".into()])));
    let made = scope("a-b.slice", "x".into(), 7);
    assert_eq!(find(made.clone(), "Slice").map(|one| one.value), Some(PropertyValue::Text("a-b.slice".into())));
    assert_eq!(find(made.clone(), "PIDs").map(|one| one.value), Some(PropertyValue::Numbers(vec![7])));
    assert_eq!(find(made, "Delegate").map(|one| one.value), Some(PropertyValue::Flag(true)));
}
