//! A scheduler name with its plugins, sorted into the points they take part in.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Events, Happening, Plugin, Point, Surroundings, Verdict};
use crate::model::PodInfo;
use crate::queue::QueuedPod;

/// A plugin and how much its score counts.
#[derive(Clone)]
pub struct Registered {
    pub plugin: Arc<dyn Plugin>,
    pub weight: i64,
}

const POINTS: usize = Point::PostBind as usize + 1;

#[derive(Clone)]
pub struct Profile {
    pub scheduler_name: String,
    plugins: Vec<Registered>,
    /// Places in `plugins` by point: the filters of a point run once per node.
    by_point: [Vec<usize>; POINTS],
    /// How many of a hundred nodes to look for before scoring; nothing lets it depend on their number.
    pub percentage_of_nodes: Option<usize>,
}

impl Profile {
    pub fn new(scheduler_name: &str, plugins: Vec<Registered>) -> Self {
        let mut by_point: [Vec<usize>; POINTS] = std::array::from_fn(|_| Vec::new());
        for (place, registered) in plugins.iter().enumerate() {
            for point in registered.plugin.points() {
                by_point[*point as usize].push(place);
            }
        }
        Self { scheduler_name: scheduler_name.to_owned(), plugins, by_point, percentage_of_nodes: None }
    }

    /// A profile whose plugins take part only where `points` says, in that order.
    pub fn assembled(scheduler_name: &str, plugins: Vec<Registered>, points: &[(Point, Vec<usize>)]) -> Self {
        let mut by_point: [Vec<usize>; POINTS] = std::array::from_fn(|_| Vec::new());
        for (point, places) in points {
            by_point[*point as usize].clone_from(places);
        }
        Self { scheduler_name: scheduler_name.to_owned(), plugins, by_point, percentage_of_nodes: None }
    }

    /// The same profile with one more plugin, the last at each of its points.
    #[must_use]
    pub fn with(mut self, plugin: Arc<dyn Plugin>) -> Self {
        for point in plugin.points() {
            self.by_point[*point as usize].push(self.plugins.len());
        }
        self.plugins.push(Registered { plugin, weight: 1 });
        self
    }

    /// Before the first pod.
    pub fn begin(&self, surroundings: Surroundings<'_>) {
        self.plugins.iter().for_each(|registered| registered.plugin.begin(surroundings));
    }

    pub fn plugin_count(&self) -> usize {
        self.plugins.len()
    }

    /// The plugins of a point with their places in the profile.
    pub fn at(&self, point: Point) -> impl Iterator<Item = (usize, &Registered)> {
        self.by_point[point as usize].iter().map(|place| (*place, &self.plugins[*place]))
    }

    pub fn plugin(&self, place: usize) -> &Arc<dyn Plugin> {
        &self.plugins[place].plugin
    }

    pub fn order(&self, left: &QueuedPod, right: &QueuedPod) -> Ordering {
        self.at(Point::QueueSort).next().map_or(Ordering::Equal, |(_, sort)| sort.plugin.order(left, right))
    }

    /// The first plugin that does not want the pod to be tried.
    pub fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), (&'static str, String)> {
        for (_, registered) in self.at(Point::PreEnqueue) {
            let verdict: Verdict = registered.plugin.pre_enqueue(pod);
            if let Err(rejection) = verdict {
                return Err((registered.plugin.name(), rejection.message()));
            }
        }
        Ok(())
    }

    /// Whether what happened may help a pod that these plugins rejected.
    pub fn helps(&self, rejecting: &[&'static str], pod: &PodInfo, happening: &Happening<'_>) -> bool {
        self.plugins.iter().any(|Registered { plugin, .. }| {
            rejecting.contains(&plugin.name())
                && plugin.events().overlaps(happening.events)
                && plugin.helps(pod, happening)
        })
    }

    /// What may help a pod that these plugins rejected.
    pub fn interest(&self, rejecting: &[&'static str]) -> Events {
        let rejecting = self.plugins.iter().filter(|registered| rejecting.contains(&registered.plugin.name()));
        rejecting.fold(Events::NONE, |all, registered| all.and(registered.plugin.events()))
    }

    /// Everything that some plugin may want to hear of.
    pub fn events(&self) -> Events {
        self.plugins.iter().fold(Events::NONE, |all, registered| all.and(registered.plugin.events()))
    }
}
