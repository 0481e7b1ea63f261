//! What a DeviceTaintRule tells of its work: the condition EvictionInProgress.

/// What was counted for one rule.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) pods: usize,
    pub(super) namespaces: usize,
    pub(super) published: usize,
    pub(super) allocated: usize,
    /// Evicted since the controller started.
    pub(super) evicted: usize,
}

#[derive(Debug, PartialEq)]
pub(super) struct Words {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn number(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

pub(super) fn words(effect: &str, counts: Counts) -> Words {
    let namespaces = number(counts.namespaces, "namespace", "different namespaces");
    let (status, reason, mut message) = match effect {
        "NoExecute" if counts.pods > 0 => {
            let pods = number(counts.pods, "pod needs to be evicted", "pods need to be evicted");
            ("True", "PodsPendingEviction", format!("{pods} in {namespaces}."))
        }
        "NoExecute" if counts.evicted > 0 => ("False", "Completed", String::new()),
        "NoExecute" => ("False", "NotStarted", String::new()),
        "None" => {
            let published = number(counts.published, "published device selected.", "published devices selected.");
            let allocated = number(counts.allocated, "allocated device selected.", "allocated devices selected.");
            let pods = number(counts.pods, "pod would be evicted", "pods would be evicted");
            let message = format!(
                "{published} {allocated} {pods} in {namespaces} if the effect was NoExecute. This information will not be \
                 updated again. Recreate the DeviceTaintRule to trigger an update."
            );
            ("False", "NoEffect", message)
        }
        _ => ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.".to_owned()),
    };
    if counts.evicted > 0 {
        if !message.is_empty() {
            message.push(' ');
        }
        message += &number(counts.evicted, "pod", "pods");
        message += " evicted since starting the controller.";
    }
    Words { status, reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_tell_what_they_do() {
        let check = |effect: &str, pods: usize, evicted: usize, reason: &str, message: &str| {
            let counts = Counts { pods, namespaces: pods, evicted, ..Counts::default() };
            let told = words(effect, counts);
            assert_eq!((told.reason, told.message.as_str()), (reason, message));
        };
        check("NoExecute", 0, 0, "NotStarted", "");
        check("NoExecute", 1, 0, "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.");
        check(
            "NoExecute",
            2,
            1,
            "PodsPendingEviction",
            "2 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
        );
        check("NoExecute", 0, 2, "Completed", "2 pods evicted since starting the controller.");
        check("NoSchedule", 0, 0, "OtherEffect", "Eviction only happens for the NoExecute effect.");
    }
}
