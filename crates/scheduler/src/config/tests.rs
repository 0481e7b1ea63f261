//! Files as operators write them, and what is said about wrong ones.

use serde_json::{Value, json};

use super::*;
use crate::framework::Point;

fn file(content: &Value) -> Value {
    let mut file = json!({"apiVersion": API_VERSION, "kind": KIND});
    for (key, value) in content.as_object().into_iter().flatten() {
        file[key] = value.clone();
    }
    file
}

fn client() -> Client {
    let never = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
    });
    Client::new(never, "default")
}

fn names(config: &Config, profile: usize, point: Point) -> Vec<&'static str> {
    config.profiles[profile].at(point).map(|(_, registered)| registered.plugin.name()).collect()
}

fn build(content: &Value) -> Result<Config, String> {
    let parsed = Configuration::parse(file(content)).map_err(|error| error.to_string())?;
    parsed.build(&client(), &[]).map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_empty_file_is_the_default() {
    let config = build(&json!({})).expect("a configuration");
    assert_eq!(config.profiles[0].scheduler_name, "default-scheduler");
    assert_eq!(
        names(&config, 0, Point::Score),
        [
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "PodTopologySpread",
            "InterPodAffinity",
            "DynamicResources",
            "NodeResourcesBalancedAllocation",
            "ImageLocality"
        ]
    );
    let weights: Vec<i64> = config.profiles[0].at(Point::Score).map(|(_, registered)| registered.weight).collect();
    assert_eq!(weights, [3, 2, 1, 2, 2, 2, 1, 1]);
    assert_eq!(names(&config, 0, Point::Bind), ["DefaultBinder"]);
}

#[tokio::test]
async fn plugins_are_switched_per_point_and_everywhere() {
    let config = build(&json!({
        "percentageOfNodesToScore": 40,
        "podInitialBackoffSeconds": 2,
        "profiles": [
            {"schedulerName": "packing", "percentageOfNodesToScore": 70,
             "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 7}]}},
             "pluginConfig": [{"name": "NodeResourcesFit", "args": {"apiVersion": API_VERSION, "kind": "NodeResourcesFitArgs",
                "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}}}]},
            {"schedulerName": "calm", "plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}], "enabled": [{"name": "ImageLocality", "weight": 9}]}}},
        ],
    }))
    .expect("a configuration");
    assert_eq!(names(&config, 0, Point::Score), ["NodeResourcesFit"]);
    assert_eq!(config.profiles[0].at(Point::Score).next().map(|(_, r)| r.weight), Some(7));
    assert_eq!(names(&config, 0, Point::Filter).len(), 13);
    assert_eq!(names(&config, 0, Point::PostFilter), ["DynamicResources", "DefaultPreemption"]);
    assert_eq!(names(&config, 1, Point::PostFilter), ["DynamicResources"]);
    assert_eq!(
        config.profiles[1].at(Point::Score).last().map(|(_, r)| (r.plugin.name(), r.weight)),
        Some(("ImageLocality", 9))
    );
    assert_eq!((config.profiles[0].percentage_of_nodes, config.profiles[1].percentage_of_nodes), (Some(70), Some(40)));
    assert_eq!((config.initial_backoff.as_secs(), config.longest_backoff.as_secs()), (2, 10));
}

#[tokio::test]
async fn wrong_files_are_refused_with_the_known_words() {
    let args = |plugin: &str, args: Value| json!({"profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}]});
    let enabled = |point: &str, plugin: Value| json!({"profiles": [{"plugins": {point: {"enabled": [plugin]}}}]});
    let path = "profiles[0].pluginConfig[0].args";
    for (content, expected) in [
        (json!({"paralellism": 3}), "strict decoding error: unknown field \"paralellism\"".to_owned()),
        (json!({"parallelism": 0}), "parallelism: Invalid value: 0: should be an integer value greater than zero".to_owned()),
        (json!({"percentageOfNodesToScore": 101}), "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]".to_owned()),
        (json!({"podInitialBackoffSeconds": 0}), "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0".to_owned()),
        (json!({"podMaxBackoffSeconds": 0}), "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds".to_owned()),
        (json!({"profiles": []}), "profiles: Required value".to_owned()),
        (json!({"profiles": [{"schedulerName": ""}]}), "profiles[0].schedulerName: Required value".to_owned()),
        (json!({"profiles": [{}, {}]}), "profiles[1].schedulerName: Duplicate value: \"profiles[0].schedulerName\"".to_owned()),
        (json!({"clientConnection": {"burst": -1}}), "clientConnection.burst: Invalid value: -1: must be non-negative".to_owned()),
        (json!({"leaderElection": {"leaseDuration": "5s"}}), "leaderElection.leaseDuration: Invalid value: \"10s\": LeaseDuration must be greater than RenewDeadline".to_owned()),
        (json!({"leaderElection": {"resourceLock": "endpoints"}}), "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"".to_owned()),
        (enabled("score", json!({"name": "NodeResourcesFit", "weight": -1})), "profiles[0].plugins.score.enabled[0].weight: Invalid value: -1: not in valid range [0, 21474836]".to_owned()),
        (enabled("multiPoint", json!({"name": "ImageLocality", "weight": 2_147_483_647})), "profiles[0].plugins.multiPoint.enabled[0].weight: Invalid value: 2147483647: not in valid range [0, 21474836]".to_owned()),
        (enabled("filter", json!({"name": "Unheard"})), "creating profile for scheduler name default-scheduler: plugin \"Unheard\" does not exist".to_owned()),
        (enabled("score", json!({"name": "NodeName"})), "creating profile for scheduler name default-scheduler: plugin \"NodeName\" does not extend score plugin".to_owned()),
        (json!({"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "*"}]}}}]}), "creating profile for scheduler name default-scheduler: at least one queue sort plugin is needed for profile with scheduler name \"default-scheduler\"".to_owned()),
        (json!({"profiles": [{"plugins": {"bind": {"disabled": [{"name": "*"}]}}}]}), "creating profile for scheduler name default-scheduler: at least one bind plugin is needed for profile with scheduler name \"default-scheduler\"".to_owned()),
        (args("InterPodAffinity", json!({"hardPodAffinityWeight": 101})), format!("{path}.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]")),
        (args("DefaultPreemption", json!({"minCandidateNodesPercentage": -1})), format!("{path}.minCandidateNodesPercentage: Invalid value: -1: not in valid range [0, 100]")),
        (args("VolumeBinding", json!({"bindTimeoutSeconds": -1})), format!("{path}.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value")),
        (args("PodTopologySpread", json!({"defaultingType": "Some"})), format!("{path}.defaultingType: Unsupported value: \"Some\": supported values: \"System\", \"List\"")),
        (args("NodeResourcesBalancedAllocation", json!({"resources": [{"name": "cpu", "weight": 2}]})), format!("{path}.resources[0].weight: Invalid value: 2: must be 1")),
        (args("NodeResourcesFit", json!({"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": -5}]}})), format!("{path}.scoringStrategy.resources[0].weight: Invalid value: -5: resource weight of cpu not in valid range (0, 100]")),
        (args("NodeResourcesFit", json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}})), format!("{path}.scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio")),
        (json!({"extenders": [{"urlPrefix": "http://127.0.0.1:1", "prioritizeVerb": "p"}]}), "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it".to_owned()),
        (json!({"extenders": [{"urlPrefix": "http://a", "bindVerb": "b"}, {"urlPrefix": "http://b", "bindVerb": "b"}]}), "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind".to_owned()),
        (json!({"extenders": [{"urlPrefix": "http://a", "managedResources": [{"name": "cpu"}]}]}), "extenders[0].managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name".to_owned()),
    ] {
        let refused = build(&content).err().unwrap_or_default();
        assert_eq!(refused, expected, "{content}");
    }
    let foreign = Configuration::parse(json!({"apiVersion": "v1", "kind": "Pod"}));
    assert!(foreign.is_err());
}
