//! The same transactions through the program `nft` and straight to the kernel lead to the same rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferry_testkit::network::Namespaces;

use crate::{Device, Element, Elements, Family, Nft, Part, Protocol, Transaction, Value, Verb, Verdict, Watch, Writer};

const FRAME: &str = "table ip t {
  set one { type ipv4_addr; }
  set ports { type inet_service; }
  set pairs { type ipv4_addr . inet_service; }
  map verdicts { type ipv4_addr . inet_proto . inet_service : verdict; }
  map endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport; }
  map node-endpoints { typeof meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport; }
  chain first { }
  chain second { }
}
table ip6 t {
  map endpoints { typeof ip6 daddr . meta l4proto . th dport . numgen random mod 2 : ip6 daddr . th dport; }
}
table inet t {
  set six { type ipv6_addr . ipv6_addr; }
}
table bridge t {
  set ports { type ifname; }
  set hardware { type ifname . ether_addr; }
  set targets { typeof iifname . @th,64,128; }
}
";

/// The sets, and whether each is a map of verdicts or of endpoints.
const SETS: [(Family, &str, Kind); 11] = [
    (Family::Ip, "one", Kind::Set),
    (Family::Ip, "ports", Kind::Set),
    (Family::Ip, "pairs", Kind::Set),
    (Family::Ip, "verdicts", Kind::Verdicts),
    (Family::Ip, "endpoints", Kind::Endpoints),
    (Family::Ip, "node-endpoints", Kind::Endpoints),
    (Family::Ip6, "endpoints", Kind::Endpoints),
    (Family::Inet, "six", Kind::Set),
    (Family::Bridge, "ports", Kind::Set),
    (Family::Bridge, "hardware", Kind::Set),
    (Family::Bridge, "targets", Kind::Set),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Set,
    Verdicts,
    Endpoints,
}

struct Random(u64);

impl Random {
    /// Printed, so that a failure can be tried again.
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
        let seed = std::env::var("FERRY_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(now);
        println!("FERRY_TEST_SEED={seed}");
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 33).unwrap_or_default() % end
    }

    fn port(&mut self) -> Part {
        Part::Port(u16::try_from(1 + self.below(65_535)).unwrap_or(1))
    }

    fn fourth(&mut self) -> Part {
        Part::Address(std::net::Ipv4Addr::from_bits(0x0a00_0000 + self.below(1 << 24)).into())
    }

    fn sixth(&mut self) -> Part {
        let bits = (u128::from(self.below(1 << 31)) << 64) | u128::from(self.below(1 << 31));
        Part::Address(std::net::Ipv6Addr::from_bits((0xfd00 << 112) | bits).into())
    }

    fn protocol(&mut self) -> Part {
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        Part::Protocol(all[self.below(3) as usize])
    }

    fn device(&mut self) -> Part {
        Part::Device(Device::new(&format!("veth{:x}", self.below(1 << 30))).expect("a name"))
    }

    fn key(&mut self, family: Family, set: &str) -> Vec<Part> {
        match (family, set) {
            (Family::Ip, "one") => vec![self.fourth()],
            (Family::Ip, "ports") => vec![self.port()],
            (Family::Ip, "pairs") => vec![self.fourth(), self.port()],
            (Family::Ip, "verdicts") => vec![self.fourth(), self.protocol(), self.port()],
            (Family::Ip, "endpoints") => vec![self.fourth(), self.protocol(), self.port(), self.number()],
            (Family::Ip, _) => vec![self.protocol(), self.port(), self.number()],
            (Family::Ip6, _) => vec![self.sixth(), self.protocol(), self.port(), self.number()],
            (Family::Inet, _) => vec![self.sixth(), self.sixth()],
            (Family::Bridge, "ports") => vec![self.device()],
            (Family::Bridge, "hardware") => {
                let [_, _, a, b] = self.below(1 << 31).to_be_bytes();
                vec![self.device(), Part::Hardware([2, 0, 0, 0xff, a, b])]
            }
            (Family::Bridge, _) => {
                let bits = u128::from(self.below(1 << 31)) << 90 | u128::from(self.below(1 << 31));
                vec![self.device(), Part::Bits(bits.to_be_bytes())]
            }
        }
    }

    fn number(&mut self) -> Part {
        Part::Number(self.below(3) * (1 << 24) + self.below(70_000))
    }

    fn value(&mut self, family: Family, kind: Kind) -> Option<Value> {
        match kind {
            Kind::Set => None,
            Kind::Verdicts => Some(Value::Verdict(match self.below(3) {
                0 => Verdict::Drop,
                1 => Verdict::Goto("first".into()),
                _ => Verdict::Goto("second".into()),
            })),
            Kind::Endpoints => {
                let address = if family == Family::Ip6 { self.sixth() } else { self.fourth() };
                Some(Value::Data(vec![address, self.port()]))
            }
        }
    }

    /// Some elements go, some come, and some lead elsewhere than before.
    fn change(&mut self, known: &mut Known) -> Transaction {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for (index, (family, set, kind)) in SETS.into_iter().enumerate() {
            let (mut going, mut coming) = (Vec::new(), Vec::new());
            let elements = known.entry(index).or_default();
            let keys: Vec<Vec<Part>> = elements.keys().cloned().collect();
            for key in keys {
                if self.below(4) > 0 {
                    continue;
                }
                let value = elements.remove(&key).flatten();
                if self.below(2) == 0 {
                    let anew = self.value(family, kind);
                    elements.insert(key.clone(), anew.clone());
                    coming.push(Element { key: key.clone(), value: anew });
                }
                going.push(Element { key, value });
            }
            for _ in 0..self.below(30) {
                let (key, value) = (self.key(family, set), self.value(family, kind));
                if elements.insert(key.clone(), value.clone()).is_none() {
                    coming.push(Element { key, value });
                }
            }
            let of = |verb, list| Elements { verb, family, table: "t".into(), set: set.into(), list };
            gone.push(of(Verb::Delete, going));
            come.push(of(Verb::Add, coming));
        }
        Transaction { elements: gone.into_iter().chain(come).collect(), ..Transaction::default() }
    }
}

type Known = BTreeMap<usize, BTreeMap<Vec<Part>, Option<Value>>>;

/// A namespace for each way, both with the frame.
struct Lab(Namespaces);

impl Lab {
    async fn new(tag: &str) -> Option<Self> {
        let lab = Self(Namespaces::with_node(tag)?);
        lab.0.add("copy", "copy");
        for place in ["node", "copy"] {
            lab.nft(place).apply(FRAME).await.expect("the frame");
        }
        Some(lab)
    }

    fn nft(&self, place: &str) -> Nft {
        Nft::new(self.0.command(place, "nft"))
    }

    fn direct(&self, place: &str) -> Nft {
        let writer = self.0.within(place, || Writer::open().expect("a socket"));
        Nft::with_writer(vec!["no-such-program".to_owned()], writer)
    }

    fn rules(&self, place: &str) -> String {
        self.0.inside(place, "nft list ruleset")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ways_lead_to_the_same_rules() {
    let Some(lab) = Lab::new("q").await else { return };
    let (text, direct) = (lab.nft("node"), lab.direct("copy"));
    let (mut random, mut known) = (Random::new(), Known::new());
    for step in 0..30 {
        let transaction = random.change(&mut known);
        text.apply(&transaction.script()).await.expect("as text");
        direct.commit(&transaction).await.expect("straight");
        assert_eq!(lab.rules("node"), lab.rules("copy"), "step {step}: {}", transaction.script());
    }
    let count: usize = known.values().map(BTreeMap::len).sum();
    assert!(count > 500, "{count} elements");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_refused_changes_nothing_and_says_what_it_is() {
    let Some(lab) = Lab::new("r").await else { return };
    let (direct, mut random) = (lab.direct("copy"), Random::new());
    let mut known = Known::new();
    direct.commit(&random.change(&mut known)).await.expect("a first change");
    let before = lab.rules("copy");
    let port = |port| Element { key: vec![Part::Port(port)], value: None };
    let go_nowhere = Value::Verdict(Verdict::Goto("nowhere".into()));
    let stray = Element { key: random.key(Family::Ip, "verdicts"), value: Some(go_nowhere) };
    let absent: BTreeSet<u16> =
        (1..=u16::MAX).filter(|port| !known[&1].contains_key(&vec![Part::Port(*port)])).collect();
    let absent = *absent.first().expect("a port");
    for (verb, set, element, want) in [
        (Verb::Delete, "ports", port(absent), format!("delete element ip t ports {{ {absent} }}: No such file")),
        (Verb::Add, "verdicts", stray, "goto nowhere }: No such file".to_owned()),
        (Verb::Add, "missing", port(7), "add element ip t missing { 7 }: No such file".to_owned()),
        (Verb::Add, "one", port(7), "add element ip t one { 7 }: ".to_owned()),
    ] {
        let mut change = random.change(&mut known.clone());
        let place = random.below(u32::try_from(change.elements.len()).expect("few")) as usize;
        let wrong = Elements { verb, family: Family::Ip, table: "t".into(), set: set.into(), list: vec![element] };
        change.elements.insert(place, wrong);
        let refused = direct.commit(&change).await.expect_err("wrong").to_string();
        assert!(refused.contains(&want), "{want}: {refused}");
        assert_eq!(lab.rules("copy"), before, "after {refused}");
    }
    // The socket has nothing left of what was refused.
    direct.commit(&random.change(&mut known)).await.expect("a right one");
    let many = (0..60_000).map(|number| Element { key: vec![Part::Port(number)], value: None });
    let many = many.filter(|element| !known[&1].contains_key(&element.key)).collect();
    let many = Elements { verb: Verb::Add, family: Family::Ip, table: "t".into(), set: "ports".into(), list: many };
    let many = Transaction { elements: vec![many], ..Transaction::default() };
    direct.commit(&many).await.expect("more than one message holds");
    // As many as sets of policies may change at once.
    let key = |number: u32| vec![Part::Address(std::net::Ipv4Addr::from_bits(0x0b00_0000 + number).into())];
    let one = |number| Elements {
        verb: Verb::Add,
        family: Family::Ip,
        table: "t".into(),
        set: "one".into(),
        list: vec![Element { key: key(number), value: None }],
    };
    let messages = Transaction { elements: (0..30_000).map(one).collect(), ..Transaction::default() };
    direct.commit(&messages).await.expect("very many messages");
    assert!(
        direct.commit(&Transaction::of_script("add table ip u\n".into())).await.is_err(),
        "commands need the program"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_changes_are_not_told_and_those_of_others_are() {
    let Some(lab) = Lab::new("w").await else { return };
    let direct = lab.direct("copy");
    let told = lab.0.within("copy", || Watch::socket().expect("a socket"));
    let mut watch = Watch::of(told, &direct).expect("a watch");
    let (mut random, mut known) = (Random::new(), Known::new());
    for _ in 0..100 {
        direct.commit(&random.change(&mut known)).await.expect("a change");
    }
    assert!(tokio::time::timeout(Duration::from_millis(300), watch.next()).await.is_err(), "they are one's own");
    lab.direct("copy").commit(&random.change(&mut known)).await.expect("by another");
    assert!(watch.next().await.expect("told").concerns("t"));
}
