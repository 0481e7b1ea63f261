//! Priority and fairness: which requests run now, which wait, which are refused.
//!
//! A FlowSchema sorts requests into flows and names their priority level; a PriorityLevelConfiguration gives a level its
//! share of the server's seats, and queues that flows are dealt to, so that one flow that floods the server meets the
//! others in few queues. Reads cluster state only through `meta::ObjectReader`.
//!
//! Where to look: which schema takes a request → `classify.rs`; seats and queues → `seats.rs`; what is wrong with a
//! schema → `conditions.rs`; what is counted → `tally.rs`.

mod classify;
mod conditions;
mod seats;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ferry_meta::{GroupResource, ObjectReader, UserInfo};

use classify::Schemas;
use seats::Seats;
use tally::{Asking, Running, Tallies};

pub use classify::Ask;
pub use conditions::{LEVELS, SCHEMAS, wanted_conditions};
pub use seats::{Counts, LevelNow, Limits, Seat};
pub use tally::{FlowNow, Refusal};

/// A request waits no longer than this for a seat: a quarter of what a request may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// How the server limits what runs at once.
pub enum FlowControl {
    /// By FlowSchemas and PriorityLevelConfigurations.
    Fair(Fairness),
    /// By number alone: so many reads, so many writes. `system:masters` are not counted.
    InFlight { reading: Count, mutating: Count },
}

/// Requests of one kind that run now, and how many may. 0 means any number.
pub struct Count {
    most: usize,
    now: Arc<AtomicUsize>,
}

/// One request that runs; counted until it is dropped.
pub struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Count {
    pub fn new(most: usize) -> Self {
        Self { most, now: Arc::default() }
    }

    fn enter(&self) -> Option<Slot> {
        let before = self.now.fetch_add(1, Ordering::Relaxed);
        let slot = Slot(self.now.clone());
        (self.most == 0 || before < self.most).then_some(slot)
    }
}

/// Who sorted a request where: the UIDs that answers carry as headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub schema_uid: Arc<str>,
    pub level_uid: Arc<str>,
}

/// What lets a request run. Its seats are free again when it is dropped.
pub struct Permit {
    /// None where requests are only counted.
    pub flow: Option<Flow>,
    _seat: Option<Seat>,
    _slot: Option<Slot>,
    _running: Option<Running>,
}

/// 429: the server is too busy for this request.
#[derive(Debug)]
pub struct Busy {
    pub flow: Option<Flow>,
    pub retry_after_seconds: u32,
}

impl FlowControl {
    /// Waits for its turn where the request's level has queues.
    pub async fn enter(&self, ask: &Ask<'_>) -> Result<Permit, Busy> {
        match self {
            Self::Fair(fairness) => fairness.enter(ask).await,
            Self::InFlight { reading, mutating } => {
                if ask.user.in_group(ferry_meta::user::MASTERS) {
                    return Ok(Permit { flow: None, _seat: None, _slot: None, _running: None });
                }
                let reads = matches!(ask.verb, "get" | "list" | "watch");
                match (if reads { reading } else { mutating }).enter() {
                    Some(slot) => Ok(Permit { flow: None, _seat: None, _slot: Some(slot), _running: None }),
                    None => Err(Busy { flow: None, retry_after_seconds: 1 }),
                }
            }
        }
    }
}

pub struct Fairness {
    reader: Arc<dyn ObjectReader>,
    schemas: ArcSwap<Schemas>,
    seats: Arc<Seats>,
    tallies: Tallies,
    patience: Duration,
}

impl Fairness {
    /// `seats` is what the server has in all: as many requests of usual size run at once.
    pub fn new(reader: Arc<dyn ObjectReader>, seats: usize) -> Self {
        let seats = Arc::new(Seats::new(seats));
        let tallies = Tallies::default();
        let schemas = ArcSwap::from_pointee(Schemas::read(&*reader, &seats, &tallies));
        Self { reader, schemas, seats, tallies, patience: PATIENCE }
    }

    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The schemas as they are now: a change is seen by the next request.
    fn current(&self) -> arc_swap::Guard<Arc<Schemas>> {
        let schemas = self.schemas.load();
        if schemas.version == classify::version(&*self.reader) {
            return schemas;
        }
        self.schemas.store(Arc::new(Schemas::read(&*self.reader, &self.seats, &self.tallies)));
        self.schemas.load()
    }

    async fn enter(&self, ask: &Ask<'_>) -> Result<Permit, Busy> {
        let (flow, level, distinguisher, asking) = {
            let schemas = self.current();
            let schema = schemas.find(ask);
            let flow = Flow { schema_uid: schema.uid.clone(), level_uid: schema.level_uid.clone() };
            (flow, schema.level, schema.distinguisher(ask), Asking::new(schema.tally.clone()))
        };
        match self.seats.enter(level, &distinguisher, ask.width, self.patience).await {
            Ok(seat) => {
                let running = asking.granted(seat.width());
                Ok(Permit { flow: Some(flow), _seat: Some(seat), _slot: None, _running: Some(running) })
            }
            Err(why) => {
                asking.refused(why);
                Err(Busy { flow: Some(flow), retry_after_seconds: 1 })
            }
        }
    }

    /// Each level as it is now.
    pub fn now(&self) -> Vec<LevelNow> {
        drop(self.current());
        self.seats.now()
    }

    /// For the metrics: the requests of each schema.
    pub fn flows(&self) -> Vec<FlowNow> {
        drop(self.current());
        self.tallies.now()
    }

    /// For the metrics: each level with its seats in use and its requests that wait.
    pub fn levels(&self) -> Vec<(String, usize, usize)> {
        self.seats.levels()
    }
}

/// What a request asks for, where only the reader's resources matter.
pub(crate) fn group_resource(resource: &str) -> GroupResource {
    GroupResource::new("flowcontrol.apiserver.k8s.io", resource)
}

/// Who is in which group, without regard to case or order.
pub(crate) fn in_group(user: &UserInfo, group: &str) -> bool {
    group == "*" || user.in_group(group)
}
