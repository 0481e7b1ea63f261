//! The protobuf wire format.

use super::ProtoError;

#[derive(Default)]
pub(super) struct Writer {
    pub(super) out: Vec<u8>,
}

impl Writer {
    pub(super) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn tag(&mut self, number: u32, wire_type: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire_type));
    }

    pub(super) fn integer(&mut self, number: u32, value: i64) {
        self.tag(number, 0);
        self.varint(value as u64);
    }

    pub(super) fn double(&mut self, number: u32, value: f64) {
        self.tag(number, 1);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, number: u32, value: &[u8]) {
        self.tag(number, 2);
        self.varint(value.len() as u64);
        self.out.extend_from_slice(value);
    }

    pub(super) fn string(&mut self, number: u32, value: &str) {
        self.bytes(number, value.as_bytes());
    }

    /// A message that `fill` writes; its length is put in front afterwards.
    pub(super) fn message<T: AsMut<Self>>(outer: &mut T, number: u32, fill: impl FnOnce(&mut T)) {
        outer.as_mut().tag(number, 2);
        let start = outer.as_mut().out.len();
        fill(outer);
        let writer = outer.as_mut();
        let length = writer.out.len() - start;
        let mut prefix = Self::default();
        prefix.varint(length as u64);
        writer.out.splice(start..start, prefix.out);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Raw<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], ProtoError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(ProtoError::Malformed("proto: wrong wireType")) }
    }

    pub(super) fn text(self) -> Result<String, ProtoError> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub(super) fn integer(self) -> Result<i64, ProtoError> {
        match self {
            Self::Varint(value) | Self::Fixed64(value) => Ok(value as i64),
            Self::Fixed32(value) => Ok(i64::from(value)),
            Self::Bytes(_) => Err(ProtoError::Malformed("proto: wrong wireType")),
        }
    }

    pub(super) fn double(self) -> Result<f64, ProtoError> {
        match self {
            Self::Fixed64(value) => Ok(f64::from_bits(value)),
            Self::Fixed32(value) => Ok(f64::from(f32::from_bits(value))),
            _ => Err(ProtoError::Malformed("proto: wrong wireType")),
        }
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (first, rest) = self.rest.split_first().ok_or(ProtoError::Malformed("unexpected EOF"))?;
            self.rest = rest;
            if shift < 64 {
                value |= u64::from(first & 0x7f) << shift;
            }
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtoError::Malformed("proto: integer overflow"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtoError::Malformed("unexpected EOF"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next field, or None at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, ProtoError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        if number == 0 {
            return Err(ProtoError::Malformed("proto: illegal tag 0"));
        }
        let value = match tag & 7 {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default())),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::Malformed("unexpected EOF"))?;
                Raw::Bytes(self.take(length)?)
            }
            5 => Raw::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default())),
            _ => return Err(ProtoError::Malformed("proto: illegal wireType")),
        };
        Ok(Some((number, value)))
    }
}
