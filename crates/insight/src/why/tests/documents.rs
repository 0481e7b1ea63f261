//! Every cause has its section in `docs/why/`, and every section is of a cause.

use std::collections::BTreeMap;

use super::Reason;

#[test]
fn every_cause_has_a_section() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/why");
    let mut pages: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for reason in Reason::ALL {
        let sections = pages.entry(reason.page()).or_insert_with(|| {
            let path = format!("{folder}/{}.md", reason.page());
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            text.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect()
        });
        assert!(
            sections.iter().any(|name| name == reason.name()),
            "{}.md has no section {}",
            reason.page(),
            reason.name()
        );
    }
    for (page, sections) in pages {
        for section in sections {
            let known = Reason::ALL.iter().any(|reason| reason.page() == page && reason.name() == section);
            assert!(known, "{page}.md: {section} is no cause");
        }
    }
    let names: std::collections::BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len(), "a name stands for two causes");
}
