//! Where a Service is to be reached: at a port of an address, or at one of the node.

use std::fmt::{Display, Formatter, Result};
use std::net::IpAddr;

use ferry_nft::{Part, Protocol};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceAddress {
    /// None: those of the node at which node ports are served.
    pub(crate) address: Option<IpAddr>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl ServiceAddress {
    pub(crate) fn at(address: IpAddr, protocol: Protocol, port: u16) -> Self {
        Self { address: Some(address), protocol, port }
    }

    pub(crate) fn of_node(protocol: Protocol, port: u16) -> Self {
        Self { address: None, protocol, port }
    }

    /// Under which it stands in maps.
    pub(crate) fn key(&self) -> Vec<Part> {
        let address = self.address.map(Part::Address);
        address.into_iter().chain([Part::Protocol(self.protocol), Part::Port(self.port)]).collect()
    }
}

/// As a person writes it.
impl Display for ServiceAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} port {} of ", self.protocol.word().to_uppercase(), self.port)?;
        match self.address {
            Some(address) => address.fmt(f),
            None => f.write_str("the node"),
        }
    }
}
