//! `hosts`: names and addresses in the form of `/etc/hosts`, written into the Corefile or into a file beside it.

use std::collections::HashMap;
use std::net::IpAddr;

use hickory_proto::rr::rdata::PTR;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::{Fallthrough, Words, zones};
use crate::answer::{address, reverse_address};
use crate::corefile::{CorefileError, Directive};
use crate::message::Reply;
use crate::settings::Files;

const TTL: u32 = 3600;
/// Lines that are kept of one plug-in.
const MOST: usize = 50_000;

#[derive(Debug, Default)]
pub(crate) struct Hosts {
    zones: Vec<Name>,
    names: HashMap<Name, Vec<IpAddr>>,
    addresses: HashMap<IpAddr, Vec<Name>>,
    ttl: u32,
    fallthrough: Fallthrough,
    entries: usize,
}

impl Hosts {
    pub(crate) fn read(directive: &Directive, files: &Files, block: &[Name]) -> Result<Self, CorefileError> {
        let words = Words::of(directive);
        let mut arguments = directive.arguments.iter().peekable();
        let file = arguments.next_if(|word| word.starts_with('/')).cloned().unwrap_or_else(|| "/etc/hosts".into());
        let rest: Vec<String> = arguments.cloned().collect();
        let zones = if rest.is_empty() { block.to_vec() } else { zones(&rest, directive.line)? };
        let mut this = Self { zones, ttl: TTL, ..Self::default() };
        let mut reverse = true;
        let mut inline = Vec::new();
        for line in &directive.lines {
            match words.at(line, 0)? {
                "fallthrough" => this.fallthrough = Fallthrough::read(&line[1..], directive.line)?,
                "ttl" => this.ttl = words.number(words.at(line, 1)?)?,
                "no_reverse" => reverse = false,
                // A change of the ConfigMap is told; there is nothing to look at again and again.
                "reload" => {}
                address => {
                    let address: IpAddr =
                        address.parse().map_err(|_| words.wrong(format_args!("{address:?} is not known")))?;
                    inline.push((address, line[1..].to_vec()));
                }
            }
        }
        let text = files.get(&file).map_err(|problem| words.wrong(problem))?;
        for (address, names) in inline.into_iter().chain(text.lines().filter_map(entry)) {
            this.add(address, &names, reverse);
        }
        Ok(this)
    }

    fn add(&mut self, address: IpAddr, names: &[String], reverse: bool) {
        for name in names {
            let Ok(mut name) = Name::from_ascii(name.trim_end_matches('.')) else { continue };
            name.set_fqdn(true);
            if self.entries >= MOST || !self.zones.iter().any(|zone| zone.zone_of(&name)) {
                continue;
            }
            self.entries += 1;
            if reverse {
                self.addresses.entry(address).or_default().push(name.clone());
            }
            self.names.entry(name).or_default().push(address);
        }
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Nothing where the next plug-in is to answer.
    pub(crate) fn answer(&self, name: &Name, kind: RecordType) -> Option<Reply> {
        let data: Vec<RData> = match (kind, reverse_address(name)) {
            (RecordType::PTR, Some(ip)) => {
                let names = self.addresses.get(&ip).into_iter().flatten();
                names.map(|name| RData::PTR(PTR(name.clone()))).collect()
            }
            _ => {
                let known = self.names.get(name);
                let all = known.into_iter().flatten().map(|ip| address(*ip));
                let data: Vec<RData> = all.filter(|data| data.record_type() == kind).collect();
                if data.is_empty() && known.is_some() && !self.fallthrough.is_for(name) {
                    // The name is there, and has nothing of this type.
                    return Some(Reply { authoritative: true, ..Reply::default() });
                }
                data
            }
        };
        if data.is_empty() {
            let ours = self.zones.iter().any(|zone| zone.zone_of(name)) && !self.fallthrough.is_for(name);
            return (ours && !self.names.is_empty()).then(|| Reply {
                code: hickory_proto::op::ResponseCode::NXDomain,
                authoritative: true,
                ..Reply::default()
            });
        }
        let answers = data.into_iter().map(|data| Record::from_rdata(name.clone(), self.ttl, data)).collect();
        Some(Reply { authoritative: true, answers, ..Reply::default() })
    }
}

fn entry(line: &str) -> Option<(IpAddr, Vec<String>)> {
    let line = line.split('#').next()?;
    let mut words = line.split_whitespace();
    let address = words.next()?.split('%').next()?.parse().ok()?;
    Some((address, words.map(str::to_owned).collect()))
}
