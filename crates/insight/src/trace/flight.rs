//! What the server's recorder tells of one object.

use std::collections::BTreeMap;

use ferry_meta::{object, time};
use jiff::Timestamp;
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub writes: Vec<Write>,
}

#[derive(Clone, Debug)]
pub(super) struct Write {
    pub revision: u64,
    pub received: Timestamp,
    /// When the watchers had it.
    pub handed: Timestamp,
    pub user: String,
    pub agent: String,
    pub verb: String,
    pub subresource: String,
    pub uid: String,
    /// Microseconds.
    pub stages: BTreeMap<String, i64>,
    pub webhooks: Vec<(String, i64)>,
    pub changes: Vec<Value>,
    /// Whether it is known what was changed.
    pub complete: bool,
    pub created: bool,
    pub removed: bool,
}

impl Flight {
    /// `uid` tells the object from others that had its name before.
    pub(super) fn read(document: &Value, uid: &str) -> Self {
        let all: Vec<Write> = object::items(document, "/writes").iter().filter_map(write).collect();
        // What stands before the last removal was of another one.
        let first = all.iter().rposition(|write| write.removed && !uid.is_empty()).map_or(0, |at| at + 1);
        let is_of_it = |write: &Write| uid.is_empty() || write.uid.is_empty() || write.uid == uid;
        Self { writes: all.into_iter().skip(first).filter(is_of_it).collect() }
    }

    /// The write that brought a change.
    pub(super) fn change(&self, is: impl Fn(&Value) -> bool) -> Option<(&Write, &Value)> {
        self.writes
            .iter()
            .find_map(|write| write.changes.iter().find(|change| is(change)).map(|change| (write, change)))
    }

    /// The write that made the object, where it is still known.
    pub(super) fn creation(&self) -> Option<&Write> {
        self.writes.first().filter(|write| write.creates())
    }
}

impl Write {
    pub(super) fn creates(&self) -> bool {
        // An apply makes objects, too.
        self.created || self.verb == "create" && self.subresource.is_empty()
    }

    /// A write of what is wanted, not of how it stands.
    pub(super) fn is_wish(&self) -> bool {
        let of_spec = self.changes.iter().any(|change| change["what"] == "spec");
        self.subresource != "status" && !self.removed && (self.creates() || of_spec || self.subresource == "scale")
    }

    pub(super) fn has(&self, what: &str) -> bool {
        self.changes.iter().any(|change| change["what"] == what)
    }
}

fn write(item: &Value) -> Option<Write> {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let received = time::parse(item["received"].as_str()?)?;
    Some(Write {
        revision: item["revision"].as_u64().unwrap_or(0),
        received,
        handed: item["handed"].as_str().and_then(time::parse).unwrap_or(received),
        user: text("user"),
        agent: text("agent"),
        verb: text("verb"),
        subresource: text("subresource"),
        uid: text("uid"),
        stages: object::map(item, "/stages")
            .iter()
            .map(|(name, micros)| (name.clone(), micros.as_i64().unwrap_or(0)))
            .collect(),
        webhooks: object::items(item, "/webhooks")
            .iter()
            .map(|call| (object::text(call, "/name").to_owned(), call["took"].as_i64().unwrap_or(0)))
            .collect(),
        changes: object::items(item, "/changes").to_vec(),
        complete: item["complete"].as_bool().unwrap_or(false),
        created: item["created"].as_bool().unwrap_or(false),
        removed: item["removed"].as_bool().unwrap_or(false),
    })
}
