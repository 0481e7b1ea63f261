//! Names for requests that came without one.

use std::cell::RefCell;

use bytes::BytesMut;
use http::HeaderValue;

/// The length of a name.
const LENGTH: usize = 32;
/// Names are cut off a piece of memory of this size, one after the other: a request that stays for long keeps no more.
const PIECE: usize = 32 * LENGTH;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

thread_local! {
    static PIECES: RefCell<BytesMut> = RefCell::default();
}

/// A name that no other request has.
pub fn request_id() -> Option<HeaderValue> {
    let mut name = [0; LENGTH];
    for (byte, digits) in rand::random::<[u8; LENGTH / 2]>().into_iter().zip(name.chunks_exact_mut(2)) {
        digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    let text = PIECES.with_borrow_mut(|piece| {
        if piece.capacity() < LENGTH {
            *piece = BytesMut::with_capacity(PIECE);
        }
        piece.extend_from_slice(&name);
        piece.split().freeze()
    });
    HeaderValue::from_maybe_shared(text).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_hexadecimal_and_each_is_another_one() {
        let all: HashSet<_> = (0..1000).map(|_| request_id().expect("a name")).collect();
        assert_eq!(all.len(), 1000);
        assert!(
            all.iter().all(|name| name.len() == LENGTH && name.as_bytes().iter().all(|byte| DIGITS.contains(byte)))
        );
    }
}
