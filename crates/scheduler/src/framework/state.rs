//! What plugins remember between the points of one cycle.

use std::any::Any;

/// Data of one plugin; copied when a simulation needs its own.
pub trait CycleData: Any + Send + Sync {
    fn copy(&self) -> Box<dyn CycleData>;
    fn any(&self) -> &dyn Any;
    fn any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Send + Sync + Clone> CycleData for T {
    fn copy(&self) -> Box<dyn CycleData> {
        Box::new(self.clone())
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// One entry per plugin of the profile, by its place there.
#[derive(Default)]
pub struct CycleState {
    filter: Vec<Entry>,
    /// The plugins whose Filter has something to say, by place.
    pub(super) filters: Vec<usize>,
}

#[derive(Default)]
struct Entry {
    skip: bool,
    data: Option<Box<dyn CycleData>>,
}

impl CycleState {
    pub(super) fn new(plugins: usize) -> Self {
        Self { filter: (0..plugins).map(|_| Entry::default()).collect(), filters: Vec::new() }
    }

    pub(super) fn set(&mut self, plugin: usize, data: Option<Box<dyn CycleData>>) {
        self.filter[plugin] = Entry { skip: false, data };
    }

    pub(super) fn skip(&mut self, plugin: usize) {
        self.filter[plugin].skip = true;
    }

    pub(super) fn is_skipped(&self, plugin: usize) -> bool {
        self.filter[plugin].skip
    }

    pub(super) fn data(&self, plugin: usize) -> Option<&dyn Any> {
        // The box itself would implement the trait too: its content is meant.
        self.filter[plugin].data.as_ref().map(|data| (**data).any())
    }

    pub(super) fn data_mut(&mut self, plugin: usize) -> Option<&mut dyn Any> {
        self.filter[plugin].data.as_mut().map(|data| (**data).any_mut())
    }
}

impl Clone for CycleState {
    fn clone(&self) -> Self {
        let copy = |entry: &Entry| Entry { skip: entry.skip, data: entry.data.as_ref().map(|data| (**data).copy()) };
        Self { filter: self.filter.iter().map(copy).collect(), filters: self.filters.clone() }
    }
}
