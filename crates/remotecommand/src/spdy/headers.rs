//! The headers that a client opens a stream with.

use flate2::{Decompress, FlushDecompress, Status};

/// What both sides know beforehand of header blocks.
pub(super) const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");
const LONGEST_HEADERS: usize = 64 * 1024;
/// More than any client sends.
const MOST_HEADERS: u32 = 256;

/// Reads the blocks of one direction, which are one zlib stream.
pub(super) struct Headers(Decompress);

impl Default for Headers {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Headers {
    pub(super) fn read(&mut self, mut block: &[u8]) -> std::io::Result<Vec<(String, String)>> {
        let wrong = |why: &str| std::io::Error::other(format!("headers of a stream: {why}"));
        let mut plain = Vec::with_capacity(4096);
        loop {
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            plain.reserve(4096);
            let result = self.0.decompress_vec(block, &mut plain, FlushDecompress::Sync);
            let used = usize::try_from(self.0.total_in() - before_in).unwrap_or(block.len());
            block = &block[used.min(block.len())..];
            match result {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(DICTIONARY).map_err(|e| wrong(&e.to_string()))?;
                    continue;
                }
                Err(error) => return Err(wrong(&error.to_string())),
                Ok(Status::StreamEnd) => break,
                Ok(_) => {}
            }
            if plain.len() > LONGEST_HEADERS {
                return Err(wrong("too long"));
            }
            if used == 0 && self.0.total_out() == before_out {
                break;
            }
        }
        parse(&plain).ok_or_else(|| wrong("not understood"))
    }
}

fn parse(mut plain: &[u8]) -> Option<Vec<(String, String)>> {
    let text = |rest: &mut &[u8]| -> Option<String> {
        let length = usize::try_from(number(rest)?).ok()?;
        let bytes = rest.get(..length)?;
        *rest = &rest[length..];
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let count = number(&mut plain)?;
    let mut headers = Vec::new();
    for _ in 0..count.min(MOST_HEADERS) {
        let name = text(&mut plain)?;
        headers.push((name.to_ascii_lowercase(), text(&mut plain)?));
    }
    Some(headers)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let bytes = rest.get(..4)?;
    let value = u32::from_be_bytes(bytes.try_into().ok()?);
    *rest = &rest[4..];
    Some(value)
}
