//! ImageLocality: nodes that have the pod's large images already start it sooner.

use crate::framework::{Cycle, Data, MAX_SCORE, Plugin, Point, PreScore};
use crate::model::NodeInfo;

const MEGABYTE: i64 = 1024 * 1024;
/// Less than this is fetched so fast that it should not decide.
const NEGLIGIBLE: i64 = 23 * MEGABYTE;
const LARGE: i64 = 1000 * MEGABYTE;

pub(super) struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreScore, Point::Score]
    }

    /// Images that no node has attract nowhere.
    fn pre_score(&self, cycle: &Cycle<'_>, _: &[&NodeInfo]) -> PreScore {
        let known = cycle.pod.images.iter().any(|image| cycle.cache.nodes_with_image(image) > 0);
        if known { PreScore::Continue(None) } else { PreScore::Skip }
    }

    fn score(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> i64 {
        if node.images.is_empty() || cycle.pod.images.is_empty() {
            return 0;
        }
        let nodes = cycle.cache.node_count().max(1) as f64;
        // An image that few nodes have counts less, lest these few get all pods.
        let present = cycle.pod.images.iter().filter_map(|image| Some((image, *node.images.get(image)?)));
        let sum: i64 = present
            .map(|(image, size)| (size as f64 * (cycle.cache.nodes_with_image(image) as f64 / nodes)) as i64)
            .sum();
        let most = LARGE * i64::try_from(cycle.pod.images.len()).unwrap_or(1);
        MAX_SCORE * (sum.clamp(NEGLIGIBLE, most) - NEGLIGIBLE) / (most - NEGLIGIBLE)
    }
}
