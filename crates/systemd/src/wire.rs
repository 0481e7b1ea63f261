//! Messages of D-Bus as bytes: calls with texts, numbers and properties, answers, signals.

use std::io;
use std::os::fd::OwnedFd;

pub(crate) const LONGEST: usize = 1 << 20;

pub const CALL: u8 = 1;
pub const ANSWER: u8 = 2;
pub const ERROR: u8 = 3;
pub const SIGNAL: u8 = 4;

/// An argument, or what an answer has.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Number(u32),
    Signed(i32),
    /// With a variant around it.
    Long(u64),
    Flag(bool),
    /// The place of a descriptor among those of the message.
    Descriptor(u32),
    Properties(Vec<Property>),
    /// The list of further units that a call may make, with none in it.
    NoUnits,
}

/// A property of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub name: &'static str,
    pub value: PropertyValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    Text(String),
    Texts(Vec<String>),
    Flag(bool),
    Long(u64),
    Numbers(Vec<u32>),
    Bytes(Vec<u8>),
}

impl Property {
    pub fn text(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, value: PropertyValue::Text(text.into()) }
    }

    pub fn flag(name: &'static str, on: bool) -> Self {
        Self { name, value: PropertyValue::Flag(on) }
    }

    pub fn long(name: &'static str, number: u64) -> Self {
        Self { name, value: PropertyValue::Long(number) }
    }
}

#[derive(Debug, Default)]
pub struct Message {
    pub kind: u8,
    pub serial: u32,
    pub path: String,
    pub interface: String,
    pub member: String,
    pub error: String,
    pub answers: u32,
    pub destination: String,
    pub sender: String,
    pub values: Vec<Value>,
    pub descriptors: Vec<OwnedFd>,
}

pub(crate) fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the bus sent something broken: {why}"))
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn pad(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.pad(4);
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(u32::try_from(text.len()).unwrap_or(0));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(0));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// A length, and so many bytes of elements, which begin at a multiple of `to`.
    fn list(&mut self, to: usize, elements: impl FnOnce(&mut Self)) {
        self.number(0);
        let place = self.0.len() - 4;
        self.pad(to);
        let begin = self.0.len();
        elements(self);
        let length = u32::try_from(self.0.len() - begin).unwrap_or(0);
        self.0[place..place + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn long(&mut self, number: u64) {
        self.pad(8);
        self.0.extend(number.to_le_bytes());
    }

    fn property(&mut self, property: &Property) {
        self.pad(8);
        self.text(property.name);
        match &property.value {
            PropertyValue::Text(text) => {
                self.signature("s");
                self.text(text);
            }
            PropertyValue::Texts(texts) => {
                self.signature("as");
                self.list(4, |list| texts.iter().for_each(|text| list.text(text)));
            }
            PropertyValue::Flag(on) => {
                self.signature("b");
                self.number(u32::from(*on));
            }
            PropertyValue::Long(number) => {
                self.signature("t");
                self.long(*number);
            }
            PropertyValue::Numbers(numbers) => {
                self.signature("au");
                self.list(4, |list| numbers.iter().for_each(|number| list.number(*number)));
            }
            PropertyValue::Bytes(bytes) => {
                self.signature("ay");
                self.list(1, |list| list.0.extend(bytes));
            }
        }
    }

    fn field(&mut self, code: u8, kind: &str) {
        self.pad(8);
        self.0.push(code);
        self.signature(kind);
    }
}

pub fn encode(message: &Message) -> Vec<u8> {
    let (mut body, mut signature) = (Writer::default(), String::new());
    for value in &message.values {
        match value {
            Value::Text(text) => {
                signature.push('s');
                body.text(text);
            }
            Value::Number(number) => {
                signature.push('u');
                body.number(*number);
            }
            Value::Signed(number) => {
                signature.push('i');
                body.number(u32::from_le_bytes(number.to_le_bytes()));
            }
            Value::Flag(on) => {
                signature.push('b');
                body.number(u32::from(*on));
            }
            Value::Descriptor(place) => {
                signature.push('h');
                body.number(*place);
            }
            Value::Long(number) => {
                signature.push('v');
                body.signature("t");
                body.long(*number);
            }
            Value::Properties(properties) => {
                signature.push_str("a(sv)");
                body.list(8, |list| properties.iter().for_each(|property| list.property(property)));
            }
            Value::NoUnits => {
                signature.push_str("a(sa(sv))");
                body.list(8, |_| {});
            }
        }
    }
    let mut fields = Writer::default();
    let texts = [
        (1, "o", &message.path),
        (2, "s", &message.interface),
        (3, "s", &message.member),
        (4, "s", &message.error),
        (6, "s", &message.destination),
        (7, "s", &message.sender),
    ];
    for (code, kind, text) in texts.into_iter().filter(|(_, _, text)| !text.is_empty()) {
        fields.field(code, kind);
        fields.text(text);
    }
    if message.answers != 0 {
        fields.field(5, "u");
        fields.number(message.answers);
    }
    if !signature.is_empty() {
        fields.field(8, "g");
        fields.signature(&signature);
    }
    if !message.descriptors.is_empty() {
        fields.field(9, "u");
        fields.number(u32::try_from(message.descriptors.len()).unwrap_or(0));
    }
    let mut whole = Writer(vec![b'l', message.kind, 0, 1]);
    whole.number(u32::try_from(body.0.len()).unwrap_or(0));
    whole.number(message.serial);
    whole.number(u32::try_from(fields.0.len()).unwrap_or(0));
    // Twelve bytes and the length of the fields: they begin at a multiple of eight.
    whole.0.extend(fields.0);
    whole.pad(8);
    whole.0.extend(body.0);
    whole.0
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    little: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or_else(|| broken("a length"))?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| broken("it ends too early"))?;
        self.at = end;
        Ok(taken)
    }

    fn pad(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn number(&mut self) -> io::Result<u32> {
        self.pad(4);
        let bytes = self.take(4)?.try_into().map_err(|_| broken("a number"))?;
        Ok(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn long(&mut self) -> io::Result<u64> {
        self.pad(8);
        let bytes = self.take(8)?.try_into().map_err(|_| broken("a number"))?;
        Ok(if self.little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }

    fn text(&mut self) -> io::Result<String> {
        let length = usize::try_from(self.number()?).map_err(|_| broken("a length"))?;
        self.ended(length)
    }

    fn signature(&mut self) -> io::Result<String> {
        let length = usize::from(self.take(1)?[0]);
        self.ended(length)
    }

    fn ended(&mut self, length: usize) -> io::Result<String> {
        let text = self.take(length)?;
        self.take(1)?;
        String::from_utf8(text.to_vec()).map_err(|_| broken("a text"))
    }

    /// One value; none for a type that nothing here has.
    fn value(&mut self, kind: u8) -> io::Result<Option<Value>> {
        Ok(Some(match kind {
            b's' | b'o' => Value::Text(self.text()?),
            b'g' => Value::Text(self.signature()?),
            b'u' => Value::Number(self.number()?),
            b'i' => Value::Signed(i32::from_le_bytes(self.number()?.to_le_bytes())),
            b'b' => Value::Flag(self.number()? != 0),
            b'h' => Value::Descriptor(self.number()?),
            b't' => Value::Long(self.long()?),
            b'v' => match self.signature()?.as_bytes() {
                [inner] if *inner != b'v' => return self.value(*inner),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }
}

/// The length of the message that begins here; none while its head is not there yet.
pub(crate) fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.len() < 16 {
        return Ok(None);
    }
    let mut reader = Reader { bytes, at: 4, little: bytes[0] == b'l' };
    let (body, _, fields) = (reader.number()?, reader.number()?, reader.number()?);
    let (body, fields) = (u64::from(body), u64::from(fields));
    let whole = usize::try_from((16 + fields).next_multiple_of(8) + body).map_err(|_| broken("a length"))?;
    if whole > LONGEST { Err(broken("it is too long")) } else { Ok(Some(whole)) }
}

/// A whole message, and how many descriptors belong to it.
pub fn decode(bytes: &[u8]) -> io::Result<(Message, usize)> {
    let mut reader = Reader { bytes, at: 0, little: bytes.first() == Some(&b'l') };
    let mut message = Message { kind: *reader.take(4)?.get(1).unwrap_or(&0), ..Message::default() };
    reader.number()?;
    message.serial = reader.number()?;
    let end = reader.number()? as usize + 16;
    let (mut signature, mut descriptors) = (String::new(), 0);
    while reader.at < end {
        reader.pad(8);
        let code = reader.take(1)?[0];
        let kind = reader.signature()?;
        let [kind] = kind.as_bytes() else { return Err(broken("a field")) };
        match (code, reader.value(*kind)?) {
            (1, Some(Value::Text(text))) => message.path = text,
            (2, Some(Value::Text(text))) => message.interface = text,
            (3, Some(Value::Text(text))) => message.member = text,
            (4, Some(Value::Text(text))) => message.error = text,
            (5, Some(Value::Number(number))) => message.answers = number,
            (6, Some(Value::Text(text))) => message.destination = text,
            (7, Some(Value::Text(text))) => message.sender = text,
            (8, Some(Value::Text(text))) => signature = text,
            (9, Some(Value::Number(number))) => descriptors = number as usize,
            (_, Some(_)) => {}
            (_, None) => return Err(broken("a field")),
        }
    }
    reader.pad(8);
    for kind in signature.bytes() {
        // What follows an unknown type cannot be found; nothing here needs it.
        let Some(value) = reader.value(kind)? else { break };
        message.values.push(value);
    }
    Ok((message, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let check = |message: Message| {
            let bytes = encode(&message);
            assert_eq!(length(&bytes).expect("a length"), Some(bytes.len()));
            let (back, descriptors) = decode(&bytes).expect("a message");
            assert_eq!(format!("{back:?}"), format!("{message:?}"));
            assert_eq!(descriptors, 0);
            // What is cut off is an error, and no end of the world.
            for end in 0..bytes.len() {
                let _ = (length(&bytes[..end]), decode(&bytes[..end]));
            }
        };
        let text = |text: &str| Value::Text(text.to_owned());
        check(Message {
            kind: CALL,
            serial: 7,
            path: "/org/freedesktop/login1".into(),
            interface: "org.freedesktop.login1.Manager".into(),
            member: "Inhibit".into(),
            values: vec![text("shutdown"), text(""), text("why not"), Value::Signed(-3), Value::Number(9)],
            ..Message::default()
        });
        check(Message {
            kind: ANSWER,
            serial: 1,
            answers: 7,
            values: vec![Value::Long(1 << 40)],
            ..Message::default()
        });
        check(Message {
            kind: SIGNAL,
            serial: 2,
            sender: ":1.1".into(),
            values: vec![Value::Flag(true)],
            ..Message::default()
        });
    }

    /// What dbus-daemon answers to the first call, and the signal behind it.
    #[test]
    fn a_real_bus_is_understood() {
        let mut bytes = b"l\x02\x01\x01\x09\0\0\0\x01\0\0\0=\0\0\0\x06\x01s\0\x04\0\0\0:1.0\0\0\0\0".to_vec();
        bytes.extend(b"\x05\x01u\0\x01\0\0\0\x08\x01g\0\x01s\0\0\x07\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0");
        bytes.extend(b"\x04\0\0\0:1.0\0");
        let first = bytes.len();
        bytes.extend(b"l\x04\x01\x01\x09\0\0\0\x02\0\0\0\x8d\0\0\0");
        assert_eq!(length(&bytes).expect("a length"), Some(first));
        let (message, _) = decode(&bytes[..first]).expect("a message");
        assert_eq!((message.kind, message.answers, message.destination.as_str()), (ANSWER, 1, ":1.0"));
        assert_eq!((message.sender.as_str(), message.serial), ("org.freedesktop.DBus", 1));
        assert_eq!(message.values, [Value::Text(":1.0".into())]);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut bytes = encode(&Message { kind: SIGNAL, serial: 1, ..Message::default() });
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(length(&bytes).is_err());
    }
}
