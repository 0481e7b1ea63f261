//! One line of a CRI log: `2026-01-02T03:04:05.678901234Z stdout F the text`.

use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line<'a> {
    pub(crate) time: &'a str,
    pub(crate) stream: Stream,
    /// The rest of the line comes in the next entry.
    pub(crate) partial: bool,
    pub(crate) content: &'a [u8],
}

impl Line<'_> {
    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }
}

/// Reads one line, with or without its newline. None for what is no such line: a write cut short by a crash.
pub(crate) fn parse(raw: &[u8]) -> Option<Line<'_>> {
    let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
    let mut parts = raw.splitn(4, |b| *b == b' ');
    let time = std::str::from_utf8(parts.next()?).ok().filter(|t| t.contains('T'))?;
    let stream = match parts.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    let tags = parts.next()?;
    let partial = tags.split(|b| *b == b':').any(|tag| tag == b"P");
    Some(Line { time, stream, partial, content: parts.next().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_refused() {
        let line = parse(b"2026-01-02T03:04:05.1Z stderr F a b  c\n").expect("a line");
        assert_eq!((line.stream, line.partial, line.content), (Stream::Stderr, false, &b"a b  c"[..]));
        assert!(line.timestamp().is_some());
        assert!(parse(b"2026-01-02T03:04:05.1Z stdout P x").expect("a line").partial);
        assert_eq!(parse(b"2026-01-02T03:04:05.1Z stdout F \n").expect("a line").content, b"");
        for bad in [&b""[..], b"\n", b"x", b"2026-01-02T03:04:05Z stdin F x", b"2026-01-02T03:04:05Z stdout"] {
            assert_eq!(parse(bad), None);
        }
    }
}
