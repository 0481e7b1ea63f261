use flate2::{Compress, Compression, FlushCompress};

use super::headers::DICTIONARY;
use super::writer::LONGEST_DATA;
use super::*;

async fn all<R: AsyncRead + Unpin>(mut reader: Reader<R>) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = reader.next().await.expect("read") {
        frames.push(frame);
    }
    frames
}

#[tokio::test]
async fn a_server_reads_what_a_client_sends() {
    let mut out = Vec::new();
    let mut client = Writer::new(&mut out);
    assert_eq!(client.open(&[("Streamtype", "stdin")]).await.expect("opened"), 1);
    assert_eq!(client.open(&[("streamtype", "error"), ("port", "80")]).await.expect("opened"), 3);
    client.data(1, b"hello", true).await.expect("sent");
    client.pong(7).await.expect("sent");
    let headers = |list: &[(&str, &str)]| list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let expected = [
        Frame::Open { stream: 1, headers: headers(&[("streamtype", "stdin")]) },
        Frame::Open { stream: 3, headers: headers(&[("streamtype", "error"), ("port", "80")]) },
        Frame::Data { stream: 1, fin: true, data: Bytes::from_static(b"hello") },
        Frame::Ping { id: 7 },
    ];
    assert_eq!(all(Reader::of_server(&out[..])).await, expected);
}

#[tokio::test]
async fn a_client_reads_what_a_server_sends() {
    let mut out = Vec::new();
    let mut server = Writer::new(&mut out);
    server.reply(1).await.expect("sent");
    server.reply(3).await.expect("sent");
    server.data(3, b"", true).await.expect("sent");
    server.goodbye().await.expect("sent");
    let expected = [
        Frame::Reply { stream: 1, fin: false },
        Frame::Reply { stream: 3, fin: false },
        Frame::Data { stream: 3, fin: true, data: Bytes::new() },
        Frame::GoAway,
    ];
    assert_eq!(all(Reader::of_client(&out[..])).await, expected);
}

#[tokio::test]
async fn long_data_is_cut_and_only_the_last_part_ends() {
    let mut out = Vec::new();
    Writer::new(&mut out).data(5, &[b'x'; LONGEST_DATA + 1], true).await.expect("sent");
    let seen: Vec<_> = all(Reader::of_client(&out[..]))
        .await
        .into_iter()
        .map(|frame| match frame {
            Frame::Data { stream: 5, fin, data } => (fin, data.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen, [(false, LONGEST_DATA), (true, 1)]);
}

#[test]
fn the_dictionary_is_the_protocols() {
    // The checksum that a header block names it by.
    let (mut a, mut b) = (1u32, 0u32);
    for byte in DICTIONARY {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    assert_eq!(b << 16 | a, 0xe3c6_a7c2);
}

#[tokio::test]
async fn streams_are_opened_with_compressed_headers() {
    let mut deflate = Compress::new(Compression::default(), true);
    deflate.set_dictionary(DICTIONARY).expect("a dictionary");
    let mut sent = Vec::new();
    for (stream, kind) in [(1u32, "error"), (3, "stdout")] {
        let mut plain = Vec::new();
        plain.extend_from_slice(&1u32.to_be_bytes());
        for text in ["streamtype", kind] {
            plain.extend_from_slice(&u32::try_from(text.len()).expect("short").to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        let mut block = Vec::with_capacity(1024);
        deflate.compress_vec(&plain, &mut block, FlushCompress::Sync).expect("compressed");
        sent.extend_from_slice(&[0x80, 3, 0, 1, 0, 0, 0, u8::try_from(10 + block.len()).expect("short")]);
        sent.extend_from_slice(&stream.to_be_bytes());
        sent.extend_from_slice(&[0; 6]);
        sent.extend_from_slice(&block);
    }
    let headers = |kind: &str| vec![("streamtype".to_owned(), kind.to_owned())];
    let expected =
        [Frame::Open { stream: 1, headers: headers("error") }, Frame::Open { stream: 3, headers: headers("stdout") }];
    assert_eq!(all(Reader::of_server(&sent[..])).await, expected);
}

/// A client that lies about lengths, or whose headers never end, ends its own connection and takes no memory.
#[tokio::test]
async fn frames_that_cannot_be_are_errors() {
    let mut bomb = Compress::new(Compression::best(), true);
    bomb.set_dictionary(DICTIONARY).expect("a dictionary");
    let mut block = Vec::with_capacity(1 << 20);
    bomb.compress_vec(&vec![0; 64 << 20], &mut block, FlushCompress::Sync).expect("compressed");
    let mut sent = vec![0x80, 3, 0, 1, 0];
    sent.extend_from_slice(&u32::try_from(10 + block.len()).expect("short").to_be_bytes()[1..]);
    sent.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    sent.extend_from_slice(&block);
    let error = Reader::of_server(&sent[..]).next().await.expect_err("a bomb");
    assert_eq!(error.to_string(), "headers of a stream: too long");
    // Lengths beyond the block, and a block that is no zlib.
    for block in [&[0x78, 0x01, 0xde, 0xad][..], b"no zlib at all"] {
        let mut sent = vec![0x80, 3, 0, 1, 0, 0, 0, u8::try_from(10 + block.len()).expect("short")];
        sent.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        sent.extend_from_slice(block);
        Reader::of_server(&sent[..]).next().await.expect_err("no headers");
    }
}
