//! A change of the rules as a value. Elements of sets and maps are typed and can go to the kernel as they are; what gives
//! rules their structure is text for `nft`, which a change rarely has.

use std::fmt::Write;

use crate::element::{Element, NESTED};
use crate::netlink::{ACKNOWLEDGE, CREATE, REQUEST, message, put, text_attribute};

/// The families of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Ip,
    Ip6,
    Inet,
    Bridge,
}

impl Family {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
            Self::Bridge => "bridge",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Bridge => 7,
            Self::Ip6 => 10,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Add,
    Delete,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Delete => "delete",
        }
    }
}

/// Elements that come to a set or map, or leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elements {
    pub verb: Verb,
    pub family: Family,
    pub table: String,
    pub set: String,
    pub list: Vec<Element>,
}

impl Elements {
    /// As a command of `nft`.
    fn write(&self, text: &mut String) {
        let Self { verb, family, table, set, list } = self;
        for (index, element) in list.iter().enumerate() {
            let begin = if index == 0 { "" } else { ", " };
            if index == 0 {
                let _ = write!(text, "{} element {} {table} {set} {{ ", verb.word(), family.word());
            }
            let _ = write!(text, "{begin}{element}");
        }
        if !list.is_empty() {
            text.push_str(" }\n");
        }
    }

    /// What is said of it when it is refused.
    fn describe(&self, list: &[Element]) -> String {
        let Self { verb, family, table, set, .. } = self;
        let first = list.first().map(ToString::to_string).unwrap_or_default();
        let more = if list.len() > 1 { format!(" and {} more", list.len() - 1) } else { String::new() };
        format!("{} element {} {table} {set} {{ {first} }}{more}", verb.word(), family.word())
    }
}

/// All or nothing of it comes to be: commands, then elements, then more commands. What refers to something comes after it,
/// and goes before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Commands of `nft`, each with its end of line.
    pub before: String,
    pub elements: Vec<Elements>,
    pub after: String,
}

const SUBSYSTEM: u16 = 10;
const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
const NEW_ELEMENTS: u16 = (SUBSYSTEM << 8) | 12;
const DELETE_ELEMENTS: u16 = (SUBSYSTEM << 8) | 14;
const TABLE: u16 = 1;
const SET: u16 = 2;
const LIST: u16 = 3;
/// The length of a list has sixteen bits.
const MOST_OF_A_LIST: usize = 32 * 1024;

/// A transaction as the kernel reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// What each message is, by its number.
    pub(crate) what: Vec<String>,
    /// Where the last message begins.
    last: usize,
    /// Whether an answer comes when nothing is refused.
    pub(crate) is_answered: bool,
}

impl Transaction {
    /// Only commands of `nft`.
    pub fn of_script(script: String) -> Self {
        Self { before: script, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty() && self.elements.iter().all(|one| one.list.is_empty())
    }

    /// One transaction of two that have nothing to do with each other.
    pub fn join(&mut self, other: Self) {
        self.before.push_str(&other.before);
        self.elements.extend(other.elements);
        self.after.push_str(&other.after);
    }

    /// As `nft` reads it.
    pub fn script(&self) -> String {
        let mut text = self.before.clone();
        self.elements.iter().for_each(|elements| elements.write(&mut text));
        text.push_str(&self.after);
        text
    }

    /// Whether there is no more to it than elements.
    pub(crate) fn is_elements(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// None where there is more to it than elements, or than so many bytes hold: no more of it is written than can be sent.
    pub(crate) fn batch(&self, most: usize) -> Option<Batch> {
        if !self.is_elements() {
            return None;
        }
        let mut batch = Batch::default();
        batch.add(BEGIN, REQUEST, 0, SUBSYSTEM, "the beginning".to_owned(), |_| {});
        for elements in &self.elements {
            let mut rest = elements.list.as_slice();
            while !rest.is_empty() {
                let mut list = Vec::new();
                let mut count = 0;
                while let Some(element) = rest.get(count).filter(|_| list.len() < MOST_OF_A_LIST) {
                    element.encode(elements.verb == Verb::Add, &mut list);
                    count += 1;
                }
                let (now, later) = rest.split_at(count);
                let (kind, flags) = match elements.verb {
                    Verb::Add => (NEW_ELEMENTS, REQUEST | CREATE),
                    Verb::Delete => (DELETE_ELEMENTS, REQUEST),
                };
                batch.add(kind, flags, elements.family.number(), 0, elements.describe(now), |out| {
                    out.extend(text_attribute(TABLE, &elements.table));
                    out.extend(text_attribute(SET, &elements.set));
                    put(out, NESTED | LIST, |out| out.extend(&list));
                });
                if batch.bytes.len() > most {
                    return None;
                }
                rest = later;
            }
        }
        batch.acknowledge_last();
        batch.add(END, REQUEST, 0, SUBSYSTEM, "the end".to_owned(), |_| {});
        (batch.bytes.len() <= most).then_some(batch)
    }
}

impl Batch {
    fn add(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        subsystem: u16,
        what: String,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let number = u32::try_from(self.what.len()).unwrap_or(u32::MAX);
        self.last = self.bytes.len();
        message(&mut self.bytes, kind, flags, number, |out| {
            let [high, low] = subsystem.to_be_bytes();
            out.extend([family, 0, high, low]);
            body(out);
        });
        self.what.push(what);
    }

    /// What is refused is answered in any case. Of all that is well one answer is enough: thousands would not fit into the
    /// buffer of the socket.
    fn acknowledge_last(&mut self) {
        self.is_answered = self.what.len() > 1;
        let flags = self.last + 6..self.last + 8;
        if let Some([low, high]) = self.bytes.get_mut(flags).filter(|_| self.is_answered) {
            let flags = u16::from_ne_bytes([*low, *high]) | ACKNOWLEDGE;
            [*low, *high] = flags.to_ne_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Part;
    use crate::netlink::messages;

    fn ports(verb: Verb, count: u16) -> Elements {
        let list = (0..count).map(|port| Element { key: vec![Part::Port(port)], value: None }).collect();
        Elements { verb, family: Family::Ip, table: "t".into(), set: "s".into(), list }
    }

    #[test]
    fn commands_come_before_and_after_elements() {
        let elements = vec![ports(Verb::Delete, 2), ports(Verb::Add, 1), ports(Verb::Add, 0)];
        let mut transaction = Transaction { before: "one\n".into(), elements, after: "two\n".into() };
        let want = "one\ndelete element ip t s { 0, 1 }\nadd element ip t s { 0 }\ntwo\n";
        assert_eq!(transaction.script(), want);
        assert!(transaction.batch(usize::MAX).is_none(), "commands are for nft");
        transaction.join(Transaction::of_script("three\n".into()));
        assert!(transaction.script().starts_with("one\nthree\n"));
        assert!(Transaction { elements: vec![ports(Verb::Add, 0)], ..Transaction::default() }.is_empty());
    }

    #[test]
    fn long_lists_are_several_messages_of_one_batch() {
        let transaction = Transaction { elements: vec![ports(Verb::Add, 10_000)], ..Transaction::default() };
        let batch = transaction.batch(usize::MAX).expect("elements alone");
        let size = batch.bytes.len();
        assert!(transaction.batch(size).is_some());
        assert!(
            [size - 1, 100_000, 0].iter().all(|most| transaction.batch(*most).is_none()),
            "it cannot be sent whole"
        );
        let kinds: Vec<u16> = messages(&batch.bytes).map(|one| one.kind).collect();
        assert_eq!((kinds.first(), kinds.last()), (Some(&BEGIN), Some(&END)));
        assert!(kinds.len() > 4 && kinds.len() == batch.what.len() && batch.is_answered);
        assert!(messages(&batch.bytes).all(|one| one.body.len() < 60_000));
        assert!(batch.what[1].starts_with("add element ip t s { 0 } and "), "{}", batch.what[1]);
    }
}
