//! The mailboxes of the workers, and which pods are known by them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pod;
use crate::worker::Mailbox;

/// The mailboxes of the workers by pod uid.
#[derive(Clone, Default)]
pub(crate) struct Mailboxes(Arc<Mutex<HashMap<String, Arc<Mailbox>>>>);

impl Mailboxes {
    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Mailbox>> {
        self.0.lock().get(uid).cloned()
    }

    pub(crate) fn put(&self, uid: String, mailbox: Arc<Mailbox>) {
        self.0.lock().insert(uid, mailbox);
    }

    pub(crate) fn sources_changed(&self, uid: &str) {
        if let Some(mailbox) = self.get(uid) {
            mailbox.sources_changed();
        }
    }

    /// Those of the pods that may still run.
    pub(crate) fn active(&self) -> Vec<Arc<Mailbox>> {
        let active = |mailbox: &&Arc<Mailbox>| {
            mailbox.end_reason().is_none()
                && !mailbox.is_gone()
                && !mailbox.is_finished()
                && !pod::is_terminal(pod::status(&mailbox.pod()))
        };
        self.0.lock().values().filter(active).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Mailbox>> {
        self.0.lock().values().cloned().collect()
    }

    /// Those of the pods of which something is left: they run, or they are being ended.
    pub(crate) fn unfinished(&self) -> Vec<Arc<Mailbox>> {
        self.0.lock().values().filter(|mailbox| !mailbox.is_finished()).cloned().collect()
    }

    /// Those of the pods that stand in files.
    pub(crate) fn statics(&self) -> Vec<Arc<Mailbox>> {
        self.0.lock().values().filter(|mailbox| pod::is_static(&mailbox.pod())).cloned().collect()
    }

    /// Those of the pods that the API server has told of.
    pub(crate) fn of_the_api(&self) -> Vec<Arc<Mailbox>> {
        self.0.lock().values().filter(|mailbox| !pod::is_static(&mailbox.pod())).cloned().collect()
    }

    /// Those of the pods that have ended and are still known.
    pub(crate) fn ended(&self) -> Vec<String> {
        let all = self.0.lock();
        all.iter().filter(|(_, mailbox)| mailbox.is_finished()).map(|(uid, _)| uid.clone()).collect()
    }

    pub(crate) fn wake(&self, uid: &str) {
        if let Some(mailbox) = self.get(uid) {
            mailbox.wake.notify_one();
        }
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Whether a pod is known here, or is about to be.
    pub(crate) fn knows(&self, uid: &str, admitted: &Admitted) -> bool {
        // In this order: a pod has its mailbox before its admission ends.
        admitted.0.lock().contains(uid) || self.get(uid).is_some()
    }
}

/// The pods that are being admitted: those of the API server and those of files at the same time.
#[derive(Default)]
pub(crate) struct Admitted(Mutex<HashSet<String>>);

impl Admitted {
    pub(crate) fn begin(&self, uid: &str) -> Admission<'_> {
        self.0.lock().insert(uid.to_owned());
        Admission(self, uid.to_owned())
    }
}

/// One of them, until it has its mailbox.
pub(crate) struct Admission<'a>(&'a Admitted, String);

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::WaitReason;
    use crate::worker::EndReason;

    fn mailbox(uid: &str) -> Arc<Mailbox> {
        let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": []}});
        Mailbox::new(Arc::new(serde_json::from_value(pod).expect("a pod")))
    }

    /// One from a file had been given its CPUs, and lost them to one of the API server before it had a mailbox.
    #[test]
    fn a_pod_is_known_while_it_is_admitted() {
        let (mailboxes, admitted) = (Mailboxes::default(), Admitted::default());
        let known = |uids: [&str; 2]| uids.map(|uid| mailboxes.knows(uid, &admitted));
        let admission = admitted.begin("a");
        assert_eq!(known(["a", "b"]), [true, false]);
        mailboxes.put("a".to_owned(), mailbox("a"));
        drop(admission);
        assert_eq!(known(["a", "b"]), [true, false]);
        mailboxes.forget("a");
        assert_eq!(known(["a", "b"]), [false, false]);
    }

    /// A node that goes down waits for an evicted pod that is still ending, too.
    #[test]
    fn pods_that_are_being_ended_are_not_finished() {
        let mailboxes = Mailboxes::default();
        for uid in ["runs", "ends", "ended"] {
            mailboxes.put(uid.to_owned(), mailbox(uid));
        }
        let get = |uid: &str| mailboxes.get(uid).expect("there");
        let why = WaitReason { reason: "Evicted".to_owned(), message: String::new() };
        get("ends").end_for(EndReason { why, disrupts: None }, 30);
        get("ended").set_finished();
        let names = |all: Vec<Arc<Mailbox>>| {
            let names: std::collections::BTreeSet<String> =
                all.iter().map(|mailbox| pod::name(&mailbox.pod()).to_owned()).collect();
            names.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(
            (names(mailboxes.active()), names(mailboxes.unfinished())),
            (vec!["runs".to_owned()], vec!["ends".to_owned(), "runs".to_owned()])
        );
    }
}
