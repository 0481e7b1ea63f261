//! Elements of sets and maps: as `nft` reads them, and as the kernel does.

use std::borrow::Cow;
use std::fmt::{Display, Formatter, Result};
use std::net::{IpAddr, Ipv6Addr};

use crate::netlink::put;

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// By the word that rules have.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl Display for Protocol {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(self.word())
    }
}

/// The name of a device, as the kernel keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device([u8; 16]);

impl Device {
    /// None where no device can have the name.
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\/".contains(&byte);
        if name.is_empty() || name.len() >= bytes.len() || !name.bytes().all(plain) {
            return None;
        }
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self(bytes))
    }
}

/// What a key, or what it leads to, consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    Address(IpAddr),
    Protocol(Protocol),
    Port(u16),
    /// In the order of this machine, as the kernel generates numbers.
    Number(u32),
    Device(Device),
    Hardware([u8; 6]),
    /// Sixteen bytes of a packet.
    Bits([u8; 16]),
}

impl Part {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Address(IpAddr::V4(address)) => address.octets().to_vec(),
            Self::Address(IpAddr::V6(address)) => address.octets().to_vec(),
            Self::Protocol(protocol) => vec![protocol.number()],
            Self::Port(port) => port.to_be_bytes().to_vec(),
            Self::Number(number) => number.to_ne_bytes().to_vec(),
            Self::Hardware(bytes) => bytes.to_vec(),
            Self::Device(Device(bytes)) | Self::Bits(bytes) => bytes.to_vec(),
        }
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Protocol(protocol) => protocol.fmt(f),
            Self::Port(port) => port.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Device(Device(bytes)) => {
                let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                write!(f, "\"{}\"", String::from_utf8_lossy(name))
            }
            Self::Hardware([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
            Self::Bits(bytes) => write!(f, "{:#034x}", Ipv6Addr::from(*bytes).to_bits()),
        }
    }
}

/// Where a packet goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Drop,
    /// To a chain.
    Goto(Cow<'static, str>),
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Drop => f.write_str("drop"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

/// What a key of a map leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Verdict(Verdict),
    Data(Vec<Part>),
}

/// An element of a set, or with a value one of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    pub key: Vec<Part>,
    pub value: Option<Value>,
}

impl Display for Element {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        joined(&self.key, f)?;
        match &self.value {
            None => Ok(()),
            Some(Value::Verdict(verdict)) => write!(f, " : {verdict}"),
            Some(Value::Data(parts)) => {
                f.write_str(" : ")?;
                joined(parts, f)
            }
        }
    }
}

fn joined(parts: &[Part], f: &mut Formatter<'_>) -> Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(" . ")?;
        }
        part.fmt(f)?;
    }
    Ok(())
}

/// Attributes of an element, of data, and of a verdict.
const KEY: u16 = 1;
const DATA: u16 = 2;
const BYTES: u16 = 1;
const VERDICT: u16 = 2;
const CODE: u16 = 1;
const CHAIN: u16 = 2;
const DROP: i32 = 0;
const GOTO: i32 = -4;

impl Element {
    /// As an entry of a list in a message to the kernel. What an element that goes leads to does not matter to it.
    pub(crate) fn encode(&self, with_value: bool, out: &mut Vec<u8>) {
        put(out, NESTED | 1, |out| {
            put(out, NESTED | KEY, |out| put(out, BYTES, |out| concatenate(&self.key, out)));
            match self.value.as_ref().filter(|_| with_value) {
                None => {}
                Some(Value::Data(parts)) => {
                    put(out, NESTED | DATA, |out| put(out, BYTES, |out| concatenate(parts, out)));
                }
                Some(Value::Verdict(verdict)) => put(out, NESTED | DATA, |out| {
                    put(out, NESTED | VERDICT, |out| encode_verdict(verdict, out));
                }),
            }
        });
    }
}

pub(crate) const NESTED: u16 = 1 << 15;

/// Each part begins at a register of its own; what stands alone has its own length.
fn concatenate(parts: &[Part], out: &mut Vec<u8>) {
    if let [only] = parts {
        out.extend(only.bytes());
        return;
    }
    for part in parts {
        let mut bytes = part.bytes();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        out.extend(bytes);
    }
}

fn encode_verdict(verdict: &Verdict, out: &mut Vec<u8>) {
    let code = match verdict {
        Verdict::Drop => DROP,
        Verdict::Goto(_) => GOTO,
    };
    put(out, CODE, |out| out.extend(code.to_be_bytes()));
    if let Verdict::Goto(chain) = verdict {
        put(out, CHAIN, |out| {
            out.extend(chain.as_bytes());
            out.push(0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_written_as_nft_reads_them() {
        let address = |text: &str| Part::Address(text.parse().expect("an address"));
        let device = Part::Device(Device::new("veth0").expect("a name"));
        for (key, value, want) in [
            (vec![address("10.96.0.1"), Part::Protocol(Protocol::Tcp), Part::Port(80)], None, "10.96.0.1 . tcp . 80"),
            (vec![address("fd00::1")], Some(Value::Verdict(Verdict::Drop)), "fd00::1 : drop"),
            (vec![Part::Port(53)], Some(Value::Verdict(Verdict::Goto("c".into()))), "53 : goto c"),
            (
                vec![address("10.96.0.1"), Part::Number(3)],
                Some(Value::Data(vec![address("10.244.0.1"), Part::Port(8080)])),
                "10.96.0.1 . 3 : 10.244.0.1 . 8080",
            ),
            (vec![device, Part::Hardware([2, 0, 0, 0, 0, 0xa])], None, "\"veth0\" . 02:00:00:00:00:0a"),
            (vec![Part::Bits([0x1f; 16])], None, "0x1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f"),
        ] {
            assert_eq!(Element { key, value }.to_string(), want);
        }
        for bad in ["", "sixteen-letters-", "a b", "a\"", "a/b", "a\n"] {
            assert_eq!(Device::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn parts_begin_at_registers() {
        let bytes = |parts: &[Part]| {
            let mut out = Vec::new();
            concatenate(parts, &mut out);
            out
        };
        assert_eq!(bytes(&[Part::Port(80)]), [0, 80]);
        assert_eq!(bytes(&[Part::Protocol(Protocol::Udp), Part::Port(80)]), [17, 0, 0, 0, 0, 80, 0, 0]);
    }
}
