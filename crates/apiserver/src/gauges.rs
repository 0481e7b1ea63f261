//! Figures that are read off when somebody asks: how many objects there are, and what the process uses.

use std::fmt::Write;

use crate::metrics::head;
use crate::server::Core;

pub(crate) fn text(core: &Core) -> String {
    let mut out = core.metrics.text();
    objects(&mut out, core);
    process(&mut out);
    head(&mut out, "kubernetes_build_info", "gauge", "The version of the API.");
    out.push_str("kubernetes_build_info{git_version=\"v1.37.0\",major=\"1\",minor=\"37\",platform=\"linux/");
    let _ = writeln!(out, "{}\"}} 1", std::env::consts::ARCH);
    out
}

/// What service levels are measured by: each health check as it is now.
pub(crate) async fn service_levels(core: &Core) -> String {
    let mut out = String::new();
    let help = "[STABLE] This metric records the result of a single healthcheck.";
    head(&mut out, "kubernetes_healthcheck", "gauge", help);
    let mut lines: Vec<String> = Vec::new();
    for root in ["healthz", "livez", "readyz"] {
        for name in crate::health::checks(root) {
            let good = u8::from(crate::health::check(core, name).await.is_ok());
            lines.push(format!("kubernetes_healthcheck{{name=\"{name}\",type=\"{root}\"}} {good}\n"));
        }
    }
    lines.sort();
    lines.iter().for_each(|line| out.push_str(line));
    out
}

fn objects(out: &mut String, core: &Core) {
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
    head(out, "apiserver_resource_objects", "gauge", "Stored objects by resource.");
    for (group, resource, count) in &counted {
        let _ = writeln!(out, "apiserver_resource_objects{{group=\"{group}\",resource=\"{resource}\"}} {count}");
    }
    head(out, "apiserver_storage_objects", "gauge", "Stored objects by resource.");
    for (group, resource, count) in &counted {
        let dot = if group.is_empty() { "" } else { "." };
        let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{resource}{dot}{group}\"}} {count}");
    }
}

/// What Prometheus' clients tell of every process.
fn process(out: &mut String) {
    // Clock ticks are hundredths of a second on every Linux that matters here.
    const TICKS: f64 = 100.0;
    const PAGE: u64 = 4096;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process may hold anything; fields are counted behind it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    head(out, "process_cpu_seconds_total", "counter", "User and system time of the process.");
    let _ = writeln!(out, "process_cpu_seconds_total {}", (number(11) + number(12)) as f64 / TICKS);
    head(out, "process_resident_memory_bytes", "gauge", "Memory of the process that is in RAM.");
    let _ = writeln!(out, "process_resident_memory_bytes {}", number(21) * PAGE);
    head(out, "process_virtual_memory_bytes", "gauge", "Memory the process has asked for.");
    let _ = writeln!(out, "process_virtual_memory_bytes {}", number(20));
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    head(out, "process_open_fds", "gauge", "Open file descriptors.");
    let _ = writeln!(out, "process_open_fds {open}");
    let started = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = started.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    if let Some(boot) = boot {
        head(out, "process_start_time_seconds", "gauge", "When the process started, since the epoch.");
        let _ = writeln!(out, "process_start_time_seconds {}", boot + number(19) as f64 / TICKS);
    }
}
