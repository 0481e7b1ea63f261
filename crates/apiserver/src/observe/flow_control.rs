//! Priority and fairness in figures: the seats of each level, the requests of each schema.

use ferry_fairness::{FlowNow, LevelNow};
use ferry_metrics::{Kind, Page, labels};

pub(super) fn write(page: &mut Page, levels: &[LevelNow], flows: &[FlowNow]) {
    type OfLevel = fn(&LevelNow) -> usize;
    let of_levels: [(&str, &str, OfLevel); 4] = [
        ("nominal_limit_seats", "Seats of a level without lending and borrowing.", |level| level.limits.nominal),
        ("lower_limit_seats", "Seats that stay with a level when it lends all it may.", |level| level.limits.lower),
        ("upper_limit_seats", "Seats of a level when it borrows all it may.", |level| level.limits.upper),
        ("current_limit_seats", "Seats that a level could use now.", |level| level.limits.current),
    ];
    for (name, help, value) in of_levels {
        let name = format!("apiserver_flowcontrol_{name}");
        let mut family = page.family(&name, Kind::Gauge, help);
        for level in levels {
            family.sample(&labels([("priority_level", level.name.as_str())]), value(level));
        }
    }
    type OfFlow = fn(&FlowNow) -> u64;
    let of_flows: [(&str, Kind, &str, OfFlow); 4] = [
        ("current_executing_requests", Kind::Gauge, "Requests that run now.", |flow| flow.running),
        ("current_executing_seats", Kind::Gauge, "Seats of the requests that run now.", |flow| flow.seats),
        ("current_inqueue_requests", Kind::Gauge, "Requests that wait now.", |flow| flow.waiting),
        ("dispatched_requests_total", Kind::Counter, "Requests that were run.", |flow| flow.dispatched),
    ];
    let of = |flow: &FlowNow| labels([("flow_schema", flow.schema.as_str()), ("priority_level", flow.level.as_str())]);
    for (name, kind, help, value) in of_flows {
        let name = format!("apiserver_flowcontrol_{name}");
        let mut family = page.family(&name, kind, help);
        for flow in flows {
            family.sample(&of(flow), value(flow));
        }
    }
    let mut family =
        page.family("apiserver_flowcontrol_rejected_requests_total", Kind::Counter, "Requests that were not run.");
    for flow in flows {
        for (why, count) in &flow.refused {
            family.sample(&format!("{},{}", of(flow), labels([("reason", why.as_str())])), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_fairness::{Limits, Refusal};

    #[test]
    fn levels_and_schemas_have_upstreams_names() {
        let level = LevelNow {
            name: "workload-low".into(),
            exempt: false,
            in_use: 3,
            waiting: 0,
            limits: Limits { nominal: 245, lower: 24, upper: 600, current: 500 },
            counts: Default::default(),
            queues: Vec::new(),
        };
        let flow = FlowNow {
            schema: "service-accounts".into(),
            level: "workload-low".into(),
            waiting: 1,
            running: 2,
            seats: 3,
            dispatched: 40,
            refused: vec![(Refusal::QueueFull, 5)],
        };
        let mut page = Page::new();
        write(&mut page, &[level], &[flow]);
        let text = page.into_text();
        let of = r#"flow_schema="service-accounts",priority_level="workload-low""#;
        for line in [
            r#"nominal_limit_seats{priority_level="workload-low"} 245"#.to_owned(),
            r#"current_limit_seats{priority_level="workload-low"} 500"#.to_owned(),
            format!("current_executing_requests{{{of}}} 2"),
            format!("current_executing_seats{{{of}}} 3"),
            format!("current_inqueue_requests{{{of}}} 1"),
            format!("dispatched_requests_total{{{of}}} 40"),
            format!("rejected_requests_total{{{of},reason=\"queue-full\"}} 5"),
        ] {
            assert!(text.contains(&format!("apiserver_flowcontrol_{line}\n")), "{line}: {text}");
        }
    }
}
