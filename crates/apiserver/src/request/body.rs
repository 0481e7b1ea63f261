//! Bodies that are read as a whole: bounded in size and in time.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::response::answer::{Body, BoxError};

/// A body has so long to begin with, and then has to come at this pace at least: its request takes a seat meanwhile, and
/// others wait for one.
const GRACE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: usize = 32 * 1024;

/// What became of a body.
pub(crate) enum Read {
    Whole(Bytes),
    TooLarge,
    TooSlow,
}

/// The whole body, up to a limit. What comes after the limit is read for a while, so that the client gets to see the
/// answer.
pub(crate) async fn read(body: Body, limit: usize) -> Result<Read, BoxError> {
    read_within(body, limit, GRACE).await
}

/// How long after its begin a body may have come no further than this.
fn patience(grace: Duration, size: usize) -> Duration {
    grace + Duration::from_secs((size / BYTES_PER_SECOND) as u64)
}

async fn read_within(mut body: Body, limit: usize, grace: Duration) -> Result<Read, BoxError> {
    const DRAINED: usize = 1 << 20;
    let begin = Instant::now();
    // Most bodies come in one piece, which need not be copied.
    let (mut first, mut whole) = (Bytes::new(), Vec::new());
    let mut size = 0;
    loop {
        let Ok(frame) = tokio::time::timeout_at(begin + patience(grace, size), body.frame()).await else {
            return Ok(Read::TooSlow);
        };
        let Some(frame) = frame else { break };
        let Ok(data) = frame?.into_data() else { continue };
        size += data.len();
        if size > limit {
            (first, whole) = (Bytes::new(), Vec::new());
            if size > limit + DRAINED {
                break;
            }
            continue;
        }
        if size == data.len() {
            first = data;
        } else {
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    let body = if whole.is_empty() { first } else { whole.into() };
    Ok(if size <= limit { Read::Whole(body) } else { Read::TooLarge })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http_body_util::StreamBody;

    use super::*;

    /// What becomes of a body of so many pieces, if nothing comes behind them and the body does not end either.
    async fn read_pieces(pieces: usize, ends: bool) -> Result<usize, &'static str> {
        let piece = Bytes::from(vec![b'x'; 16 << 10]);
        let pieces =
            futures::stream::iter((0..pieces).map(move |_| Ok::<_, BoxError>(http_body::Frame::data(piece.clone()))));
        let body = match ends {
            true => StreamBody::new(pieces).boxed_unsync(),
            false => StreamBody::new(pieces.chain(futures::stream::pending())).boxed_unsync(),
        };
        match read_within(body, 64 << 10, Duration::from_millis(10)).await {
            Ok(Read::Whole(bytes)) => Ok(bytes.len()),
            Ok(Read::TooLarge) => Err("too large"),
            Ok(Read::TooSlow) => Err("too slow"),
            Err(_) => Err("an error"),
        }
    }

    #[tokio::test]
    async fn a_body_is_bounded_in_size_and_time() {
        assert_eq!(read_pieces(0, true).await, Ok(0));
        assert_eq!(read_pieces(1, true).await, Ok(16 << 10));
        assert_eq!(read_pieces(4, true).await, Ok(64 << 10));
        assert_eq!(read_pieces(5, true).await, Err("too large"));
        assert_eq!(read_pieces(1, false).await, Err("too slow"));
        assert_eq!(read_pieces(500, false).await, Err("too large"), "nobody waits for the rest of it");
    }

    #[test]
    fn what_comes_fast_enough_may_be_large() {
        let seconds = |size| patience(GRACE, size).as_secs();
        assert_eq!((seconds(0), seconds(1000), seconds(64 << 10), seconds(3 << 20)), (10, 10, 12, 106));
    }
}
