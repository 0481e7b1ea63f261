//! The keys that leave a container without ending it: `ctrl-p,ctrl-q`.

pub struct Keys {
    keys: Vec<u8>,
    /// How many of them were typed.
    typed: usize,
}

impl Keys {
    pub fn parse(text: &str) -> Result<Self, String> {
        let key = |name: &str| match name.as_bytes() {
            [one] => Ok(*one),
            [b'c', b't', b'r', b'l', b'-', letter @ (b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')] => {
                Ok(letter.to_ascii_uppercase() & 0x1f)
            }
            _ => Err(format!("Unknown character: '{name}'")),
        };
        let keys = text.split(',').map(key).collect::<Result<Vec<u8>, String>>()?;
        Ok(Self { keys, typed: 0 })
    }

    /// What the container gets of what was typed, and whether it was left. The first keys of the sequence are held back until it
    /// is known that they are not its beginning.
    pub fn pass(&mut self, input: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Vec::with_capacity(input.len());
        for byte in input {
            if self.keys.get(self.typed) != Some(byte) {
                out.extend_from_slice(&self.keys[..self.typed]);
                self.typed = 0;
            }
            match self.keys.get(self.typed) == Some(byte) {
                true => self.typed += 1,
                false => out.push(*byte),
            }
            if self.typed == self.keys.len() {
                return (out, true);
            }
        }
        (out, false)
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn the_sequence_leaves_and_its_parts_are_typed() {
        let mut keys = Keys::parse("ctrl-p,ctrl-q").unwrap();
        assert_eq!(keys.pass(b"ls\n"), (b"ls\n".to_vec(), false));
        assert_eq!(keys.pass(b"a\x10"), (b"a".to_vec(), false));
        assert_eq!(keys.pass(b"b"), (b"\x10b".to_vec(), false));
        assert_eq!(keys.pass(b"\x10\x10"), (b"\x10".to_vec(), false));
        assert_eq!(keys.pass(b"\x11x"), (Vec::new(), true));
        let mut keys = Keys::parse("x,ctrl-[").unwrap();
        assert_eq!(keys.pass(b"x\x1b"), (Vec::new(), true));
        assert_eq!(Keys::parse("ctrl-1").err().as_deref(), Some("Unknown character: 'ctrl-1'"));
        assert_eq!(Keys::parse("ctrl-p,").err().as_deref(), Some("Unknown character: ''"));
    }
}
