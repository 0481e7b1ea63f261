use super::*;

fn look(at: i64, cpu: u64) -> Look {
    Look { at, cpu: Some(cpu), memory: Some(1 << 20), started: None }
}

fn page(looks: &[(&str, Look)]) -> Page {
    let mut page = Page::default();
    for (name, look) in looks {
        page.pods.entry(("n".into(), "p".into())).or_default().insert((*name).to_owned(), *look);
    }
    page
}

fn usage(record: &Record) -> Option<Vec<(String, u64, i64)>> {
    let all = record.pod("n", "p")?;
    Some(all.into_iter().map(|(name, usage)| (name.to_owned(), usage.cpu, usage.window)).collect())
}

#[test]
fn a_rate_takes_two_looks() {
    let first = Record::default().after(page(&[("a", look(1_000_000, 500_000_000))]));
    assert_eq!(usage(&first), None);
    let second = first.after(page(&[("a", look(1_010_000, 5_500_000_000))]));
    assert_eq!(usage(&second), Some(vec![("a".into(), 500_000_000, 10_000)]), "half a core");
    let same = second.after(page(&[("a", look(1_010_000, 5_500_000_000))]));
    assert_eq!(usage(&same), usage(&second), "the same moment again");
    let backwards = second.after(page(&[("a", look(1_020_000, 1))]));
    assert_eq!(usage(&backwards), None, "processor time does not run backwards");
}

#[test]
fn a_pod_is_told_of_when_all_its_containers_are_known() {
    let first = Record::default().after(page(&[("a", look(1000, 0))]));
    let second = first.after(page(&[("a", look(2000, 1)), ("b", look(2000, 1))]));
    assert_eq!(usage(&second), None);
    let third = second.after(page(&[("a", look(3000, 2)), ("b", look(3000, 2))]));
    assert_eq!(usage(&third).map(|all| all.len()), Some(2));
    let gone = third.after(page(&[]));
    assert_eq!(usage(&gone), None, "a pod that is gone is forgotten");
}

#[test]
fn a_young_container_counts_from_its_start() {
    let young = |age: i64| Look { started: Some(1_000_000), ..look(1_000_000 + age, 12_000_000_000) };
    for (age, told) in [(5_000, false), (12_000, true), (40_000, false)] {
        let record = Record::default().after(page(&[("a", young(age))]));
        assert_eq!(usage(&record).is_some(), told, "{age}");
    }
    let record = Record::default().after(page(&[("a", young(12_000))]));
    assert_eq!(usage(&record), Some(vec![("a".into(), 1_000_000_000, 12_000)]));
}

#[test]
fn one_that_started_again_is_not_measured_against_its_past() {
    let first = Record::default().after(page(&[("a", look(1_000_000, 50))]));
    let again = Look { started: Some(1_005_000), ..look(1_006_000, 60) };
    assert_eq!(usage(&first.after(page(&[("a", again)]))), None);
}

#[test]
fn figures_that_cannot_be_harm_nothing() {
    let far = Look { started: Some(i64::MIN), ..look(i64::MAX, u64::MAX) };
    let first = Record::default().after(page(&[("a", look(i64::MIN, 0))]));
    assert_eq!(usage(&first.after(page(&[("a", far)]))), None);
}
