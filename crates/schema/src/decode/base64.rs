//! Base64 with the rules and the errors of Go's standard encoding.

use ::base64::Engine;
use ::base64::engine::GeneralPurpose;
use ::base64::engine::general_purpose::{PAD, STANDARD};

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Base64 as Go's standard encoding reads it: line ends are skipped, and what is left over of the last letter is not looked at.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, String> {
    const GO: GeneralPurpose =
        GeneralPurpose::new(&::base64::alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));
    let cleaned: std::borrow::Cow<'_, str> =
        if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], "").into() } else { text.into() };
    GO.decode(cleaned.as_bytes())
        .map_err(|_| format!("illegal base64 data at input byte {}", stops_at(text.as_bytes())))
}

/// Where Go's decoder stops reading a text that is no base64.
fn stops_at(text: &[u8]) -> usize {
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let mut letters = 0;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'\r' | b'\n' => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => letters = (letters + 1) % 4,
            b'=' if letters >= 2 => {
                let rest = |from: usize| from + text[from..].iter().take_while(|byte| is_line_end(byte)).count();
                if letters == 2 {
                    let second = rest(at);
                    match text.get(second) {
                        None => return text.len(),
                        Some(b'=') => at = second + 1,
                        Some(_) => return second - 1,
                    }
                }
                return rest(at);
            }
            _ => return at - 1,
        }
    }
    at - letters
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn texts_are_read_and_refused_as_go_does() {
        for (text, bytes) in [("QQ==", "A"), ("QR==", "A"), ("QU\nE=\r\n", "AA"), ("", "")] {
            assert_eq!(decode(text).as_deref(), Ok(bytes.as_bytes()), "{text:?}");
        }
        for (text, at) in [
            ("!!", 0),
            ("AAAA-z", 4),
            ("QQ==-z", 4),
            ("QUE=-z", 4),
            ("QUE", 0),
            ("QUEBQ", 4),
            ("QQ=x", 2),
            ("Q===", 1),
            ("QQ=", 3),
        ] {
            assert_eq!(decode(text), Err(format!("illegal base64 data at input byte {at}")), "{text:?}");
        }
    }
}
