//! From a profile as written to one that runs: which plugins, at which points, in which order, with which weights.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::types::{Plugin as Named, PluginConfig, PluginSet, Plugins, Profile as Written};
use crate::framework::{Plugin, Point, Profile, Registered};
use crate::plugins::{self, Factory, Making, PluginError};
use crate::{DEFAULT_SCHEDULER, SchedulerError};

/// The points in their order, by the names they have in files.
pub(super) fn sets(plugins: &Plugins) -> [(Point, &'static str, &PluginSet); 12] {
    [
        (Point::PreEnqueue, "preEnqueue", &plugins.pre_enqueue),
        (Point::QueueSort, "queueSort", &plugins.queue_sort),
        (Point::PreFilter, "preFilter", &plugins.pre_filter),
        (Point::Filter, "filter", &plugins.filter),
        (Point::PostFilter, "postFilter", &plugins.post_filter),
        (Point::PreScore, "preScore", &plugins.pre_score),
        (Point::Score, "score", &plugins.score),
        (Point::Reserve, "reserve", &plugins.reserve),
        (Point::Permit, "permit", &plugins.permit),
        (Point::PreBind, "preBind", &plugins.pre_bind),
        (Point::Bind, "bind", &plugins.bind),
        (Point::PostBind, "postBind", &plugins.post_bind),
    ]
}

/// A plugin's arguments, completed with defaults. Their kind may be given and must then be the plugin's.
pub(crate) fn arguments<T: DeserializeOwned + Default>(config: &PluginConfig) -> Result<T, PluginError> {
    let mut args = config.args.clone();
    let Some(map) = args.as_object_mut() else {
        return if args.is_null() { Ok(T::default()) } else { Err(PluginError::OtherArguments) };
    };
    map.remove("apiVersion");
    if map.remove("kind").is_some_and(|kind| kind != format!("{}Args", config.name)) {
        return Err(PluginError::OtherArguments);
    }
    serde_json::from_value(args).map_err(|error| PluginError::Arguments(super::strict(&error)))
}

/// Why a profile cannot be made of what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error(transparent)]
    Plugin(#[from] PluginError),
    #[error("plugin {plugin:?} does not extend {point} plugin")]
    OtherPoint { plugin: String, point: &'static str },
    #[error("plugin {plugin:?} already registered as {point:?}")]
    Twice { plugin: String, point: &'static str },
    #[error("at least one queue sort plugin is needed for profile with scheduler name {0:?}")]
    NoQueueSort(String),
    #[error("only one queue sort plugin required for profile with scheduler name {profile:?}, but got {number}")]
    ManyQueueSorts { profile: String, number: usize },
    #[error("at least one bind plugin is needed for profile with scheduler name {0:?}")]
    NoBind(String),
}

pub(super) fn profile(
    written: &Written,
    ignored_resources: &[String],
    client: &Client,
    further: &[Factory],
) -> Result<Profile, SchedulerError> {
    let name = written.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
    let fail = |problem| SchedulerError::Profile { name: name.to_owned(), problem };
    let everywhere = merge_defaults(&written.plugins.multi_point);
    let mut workshop =
        Workshop { written, ignored_resources, client, further, made: Vec::new(), places: HashMap::new() };
    for (_, _, set) in sets(&written.plugins) {
        set.enabled.iter().try_for_each(|plugin| workshop.place(&plugin.name).map(|_| ())).map_err(fail)?;
    }
    everywhere.iter().try_for_each(|plugin| workshop.place(&plugin.name).map(|_| ())).map_err(fail)?;
    let mut points: Vec<(Point, Vec<usize>)> = Vec::new();
    for (point, text, set) in sets(&written.plugins) {
        points.push((point, workshop.order(point, text, set, &everywhere).map_err(fail)?));
    }
    // The weight at Score counts before the one given for all points.
    for Registered { plugin, weight } in &mut workshop.made {
        let given = written.plugins.score.enabled.iter().chain(&everywhere).find(|given| given.name == plugin.name());
        *weight = given.map_or(1, |given| given.weight).max(1);
    }
    let at = |point: Point| points.iter().find(|(known, _)| *known == point).map_or(0, |(_, places)| places.len());
    match at(Point::QueueSort) {
        0 => return Err(fail(ProfileError::NoQueueSort(name.to_owned()))),
        1 => {}
        number => return Err(fail(ProfileError::ManyQueueSorts { profile: name.to_owned(), number })),
    }
    if at(Point::Bind) == 0 {
        return Err(fail(ProfileError::NoBind(name.to_owned())));
    }
    Ok(Profile::assembled(name, workshop.made, &points))
}

/// The default plugins without the disabled ones; a default that is named again keeps its place with the new weight.
fn merge_defaults(set: &PluginSet) -> Vec<Named> {
    let is_disabled = |name: &str| set.disabled.iter().any(|plugin| plugin.name == "*" || plugin.name == name);
    let mut merged: Vec<Named> = Vec::new();
    for (name, weight) in plugins::DEFAULTS.iter().filter(|(name, _)| !is_disabled(name)) {
        let own = set.enabled.iter().find(|plugin| plugin.name == *name);
        merged.push(own.cloned().unwrap_or_else(|| Named { name: (*name).to_owned(), weight: *weight }));
    }
    let rest = set.enabled.iter().filter(|plugin| !merged.iter().any(|known| known.name == plugin.name)).cloned();
    let rest: Vec<Named> = rest.collect();
    merged.extend(rest);
    merged
}

/// Makes each plugin once per profile.
struct Workshop<'a> {
    written: &'a Written,
    ignored_resources: &'a [String],
    client: &'a Client,
    further: &'a [Factory],
    made: Vec<Registered>,
    places: HashMap<String, usize>,
}

impl Workshop<'_> {
    fn place(&mut self, name: &str) -> Result<usize, ProfileError> {
        if let Some(place) = self.places.get(name) {
            return Ok(*place);
        }
        let making = Making {
            config: self
                .written
                .plugin_config
                .iter()
                .find(|config| config.name == name)
                .cloned()
                .unwrap_or_else(|| PluginConfig { name: name.to_owned(), args: Value::Null }),
            ignored_resources: self.ignored_resources,
            client: Some(self.client),
        };
        let further = self.further.iter().find(|factory| factory.name == name).map(|factory| (factory.make)(&making));
        let plugin: Arc<dyn Plugin> = match further {
            Some(made) => made?,
            None => plugins::make(name, &making)?,
        };
        self.made.push(Registered { plugin, weight: 1 });
        self.places.insert(name.to_owned(), self.made.len() - 1);
        Ok(self.made.len() - 1)
    }

    /// First what is named both here and everywhere, then what is named everywhere, then what is named only here.
    fn order(
        &mut self,
        point: Point,
        text: &'static str,
        set: &PluginSet,
        everywhere: &[Named],
    ) -> Result<Vec<usize>, ProfileError> {
        let is_disabled = |name: &str| set.disabled.iter().any(|plugin| plugin.name == "*" || plugin.name == name);
        let mut first = Vec::new();
        let mut last = Vec::new();
        for plugin in &set.enabled {
            let place = self.place(&plugin.name)?;
            if !self.made[place].plugin.points().contains(&point) {
                return Err(ProfileError::OtherPoint { plugin: plugin.name.clone(), point: text });
            }
            if first.contains(&place) || last.contains(&place) {
                return Err(ProfileError::Twice { plugin: plugin.name.clone(), point: text });
            }
            let list = if everywhere.iter().any(|other| other.name == plugin.name) { &mut first } else { &mut last };
            list.push(place);
        }
        for plugin in everywhere.iter().filter(|plugin| !is_disabled(&plugin.name)) {
            let place = self.place(&plugin.name)?;
            if self.made[place].plugin.points().contains(&point) && !first.contains(&place) && !last.contains(&place) {
                first.push(place);
            }
        }
        first.extend(last);
        Ok(first)
    }
}
