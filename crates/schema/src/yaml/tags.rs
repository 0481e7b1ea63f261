//! Directives, anchors and tags.

use super::cursor::{Mistake, Place};
use super::scanner::{Kind, Scanner};

impl Scanner<'_> {
    /// A line that begins with a percent sign.
    pub(super) fn directive(&mut self) -> Result<Kind, Mistake> {
        let start = self.cursor.place;
        self.cursor.skip(1);
        let name = self.word();
        if name.is_empty() {
            return Err(self.cursor.mistake(start, "could not find expected directive name"));
        }
        if !self.cursor.is_gap(0) {
            return Err(self.cursor.mistake(start, "found unexpected non-alphabetical character"));
        }
        let kind = match &*name {
            "YAML" => self.version(start)?,
            "TAG" => self.tag_prefix(start)?,
            _ => return Err(self.cursor.mistake(start, "found unknown directive name")),
        };
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.is_break_or_end(0) {
            return Err(self.cursor.mistake(start, "did not find expected comment or line break"));
        }
        self.cursor.skip_break();
        Ok(kind)
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while self.cursor.is_word() {
            word.extend(self.cursor.take());
        }
        word
    }

    fn version(&mut self, start: Place) -> Result<Kind, Mistake> {
        self.cursor.skip_blanks();
        let major = self.version_number(start)?;
        if self.cursor.byte(0) != b'.' {
            return Err(self.cursor.mistake(start, "did not find expected digit or '.' character"));
        }
        self.cursor.skip(1);
        Ok(Kind::Version(major, self.version_number(start)?))
    }

    fn version_number(&mut self, start: Place) -> Result<u8, Mistake> {
        let mut digits = String::new();
        while self.cursor.byte(0).is_ascii_digit() {
            if digits.len() == 2 {
                return Err(self.cursor.mistake(start, "found extremely long version number"));
            }
            digits.extend(self.cursor.take());
        }
        digits.parse().map_err(|_| self.cursor.mistake(start, "did not find expected version number"))
    }

    fn tag_prefix(&mut self, start: Place) -> Result<Kind, Mistake> {
        self.cursor.skip_blanks();
        let handle = self.tag_handle(true, start)?;
        if !self.cursor.is_blank(0) {
            return Err(self.cursor.mistake(start, "did not find expected whitespace"));
        }
        self.cursor.skip_blanks();
        let prefix = self.tag_uri("", start)?;
        if !self.cursor.is_gap(0) {
            return Err(self.cursor.mistake(start, "did not find expected whitespace or line break"));
        }
        Ok(Kind::TagPrefix { handle, prefix })
    }

    /// The name of an anchor or an alias.
    pub(super) fn anchor(&mut self) -> Result<String, Mistake> {
        let start = self.cursor.place;
        self.cursor.skip(1);
        let name = self.word();
        let followed = self.cursor.is_gap(0)
            || matches!(self.cursor.byte(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !followed {
            return Err(self.cursor.mistake(start, "did not find expected alphabetic or numeric character"));
        }
        Ok(name)
    }

    pub(super) fn tag(&mut self) -> Result<Kind, Mistake> {
        let start = self.cursor.place;
        let (handle, suffix) = if self.cursor.byte(1) == b'<' {
            self.cursor.skip(2);
            let suffix = self.tag_uri("", start)?;
            if self.cursor.byte(0) != b'>' {
                return Err(self.cursor.mistake(start, "did not find the expected '>'"));
            }
            self.cursor.skip(1);
            (String::new(), suffix)
        } else {
            let handle = self.tag_handle(false, start)?;
            if handle.len() > 1 && handle.ends_with('!') {
                let suffix = self.tag_uri("", start)?;
                (handle, suffix)
            } else {
                match self.tag_uri(&handle, start)? {
                    // An exclamation mark alone.
                    suffix if suffix.is_empty() => (suffix, "!".to_owned()),
                    suffix => ("!".to_owned(), suffix),
                }
            }
        };
        if !self.cursor.is_gap(0) {
            return Err(self.cursor.mistake(start, "did not find expected whitespace or line break"));
        }
        Ok(Kind::Tag { handle, suffix })
    }

    fn tag_handle(&mut self, directive: bool, start: Place) -> Result<String, Mistake> {
        if self.cursor.byte(0) != b'!' {
            return Err(self.cursor.mistake(start, "did not find expected '!'"));
        }
        self.cursor.skip(1);
        let mut handle = format!("!{}", self.word());
        if self.cursor.byte(0) == b'!' {
            self.cursor.skip(1);
            handle.push('!');
        } else if directive && handle != "!" {
            return Err(self.cursor.mistake(start, "did not find expected '!'"));
        }
        Ok(handle)
    }

    fn tag_uri(&mut self, head: &str, start: Place) -> Result<String, Mistake> {
        let mut uri: Vec<u8> = head.bytes().skip(1).collect();
        let mut any = !head.is_empty();
        while self.cursor.is_word() || b";/?:@&=+$,.!~*'()[]%".contains(&self.cursor.byte(0)) {
            if self.cursor.byte(0) == b'%' {
                self.uri_escape(start, &mut uri)?;
            } else {
                uri.push(self.cursor.byte(0));
                self.cursor.skip(1);
            }
            any = true;
        }
        if !any {
            return Err(self.cursor.mistake(start, "did not find expected tag URI"));
        }
        Ok(String::from_utf8_lossy(&uri).into_owned())
    }

    /// A character as its bytes, each behind a percent sign.
    fn uri_escape(&mut self, start: Place, uri: &mut Vec<u8>) -> Result<(), Mistake> {
        let mut left = None;
        while left != Some(0) {
            let digit =
                |at: usize| char::from(self.cursor.byte(at)).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let (b'%', Some(high), Some(low)) = (self.cursor.byte(0), digit(1), digit(2)) else {
                return Err(self.cursor.mistake(start, "did not find URI escaped octet"));
            };
            let octet = high << 4 | low;
            left = Some(match (left, octet) {
                (None, 0..=0x7f) => 0,
                (None, 0xc0..=0xdf) => 1,
                (None, 0xe0..=0xef) => 2,
                (None, 0xf0..=0xf7) => 3,
                (None, _) => return Err(self.cursor.mistake(start, "found an incorrect leading UTF-8 octet")),
                (Some(left), 0x80..=0xbf) => left - 1,
                _ => return Err(self.cursor.mistake(start, "found an incorrect trailing UTF-8 octet")),
            });
            uri.push(octet);
            self.cursor.skip(3);
        }
        Ok(())
    }
}
