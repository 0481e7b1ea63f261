//! How often a client may ask. One number for each client of each limit: when the last of its requests would have been due.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::table::RateLimit;

/// Clients that are remembered. Those beyond share one place for each limit.
const MOST: usize = 100_000;
/// While there is no room, it is looked for so often: that is to look at all of them.
const LOOK: u64 = 1_000_000_000;

type Key = (Arc<str>, IpAddr);

pub struct Rates {
    start: Instant,
    due: Mutex<Due>,
}

#[derive(Default)]
struct Due {
    all: HashMap<Key, u64>,
    looked: Option<u64>,
}

impl Default for Rates {
    fn default() -> Self {
        Self { start: Instant::now(), due: Mutex::default() }
    }
}

impl Rates {
    /// Takes the request in, or says after which time to try again.
    pub fn admit(&self, limit: &RateLimit, client: IpAddr) -> Result<(), Duration> {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.admit_at(limit, client, now)
    }

    fn admit_at(&self, limit: &RateLimit, client: IpAddr, now: u64) -> Result<(), Duration> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let step = nanos(limit.interval);
        let room = step.saturating_mul(u64::from(limit.burst));
        let Due { all: due, looked } = &mut *self.due.lock();
        let mut key = (limit.zone.clone(), network(client));
        if due.len() >= MOST && !due.contains_key(&key) {
            if looked.is_none_or(|looked| now.saturating_sub(looked) >= LOOK) {
                *looked = Some(now);
                due.retain(|_, due| *due > now);
            }
            if due.len() >= MOST {
                key.1 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        let known = due.entry(key).or_insert(now);
        let next = (*known).max(now);
        if next - now > room {
            return Err(Duration::from_nanos(next - now - room));
        }
        *known = next.saturating_add(step);
        Ok(())
    }
}

/// A client of IPv6 has a network of its own, not one address.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) & !(u128::from(u64::MAX)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(burst: u32) -> RateLimit {
        RateLimit { zone: "z".into(), interval: Duration::from_millis(100), burst, exempt: Arc::default() }
    }

    #[test]
    fn clients_have_their_share_and_no_more() {
        let (rates, limit) = (Rates::default(), limit(2));
        let (one, other): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let ms = 1_000_000;
        for (time, client, want) in [
            (0, one, true),
            (0, one, true),
            (0, one, true),
            (0, one, false),
            (0, other, true),
            (99 * ms, one, false),
            (100 * ms, one, true),
            (100 * ms, one, false),
            (1000 * ms, one, true),
            (1000 * ms, one, true),
            (1000 * ms, one, true),
            (1000 * ms, one, false),
        ] {
            assert_eq!(rates.admit_at(&limit, client, time).is_ok(), want, "{client} at {time}");
        }
    }

    #[test]
    fn a_network_of_addresses_is_one_client() {
        let (rates, limit) = (Rates::default(), limit(0));
        assert!(rates.admit_at(&limit, "2001:db8::1".parse().unwrap(), 0).is_ok());
        assert!(rates.admit_at(&limit, "2001:db8::2".parse().unwrap(), 0).is_err());
        assert!(rates.admit_at(&limit, "2001:db8:0:1::1".parse().unwrap(), 0).is_ok());
    }

    #[test]
    fn many_clients_take_a_bounded_place() {
        let (rates, limit) = (Rates::default(), limit(1));
        for number in 0..u32::try_from(MOST).unwrap() + 1000 {
            let _ = rates.admit_at(&limit, IpAddr::V4(number.into()), 0);
        }
        assert!(rates.due.lock().all.len() <= MOST + 1);
        // While all are there still, nobody looks at each of them again and again.
        let began = Instant::now();
        for number in 0..10_000_u32 {
            let _ = rates.admit_at(&limit, IpAddr::V4((200 << 24 | number).into()), 1);
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        // Those who came last share: they are limited together, and nobody else is.
        assert!(rates.admit_at(&limit, [200, 0, 0, 1].into(), 0).is_err());
        assert!(rates.admit_at(&limit, IpAddr::V4(5.into()), 0).is_ok());
    }
}
