//! Chains of others that drop what they do not know: Docker's and ufw's FORWARD with the policy DROP, firewalld's last rule,
//! an administrator's own table. A verdict of ours in a chain of ours does not save a packet there, so that the rule has to
//! stand in that very chain, as one by hand would.

use std::fmt::Write;
use std::os::fd::OwnedFd;

use crate::netlink::{attributes, dump, number, text, text_attribute};

const GET_CHAINS: u16 = (10 << 8) | 4;
const GET_RULES: u16 = (10 << 8) | 7;
const INPUT: u32 = 1;
const FORWARD: u32 = 2;
const DROP: u32 = 0;
pub(crate) const FAMILY_INET: u8 = 1;
pub(crate) const FAMILY_IPV4: u8 = 2;
const FAMILY_BRIDGE: u8 = 7;
const FAMILY_IPV6: u8 = 10;

/// What has to get through.
#[derive(Clone, Debug)]
pub struct Passage {
    /// In the comment of each rule; no two clusters of a machine have the same.
    pub name: String,
    /// Ranges of pods' addresses, of one family or of both.
    pub pods: Vec<String>,
    /// Where pods reach the node itself: protocol and port.
    pub node: Vec<(&'static str, u16)>,
}

impl Passage {
    pub(crate) fn mark(&self) -> String {
        mark(&self.name)
    }

    /// The matches of the rules for a hook, as `nft` reads them. Addresses and ports alone: `iptables-nft` can show and
    /// change a chain no longer once a rule in it matches by `ct`.
    fn matches(&self, family: &str, hook: Hook) -> Vec<String> {
        let of_range = |pods: &String| {
            let ip = if pods.contains(':') { "ip6" } else { "ip" };
            if family != "inet" && family != ip {
                return Vec::new();
            }
            let node = self.node.iter();
            match hook {
                Hook::Forward => vec![format!("{ip} saddr {pods}"), format!("{ip} daddr {pods}")],
                Hook::Input => {
                    node.map(|(protocol, port)| format!("{ip} saddr {pods} {protocol} dport {port}")).collect()
                }
            }
        };
        self.pods.iter().flat_map(of_range).collect()
    }
}

pub(crate) fn mark(name: &str) -> String {
    format!("pods of ferry ({name})")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Input,
    Forward,
}

/// A base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) family: &'static str,
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) hook: Hook,
    /// Whether it drops what none of its rules knows.
    pub(crate) drops: bool,
    /// Handles of the rules that carry our mark.
    pub(crate) ours: Vec<u64>,
}

impl Chain {
    /// As people name it.
    pub(crate) fn named(&self) -> String {
        format!("chain {} of table {} {}", self.name, self.family, self.table)
    }
}

/// The chains through which packets of pods go, in all tables.
pub(crate) fn chains(socket: &OwnedFd, mark: &str) -> std::io::Result<Vec<Chain>> {
    let mut found = Vec::new();
    dump(socket, GET_CHAINS, 0, &[], |body| found.extend(chain(body)))?;
    for (family, chain) in &mut found {
        let asked = [text_attribute(1, &chain.table), text_attribute(2, &chain.name)].concat();
        let mut last_drops = false;
        let (name, ours) = (chain.name.clone(), &mut chain.ours);
        dump(socket, GET_RULES, *family, &asked, |body| {
            if let Some(rule) = rule(body).filter(|rule| rule.chain == name) {
                last_drops = rule.drops_all;
                ours.extend(Some(rule.handle).filter(|_| contains(&rule.note, mark)));
            }
        })?;
        chain.drops |= last_drops;
    }
    Ok(found.into_iter().map(|(_, chain)| chain).collect())
}

/// Whether a chain of ours is there and has rules.
pub(crate) fn has_rules(socket: &OwnedFd, family: u8, table: &str, chain: &str) -> std::io::Result<bool> {
    let asked = [text_attribute(1, table), text_attribute(2, chain)].concat();
    let mut found = false;
    match dump(socket, GET_RULES, family, &asked, |body| found |= rule(body).is_some_and(|one| one.chain == chain)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        other => other.map(|()| found),
    }
}

fn contains(note: &[u8], mark: &str) -> bool {
    note.windows(mark.len().max(1)).any(|part| part == mark.as_bytes())
}

/// A filtering base chain of a hook that matters.
fn chain(body: &[u8]) -> Option<(u8, Chain)> {
    let number_of_family = *body.first()?;
    let family = match number_of_family {
        FAMILY_INET => "inet",
        FAMILY_IPV4 => "ip",
        FAMILY_IPV6 => "ip6",
        FAMILY_BRIDGE => "bridge",
        _ => return None,
    };
    let (mut table, mut name, mut hook, mut policy, mut kind) = (None, None, None, None, None);
    for (attribute, value, _) in attributes(body.get(4..)?) {
        match attribute {
            1 => table = Some(text(value)),
            3 => name = Some(text(value)),
            4 => hook = attributes(value).find(|(inner, _, _)| *inner == 1).and_then(|(_, value, _)| number(value)),
            5 => policy = number(value),
            7 => kind = Some(text(value)),
            _ => {}
        }
    }
    let hook = match hook? {
        INPUT => Hook::Input,
        FORWARD => Hook::Forward,
        _ => return None,
    };
    (kind? == "filter").then_some(())?;
    let drops = policy == Some(DROP);
    Some((number_of_family, Chain { family, table: table?, name: name?, hook, drops, ours: Vec::new() }))
}

struct Rule {
    chain: String,
    handle: u64,
    /// Whether no packet gets past it.
    drops_all: bool,
    note: Vec<u8>,
}

fn rule(body: &[u8]) -> Option<Rule> {
    let mut rule = Rule { chain: String::new(), handle: 0, drops_all: false, note: Vec::new() };
    for (attribute, value, _) in attributes(body.get(4..)?) {
        match attribute {
            2 => rule.chain = text(value),
            3 => rule.handle = u64::from_be_bytes(value.try_into().ok()?),
            4 => rule.drops_all = drops_all(value),
            7 => rule.note = value.to_vec(),
            _ => {}
        }
    }
    Some(rule)
}

/// Whether a rule matches everything, and drops or rejects it.
fn drops_all(expressions: &[u8]) -> bool {
    let mut drops = false;
    for (_, expression, _) in attributes(expressions) {
        let mut name = String::new();
        let mut data: &[u8] = &[];
        for (kind, value, _) in attributes(expression) {
            match kind {
                1 => name = text(value),
                2 => data = value,
                _ => {}
            }
        }
        match name.as_str() {
            "counter" | "log" => {}
            "reject" => drops = true,
            "immediate" if verdict(data) == Some(DROP) => drops = true,
            _ => return false,
        }
    }
    drops
}

/// The verdict that an immediate value is.
fn verdict(data: &[u8]) -> Option<u32> {
    let inner = |bytes: &[u8], wanted: u16| {
        attributes(bytes).find(|(kind, _, _)| *kind == wanted).map(|(_, value, _)| value.to_vec())
    };
    number(&inner(&inner(&inner(data, 2)?, 2)?, 1)?)
}

/// The transaction that lets the passage through, and what it cannot do. `anew` writes rules that are there again, since they
/// may be of another time.
pub(crate) fn plan(chains: &[Chain], passage: &Passage, anew: bool) -> (String, Vec<String>) {
    let (mut script, mut problems) = (String::new(), Vec::new());
    for chain in chains.iter().filter(|chain| chain.drops) {
        if chain.family == "bridge" {
            problems.push(format!("{} drops frames of pods", chain.named()));
            continue;
        }
        let wanted = passage.matches(chain.family, chain.hook);
        if chain.ours.len() == wanted.len() && !anew {
            continue;
        }
        script.push_str(&forget(chain));
        let Chain { family, table, name, .. } = chain;
        for matches in wanted {
            let _ =
                writeln!(script, "insert rule {family} {table} {name} {matches} accept comment \"{}\"", passage.mark());
        }
    }
    (script, problems)
}

/// Takes our rules out of a chain.
pub(crate) fn forget(chain: &Chain) -> String {
    let Chain { family, table, name, ours, .. } = chain;
    ours.iter().map(|handle| format!("delete rule {family} {table} {name} handle {handle}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_stand_where_packets_are_dropped_and_nowhere_else() {
        let passage = Passage { name: "ferry0".into(), pods: vec!["10.244.0.0/16".into()], node: vec![("udp", 53)] };
        let chain = |family, hook, drops, ours: &[u64]| Chain {
            family,
            table: "filter".into(),
            name: "C".into(),
            hook,
            drops,
            ours: ours.to_vec(),
        };
        let comment = "comment \"pods of ferry (ferry0)\"";
        let check = |chain: Chain, anew: bool, want: &[&str]| {
            let (script, problems) = plan(std::slice::from_ref(&chain), &passage, anew);
            assert_eq!(script.lines().collect::<Vec<_>>(), want, "{chain:?}");
            assert!(problems.is_empty());
        };
        let forward = [
            format!("insert rule ip filter C ip saddr 10.244.0.0/16 accept {comment}"),
            format!("insert rule ip filter C ip daddr 10.244.0.0/16 accept {comment}"),
        ];
        let forward: Vec<&str> = forward.iter().map(String::as_str).collect();
        check(chain("ip", Hook::Forward, true, &[]), false, &forward);
        check(chain("ip", Hook::Forward, false, &[]), true, &[]);
        check(chain("ip", Hook::Forward, true, &[4, 5]), false, &[]);
        let again: Vec<&str> = ["delete rule ip filter C handle 4", "delete rule ip filter C handle 5"]
            .into_iter()
            .chain(forward.iter().copied())
            .collect();
        check(chain("ip", Hook::Forward, true, &[4, 5]), true, &again);
        let input = format!("insert rule inet filter C ip saddr 10.244.0.0/16 udp dport 53 accept {comment}");
        check(chain("inet", Hook::Input, true, &[]), false, &[&input]);
        // A chain for the other family alone has nothing to let through.
        check(chain("ip6", Hook::Forward, true, &[]), false, &[]);
        let both = Passage { pods: vec!["10.244.0.0/16".into(), "fd00::/56".into()], ..passage.clone() };
        let of = |family| plan(&[chain(family, Hook::Forward, true, &[])], &both, false).0;
        assert_eq!(of("inet").lines().count(), 4);
        let six = format!("insert rule ip6 filter C ip6 saddr fd00::/56 accept {comment}");
        assert_eq!(of("ip6").lines().next(), Some(six.as_str()));
        let (script, problems) = plan(&[chain("bridge", Hook::Forward, true, &[])], &passage, false);
        assert_eq!(script, "");
        assert_eq!(problems, ["chain C of table bridge filter drops frames of pods"]);
    }

    #[test]
    fn garbage_is_no_chain_and_no_rule() {
        for bytes in [&[][..], &[2], &[2, 0, 0, 0], &[2, 0, 0, 0, 8, 0, 1, 0, 65, 0, 0, 0], &[255; 40]] {
            assert!(chain(bytes).is_none());
            assert!(rule(bytes).is_none_or(|rule| !rule.drops_all));
            assert!(!drops_all(bytes) && verdict(bytes).is_none());
        }
        assert!(contains(b"\0abc\0", "abc") && !contains(b"ab", "abc"));
    }
}
