//! What a FlowSchema's status says: whether the level it names is there.

use ferry_meta::object::{items, name, text};
use ferry_meta::{ObjectReader, time};
use serde_json::{Value, json};

use crate::group_resource;

pub const SCHEMAS: &str = "flowschemas";
pub const LEVELS: &str = "prioritylevelconfigurations";

/// The schemas whose `Dangling` condition is not what it should be, each with the one it should have.
pub fn wanted_conditions(reader: &dyn ObjectReader) -> Vec<(String, Value)> {
    let levels = reader.list(&group_resource(LEVELS), "");
    let mut wrong = Vec::new();
    for schema in reader.list(&group_resource(SCHEMAS), "") {
        let level = text(&schema, "/spec/priorityLevelConfiguration/name");
        let found = levels.iter().any(|known| name(known) == level);
        let (status, reason, end) = if found {
            ("False", "Found", "and it exists")
        } else {
            ("True", "NotFound", "but there is no such object")
        };
        let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}");
        let have = items(&schema, "/status/conditions").iter().find(|c| text(c, "/type") == "Dangling");
        let same = have.is_some_and(|have| {
            (text(have, "/status"), text(have, "/reason"), text(have, "/message")) == (status, reason, &*message)
        });
        if !same {
            let since = match have.filter(|have| text(have, "/status") == status) {
                Some(have) => text(have, "/lastTransitionTime").to_owned(),
                None => time::time(time::now()),
            };
            let condition = json!({
                "type": "Dangling", "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
            });
            wrong.push((name(&schema).to_owned(), condition));
        }
    }
    wrong
}
