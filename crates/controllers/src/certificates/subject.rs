//! Puts a request's own subject into a certificate, byte for byte. What makes certificates here knows one value of each kind
//! of attribute, and users are in several groups.

use rcgen::{KeyPair, SigningKey};

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const VERSION: u8 = 0xa0;
/// After the version: serial number, algorithm, issuer, validity, and then the subject.
const PLACE: usize = 5;

/// The first value of some DER, and what follows it. Values here are well-formed: we made them.
fn split(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = (*der.get(1)?, der.get(2..)?);
    let (header, length) = if first < 0x80 {
        (2, usize::from(first))
    } else {
        let count = usize::from(first & 0x7f);
        let bytes = rest.get(..count).filter(|_| (1..=4).contains(&count))?;
        (2 + count, bytes.iter().fold(0_usize, |length, byte| (length << 8) | usize::from(*byte)))
    };
    der.split_at_checked(header.checked_add(length)?)
}

/// The content of the first value.
fn open(der: &[u8]) -> Option<&[u8]> {
    let (value, _) = split(der)?;
    let length = *value.get(1)?;
    value.get(if length < 0x80 { 2 } else { 2 + usize::from(length & 0x7f) }..)
}

fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut made = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => made.push(short),
        _ => {
            let bytes = content.len().to_be_bytes();
            let used = bytes.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &bytes[at..]);
            made.push(0x80 | u8::try_from(used.len()).unwrap_or_default());
            made.extend_from_slice(used);
        }
    }
    made.extend_from_slice(content);
    made
}

/// The certificate with that subject, signed anew by the key that signed it before.
pub(super) fn put(certificate: &[u8], subject: &[u8], key: &KeyPair) -> Option<Vec<u8>> {
    let (signed, rest) = split(open(certificate)?)?;
    let (algorithm, _) = split(rest)?;
    let mut parts = Vec::new();
    let mut left = open(signed)?;
    while !left.is_empty() {
        let (part, rest) = split(left)?;
        parts.push(part);
        left = rest;
    }
    if parts.first().and_then(|version| version.first()) != Some(&VERSION) {
        return None;
    }
    *parts.get_mut(PLACE)? = subject;
    let signed = wrap(SEQUENCE, &parts.concat());
    let signature = [&[0][..], &key.sign(&signed).ok()?].concat();
    Some(wrap(SEQUENCE, &[&signed[..], algorithm, &wrap(BIT_STRING, &signature)].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_and_read() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; length];
            let made = wrap(SEQUENCE, &content);
            assert_eq!(open(&made), Some(content.as_slice()), "{length}");
            let both = [made.as_slice(), &[5, 0]].concat();
            assert_eq!(split(&both), Some((made.as_slice(), &[5_u8, 0][..])), "{length}");
        }
        for broken in [&[][..], &[0x30], &[0x30, 5, 1], &[0x30, 0x85, 1, 1, 1, 1, 1], &[0x30, 0x80]] {
            assert_eq!(split(broken), None, "{broken:?}");
        }
    }
}
