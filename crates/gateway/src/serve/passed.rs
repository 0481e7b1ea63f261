//! Requests that come back: a Service may lead to the gateway itself, and each turn would make a request, its retries and its
//! mirrors of one request. Every gateway says in a header that it was there, after all that routes say of headers.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::fields::Fields;

pub const HEADER: HeaderName = HeaderName::from_static("x-ferry-passed");
/// So often a request may come through one gateway: one Gateway may lead to another.
const MOST: usize = 4;
/// And through all gateways.
const MOST_OF_ALL: usize = 32;

/// Who this gateway is.
pub struct Passages {
    token: String,
    first: HeaderValue,
}

impl Default for Passages {
    fn default() -> Self {
        let token = format!("{:016x}", rand::random::<u64>());
        let first = HeaderValue::from_str(&token).unwrap_or(HeaderValue::from_static("-"));
        Self { token, first }
    }
}

/// A request that may go on.
pub struct Passed {
    next: HeaderValue,
    /// It was here before: it is neither copied nor sent again and again.
    pub again: bool,
}

impl Passages {
    /// None: it goes round.
    pub fn read(&self, headers: &HeaderMap, fields: Fields) -> Option<Passed> {
        if !fields.has(Fields::PASSED) {
            return Some(Passed { next: self.first.clone(), again: false });
        }
        let (mut all, mut own) = (Vec::new(), 0);
        for line in headers.get_all(HEADER) {
            for token in line.to_str().ok()?.split(',').map(str::trim) {
                own += usize::from(token == self.token);
                all.push(token);
            }
            if all.len() >= MOST_OF_ALL || own >= MOST {
                return None;
            }
        }
        all.push(&self.token);
        Some(Passed { next: HeaderValue::try_from(all.join(", ")).ok()?, again: own > 0 })
    }
}

impl Passed {
    pub fn write(self, headers: &mut HeaderMap) {
        headers.insert(HEADER, self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_goes_round_is_stopped() {
        let (one, other) = (Passages::default(), Passages::default());
        let mut headers = HeaderMap::new();
        for turn in 0..MOST {
            let passed = one.read(&headers, Fields::of(&headers)).expect("it may pass");
            assert_eq!(passed.again, turn > 0);
            passed.write(&mut headers);
            let passed = other.read(&headers, Fields::of(&headers)).expect("it may pass");
            assert_eq!(passed.again, turn > 0);
            passed.write(&mut headers);
        }
        assert!(
            one.read(&headers, Fields::of(&headers)).is_none() && other.read(&headers, Fields::of(&headers)).is_none()
        );
        // A gateway that is new by now knows none of them, and still there is an end.
        let turns = (0..100).take_while(|_| match Passages::default().read(&headers, Fields::of(&headers)) {
            Some(passed) => {
                passed.write(&mut headers);
                true
            }
            None => false,
        });
        assert_eq!(turns.count(), MOST_OF_ALL - 2 * MOST);
    }
}
