//! Apache's MD5 hashes of passwords, as `htpasswd` and `openssl passwd -apr1` make them.

use md5::{Digest, Md5};

pub const PREFIX: &str = "$apr1$";
const ROUNDS: usize = 1000;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The hash of a password with the salt of another hash. None: that is no such hash.
pub fn hash(known: &str, password: &str) -> Option<String> {
    let (salt, _) = known.strip_prefix(PREFIX)?.split_once('$')?;
    let salt = salt.get(..salt.len().min(8))?;
    let (secret, seasoning) = (password.as_bytes(), salt.as_bytes());
    let mut inner: [u8; 16] =
        Md5::new().chain_update(secret).chain_update(seasoning).chain_update(secret).finalize().into();
    let mut first = Md5::new().chain_update(secret).chain_update(PREFIX).chain_update(seasoning);
    for start in (0..secret.len()).step_by(inner.len()) {
        first.update(inner.get(..(secret.len() - start).min(inner.len()))?);
    }
    // One byte for each bit of the length: nothing, or the password's first.
    let mut bits = secret.len();
    while bits > 0 {
        first.update([if bits & 1 == 1 { 0 } else { secret.first().copied().unwrap_or_default() }]);
        bits >>= 1;
    }
    inner = first.finalize().into();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        let is_odd = round % 2 == 1;
        next.update(if is_odd { secret } else { &inner });
        if round % 3 != 0 {
            next.update(seasoning);
        }
        if round % 7 != 0 {
            next.update(secret);
        }
        next.update(if is_odd { &inner } else { secret });
        inner = next.finalize().into();
    }
    Some(format!("{PREFIX}{salt}${}", encode(&inner)))
}

/// In the order of Unix' crypt: three bytes become four letters, the lowest bits first.
fn encode(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    let mut put = |mut value: u32, letters: usize| {
        for _ in 0..letters {
            let place = usize::try_from(value & 63).unwrap_or_default();
            text.push(char::from(ALPHABET.get(place).copied().unwrap_or(b'.')));
            value >>= 6;
        }
    };
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        let byte = |place: usize| u32::from(bytes.get(place).copied().unwrap_or_default());
        put(byte(a) << 16 | byte(b) << 8 | byte(c), 4);
    }
    put(u32::from(bytes[11]), 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openssl passwd -apr1 -salt SALT PASSWORD`.
    #[test]
    fn hashes_are_those_of_openssl() {
        for (password, known) in [
            ("secret", "$apr1$TqI9WECO$LHZB2DqRlk9nObiB6vJG9."),
            ("", "$apr1$abc$BfqKdn9xFDWJPa3kcp/PH0"),
            ("a", "$apr1$12345678$68ZQVfPkWX/wcXr/41VxQ."),
            ("a much longer password than sixteen bytes", "$apr1$12345678$RkSsHiO1RUdjaoav57ZaW/"),
        ] {
            assert_eq!(hash(known, password).as_deref(), Some(known), "{password}");
            assert_ne!(hash(known, "other").as_deref(), Some(known), "{password}");
        }
        assert_eq!(hash("$apr1$nothing", "x"), None);
        assert_eq!(hash("$1$abc$def", "x"), None);
    }
}
