//! ServiceAccounts.

use ferry_meta::object;
use serde_json::Value;

use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct ServiceAccount(pub Plain);

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

impl Strategy for ServiceAccount {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let enforces = |account: &Value| object::annotations(account).contains_key(MOUNTABLE);
        match enforces(object) && !old.is_some_and(enforces) {
            true => vec![format!(
                "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )],
            false => Vec::new(),
        }
    }
}
