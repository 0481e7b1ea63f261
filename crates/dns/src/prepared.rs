//! Answers for names of the cluster as they were last encoded: the same bytes asked again get the same bytes back.
//!
//! Only while no object and no setting has changed since, which a number tells.

use std::collections::HashMap;
use std::sync::Arc;

use hickory_proto::rr::RecordType;
use parking_lot::RwLock;

use crate::metrics::Counters;

/// Each is at most a question and an answer, below two kilobytes.
const MOST: usize = 4096;
const HEADER: usize = 12;
const LONGEST_QUESTION: usize = 512;

/// What an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) objects: u64,
    pub(crate) settings: u64,
}

#[derive(Debug)]
pub(crate) struct Prepared {
    version: Version,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) kind: RecordType,
    pub(crate) counters: Arc<Counters>,
}

#[derive(Debug, Default)]
pub(crate) struct Answers(RwLock<HashMap<Box<[u8]>, Arc<Prepared>>>);

/// Everything of a question but its id.
fn key(question: &[u8]) -> Option<&[u8]> {
    (question.len() > HEADER && question.len() <= LONGEST_QUESTION).then(|| &question[2..])
}

impl Answers {
    pub(crate) fn get(&self, question: &[u8], version: Version) -> Option<Arc<Prepared>> {
        let found = self.0.read().get(key(question)?)?.clone();
        (found.version == version).then_some(found)
    }

    pub(crate) fn put(
        &self,
        question: &[u8],
        version: Version,
        bytes: &[u8],
        kind: RecordType,
        counters: Arc<Counters>,
    ) {
        let Some(key) = key(question) else { return };
        let mut answers = self.0.write();
        // The names that are in use come back by themselves.
        if answers.len() >= MOST && !answers.contains_key(key) {
            answers.clear();
        }
        answers.insert(key.into(), Arc::new(Prepared { version, bytes: bytes.into(), kind, counters }));
    }
}
