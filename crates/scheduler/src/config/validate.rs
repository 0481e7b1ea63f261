//! What is wrong with a configuration, in upstream's words.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::Value;

use super::types::{
    BalancedAllocationArgs, DefaultPreemptionArgs, DynamicResourcesArgs, Extender, File, InterPodAffinityArgs,
    LeaderElection, NodeAffinityArgs, NodeResourcesFitArgs, PluginSet, PodTopologySpreadArgs, Profile, ShapePoint,
    VolumeBindingArgs,
};
use super::{API_VERSION, assemble};

/// Plugins of earlier versions.
const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];
/// Scores are multiplied by it, and a hundred of them must not overflow.
const LARGEST_WEIGHT: i64 = i32::MAX as i64 / 100;

pub(super) fn file(file: &File) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if file.client_connection.burst < 0 {
        let path = Path::new("clientConnection").child("burst");
        errors.push(FieldError::invalid(&path, file.client_connection.burst, "must be non-negative"));
    }
    leader_election(&file.leader_election, &mut errors);
    if let Some(parallelism) = file.parallelism.filter(|parallelism| *parallelism <= 0) {
        let text = "should be an integer value greater than zero";
        errors.push(FieldError::invalid(&Path::new("parallelism"), parallelism, text));
    }
    profiles(file.profiles.as_deref(), &mut errors);
    percentage(&Path::new("percentageOfNodesToScore"), file.percentage_of_nodes_to_score, &mut errors);
    let initial = file.pod_initial_backoff_seconds.unwrap_or(1);
    if initial <= 0 {
        errors.push(FieldError::invalid(&Path::new("podInitialBackoffSeconds"), initial, "must be greater than 0"));
    }
    let longest = file.pod_max_backoff_seconds.unwrap_or(10);
    if longest < initial {
        let text = "must be greater than or equal to PodInitialBackoffSeconds";
        errors.push(FieldError::invalid(&Path::new("podMaxBackoffSeconds"), longest, text));
    }
    extenders(&file.extenders, &mut errors);
    errors
}

fn leader_election(election: &LeaderElection, errors: &mut FieldErrors) {
    if !election.leader_elect {
        return;
    }
    let path = Path::new("leaderElection");
    let shown = |duration: std::time::Duration| format!("{}s", duration.as_secs_f64());
    for (name, duration) in [
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ] {
        if duration.is_zero() {
            errors.push(FieldError::invalid(&path.child(name), shown(duration), "must be greater than zero"));
        }
    }
    if election.lease_duration < election.renew_deadline {
        let text = "LeaseDuration must be greater than RenewDeadline";
        errors.push(FieldError::invalid(&path.child("leaseDuration"), shown(election.renew_deadline), text));
    }
    if election.renew_deadline < election.retry_period {
        let text = "RenewDeadline must be greater than RetryPeriod";
        errors.push(FieldError::invalid(&path.child("renewDeadline"), shown(election.renew_deadline), text));
    }
    for (name, value) in
        [("resourceNamespace", &election.resource_namespace), ("resourceName", &election.resource_name)]
    {
        if value.is_empty() {
            errors.push(FieldError::invalid(&path.child(name), "", format!("{name} is required")));
        }
    }
    if election.resource_lock != "leases" {
        let text = "resourceLock value must be \"leases\"";
        errors.push(FieldError::invalid(&path.child("resourceLock"), election.resource_lock.clone(), text));
    }
}

fn percentage(path: &Path, value: Option<i64>, errors: &mut FieldErrors) {
    if let Some(value) = value.filter(|value| !(0..=100).contains(value)) {
        errors.push(FieldError::invalid(path, value, "not in valid range [0-100]"));
    }
}

fn profiles(profiles: Option<&[Profile]>, errors: &mut FieldErrors) {
    let path = Path::new("profiles");
    let Some(profiles) = profiles else { return };
    let Some(first) = profiles.first() else { return errors.push(FieldError::required(&path, "")) };
    let mut names: Vec<&str> = Vec::new();
    for (number, profile) in profiles.iter().enumerate() {
        let path = path.index(number);
        let name = profile.scheduler_name.as_deref().unwrap_or(crate::DEFAULT_SCHEDULER);
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("schedulerName"), ""));
        }
        percentage(&path.child("percentageOfNodesToScore"), profile.percentage_of_nodes_to_score, errors);
        plugin_sets(&path.child("plugins"), profile, errors);
        plugin_config(&path.child("pluginConfig"), profile, errors);
        if let Some(same) = names.iter().position(|known| *known == name) {
            let other = Path::new("profiles").index(same).child("schedulerName");
            errors.push(FieldError::duplicate(&path.child("schedulerName"), other.as_str()));
        }
        names.push(name);
        let sorts = profile.plugins.queue_sort.enabled.len();
        if sorts > 1 && number == 0 {
            let path = path.child("plugins").child("queueSort").child("Enabled");
            errors.push(FieldError::invalid(&path, sorts, "only one queue sort plugin can be enabled"));
        }
        if profile.plugins.queue_sort != first.plugins.queue_sort {
            let shown = profile.plugins.queue_sort.enabled.iter().map(|plugin| plugin.name.clone()).collect::<Vec<_>>();
            let path = path.child("plugins").child("queueSort");
            errors.push(FieldError::invalid(&path, shown, "must be the same for all profiles"));
        }
    }
}

fn plugin_sets(path: &Path, profile: &Profile, errors: &mut FieldErrors) {
    let named = assemble::sets(&profile.plugins).into_iter().map(|(_, name, set)| (name, set));
    for (name, set) in named.chain([("multiPoint", &profile.plugins.multi_point)]) {
        plugin_set(&path.child(name), set, errors);
    }
}

fn plugin_set(path: &Path, set: &PluginSet, errors: &mut FieldErrors) {
    for (number, plugin) in set.enabled.iter().enumerate() {
        let path = path.child("enabled").index(number);
        if REMOVED.contains(&plugin.name.as_str()) {
            errors.push(FieldError::invalid(&path, plugin.name.clone(), removed()));
        }
        // Upstream takes such weights and goes on with scores that overflow or turn round.
        if !(0..=LARGEST_WEIGHT).contains(&plugin.weight) {
            let text = format!("not in valid range [0, {LARGEST_WEIGHT}]");
            errors.push(FieldError::invalid(&path.child("weight"), plugin.weight, text));
        }
    }
}

fn removed() -> String {
    format!("was invalid in version \"v1\" (KubeSchedulerConfiguration is version {API_VERSION:?})")
}

fn plugin_config(path: &Path, profile: &Profile, errors: &mut FieldErrors) {
    let mut seen = HashSet::new();
    for (number, config) in profile.plugin_config.iter().enumerate() {
        let path = path.index(number);
        if !seen.insert(config.name.as_str()) {
            errors.push(FieldError::duplicate(&path, config.name.clone()));
        }
        if REMOVED.contains(&config.name.as_str()) {
            errors.push(FieldError::invalid(&path, config.name.clone(), removed()));
            continue;
        }
        let path = path.child("args");
        let outcome = match config.name.as_str() {
            "DefaultPreemption" => assemble::arguments(config).map(|args| preemption(&path, &args, errors)),
            "DynamicResources" => assemble::arguments(config).map(|args| dynamic_resources(&path, &args, errors)),
            "InterPodAffinity" => assemble::arguments(config).map(|args| inter_pod(&path, &args, errors)),
            "NodeAffinity" => assemble::arguments(config).map(|args| node_affinity(&path, &args, errors)),
            "NodeResourcesFit" => assemble::arguments(config).map(|args| fit(&path, &args, errors)),
            "NodeResourcesBalancedAllocation" => assemble::arguments(config).map(|args| balanced(&path, &args, errors)),
            "PodTopologySpread" => assemble::arguments(config).map(|args| spread(&path, &args, errors)),
            "VolumeBinding" => assemble::arguments(config).map(|args| volume_binding(&path, &args, errors)),
            _ => Ok(()),
        };
        if let Err(problem) = outcome {
            errors.push(FieldError::invalid(&path, config.args.clone(), problem.to_string()));
        }
    }
}

fn dynamic_resources(path: &Path, args: &DynamicResourcesArgs, errors: &mut FieldErrors) {
    if args.binding_timeout < std::time::Duration::from_secs(1) {
        let shown = format!("{}s", args.binding_timeout.as_secs_f64());
        errors.push(FieldError::invalid(&path.child("bindingTimeout"), shown, "must be at least 1 second"));
    }
}

fn preemption(path: &Path, args: &DefaultPreemptionArgs, errors: &mut FieldErrors) {
    let (percentage, absolute) = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
    let (by_share, by_number) = (path.child("minCandidateNodesPercentage"), path.child("minCandidateNodesAbsolute"));
    if !(0..=100).contains(&percentage) {
        errors.push(FieldError::invalid(&by_share, percentage, "not in valid range [0, 100]"));
    }
    if absolute < 0 {
        errors.push(FieldError::invalid(&by_number, absolute, "not in valid range [0, inf)"));
    }
    if percentage == 0 && absolute == 0 {
        let text = |other: &str| format!("cannot be zero at the same time as {other}");
        errors.push(FieldError::invalid(&by_share, percentage, text("minCandidateNodesAbsolute")));
        errors.push(FieldError::invalid(&by_number, absolute, text("minCandidateNodesPercentage")));
    }
}

fn inter_pod(path: &Path, args: &InterPodAffinityArgs, errors: &mut FieldErrors) {
    if !(0..=100).contains(&args.hard_pod_affinity_weight) {
        let path = path.child("hardPodAffinityWeight");
        errors.push(FieldError::invalid(&path, args.hard_pod_affinity_weight, "not in valid range [0, 100]"));
    }
}

fn node_affinity(path: &Path, args: &NodeAffinityArgs, errors: &mut FieldErrors) {
    let Some(added) = &args.added_affinity else { return };
    let path = path.child("addedAffinity");
    let required = added.required_during_scheduling_ignored_during_execution.iter();
    let terms = required.flat_map(|selector| &selector.node_selector_terms);
    let preferred = added.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    let (first, second) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let all = (terms.enumerate().map(|(n, term)| (path.child(first).child("nodeSelectorTerms").index(n), term)))
        .chain(preferred.enumerate().map(|(n, wish)| (path.child(second).index(n), &wish.preference)));
    for (path, term) in all {
        for (number, expression) in term.match_expressions.iter().flatten().enumerate() {
            let path = path.child("matchExpressions").index(number);
            let values = expression.values.as_ref().map_or(0, Vec::len);
            match expression.operator.as_str() {
                "In" | "NotIn" if values == 0 => {
                    let text = "for 'in', 'notin' operators, values set can't be empty";
                    errors.push(FieldError::invalid(&path.child("values"), Vec::<String>::new(), text));
                }
                "Gt" | "Lt" if values != 1 => {
                    let text = "for 'Gt', 'Lt' operators, exactly one value is required";
                    errors.push(FieldError::invalid(&path.child("values"), values, text));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
                other => {
                    let known = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
                    errors.push(FieldError::not_supported(&path.child("operator"), other, &known));
                }
            }
        }
    }
}

fn label_name(path: &Path, name: &str, errors: &mut FieldErrors) {
    errors.extend(names::qualified_name(name).into_iter().map(|reason| FieldError::invalid(path, name, reason)));
}

fn fit(path: &Path, args: &NodeResourcesFitArgs, errors: &mut FieldErrors) {
    for (number, name) in args.ignored_resources.iter().enumerate() {
        label_name(&path.child("ignoredResources").index(number), name, errors);
    }
    for (number, group) in args.ignored_resource_groups.iter().enumerate() {
        let path = path.child("ignoredResourceGroups").index(number);
        if group.contains('/') {
            errors.push(FieldError::invalid(&path, group.clone(), "resource group name can't contain '/'"));
        }
        label_name(&path, group, errors);
    }
    let path = path.child("scoringStrategy");
    let Some(strategy) = &args.scoring_strategy else {
        return errors.push(FieldError::required(&path, "ScoringStrategy field is required"));
    };
    let known = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
    if !known.contains(&strategy.sort.as_str()) {
        errors.push(FieldError::not_supported(&path.child("type"), strategy.sort.clone(), &known));
    }
    for (number, resource) in strategy.resources.iter().enumerate() {
        if !(1..=100).contains(&resource.weight) {
            let text = format!("resource weight of {} not in valid range (0, 100]", resource.name);
            errors.push(FieldError::invalid(
                &path.child("resources").index(number).child("weight"),
                resource.weight,
                text,
            ));
        }
    }
    let path = path.child("requestedToCapacityRatio");
    match (&strategy.requested_to_capacity_ratio, strategy.sort == "RequestedToCapacityRatio") {
        (None, true) => {
            errors.push(FieldError::required(&path, "must be specified when type is RequestedToCapacityRatio"));
        }
        (Some(ratio), true) => shape(&path.child("shape"), &ratio.shape, errors),
        (Some(_), false) => {
            errors.push(FieldError::forbidden(&path, "must be nil when type is not RequestedToCapacityRatio"));
        }
        (None, false) => {}
    }
}

fn shape(path: &Path, shape: &[ShapePoint], errors: &mut FieldErrors) {
    if shape.is_empty() {
        return errors.push(FieldError::required(path, "at least one point must be specified"));
    }
    if let Some(at) = shape.windows(2).position(|pair| pair[0].utilization >= pair[1].utilization) {
        let text = "values must be sorted in increasing order";
        let path = path.index(at + 1).child("utilization");
        errors.push(FieldError::invalid(&path, shape[at + 1].utilization, text));
    }
    for (number, point) in shape.iter().enumerate() {
        let path = path.index(number);
        if !(0..=100).contains(&point.utilization) {
            errors.push(FieldError::invalid(
                &path.child("utilization"),
                point.utilization,
                "not in valid range [0, 100]",
            ));
        }
        if !(0..=10).contains(&point.score) {
            errors.push(FieldError::invalid(&path.child("score"), point.score, "not in valid range [0, 10]"));
        }
    }
}

fn balanced(path: &Path, args: &BalancedAllocationArgs, errors: &mut FieldErrors) {
    let mut seen = HashSet::new();
    for (number, resource) in args.resources.iter().enumerate() {
        let path = path.child("resources").index(number);
        if !seen.insert(&resource.name) {
            errors.push(FieldError::duplicate(&path.child("name"), resource.name.clone()));
        }
        if resource.weight != 1 {
            errors.push(FieldError::invalid(&path.child("weight"), resource.weight, "must be 1"));
        }
    }
}

fn spread(path: &Path, args: &PodTopologySpreadArgs, errors: &mut FieldErrors) {
    let sort = if args.defaulting_type.is_empty() { "System" } else { &args.defaulting_type };
    if !["System", "List"].contains(&sort) {
        errors.push(FieldError::not_supported(&path.child("defaultingType"), sort, &["System", "List"]));
    } else if sort == "System" && !args.default_constraints.is_empty() {
        errors.push(FieldError::invalid(&path.child("defaultingType"), sort, "when .defaultConstraints are not empty"));
    }
    let path = path.child("defaultConstraints");
    for (number, constraint) in args.default_constraints.iter().enumerate() {
        let own = path.index(number);
        if constraint.max_skew <= 0 {
            errors.push(FieldError::invalid(&own.child("maxSkew"), constraint.max_skew, "not in valid range (0, inf)"));
        }
        match constraint.topology_key.as_str() {
            "" => errors.push(FieldError::required(&own.child("topologyKey"), "can not be empty")),
            key => label_name(&own.child("topologyKey"), key, errors),
        }
        match constraint.when_unsatisfiable.as_str() {
            "" => errors.push(FieldError::required(&own.child("whenUnsatisfiable"), "can not be empty")),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            other => {
                let known = ["DoNotSchedule", "ScheduleAnyway"];
                errors.push(FieldError::not_supported(&own.child("whenUnsatisfiable"), other, &known));
            }
        }
        if constraint.label_selector.is_some() {
            let text = "constraint must not define a selector, as they deduced for each pod";
            errors.push(FieldError::forbidden(&own.child("labelSelector"), text));
        }
        let same = |other: &&k8s_openapi::api::core::v1::TopologySpreadConstraint| {
            other.topology_key == constraint.topology_key && other.when_unsatisfiable == constraint.when_unsatisfiable
        };
        if args.default_constraints[..number].iter().any(|other| same(&other)) {
            let shown = format!("{{{}, {}}}", constraint.topology_key, constraint.when_unsatisfiable);
            errors.push(FieldError::duplicate(&own, shown));
        }
    }
}

fn volume_binding(path: &Path, args: &VolumeBindingArgs, errors: &mut FieldErrors) {
    if args.bind_timeout_seconds < 0 {
        let text = "invalid BindTimeoutSeconds, should not be a negative value";
        errors.push(FieldError::invalid(&path.child("bindTimeoutSeconds"), args.bind_timeout_seconds, text));
    }
    if args.shape.is_some() {
        let text = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
        errors.push(FieldError::invalid(&path.child("shape"), Value::Null, text));
    }
}

fn extenders(extenders: &[Extender], errors: &mut FieldErrors) {
    let path = Path::new("extenders");
    let mut managed = HashSet::new();
    for (number, extender) in extenders.iter().enumerate() {
        let path = path.index(number);
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let text = "must have a positive weight applied to it";
            errors.push(FieldError::invalid(&path.child("weight"), extender.weight, text));
        } else if extender.weight > LARGEST_WEIGHT {
            let text = format!("not in valid range [0, {LARGEST_WEIGHT}]");
            errors.push(FieldError::invalid(&path.child("weight"), extender.weight, text));
        }
        for (number, resource) in extender.managed_resources.iter().enumerate() {
            let path = path.child("managedResources").index(number).child("name");
            let before = errors.len();
            label_name(&path, &resource.name, errors);
            if errors.len() == before && !is_extended(&resource.name) {
                errors.push(FieldError::invalid(&path, resource.name.clone(), "is an invalid extended resource name"));
            }
            if !managed.insert(&resource.name) {
                let text = "duplicate extender managed resource name";
                errors.push(FieldError::invalid(&path, resource.name.clone(), text));
            }
        }
    }
    let binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if binders > 1 {
        let shown = format!("found {binders} extenders implementing bind");
        errors.push(FieldError::invalid(&path, shown, "only one extender can implement bind"));
    }
}

fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}
