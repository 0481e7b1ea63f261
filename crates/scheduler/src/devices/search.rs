//! The search for devices on one node: claim by claim, request by request, device by device, going back where it leads nowhere.
//!
//! The first solution counts. Claims and slices can be made so that there are more ways than anybody can try: the search ends
//! after [`Limits::steps`] devices were looked at, or at [`Limits::until`].

mod trial;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use ferry_meta::Quantity;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceAttribute};

use super::capacity::{Amounts, suffices};
use super::inventory::{Device, Reach, Slice};
use super::outcome;
use super::pools::{Pool, Standing, gather};
use super::wishes::{Alternative, Claim, Wish};
use super::{DeviceId, Snapshot, Wishes};
use crate::model::labels::Labels;

/// So many devices one claim can get.
const MOST_RESULTS: usize = 32;
/// Devices that were chosen one after the other.
const DEEPEST: usize = 10_000;
/// How often the clock is looked at.
const STEPS_PER_LOOK: usize = 256;
const NO_SUCH_KEY_HINT: &str = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields";

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub steps: usize,
    pub until: Option<Instant>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 500_000, until: None }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Something is wrong with a claim or class: no other node helps.
    Fatal(String),
    /// Something is wrong on this node.
    Here(String),
    /// It takes too long to find out.
    Exhausted,
}

/// What is to be found out.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub wishes: &'a Wishes,
    pub snapshot: &'a Snapshot,
    pub node: &'a str,
    pub labels: &'a Labels,
}

/// Which devices are selected by which requests, whatever the node. To be used with one snapshot and one set of wishes only.
#[derive(Debug, Default)]
pub struct Matched {
    known: HashMap<(usize, usize), bool>,
}

/// A device with where it comes from.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) device: &'a Device,
    pub(super) slice: &'a Slice,
    pool: usize,
}

/// A device that a request gets.
pub(super) struct Chosen<'a> {
    pub(super) candidate: Candidate<'a>,
    pub(super) wish: &'a Wish,
    pub(super) alternative: &'a Alternative,
    /// Where it is shared.
    pub(super) consumed: Option<Amounts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Yes,
    No,
    /// A claim would get more devices than it can.
    TooMany,
}

/// Which device comes next.
#[derive(Clone, Copy)]
struct At {
    claim: usize,
    request: usize,
    /// Which of several, where that is decided.
    alternative: Option<usize>,
    device: usize,
}

/// What to take back when a device was the wrong one.
struct Undo {
    counters: bool,
    constraints: usize,
    marked: bool,
    shared: Option<Amounts>,
}

struct Search<'a> {
    request: Request<'a>,
    claims: &'a [Claim],
    pools: Vec<Pool<'a>>,
    candidates: Vec<Candidate<'a>>,
    /// The devices of requests for all of them, by the number of the alternative.
    everything: HashMap<usize, Vec<Candidate<'a>>>,
    matched: &'a mut Matched,
    limits: Limits,
    steps: usize,
    depth: usize,
    /// Which of the claims are about to get a device.
    using: HashMap<&'a DeviceId, Vec<usize>>,
    /// Devices that are about to be shared: by how many, and how much of them.
    sharing: HashMap<&'a DeviceId, (usize, Amounts)>,
    /// By pool: what is left of its counters, and what was chosen takes.
    available: HashMap<usize, BTreeMap<(&'a str, &'a str), Quantity>>,
    consumed: HashMap<usize, BTreeMap<(&'a str, &'a str), Quantity>>,
    /// By claim and constraint: the values of the devices chosen.
    values: Vec<Vec<Vec<&'a DeviceAttribute>>>,
    chosen: Vec<Vec<Chosen<'a>>>,
}

/// The devices for all claims on that node, in their order; nothing where there are not enough.
pub fn allocate(
    request: Request<'_>,
    matched: &mut Matched,
    limits: Limits,
) -> Result<Option<Vec<AllocationResult>>, Trouble> {
    let claims = &request.wishes.claims;
    let pools = gather(&request.snapshot.inventory, request.node, request.labels);
    let mut search = Search {
        request,
        claims,
        candidates: candidates(&pools),
        pools,
        everything: HashMap::new(),
        matched,
        limits,
        steps: 0,
        depth: 0,
        using: HashMap::new(),
        sharing: HashMap::new(),
        available: HashMap::new(),
        consumed: HashMap::new(),
        values: claims.iter().map(|claim| claim.constraints.iter().map(|_| Vec::new()).collect()).collect(),
        chosen: claims.iter().map(|_| Vec::new()).collect(),
    };
    search.prepare()?;
    let first = At { claim: 0, request: 0, alternative: None, device: 0 };
    if search.next(first, 0)? != Found::Yes {
        return match search.pools.iter().any(|pool| pool.standing == Standing::Invalid) {
            true => Err(Trouble::Here("invalid resource pools were encountered".into())),
            false => Ok(None),
        };
    }
    let of = |(claim, chosen): (&Claim, &Vec<Chosen<'_>>)| outcome::of_claim(claim, chosen, request.node);
    Ok(Some(claims.iter().zip(&search.chosen).map(of).collect()))
}

fn candidates<'a>(pools: &[Pool<'a>]) -> Vec<Candidate<'a>> {
    let mut candidates = Vec::new();
    for (number, pool) in pools.iter().enumerate().filter(|(_, pool)| pool.standing == Standing::Sound) {
        for slice in &pool.slices {
            candidates.extend(slice.devices.iter().map(|device| Candidate { device, slice, pool: number }));
        }
    }
    candidates
}

impl<'a> Search<'a> {
    /// Finds out how much "all" is, and whether the claims can hold what they ask for.
    fn prepare(&mut self) -> Result<(), Trouble> {
        for claim in self.claims {
            let mut fewest = 0_usize;
            for wish in &claim.requests {
                let mut of_wish = usize::MAX;
                for alternative in &wish.alternatives {
                    if alternative.all {
                        let all = self.all(claim, alternative)?;
                        self.everything.insert(alternative.number, all);
                    }
                    of_wish = of_wish.min(self.count(alternative));
                }
                fewest = fewest.saturating_add(of_wish);
            }
            if fewest > MOST_RESULTS {
                return Err(Trouble::Fatal(format!(
                    "claim {}: number of requested devices {fewest} exceeds the claim limit of {MOST_RESULTS}",
                    claim.shown()
                )));
            }
        }
        Ok(())
    }

    fn count(&self, alternative: &Alternative) -> usize {
        match alternative.all {
            true => self.everything.get(&alternative.number).map_or(0, Vec::len),
            false => alternative.count,
        }
    }

    fn all(&mut self, claim: &Claim, alternative: &Alternative) -> Result<Vec<Candidate<'a>>, Trouble> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.standing != Standing::Sound) {
            let state = if pool.standing == Standing::Incomplete { "being updated" } else { "invalid" };
            return Err(Trouble::Fatal(format!(
                "claim {}, request {}: asks for all devices, but resource pool {}/{} is currently {state}",
                claim.shown(),
                alternative.name,
                pool.id.driver,
                pool.id.name
            )));
        }
        let mut all = Vec::new();
        for index in 0..self.candidates.len() {
            let candidate = self.candidates[index];
            // What others have of it is looked at later: one that is used up makes the request fail.
            if self.selects(alternative, candidate)?
                && self.has_capacity(claim, alternative, candidate.device, [None, None])?
            {
                all.push(candidate);
            }
        }
        Ok(all)
    }

    fn step(&mut self) -> Result<(), Trouble> {
        self.steps += 1;
        let late = || self.limits.until.is_some_and(|until| Instant::now() > until);
        match self.steps > self.limits.steps || (self.steps.is_multiple_of(STEPS_PER_LOOK) && late()) {
            true => Err(Trouble::Exhausted),
            false => Ok(()),
        }
    }

    /// Claims can ask for more devices than fit on the stack one below the other.
    fn next(&mut self, at: At, start: usize) -> Result<Found, Trouble> {
        self.step()?;
        if self.depth >= DEEPEST {
            return Err(Trouble::Exhausted);
        }
        self.depth += 1;
        let found = stacker::maybe_grow(64 << 10, 1 << 20, || self.from(at, start));
        self.depth -= 1;
        found
    }

    /// Everything from this device on. `start` is the first candidate to try: the order of devices within a request does not
    /// matter, so that only ascending ones are tried.
    fn from(&mut self, at: At, start: usize) -> Result<Found, Trouble> {
        let claims = self.claims;
        let Some(claim) = claims.get(at.claim) else { return Ok(Found::Yes) };
        let Some(wish) = claim.requests.get(at.request) else {
            let next = At { claim: at.claim + 1, request: 0, alternative: None, device: 0 };
            // A claim before it may leave another of several possibilities to this one.
            return Ok(match self.next(next, 0)? {
                Found::TooMany => Found::No,
                found => found,
            });
        };
        let Some(number) = at.alternative else { return self.first_of(at, wish) };
        let Some(alternative) = wish.alternatives.get(number) else { return Ok(Found::No) };
        let count = self.count(alternative);
        if alternative.all && count == 0 {
            return Ok(Found::No);
        }
        if at.device >= count {
            return self.next(At { request: at.request + 1, alternative: None, device: 0, ..at }, 0);
        }
        if self.chosen[at.claim].len() + count - at.device > MOST_RESULTS {
            return Ok(Found::TooMany);
        }
        let next = At { device: at.device + 1, ..at };
        if alternative.all {
            let wanted = self.everything.get(&alternative.number).and_then(|all| all.get(at.device)).copied();
            let Some(candidate) = wanted else { return Ok(Found::No) };
            let Some(undo) = self.take(at, wish, alternative, candidate, true)? else { return Ok(Found::No) };
            let found = self.next(next, 0)?;
            if found != Found::Yes {
                self.give_back(at, wish, alternative, candidate, undo);
            }
            return Ok(found);
        }
        for index in start..self.candidates.len() {
            self.step()?;
            let candidate = self.candidates[index];
            if self.is_used(at.claim, alternative, candidate.device)
                || !self.selects(alternative, candidate)?
                || !self.has_room(claim, alternative, candidate.device)?
            {
                continue;
            }
            let Some(undo) = self.take(at, wish, alternative, candidate, false)? else { continue };
            match self.next(next, index + 1)? {
                Found::Yes => return Ok(Found::Yes),
                found => {
                    self.give_back(at, wish, alternative, candidate, undo);
                    if found == Found::TooMany {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(Found::No)
    }

    fn first_of(&mut self, at: At, wish: &Wish) -> Result<Found, Trouble> {
        let mut none = Found::TooMany;
        for number in 0..wish.alternatives.len() {
            match self.next(At { alternative: Some(number), ..at }, 0)? {
                Found::Yes => return Ok(Found::Yes),
                Found::No => none = Found::No,
                Found::TooMany => {}
            }
        }
        Ok(none)
    }

    /// Whether the device is out of reach for the request because it is in use.
    fn is_used(&self, claim: usize, alternative: &Alternative, device: &Device) -> bool {
        let users = self.using.get(&device.id);
        match alternative.admin {
            true => users.is_some_and(|users| users.contains(&claim)),
            false => self.request.snapshot.taken.alone(&device.id) || users.is_some_and(|users| !users.is_empty()),
        }
    }

    /// Whether the class and the request select the device, and the node may use it.
    fn selects(&mut self, alternative: &Alternative, candidate: Candidate<'a>) -> Result<bool, Trouble> {
        let Candidate { device, slice, .. } = candidate;
        let here = || {
            !matches!(slice.reach, Reach::PerDevice) || device.reach.includes(self.request.node, self.request.labels)
        };
        let key = (alternative.number, std::ptr::from_ref(device).addr());
        if let Some(known) = self.matched.known.get(&key) {
            return Ok(*known && here());
        }
        if self.limits.until.is_some_and(|until| Instant::now() > until) {
            return Err(Trouble::Exhausted);
        }
        let selected = selected(alternative, device)?;
        self.matched.known.insert(key, selected);
        Ok(selected && here())
    }

    fn has_room(&self, claim: &Claim, alternative: &Alternative, device: &Device) -> Result<bool, Trouble> {
        let others = match device.multiple {
            true => [
                self.request.snapshot.taken.consumed(&device.id),
                self.sharing.get(&device.id).map(|(_, amounts)| amounts),
            ],
            false => [None, None],
        };
        self.has_capacity(claim, alternative, device, others)
    }

    fn has_capacity(
        &self,
        claim: &Claim,
        alternative: &Alternative,
        device: &Device,
        others: [Option<&Amounts>; 2],
    ) -> Result<bool, Trouble> {
        suffices(&device.capacity, alternative.capacities.as_ref(), others).map_err(|error| {
            let (claim, request) = (claim.shown(), &alternative.name);
            Trouble::Fatal(format!(
                "claim {claim}, request {request}: checking capacity for device {}: {error}",
                device.id
            ))
        })
    }
}

fn selected(alternative: &Alternative, device: &Device) -> Result<bool, Trouble> {
    for written in &alternative.selectors {
        let place = &written.place;
        let selector = match &*written.selector {
            Ok(selector) => selector,
            Err(error) => return Err(Trouble::Fatal(format!("{place}: CEL compile error: {error}"))),
        };
        let failed = |error: &dyn std::fmt::Display, hint: &str| {
            Err(Trouble::Fatal(format!("{place} on device {}: CEL runtime error: {error}{hint}", device.id)))
        };
        match device.seen().as_ref().map(|seen| selector.matches(seen)) {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Ok(false),
            Ok(Err(error @ ferry_cel::Error::NoSuchKey(_))) => return failed(&error, NO_SUCH_KEY_HINT),
            Ok(Err(error)) => return failed(&error, ""),
            Err(error) => return failed(error, ""),
        }
    }
    Ok(true)
}
