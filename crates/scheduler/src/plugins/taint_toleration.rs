//! TaintToleration: taints keep pods away that do not tolerate them, or make the node less welcome.

use ferry_semantics::taints::tolerated;

use crate::framework::{
    Cycle, Data, Events, Happening, Plugin, Point, PreScore, Rejection, Verdict, normalize_by_maximum,
};
use crate::model::taints::{PREFER_NO_SCHEDULE, is_repelled};
use crate::model::{NodeInfo, PodInfo};

pub(super) struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::PreScore, Point::Score]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::NODE_TAINTS)
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        happening.node.is_none_or(|node| !is_repelled(&node.taints, pod.tolerations()))
    }

    fn concerns(&self, cycle: &Cycle<'_>) -> bool {
        cycle.cache.marks().repelling > 0
    }

    fn filter(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> Verdict {
        match is_repelled(&node.taints, cycle.pod.tolerations()) {
            true => Err(Rejection::firm("node(s) had untolerated taint(s)")),
            false => Ok(()),
        }
    }

    /// Without such taints all nodes are equally welcoming.
    fn pre_score(&self, cycle: &Cycle<'_>, _: &[&NodeInfo]) -> PreScore {
        if cycle.cache.marks().unwelcoming == 0 { PreScore::Skip } else { PreScore::Continue(None) }
    }

    /// How many taints would rather not have the pod.
    fn score(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> i64 {
        let tolerations = cycle.pod.tolerations();
        let unwelcoming = node
            .taints
            .iter()
            .filter(|taint| taint.effect == PREFER_NO_SCHEDULE)
            .filter(|taint| !tolerated(tolerations, *taint));
        i64::try_from(unwelcoming.count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self, _: &Cycle<'_>, _: Data<'_>, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_maximum(scores, true);
    }
}
