//! kill -9 at random moments: what was acknowledged is there, in order, without a gap, and nothing is there twice.
//!
//! The writer is this test binary again, told by an environment variable to write and to report each acknowledgement on
//! standard error.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{EmbeddedStore, Options};
use crate::{EventKind, Op, Revision, Store, Transaction, WatchRequest, conformance};

const FOLDER: &str = "FERRY_STORE_CRASH_FOLDER";
const COMPACT: &str = "FERRY_STORE_CRASH_COMPACT";
const ROUNDS: u64 = 110;
const WRITERS: usize = 6;

/// Small tables, so that flushes and compactions are among the moments that are hit.
fn options() -> Options {
    Options { memtable_bytes: 256 << 10, ..Options::default() }
}

fn key(writer: usize) -> String {
    format!("/registry/crash/writer-{writer}")
}

/// The number and enough beside it that the log grows through several files.
fn value(number: u64) -> Bytes {
    let mut text = format!("{number} ");
    let size = if number.is_multiple_of(64) { 4096 } else { 48 };
    for step in 0..size {
        text.push_str(&format!("{:016x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(step)));
    }
    Bytes::from(text)
}

fn number_of(value: &Bytes) -> u64 {
    let text = std::str::from_utf8(value).expect("text");
    let number = text.split(' ').next().expect("a number").parse().expect("a number");
    assert_eq!(*value, self::value(number), "a value is whole");
    number
}

async fn write_for_ever(store: Arc<EmbeddedStore>, writer: usize) {
    let entry = store.get(&key(writer)).await.expect("get").entry;
    let mut number = entry.as_ref().map_or(0, |entry| number_of(&entry.value));
    let mut known = entry.map_or(0, |entry| entry.modified);
    loop {
        number += 1;
        let (key, value) = (key(writer), value(number));
        let op = match known {
            0 => Op::Create { key, value, lease: None },
            expected => Op::Update { key, value, expected, lease: None },
        };
        known = store.commit(Transaction::one(op)).await.expect("commit").revision;
        // One write call per line: lines of several writers do not mix.
        let line = format!("ack {writer} {number} {known}\n");
        std::io::stderr().write_all(line.as_bytes()).expect("the parent reads");
    }
}

/// Does nothing unless it runs as the writer.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    runtime.block_on(async {
        let store = EmbeddedStore::open(Path::new(&folder), options()).expect("open after a crash");
        if let Some(revision) = std::env::var(COMPACT).ok().and_then(|text| text.parse().ok()) {
            // Killed in the middle, it leaves the mark and no hole above it; repeated, it is refused.
            let _ = store.compact(revision).await;
        }
        futures::future::join_all((0..WRITERS).map(|writer| write_for_ever(store.clone(), writer))).await;
    });
}

/// Random enough, and repeatable from the seed that a failure prints.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Every acknowledgement before the kill: writer, number, revision.
fn write_and_kill(folder: &Path, verified: Revision, dice: &mut Dice) -> Vec<(usize, u64, Revision)> {
    let mut command = Command::new(std::env::current_exe().expect("the test itself"));
    command.args(["--exact", "embedded::crash::child", "--nocapture", "--test-threads=1"]);
    command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::piped());
    if dice.roll(4) == 0 && verified > 1 {
        command.env(COMPACT, verified.to_string());
    }
    let mut child = command.spawn().expect("spawn");
    let errors = child.stderr.take().expect("piped");
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        // The last line may be cut off by the kill.
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let wanted = dice.roll(120) as usize;
    let more = Duration::from_micros(dice.roll(8000));
    let mut seen = Vec::new();
    // In some rounds it is killed before it has written anything, perhaps while it opens.
    let patience = if wanted == 0 { Duration::from_micros(dice.roll(60_000)) } else { Duration::from_secs(60) };
    let mut deadline = Instant::now() + patience;
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        seen.push(line);
        if seen.len() == wanted {
            deadline = Instant::now() + more;
        }
    }
    child.kill().expect("kill -9");
    child.wait().expect("wait");
    reader.join().expect("reader");
    seen.extend(lines.try_iter());
    let complaints: Vec<&String> = seen.iter().filter(|line| line.contains("panicked")).collect();
    assert!(complaints.is_empty(), "{seen:#?}");
    seen.iter()
        .filter_map(|line| {
            let mut parts = line.strip_prefix("ack ")?.split(' ');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        })
        .collect()
}

/// Follows the history from the last verified revision on; returns how far it goes.
async fn verify(
    store: &EmbeddedStore,
    verified: Revision,
    numbers: &mut HashMap<usize, u64>,
    acknowledged: &[(usize, u64, Revision)],
) -> Revision {
    let newest = store.revision().await.expect("revision");
    let acknowledged: HashMap<Revision, (usize, u64)> =
        acknowledged.iter().map(|(writer, number, revision)| (*revision, (*writer, *number))).collect();
    let mut found = 0;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: verified }).await.expect("watch");
    for expected in verified + 1..=newest {
        let batch = conformance::next(&mut watch).await.expect("batch");
        assert_eq!(batch.revision, expected, "no gap and no repetition");
        let [event] = batch.events.as_slice() else { panic!("one change per revision: {batch:?}") };
        let writer: usize = event.entry.key.rsplit('-').next().expect("a writer").parse().expect("a number");
        let number = number_of(&event.entry.value);
        let before = numbers.insert(writer, number).unwrap_or(0);
        assert_eq!(number, before + 1, "each write of a writer once and in order");
        assert_eq!(event.kind, if before == 0 { EventKind::Create } else { EventKind::Update });
        assert_eq!(event.previous.as_ref().map_or(0, |previous| number_of(&previous.value)), before);
        if let Some(claimed) = acknowledged.get(&expected) {
            assert_eq!(*claimed, (writer, number), "what was acknowledged at this revision");
            found += 1;
        }
    }
    assert_eq!(found, acknowledged.len(), "every acknowledged write is there");
    for (writer, number) in numbers {
        let entry = store.get(&key(*writer)).await.expect("get").entry.expect("the writer's key");
        assert_eq!(number_of(&entry.value), *number);
    }
    newest
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("data");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("time").as_nanos() as u64;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let (mut verified, mut acknowledged_in_all, mut numbers) = (1, 0, HashMap::new());
    for round in 0..ROUNDS {
        let acknowledged = write_and_kill(&path, verified, &mut dice);
        acknowledged_in_all += acknowledged.len();
        let store = EmbeddedStore::open(&path, options()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        verified = runtime.block_on(verify(&store, verified, &mut numbers, &acknowledged));
    }
    println!("{ROUNDS} kills, {acknowledged_in_all} acknowledged writes, revision {verified}");
    assert!(acknowledged_in_all > 1000, "the writers got to write: {acknowledged_in_all}");
}
