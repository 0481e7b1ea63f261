//! Layers compressed with Zstandard: one frame after the other, some of which hold no data. Whoever made a layer says how
//! much memory it takes to read; more than a bound is refused before it is taken.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

pub(super) const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Frames without data: their number has any last digit.
const SKIPPED: u32 = 0x184d_2a50;
/// What compressors use at their highest level without being told to use more.
const LARGEST_WINDOW: u64 = 64 << 20;

pub(super) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), inside: false }
    }

    /// Enters the next frame that holds data; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut magic = [0; 4];
            self.source.read_exact(&mut magic)?;
            if u32::from_le_bytes(magic) & !0xf == SKIPPED {
                let mut length = [0; 4];
                self.source.read_exact(&mut length)?;
                let length = u64::from(u32::from_le_bytes(length));
                if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                continue;
            }
            let header = header(magic, &mut self.source)?;
            self.decoder.init(&*header).map_err(invalid)?;
            return Ok(true);
        }
    }
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// The whole header of a frame, if it takes no more memory than is allowed.
fn header(magic: [u8; 4], source: &mut impl Read) -> io::Result<Vec<u8>> {
    if magic != MAGIC {
        return Err(invalid("what follows is no frame"));
    }
    let mut descriptor = [0];
    source.read_exact(&mut descriptor)?;
    let [descriptor] = descriptor;
    let (single, of_size, of_dictionary) = (descriptor & 0x20 != 0, descriptor >> 6, descriptor & 3);
    let of_window = usize::from(!single);
    let dictionary = [0, 1, 2, 4][usize::from(of_dictionary)];
    let size = match of_size {
        0 => usize::from(single),
        other => 1 << other,
    };
    let mut rest = vec![0; of_window + dictionary + size];
    source.read_exact(&mut rest)?;
    let window = if single {
        let mut number = [0; 8];
        number[..size].copy_from_slice(&rest[dictionary..]);
        u64::from_le_bytes(number)
    } else {
        let base = 1_u64 << (10 + (rest[0] >> 3));
        base + base / 8 * u64::from(rest[0] & 7)
    };
    if window > LARGEST_WINDOW {
        return Err(invalid(format!("it takes {window} bytes of memory to read, and {LARGEST_WINDOW} are allowed")));
    }
    let mut header = magic.to_vec();
    header.push(descriptor);
    header.extend(rest);
    Ok(header)
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.inside && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.inside && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(invalid)?;
                continue;
            }
            self.inside = self.next_frame()?;
            if !self.inside {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        Zstd::new(bytes).read_to_end(&mut plain).map(|_| plain)
    }

    #[test]
    fn frames_follow_each_other_and_empty_ones_are_passed_over() {
        let text: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let mut whole = Vec::new();
        for part in text.chunks(500_000) {
            whole.extend(compress_to_vec(part, CompressionLevel::Fastest));
            whole.extend((SKIPPED | 7).to_le_bytes());
            whole.extend(3_u32.to_le_bytes());
            whole.extend(b"abc");
        }
        assert!(whole.starts_with(&MAGIC) && whole.len() < text.len());
        assert_eq!(read(&whole).expect("read"), text);
        for cut in [1, 3, 5, 9, whole.len() / 2, whole.len() - 1] {
            assert!(read(&whole[..whole.len() - cut]).is_err(), "{cut}");
        }
        assert_eq!(read(&[]).expect("nothing"), Vec::<u8>::new());
    }

    #[test]
    fn a_frame_that_asks_for_much_memory_is_refused() {
        // Two terabytes, by its window and by its size.
        let window = [&MAGIC[..], &[0, 31 << 3]].concat();
        let size = [&MAGIC[..], &[0xe0], &(1_u64 << 41).to_le_bytes()].concat();
        for bytes in [window, size, b"no frame".to_vec()] {
            assert!(read(&bytes).is_err());
        }
    }
}
