//! End to end: a real cluster of this binary, driven by real kubectl, running real containers.
//!
//! One process, one cluster, scenarios one after the other: a cluster owns ports, a bridge and packet rules of the host.
//! Needs root, the packages of `hack/setup.sh --test` and the registry of `hack/registry.sh`; `make test` sees to both.
//! Scenarios whose needs this machine does not meet are recorded as skipped.
//! Arguments that are not flags choose scenarios by a part of their name.

#![expect(clippy::unwrap_used, reason = "a test: a missing value is a failure")]

mod alone;
mod browser;
mod cluster;
mod cluster_bed;
mod clusters;
mod components;
mod console;
mod console_alone;
mod console_everybody;
mod console_pages;
mod copying;
mod devices;
mod disaster;
mod dual_stack;
mod embedded;
mod envtest;
mod etcd;
mod failing_nodes;
mod failures;
mod fleet;
mod flood;
mod front_door;
mod gateway;
mod gateway_nodes;
mod gauntlet;
mod histories;
mod hostile;
mod insight;
mod kube_rs;
mod kubectl_alone;
mod leftovers;
mod local_path;
mod migration;
mod places;
mod plugin;
mod policies;
mod quorum;
mod resource_metrics;
mod server_changes;
mod server_faults;
mod servers;
mod situations;
mod spine;
mod starting;
mod storage;
mod store;
mod succession;
mod terminals;
mod upgrades;
mod wire;
mod witness;

use std::process::ExitCode;

use cluster::Cluster;
use ferry_testkit::Report;

type Scenario = (&'static str, fn(&mut Cluster));

/// One that brings what it needs.
type Alone = (&'static str, fn());

const SCENARIOS: &[Scenario] = &[
    ("spine::three_pods_answer_behind_a_service", spine::three_pods_answer_behind_a_service),
    ("insight::a_trace_shows_every_hop", insight::a_trace_shows_every_hop),
    ("spine::events_tell_the_story_in_order", spine::events_tell_the_story_in_order),
    ("gateway::gateways_and_ingresses_reach_pods", gateway::gateways_and_ingresses_reach_pods),
    ("spine::logs_and_exec_reach_the_container", spine::logs_and_exec_reach_the_container),
    ("spine::a_deleted_pod_is_replaced_and_traffic_follows", spine::a_deleted_pod_is_replaced_and_traffic_follows),
    ("copying::files_are_copied_both_ways", copying::files_are_copied_both_ways),
    ("terminals::kubectl_in_a_terminal", terminals::kubectl_in_a_terminal),
    ("spine::volumes_carry_configuration", spine::volumes_carry_configuration),
    ("storage::a_driver_gives_and_takes_back_volumes", storage::a_driver_gives_and_takes_back_volumes),
    ("local_path::a_stateful_set_keeps_its_data", local_path::a_stateful_set_keeps_its_data),
    ("local_path::volumes_are_kept_where_the_class_says_so", local_path::volumes_are_kept_where_the_class_says_so),
    ("local_path::what_a_folder_cannot_be_is_refused", local_path::what_a_folder_cannot_be_is_refused),
    ("policies::network_policies_are_enforced", policies::network_policies_are_enforced),
    ("dual_stack::pods_and_services_have_both_families", dual_stack::pods_and_services_have_both_families),
    ("front_door::a_wrong_token_is_401", front_door::a_wrong_token_is_401),
    ("front_door::a_missing_right_is_403", front_door::a_missing_right_is_403),
    ("front_door::bad_manifests_name_the_field", front_door::bad_manifests_name_the_field),
    ("front_door::a_body_over_the_limit_is_refused", front_door::a_body_over_the_limit_is_refused),
    (
        "situations::causes_are_named_and_what_is_well_is_left_alone",
        situations::causes_are_named_and_what_is_well_is_left_alone,
    ),
    ("situations::a_reader_that_goes_away_is_no_error", situations::a_reader_that_goes_away_is_no_error),
    ("failures::an_unschedulable_pod_says_why", failures::an_unschedulable_pod_says_why),
    ("failures::a_wrong_image_backs_off", failures::a_wrong_image_backs_off),
    ("failures::a_crashing_container_backs_off", failures::a_crashing_container_backs_off),
    ("failures::a_failing_readiness_probe_keeps_the_pod_out", failures::a_failing_readiness_probe_keeps_the_pod_out),
    ("failures::a_pod_over_its_disk_limit_is_evicted", failures::a_pod_over_its_disk_limit_is_evicted),
    ("failures::a_container_over_its_memory_is_killed", failures::a_container_over_its_memory_is_killed),
    ("starting::a_bad_start_says_what_to_do", starting::a_bad_start_says_what_to_do),
    ("spine::a_rollout_loses_no_request", spine::a_rollout_loses_no_request),
    ("console_pages::an_apply_passes_all_lanes_and_all_hops", console_pages::an_apply_passes_all_lanes_and_all_hops),
    (
        "console_pages::troubles_are_caused_named_and_cleaned_up",
        console_pages::troubles_are_caused_named_and_cleaned_up,
    ),
    ("console_pages::a_pod_is_found_read_and_entered", console_pages::a_pod_is_found_read_and_entered),
    ("console_pages::an_edit_that_comes_too_late_is_told_so", console_pages::an_edit_that_comes_too_late_is_told_so),
    ("console_pages::the_past_shows_a_pod_that_is_gone", console_pages::the_past_shows_a_pod_that_is_gone),
    ("console_everybody::somebody_sees_what_they_may", console_everybody::somebody_sees_what_they_may),
    ("console_everybody::what_objects_say_stays_text", console_everybody::what_objects_say_stays_text),
    ("console_everybody::every_page_is_for_everybody", console_everybody::every_page_is_for_everybody),
    (
        "console_everybody::pages_catch_up_after_a_cut_and_a_killed_server",
        console_everybody::pages_catch_up_after_a_cut_and_a_killed_server,
    ),
    ("spine::killed_in_the_middle_nothing_is_lost", spine::killed_in_the_middle_nothing_is_lost),
    ("spine::deleting_a_namespace_takes_everything_in_it", spine::deleting_a_namespace_takes_everything_in_it),
    (
        "spine::the_kubelet_tells_figures_to_those_who_may_see_them",
        spine::the_kubelet_tells_figures_to_those_who_may_see_them,
    ),
    ("resource_metrics::usage_is_shown_and_scales", resource_metrics::usage_is_shown_and_scales),
    ("spine::a_pod_as_a_whole_is_held_to_its_limits", spine::a_pod_as_a_whole_is_held_to_its_limits),
    ("spine::down_leaves_nothing_behind", spine::down_leaves_nothing_behind),
];

/// Those that need no cluster, only the API server or a command.
const ALONE: &[Alone] = &[
    ("console::a_cookie_speaks_for_the_pages_alone", console::a_cookie_speaks_for_the_pages_alone),
    ("console::without_the_console_there_is_none", console::without_the_console_there_is_none),
    ("console_alone::ten_thousand_pods_are_scrolled", console_alone::ten_thousand_pods_are_scrolled),
    ("console_alone::a_past_moment_has_tables_maps_and_lanes", console_alone::a_past_moment_has_tables_maps_and_lanes),
    (
        "console_alone::clocks_that_differ_and_floods_of_text_do_no_harm",
        console_alone::clocks_that_differ_and_floods_of_text_do_no_harm,
    ),
    ("envtest::tests_start_their_own_control_plane", envtest::tests_start_their_own_control_plane),
    ("envtest::a_killed_test_leaves_no_server_behind", envtest::a_killed_test_leaves_no_server_behind),
    ("store::a_live_store_is_backed_up_and_restored", store::a_live_store_is_backed_up_and_restored),
    ("store::store_commands_refuse_what_cannot_be", store::store_commands_refuse_what_cannot_be),
    ("starting::a_log_that_cannot_be_written_harms_nothing", starting::a_log_that_cannot_be_written_harms_nothing),
    ("kube_rs::kube_rs_lists_watches_and_patches", kube_rs::kube_rs_lists_watches_and_patches),
    ("flood::half_open_connections_keep_nobody_out", flood::half_open_connections_keep_nobody_out),
    ("etcd::the_api_server_stands_on_etcd", etcd::the_api_server_stands_on_etcd),
    ("etcd::the_api_server_shows_etcd_its_certificate", etcd::the_api_server_shows_etcd_its_certificate),
    ("etcd::a_full_etcd_refuses_writes_and_comes_back", etcd::a_full_etcd_refuses_writes_and_comes_back),
    ("etcd::a_cluster_stands_on_etcd", etcd::a_cluster_stands_on_etcd),
    ("migration::a_cluster_goes_to_etcd_and_back", migration::a_cluster_goes_to_etcd_and_back),
    (
        "migration::a_server_goes_to_an_etcd_of_ones_own_and_back",
        migration::a_server_goes_to_an_etcd_of_ones_own_and_back,
    ),
    ("quorum::three_servers_start_together_on_an_empty_etcd", quorum::three_servers_start_together_on_an_empty_etcd),
    (
        "histories::several_servers_are_one_register_for_each_object",
        histories::several_servers_are_one_register_for_each_object,
    ),
    ("histories::one_server_is_one_register_for_each_object", histories::one_server_is_one_register_for_each_object),
    ("embedded::pods_run_without_containerd", embedded::pods_run_without_containerd),
    ("components::dns_answers_alone", components::dns_answers_alone),
    ("components::the_proxy_serves_alone", components::the_proxy_serves_alone),
    ("components::the_kubelet_runs_pods_alone", components::the_kubelet_runs_pods_alone),
    ("devices::a_pod_gets_the_device_of_a_plugin", devices::a_pod_gets_the_device_of_a_plugin),
    ("places::others_find_the_files_of_the_node", places::others_find_the_files_of_the_node),
    ("fleet::machines_join_work_and_leave", fleet::machines_join_work_and_leave),
    ("gateway_nodes::every_node_serves", gateway_nodes::every_node_serves),
    (
        "upgrades::machines_change_their_binary_and_no_request_is_lost",
        upgrades::machines_change_their_binary_and_no_request_is_lost,
    ),
    ("servers::three_servers_lose_nothing", servers::three_servers_lose_nothing),
    (
        "disaster::a_cluster_comes_back_from_its_last_server_and_from_a_backup",
        disaster::a_cluster_comes_back_from_its_last_server_and_from_a_backup,
    ),
    ("server_changes::servers_change_and_the_cluster_goes_on", server_changes::servers_change_and_the_cluster_goes_on),
    ("witness::a_witness_keeps_two_servers_alive", witness::a_witness_keeps_two_servers_alive),
    (
        "plugin::the_binary_is_a_plugin_and_leaves_nothing_when_killed",
        plugin::the_binary_is_a_plugin_and_leaves_nothing_when_killed,
    ),
    ("plugin::another_cni_is_used_instead", plugin::another_cni_is_used_instead),
    ("local_path::data_goes_from_the_node_that_has_it", local_path::data_goes_from_the_node_that_has_it),
    ("clusters::nodes_work_together_and_leave_nothing", clusters::nodes_work_together_and_leave_nothing),
    ("failing_nodes::lost_nodes_are_replaced_and_return", failing_nodes::lost_nodes_are_replaced_and_return),
    ("failing_nodes::encrypted_nodes_work_together", failing_nodes::encrypted_nodes_work_together),
    ("leftovers::a_node_that_is_killed_leaves_nothing", leftovers::a_node_that_is_killed_leaves_nothing),
    ("leftovers::what_cannot_be_is_refused_in_a_sentence", leftovers::what_cannot_be_is_refused_in_a_sentence),
    ("clusters::a_cluster_of_several_servers_outlives_one", clusters::a_cluster_of_several_servers_outlives_one),
    ("succession::killed_leaders_are_succeeded", succession::killed_leaders_are_succeeded),
    (
        "succession::a_stopped_leader_is_succeeded_and_gives_way",
        succession::a_stopped_leader_is_succeeded_and_gives_way,
    ),
    (
        "gauntlet::webhooks_change_refuse_and_fail_as_documented",
        gauntlet::webhooks_change_refuse_and_fail_as_documented,
    ),
    (
        "gauntlet::secrets_are_unreadable_at_rest_and_keys_change_while_it_runs",
        gauntlet::secrets_are_unreadable_at_rest_and_keys_change_while_it_runs,
    ),
];

fn main() -> ExitCode {
    let mut report = Report::from_arguments();
    for (name, scenario) in ALONE.iter().chain(wire::ALONE).chain(hostile::ALONE.iter().copied().flatten()) {
        if report.wants(name) {
            report.attempt(name, scenario);
        }
    }
    let all = hostile::SCENARIOS.iter().copied().flatten().chain(SCENARIOS);
    let chosen: Vec<&Scenario> = all.filter(|(name, _)| report.wants(name)).collect();
    if chosen.is_empty() {
        return report.finish();
    }
    if let Some(reason) = Cluster::missing() {
        chosen.iter().for_each(|(name, _)| report.skip(name, &reason));
        return report.finish();
    }
    let mut cluster = None;
    report.attempt("a_cluster_starts", || cluster = Some(Cluster::start()));
    for (name, scenario) in chosen {
        let Some(cluster) = &mut cluster else {
            report.fail(name, "there is no cluster");
            continue;
        };
        if !report.attempt(name, || scenario(cluster)) {
            cluster.show_state();
        }
    }
    // While it is still known how many failed: a cluster that cannot be stopped panics.
    report.attempt("the_cluster_stops", || drop(cluster));
    report.finish()
}
