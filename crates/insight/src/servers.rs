//! Asks the API server how it is: which of its checks fail, and why.

use serde_json::{Value, json};

use crate::cluster::{Cluster, Error};

/// The failing checks of `/readyz`, each with its `name` and `why`.
pub(crate) const CHECKS: &str = "failing checks of the API server";

/// So many checks are asked for their reason.
const ASKED: usize = 4;

pub(crate) async fn failing(cluster: &Cluster) -> Vec<Value> {
    // Who may not ask does not know; that nobody answers, others tell.
    let Err(Error::Refused { code: 500.., message, .. }) = cluster.text("/readyz").await else { return Vec::new() };
    let mut found = Vec::new();
    for name in names(&message).into_iter().take(ASKED) {
        // All together withhold their reasons, each by itself tells it.
        let why = match cluster.text(&format!("/readyz/{name}")).await {
            Ok(_) => continue,
            Err(Error::Refused { message, .. }) => reason(&message).to_owned(),
            Err(error) => error.to_string(),
        };
        found.push(json!({ "name": name, "why": why }));
    }
    found
}

/// `[-]etcd failed: reason withheld` → `etcd`
fn names(answer: &str) -> Vec<&str> {
    answer.lines().filter_map(|line| line.trim_matches('"').strip_prefix("[-]")?.split(' ').next()).collect()
}

fn reason(answer: &str) -> &str {
    let text = answer.trim().trim_matches('"');
    text.strip_prefix("internal server error: ").unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::{names, reason};

    #[test]
    fn failing_checks_are_told_from_the_others() {
        let answer = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n";
        assert_eq!(names(answer), ["etcd", "etcd-readiness"]);
        assert_eq!(names("ok"), Vec::<&str>::new());
        assert_eq!(reason("internal server error: etcd has an alarm: NOSPACE\n"), "etcd has an alarm: NOSPACE");
    }
}
