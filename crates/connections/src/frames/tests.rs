use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::budget::{FREE, MOST, PER_SECOND};
use super::*;
use crate::{Connections, Limits};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const UNKNOWN: u8 = 0xbe;

fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
    let length = u32::try_from(payload).expect("short").to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags, 0, 0, 0, 1]);
    out.resize(out.len() + payload, 7);
    out
}

/// So many that time does not pay for them.
const FLOOD: usize = 50 * FREE as usize;

fn flood(frame: &[u8]) -> Vec<Vec<u8>> {
    vec![frame.to_vec(); FLOOD]
}

/// How many of so many frames a connection takes, and whether it is cut off then.
async fn taken(frames: &[Vec<u8>], answers: &[Vec<u8>]) -> (usize, bool) {
    let table = Connections::new(Limits::new(8, 100_000));
    let connection = table.admit([10, 0, 0, 1].into(), CancellationToken::new());
    let (here, mut there) = tokio::io::duplex(64 << 10);
    let mut io = Frames::of_client(here, connection.clone());
    let mut buffer = vec![0; 64 << 10];
    there.write_all(PREFACE).await.expect("sent");
    io.read_exact(&mut buffer[..PREFACE.len()]).await.expect("read");
    for answer in answers {
        io.write_all(answer).await.expect("sent");
        there.read_exact(&mut buffer[..answer.len()]).await.expect("read");
    }
    for (number, frame) in frames.iter().enumerate() {
        there.write_all(frame).await.expect("sent");
        if io.read_exact(&mut buffer[..frame.len()]).await.is_err() {
            assert!(table.metrics("x").contains("x_connections_cut_total{reason=\"frames\"} 1\n"));
            return (number, connection.is_cut());
        }
    }
    (frames.len(), connection.is_cut())
}

#[tokio::test]
async fn frames_that_ask_for_nothing_have_an_end() {
    for (kind, flags, payload) in [
        (PING, 0, 8),
        (PING, 1, 8),
        (SETTINGS, 0, 6),
        (SETTINGS, 0, 0),
        (WINDOW_UPDATE, 0, 4),
        (PRIORITY, 0, 5),
        (UNKNOWN, 0, 20),
        (DATA, 0, 0),
        (DATA, 8, 100),
    ] {
        let (count, cut) = taken(&flood(&frame(kind, flags, payload)), &[]).await;
        assert!(cut && count >= FREE as usize, "{count} of {kind} {flags} {payload}");
    }
}

#[tokio::test]
async fn what_is_asked_and_what_is_carried_is_free() {
    for ordinary in [frame(HEADERS, 5, 30), frame(DATA, 0, 1), frame(DATA, 1, 0)] {
        assert_eq!(taken(&vec![ordinary; 5000], &[]).await, (5000, false));
    }
    // A request, and what a client says of it.
    let request = [frame(HEADERS, 5, 30), frame(PRIORITY, 0, 5), frame(WINDOW_UPDATE, 0, 4), frame(PING, 0, 8)];
    let requests: Vec<_> = request.iter().cycle().take(8000).cloned().collect();
    assert_eq!(taken(&requests, &[]).await, (8000, false));
}

#[tokio::test]
async fn what_was_sent_is_acknowledged() {
    // Go's clients acknowledge 4 KiB at a time, for the stream and for the connection.
    let answers = vec![frame(DATA, 0, 16 << 10); 1000];
    let updates = vec![frame(WINDOW_UPDATE, 0, 4); 8 * 1000];
    assert_eq!(taken(&updates, &answers).await, (8000, false));
    // Others acknowledge each event of a watch, however small.
    let events = vec![frame(DATA, 0, 30); 3000];
    let updates = vec![frame(WINDOW_UPDATE, 0, 4); 2 * 3000];
    assert_eq!(taken(&updates, &events).await, (6000, false));
    // What answers a flood is nothing that pays for it.
    let (count, cut) = taken(&flood(&frame(PING, 0, 8)), &vec![frame(PING, 1, 8); 500]).await;
    assert!(cut && count >= FREE as usize, "{count}");
}

#[tokio::test]
async fn another_protocol_passes() {
    let table = Connections::new(Limits::new(8, 100_000));
    let connection = table.admit([10, 0, 0, 1].into(), CancellationToken::new());
    let (here, mut there) = tokio::io::duplex(1 << 20);
    let mut io = Frames::of_client(here, connection.clone());
    let text = [b"PRI * HTTP/1.1\r\n\r\n".to_vec(), vec![0; 100_000]].concat();
    there.write_all(&text).await.expect("sent");
    let mut read = vec![0; text.len()];
    io.read_exact(&mut read).await.expect("read");
    assert!(read == text && !connection.is_cut());
}

/// A backend's answers have to be asked for.
#[tokio::test]
async fn a_server_is_held_to_the_same() {
    let (here, mut there) = tokio::io::duplex(2 << 20);
    let mut io = Frames::of_server(here);
    io.write_all(PREFACE).await.expect("sent");
    io.write_all(&frame(HEADERS, 5, 30)).await.expect("sent");
    there.write_all(&flood(&frame(HEADERS, 4, 10)).concat()).await.expect("sent");
    let mut buffer = vec![0; 19];
    let mut count = 0;
    while io.read_exact(&mut buffer).await.is_ok() {
        count += 1;
        assert!(count < FLOOD, "its answers go on");
    }
    assert!(count >= (FREE + budget::REQUEST) as usize, "{count}");
}

#[test]
fn time_pays_slowly_and_savings_have_a_limit() {
    let mut budget = Budget::default();
    let mut spend = |count: u32, age: u64| (0..count).filter(|_| budget.spend(|| Duration::from_secs(age))).count();
    assert_eq!(spend(FREE + 5, 0), FREE as usize);
    assert_eq!(spend(FREE, 1), PER_SECOND as usize);
    assert_eq!(spend(FREE, 1), 0, "a second pays once");
    assert_eq!(spend(3 * FREE, 1_000_000), FREE as usize);
    budget.earn(u32::MAX);
    let spent = (0..2 * MOST).filter(|_| budget.spend(|| Duration::from_secs(1_000_000))).count();
    assert_eq!(spent, MOST as usize);
}

/// Frames are found wherever the bytes are cut.
#[test]
fn frames_are_found_in_any_pieces() {
    let parts = [frame(HEADERS, 5, 30), frame(DATA, 0, 0), frame(PING, 0, 8), frame(DATA, 1, 300)];
    let bytes = [PREFACE.to_vec(), parts.concat()].concat();
    let read = |size: usize| {
        let (mut parser, mut found) = (Parser::with_preface(), Vec::new());
        for piece in bytes.chunks(size) {
            parser.feed(piece, |frame| found.push((frame.kind, frame.length)));
        }
        found
    };
    let whole = [(Kind::Headers, 30), (Kind::Data, 0), (Kind::Other, 8), (Kind::Data, 300)];
    for size in 1..=bytes.len() {
        assert_eq!(read(size), whole, "{size}");
    }
}
