use super::super::mask::NumaMask;
use super::super::numa::NumaNode;
use super::*;

fn given(options: &[(&str, &str)]) -> BTreeMap<String, String> {
    options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn policies_scopes_and_options_are_taken_or_refused_by_name() {
    for policy in TopologyPolicy::ALL {
        for scope in [TopologyScope::Container, TopologyScope::Pod] {
            let taken = TopologySettings::parse(policy.name(), scope.name(), &given(&[])).expect("taken");
            assert_eq!((taken.policy, taken.scope), (policy, scope));
        }
    }
    let check = |policy: &str, scope: &str, options: &[(&str, &str)], want: Result<(bool, usize), &str>| {
        let got = TopologySettings::parse(policy, scope, &given(options));
        let got = got.map(|settings| (settings.closest, settings.most_nodes));
        match (got, want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want),
            (Err(got), Err(want)) => assert!(got.starts_with(want), "{got} instead of {want}"),
            (got, want) => panic!("{policy} {scope} {options:?}: {got:?} instead of {want:?}"),
        }
    };
    let both = [("prefer-closest-numa-nodes", "true"), ("max-allowable-numa-nodes", "12")];
    check("restricted", "pod", &both, Ok((true, 12)));
    check("best-effort", "pod", &[("prefer-closest-numa-nodes", "0")], Ok((false, 8)));
    // Nobody looks at options that nobody follows.
    check("none", "pod", &[("other", "x")], Ok((false, 8)));
    check("restricted", "pod", &[("other", "x")], Err("unknown Topology Manager Policy option: \"other\""));
    let wrong = "bad value for option \"prefer-closest-numa-nodes\": ";
    check("restricted", "pod", &[("prefer-closest-numa-nodes", "yes")], Err(wrong));
    let few = "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8";
    check("restricted", "pod", &[("max-allowable-numa-nodes", "7")], Err(few));
    let wrong = "unable to convert policy option to integer \"max-allowable-numa-nodes\": ";
    check("restricted", "pod", &[("max-allowable-numa-nodes", "many")], Err(wrong));
    let policy = "invalid configuration: topologyManagerPolicy (--topology-manager-policy) \"all\" must be one of: [\"none\" \
                  \"best-effort\" \"restricted\" \"single-numa-node\"]";
    check("all", "pod", &[], Err(policy));
    check("none", "node", &[], Err("invalid configuration: topologyManagerScope (--topology-manager-scope) \"node\""));
}

#[test]
fn a_machine_has_to_have_few_nodes_and_tell_of_their_distances() {
    let numa = |count: u32, distances: Vec<u64>| {
        Numa::of((0..count).map(|id| NumaNode { id, distances: distances.clone(), ..NumaNode::default() }).collect())
    };
    let check = |policy: &str, options: &[(&str, &str)], numa: &Numa, want: Result<(), &str>| {
        let settings = TopologySettings::parse(policy, "container", &given(options)).expect("taken");
        assert_eq!(settings.fits(numa).as_ref().copied().map_err(String::as_str), want);
    };
    check("restricted", &[], &numa(8, vec![]), Ok(()));
    check("restricted", &[], &numa(9, vec![]), Err("unsupported on machines with more than 8 NUMA Nodes"));
    check("none", &[], &numa(9, vec![]), Ok(()));
    check("restricted", &[("max-allowable-numa-nodes", "9")], &numa(9, vec![]), Ok(()));
    let closest = [("prefer-closest-numa-nodes", "true")];
    check("restricted", &closest, &numa(2, vec![10, 20]), Ok(()));
    let unknown = "cannot discover NUMA topology: error getting NUMA distances from cadvisor";
    check("restricted", &closest, &numa(2, vec![]), Err(unknown));
}

/// `0+2!` is preferred, `*` is anywhere.
fn hint(text: &str) -> Hint {
    let (nodes, preferred) = text.strip_suffix('!').map_or((text, false), |nodes| (nodes, true));
    let mask = || nodes.split('+').map(|node| node.parse::<u32>().expect("a node")).collect::<NumaMask>();
    Hint { nodes: (nodes != "*").then(mask), preferred }
}

fn hints(text: &str) -> Hints {
    if text == "nothing" {
        return Hints::new();
    }
    let of_resources = text.split(" / ").enumerate().map(|(at, list)| {
        let list = match list {
            "any" => None,
            "none" => Some(Vec::new()),
            list => Some(list.split(' ').map(hint).collect()),
        };
        (format!("resource-{at}"), list)
    });
    of_resources.collect()
}

/// Machines and hints at random, and what upstream's source made of them.
#[test]
fn hints_are_merged_as_upstream_merges_them() {
    let cases = ferry_testkit::data::read("kubelet/topology-manager.tsv.gz").expect("recorded cases");
    assert_eq!(cases.lines().count(), 400);
    for case in cases.lines() {
        let columns: Vec<&str> = case.split('\t').collect();
        let [distances, order, providers, answers @ ..] = columns.as_slice() else { panic!("{case}") };
        let nodes = distances.split(' ').zip(0..).map(|(distances, id)| NumaNode {
            id,
            distances: distances.split(',').map(|word| word.parse().expect("a distance")).collect(),
            ..NumaNode::default()
        });
        let numa = Numa::of(nodes.collect());
        let providers: Vec<Hints> = providers.split(" | ").map(hints).collect();
        let policies = [TopologyPolicy::BestEffort, TopologyPolicy::Restricted, TopologyPolicy::SingleNumaNode];
        assert_eq!(answers.len(), policies.len(), "{case}");
        for (policy, answer) in policies.into_iter().zip(answers) {
            let settings = TopologySettings { policy, closest: *order == "closest", ..TopologySettings::default() };
            let (want, admitted) = answer.split_once(' ').expect("two words");
            let got = settings.merge(&numa, &providers);
            assert_eq!(got, (hint(want), admitted == "admitted"), "{policy:?}: {case}");
        }
    }
}

/// There are few choices to follow, however many resources are asked for.
#[test]
fn many_resources_are_merged_in_a_moment() {
    let numa = Numa::of((0..8).map(|id| NumaNode { id, ..NumaNode::default() }).collect());
    let all: Vec<Hint> =
        numa.all().combinations().map(|nodes| Hint { nodes: Some(nodes), preferred: nodes.count() == 1 }).collect();
    let hints: Hints = (0..40).map(|at| (format!("resource-{at}"), Some(all.clone()))).collect();
    let settings = TopologySettings { policy: TopologyPolicy::Restricted, ..TopologySettings::default() };
    assert_eq!(settings.merge(&numa, &[hints]), (hint("0!"), true));
}
