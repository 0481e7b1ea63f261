//! Figures that are read off when somebody asks: how many objects there are, and what the process uses.

use ferry_fairness::FlowControl;
use ferry_metrics::{Kind, Page, Scrape, labels};

use crate::server::Core;

pub(crate) fn page(core: &Core, scrape: &Scrape) -> Page {
    let mut page = core.metrics.page(scrape);
    objects(&mut page, core);
    if let Some(FlowControl::Fair(fairness)) = &core.flow_control {
        super::flow_control::write(&mut page, &fairness.now(), &fairness.flows());
    }
    process(&mut page);
    let platform = format!("linux/{}", std::env::consts::ARCH);
    let version = [("git_version", "v1.37.0"), ("major", "1"), ("minor", "37"), ("platform", platform.as_str())];
    page.family("kubernetes_build_info", Kind::Gauge, "The version of the API.").sample(&labels(version), 1);
    page
}

/// What service levels are measured by: each health check as it is now.
pub(crate) async fn service_levels(core: &Core, scrape: &Scrape) -> Page {
    let mut results: Vec<(String, u8)> = Vec::new();
    let state = crate::nonresource::health::Checks::of(core);
    for root in ["healthz", "livez", "readyz"] {
        for name in state.names(root) {
            let good = u8::from(state.check(name).await.is_ok());
            results.push((labels([("name", name), ("type", root)]), good));
        }
    }
    results.sort();
    let mut page = scrape.page();
    let help = "[STABLE] This metric records the result of a single healthcheck.";
    let mut family = page.family("kubernetes_healthcheck", Kind::Gauge, help);
    for (labels, good) in results {
        family.sample(&labels, good);
    }
    page
}

fn objects(page: &mut Page, core: &Core) {
    let table = core.table();
    let mut counted: Vec<(&str, &str, usize)> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for row in table.rows().iter().filter(|row| row.stored) {
        if seen.contains(&&*row.storage_prefix) {
            continue;
        }
        seen.push(&row.storage_prefix);
        if let Some(cache) = core.cache.resource(&row.storage_prefix) {
            counted.push((&row.storage_gvk.group, &row.plural, cache.snapshot().len()));
        }
    }
    let mut family = page.family("apiserver_resource_objects", Kind::Gauge, "Stored objects by resource.");
    for (group, resource, count) in &counted {
        family.sample(&labels([("group", *group), ("resource", *resource)]), count);
    }
    let mut family = page.family("apiserver_storage_objects", Kind::Gauge, "Stored objects by resource.");
    for (group, resource, count) in &counted {
        let dot = if group.is_empty() { "" } else { "." };
        family.sample(&labels([("resource", format!("{resource}{dot}{group}").as_str())]), count);
    }
}

/// What Prometheus' clients tell of every process.
fn process(page: &mut Page) {
    // Clock ticks are hundredths of a second on every Linux that matters here.
    const TICKS: f64 = 100.0;
    const PAGE: u64 = 4096;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process may hold anything; fields are counted behind it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    page.family("process_cpu_seconds_total", Kind::Counter, "User and system time of the process.")
        .sample("", (number(11) + number(12)) as f64 / TICKS);
    page.family("process_resident_memory_bytes", Kind::Gauge, "Memory of the process that is in RAM.")
        .sample("", number(21) * PAGE);
    page.family("process_virtual_memory_bytes", Kind::Gauge, "Memory the process has asked for.")
        .sample("", number(20));
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    page.family("process_open_fds", Kind::Gauge, "Open file descriptors.").sample("", open);
    let started = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = started.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    if let Some(boot) = boot {
        page.family("process_start_time_seconds", Kind::Gauge, "When the process started, since the epoch.")
            .sample("", boot + number(19) as f64 / TICKS);
    }
}
