use hickory_proto::rr::rdata::{A, SOA};

use super::*;

fn cache(text: &str) -> Cache {
    let block = crate::corefile::parse(&format!(". {{\n{text}\n}}\n")).expect("a Corefile").remove(0);
    Cache::read(&block.directives[0], &[Name::root()]).expect("a cache")
}

fn key(number: usize) -> Key {
    let name = Name::from_ascii(format!("n{number}.example.")).expect("a name");
    Key { name, kind: RecordType::A, dnssec_ok: false, checking_disabled: false }
}

fn answer(ttl: u32) -> Reply {
    let name = Name::from_ascii("x.example.").expect("a name");
    let record = Record::from_rdata(name, ttl, RData::A(A([192, 0, 2, 1].into())));
    Reply { answers: vec![record], ..Reply::default() }
}

fn denial(ttl: u32, minimum: u32) -> Reply {
    let name = Name::from_ascii("example.").expect("a name");
    let soa = SOA::new(name.clone(), name.clone(), 1, 2, 3, 4, minimum);
    let authorities = vec![Record::from_rdata(name, ttl, RData::SOA(soa))];
    Reply { code: ResponseCode::NXDomain, authorities, ..Reply::default() }
}

/// What is told after so many seconds: the time left of the first record, `~` before it where upstreams are asked again.
fn told(cache: &Cache, key: &Key, at: Instant) -> String {
    match cache.get(key, at, true) {
        Found::Nothing => "nothing".into(),
        Found::Answer { mut reply, refresh } => {
            let ttl = records(&mut reply).next().map_or(0, |record| record.ttl);
            format!("{}{ttl}", if refresh { "~" } else { "" })
        }
    }
}

#[test]
fn answers_are_kept_for_as_long_as_they_say() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    for (settings, reply, seconds, expected) in [
        ("cache", answer(60), 0, "60"),
        ("cache", answer(60), 59, "1"),
        ("cache", answer(60), 60, "nothing"),
        ("cache 30", answer(60), 10, "20"),
        ("cache", answer(0), 0, "nothing"),
        ("cache {\nsuccess 100 3600 5\n}", answer(0), 2, "3"),
        ("cache {\nkeepttl\n}", answer(60), 30, "60"),
        ("cache {\ndisable success\n}", answer(60), 0, "nothing"),
        ("cache", denial(300, 20), 5, "15"),
        ("cache", denial(10, 20), 9, "1"),
        ("cache", denial(300, 20), 20, "nothing"),
        ("cache", Reply::of(ResponseCode::NXDomain), 0, "nothing"),
        ("cache", Reply::of(ResponseCode::Refused), 0, "nothing"),
        ("cache", Reply::of(ResponseCode::ServFail), 4, "0"),
        ("cache", Reply::of(ResponseCode::ServFail), 5, "nothing"),
        ("cache {\nservfail 0s\n}", Reply::of(ResponseCode::ServFail), 0, "nothing"),
        ("cache {\nserve_stale 1h\n}", answer(60), 61, "~0"),
        ("cache {\nserve_stale 1h\n}", answer(60), 3661, "nothing"),
        ("cache {\nserve_stale 1h verify\n}", answer(60), 61, "nothing"),
    ] {
        let cache = cache(settings);
        cache.put(key(1), reply, 100, start);
        assert_eq!(told(&cache, &key(1), after(seconds)), expected, "{settings} after {seconds}");
    }
    let cache = cache("cache {\nserve_stale 1h verify\n}");
    cache.put(key(1), answer(60), 100, start);
    assert!(cache.last_resort(&key(1), after(100)).is_some(), "no upstream answers");
    assert!(cache.last_resort(&key(1), after(10_000)).is_none());
}

#[test]
fn what_is_asked_often_is_fetched_before_its_end() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let cache = cache("cache {\nprefetch 3 1m 10%\n}");
    cache.put(key(1), answer(100), 100, start);
    assert_eq!(told(&cache, &key(1), after(50)), "50");
    assert_eq!(told(&cache, &key(1), after(95)), "~5");
    assert_eq!(told(&cache, &key(1), after(96)), "4", "one asks, not all");
    cache.refreshed(&key(1));
    assert_eq!(told(&cache, &key(1), after(97)), "~3", "that one failed");
    cache.put(key(1), answer(100), 100, after(98));
    assert_eq!(told(&cache, &key(1), after(99)), "99");
    cache.put(key(2), answer(100), 100, start);
    assert_eq!(told(&cache, &key(2), after(95)), "5", "nobody asks for it often");
}

#[test]
fn a_cache_stays_within_its_bounds() {
    let now = Instant::now();
    let mut cache = cache("cache {\nsuccess 100\ndenial 50\n}");
    cache.most_bytes = 10_000;
    cache.put(key(0), answer(60), 10, now);
    for number in 1..1000 {
        cache.put(key(number), answer(60), 10, now);
        cache.put(key(10_000 + number), denial(60, 60), 10, now);
        assert_ne!(told(&cache, &key(0), now), "nothing", "it is in use");
        let figures = cache.figures();
        assert!(figures.successes <= 100 && figures.denials <= 50, "{figures:?}");
    }
    for number in 2000..2020 {
        cache.put(key(number), answer(60), 4000, now);
        assert!(cache.figures().bytes <= 10_000);
    }
    let state = cache.state.lock();
    assert!(state.order.len() <= state.entries.len() + 1, "what is gone leaves nothing behind");
    assert_eq!(state.entries.values().map(|entry| entry.size).sum::<usize>(), state.bytes);
}
