//! Addresses and networks.

use std::fmt;
use std::net::IpAddr;

use ferry_semantics::cidr::IpNet;

use super::{Outcome, text};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    /// The bits are within the width of the address: `parse_cidr` makes no others.
    fn range(self) -> Option<IpNet> {
        IpNet::new(self.address, self.bits).ok()
    }

    fn masked(self) -> Self {
        Self { address: self.range().map_or(self.address, |range| range.network()), ..self }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.range().is_some_and(|range| range.contains(&address))
    }
}

fn mapped(raw: &str) -> Error {
    Error::new(format!("IPv4-mapped IPv6 address {} is not allowed", ferry_meta::field::quote(raw)))
}

fn parse_ip(raw: &str) -> Result<IpAddr, Error> {
    let quoted = ferry_meta::field::quote(raw);
    if let Some((plain, _)) = raw.split_once('%')
        && plain.parse::<std::net::Ipv6Addr>().is_ok()
    {
        return Err(Error::new(format!("IP address {quoted} with zone value is not allowed")));
    }
    let address: IpAddr = raw.parse().map_err(|_| {
        let why = format!("ParseAddr({quoted}): unable to parse IP");
        Error::new(format!("IP Address {quoted} parse error during conversion from string: {why}"))
    })?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => Err(mapped(raw)),
        _ => Ok(address),
    }
}

fn parse_cidr(raw: &str) -> Result<Cidr, Error> {
    let refuse = |why: &str| {
        let quoted = ferry_meta::field::quote(raw);
        // Upstream says it twice.
        let what = "network address parse error during conversion from string";
        Error::new(format!("{what}: {what}: netip.ParsePrefix({quoted}): {why}"))
    };
    let (address, bits) = raw.rsplit_once('/').ok_or_else(|| refuse("no '/'"))?;
    let address: IpAddr = address
        .parse()
        .map_err(|_| refuse(&format!("ParseAddr({}): unable to parse IP", ferry_meta::field::quote(address))))?;
    let plain =
        !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    let bits: u8 = bits
        .parse()
        .ok()
        .filter(|_| plain)
        .ok_or_else(|| refuse(&format!("bad bits after slash: {}", ferry_meta::field::quote(bits))))?;
    if IpNet::new(address, bits).is_err() {
        return Err(refuse("prefix length out of range"));
    }
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => Err(mapped(raw)),
        _ => Ok(Cidr { address, bits }),
    }
}

pub(crate) fn ip<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        Value::Cidr(cidr) => Ok(Value::Ip(cidr.address)),
        _ => parse_ip(text(arguments, 0)?).map(Value::Ip),
    }
}

pub(crate) fn is_ip<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(parse_ip(text(arguments, 0)?).is_ok()))
}

pub(crate) fn is_canonical<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let raw = text(arguments, 0)?;
    Ok(Value::Bool(parse_ip(raw)?.to_string() == **raw))
}

fn address(arguments: &[Value<'_>]) -> Result<IpAddr, Error> {
    match &arguments[0] {
        Value::Ip(address) => Ok(*address),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn family<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Int(if address(arguments)?.is_ipv4() { 4 } else { 6 }))
}

pub(crate) fn is_unspecified<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(address(arguments)?.is_unspecified()))
}

pub(crate) fn is_loopback<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(address(arguments)?.is_loopback()))
}

fn link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
        IpAddr::V6(six) => six.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

pub(crate) fn is_link_local_multicast<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(link_local_multicast(address(arguments)?)))
}

pub(crate) fn is_link_local_unicast<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(link_local_unicast(address(arguments)?)))
}

pub(crate) fn is_global_unicast<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let address = address(arguments)?;
    let broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
    let special =
        address.is_unspecified() || address.is_loopback() || address.is_multicast() || link_local_unicast(address);
    Ok(Value::Bool(!broadcast && !special))
}

pub(crate) fn cidr<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    parse_cidr(text(arguments, 0)?).map(Value::Cidr)
}

pub(crate) fn is_cidr<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(parse_cidr(text(arguments, 0)?).is_ok()))
}

fn network(arguments: &[Value<'_>]) -> Result<Cidr, Error> {
    match &arguments[0] {
        Value::Cidr(cidr) => Ok(*cidr),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn contains_ip<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let other = match &arguments[1] {
        Value::Ip(address) => *address,
        _ => parse_ip(text(arguments, 1)?).map_err(|_| Error::no_such_overload())?,
    };
    Ok(Value::Bool(network(arguments)?.contains(other)))
}

pub(crate) fn contains_cidr<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let other = match &arguments[1] {
        Value::Cidr(cidr) => *cidr,
        _ => parse_cidr(text(arguments, 1)?).map_err(|_| Error::no_such_overload())?,
    };
    let network = network(arguments)?;
    Ok(Value::Bool(network.bits <= other.bits && network.contains(other.address)))
}

pub(crate) fn prefix_length<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Int(network(arguments)?.bits.into()))
}

pub(crate) fn masked<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Cidr(network(arguments)?.masked()))
}
