//! Why a pod found no node, per node and plugin, and the sentence that users know it by.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use super::Rejection;

/// What one plugin said about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVerdict {
    pub node: Arc<str>,
    pub plugin: &'static str,
    pub rejection: Rejection,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    pub all_nodes: usize,
    pub nodes: Vec<NodeVerdict>,
    /// What holds for nodes that were not looked at.
    pub others: Option<Rejection>,
    /// Set when PreFilter settled it for all nodes.
    pub at_once: Option<String>,
    pub afterwards: String,
    /// What a plugin found wrong; then nothing else counts.
    pub error: Option<String>,
    /// Plugins that had a part in it: their events may help.
    pub plugins: Vec<&'static str>,
}

impl Diagnosis {
    pub fn blame(&mut self, plugin: &'static str) {
        if !self.plugins.contains(&plugin) {
            self.plugins.push(plugin);
        }
    }

    /// Nodes on which removing pods could help; all of them where PreFilter said so for all.
    pub fn is_preemptible(&self, node: &str) -> bool {
        match self.nodes.iter().find(|verdict| &*verdict.node == node) {
            Some(verdict) => verdict.rejection.preemptible,
            None => self.others.as_ref().is_some_and(|rejection| rejection.preemptible),
        }
    }

    /// The nodes looked at, and whether it is settled that removing pods would not help there.
    pub fn firm_nodes(&self) -> HashMap<&str, bool> {
        self.nodes.iter().map(|verdict| (&*verdict.node, !verdict.rejection.preemptible)).collect()
    }

    /// `0/3 nodes are available: 1 …, 2 …. preemption: …`
    pub fn message(&self) -> String {
        let mut text = format!("0/{} nodes are available:", self.all_nodes);
        match &self.at_once {
            Some(message) => text += &format!(" {message}."),
            None => text += &self.reasons(),
        }
        if !self.afterwards.is_empty() {
            text += &format!(" {}", self.afterwards);
        }
        text
    }

    /// Everything that was said, for those who ask why.
    pub fn to_json(&self) -> Value {
        let verdict = |verdict: &NodeVerdict| {
            json!({
                "node": &*verdict.node,
                "plugin": verdict.plugin,
                "reasons": verdict.rejection.reasons,
                "preemptible": verdict.rejection.preemptible,
            })
        };
        json!({
            "message": self.message(),
            "nodes": self.nodes.iter().map(verdict).collect::<Vec<_>>(),
            "allNodes": self.all_nodes,
            "plugins": self.plugins,
        })
    }

    /// Counted reasons, ordered as texts: `10 x` comes before `2 y`.
    fn reasons(&self) -> String {
        let mut counts: BTreeMap<&Cow<'static, str>, usize> = BTreeMap::new();
        for reason in self.nodes.iter().flat_map(|verdict| &verdict.rejection.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        let unseen = self.all_nodes.saturating_sub(self.nodes.len());
        if unseen > 0 {
            for reason in self.others.iter().flat_map(|rejection| &rejection.reasons) {
                *counts.entry(reason).or_default() += unseen;
            }
        }
        let mut lines: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        lines.sort();
        if lines.is_empty() { String::new() } else { format!(" {}.", lines.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(node: usize, reasons: &[&'static str]) -> NodeVerdict {
        let reasons = reasons.iter().map(|reason| Cow::Borrowed(*reason)).collect();
        NodeVerdict {
            node: node.to_string().into(),
            plugin: "P",
            rejection: Rejection { reasons, preemptible: true, error: false },
        }
    }

    #[test]
    fn the_sentence_is_the_known_one() {
        let mut diagnosis = Diagnosis {
            all_nodes: 13,
            nodes: (0..10).map(|n| verdict(n, &["Insufficient cpu"])).collect(),
            ..Diagnosis::default()
        };
        diagnosis.nodes.push(verdict(10, &["Insufficient cpu", "Insufficient memory"]));
        diagnosis.nodes.push(verdict(11, &["node(s) were unschedulable"]));
        diagnosis.others = Some(Rejection::firm("node(s) didn't satisfy plugin(s) [NodeAffinity]"));
        diagnosis.afterwards = "preemption: not eligible due to preemptionPolicy=Never.".into();
        assert_eq!(
            diagnosis.message(),
            "0/13 nodes are available: 1 Insufficient memory, 1 node(s) didn't satisfy plugin(s) [NodeAffinity], \
             1 node(s) were unschedulable, 11 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
        );
        diagnosis.at_once = Some("persistentvolumeclaim \"x\" not found".into());
        diagnosis.afterwards = String::new();
        assert_eq!(diagnosis.message(), "0/13 nodes are available: persistentvolumeclaim \"x\" not found.");
    }
}
