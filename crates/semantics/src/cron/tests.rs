use super::*;

#[test]
fn lines_are_judged_in_upstreams_words() {
    for (line, want) in [
        ("*/5 * * * *", ""),
        ("@daily", ""),
        ("@every 1.5h", ""),
        ("0 0 1-5 jan,MAR mon", ""),
        ("0 0 ? * ?", ""),
        ("1,,2 * * * *", ""),
        ("5/15 * * * *", ""),
        ("+5 * * * *", ""),
        ("TZ=Europe/Berlin 0 9 * * *", ""),
        ("CRON_TZ=UTC @hourly", ""),
        ("", "empty spec string"),
        (" ", "expected exactly 5 fields, found 0: []"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* 24 * * *", "end of range (24) above maximum (23): 24"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/-5 * * * *", "negative number (-5) not allowed: -5"),
        ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ("1- * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
        (
            "99999999999999999999 * * * *",
            "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        ("@never", "unrecognized descriptor: @never"),
        ("@every", "unrecognized descriptor: @every"),
        ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ("@every 1d", "failed to parse duration @every 1d: time: unknown unit \"d\" in duration \"1d\""),
        ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
        ("TZ=Nowhere/Nothing 0 9 * * *", "provided bad location Nowhere/Nothing: unknown time zone Nowhere/Nothing"),
    ] {
        assert_eq!(Schedule::parse(line).err().map(String::from).unwrap_or_default(), want, "{line}");
    }
}

/// The times after `after`, one after the other; the way back has to find each of them too.
fn check(line: &str, zone: &str, after: &str, expected: &[&str]) {
    let schedule = Schedule::parse(line).expect("a schedule");
    let zone = TimeZone::get(zone).expect("a time zone");
    let after: Timestamp = after.parse().expect("a time");
    let mut at = after;
    for expected in expected {
        let Some(next) = schedule.next(at, &zone) else { panic!("{line} does not come after {at}") };
        assert_eq!(next.to_string(), *expected, "{line} after {at}");
        assert_eq!(schedule.latest(after, next, &zone), Some(next), "{line} backwards");
        let before = next.checked_sub(SignedDuration::from_secs(1)).expect("a time");
        let previous = (at != after).then_some(at);
        assert_eq!(schedule.latest(after, before, &zone), previous, "{line} backwards, a second before {next}");
        at = next;
    }
    if expected.is_empty() {
        assert_eq!(schedule.next(after, &zone), None, "{line}");
        assert_eq!(schedule.latest(after, after + SignedDuration::from_hours(24 * 365), &zone), None, "{line}");
    }
}

#[test]
fn lines_are_followed() {
    let from = "2026-01-01T00:00:00Z";
    check("*/5 * * * *", "UTC", from, &["2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"]);
    check("*/5 * * * *", "UTC", "2026-01-01T00:04:59.999Z", &["2026-01-01T00:05:00Z"]);
    check("5/20 * * * *", "UTC", from, &["2026-01-01T00:05:00Z", "2026-01-01T00:25:00Z", "2026-01-01T00:45:00Z"]);
    check("0 0 1 1 *", "UTC", from, &["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]);
    check("30 9 * * mon-fri", "UTC", "2026-01-02T10:00:00Z", &["2026-01-05T09:30:00Z"]);
    check("59 23 31 12 *", "UTC", from, &["2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"]);
    check("0 0 29 2 *", "UTC", from, &["2028-02-29T00:00:00Z"]);
    check("0 0 31 2 *", "UTC", from, &[]);
    check(", * * * *", "UTC", from, &[]);
    for (descriptor, next) in [
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("@monthly", "2026-02-01T00:00:00Z"),
        ("@weekly", "2026-01-04T00:00:00Z"),
        ("@daily", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-02T00:00:00Z"),
        ("@hourly", "2026-01-01T01:00:00Z"),
    ] {
        check(descriptor, "UTC", from, &[next]);
    }
}

#[test]
fn either_kind_of_day_will_do_where_both_are_restricted() {
    let from = "2026-01-01T00:00:00Z";
    check("0 12 13 * 5", "UTC", from, &["2026-01-02T12:00:00Z", "2026-01-09T12:00:00Z", "2026-01-13T12:00:00Z"]);
    check("0 12 13 * *", "UTC", from, &["2026-01-13T12:00:00Z"]);
    check("0 12 13 * ?", "UTC", from, &["2026-01-13T12:00:00Z"]);
    check("0 12 * * 5", "UTC", from, &["2026-01-02T12:00:00Z"]);
    // With a step, a star restricts.
    check("0 12 13 * */6", "UTC", from, &["2026-01-03T12:00:00Z", "2026-01-04T12:00:00Z"]);
    check(
        "0 12 */10 * 5",
        "UTC",
        "2026-01-01T13:00:00Z",
        &["2026-01-02T12:00:00Z", "2026-01-09T12:00:00Z", "2026-01-11T12:00:00Z"],
    );
    check("0 12 1-31/1 * 5", "UTC", from, &["2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"]);
    check("0 12 13,* * 5", "UTC", from, &["2026-01-02T12:00:00Z"]);
}

#[test]
fn intervals_count_from_the_last_time() {
    let from = "2026-01-01T00:00:00Z";
    check("@every 90m", "UTC", from, &["2026-01-01T01:30:00Z", "2026-01-01T03:00:00Z"]);
    check("@every 1.5h", "UTC", from, &["2026-01-01T01:30:00Z", "2026-01-01T03:00:00Z"]);
    check("@every 1h0m0.9s", "UTC", from, &["2026-01-01T01:00:00Z"]);
    check("@every 500ms", "UTC", from, &["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"]);
    check("@every -5m", "UTC", from, &["2026-01-01T00:00:01Z"]);
    check("@every 0", "UTC", from, &["2026-01-01T00:00:01Z"]);
    check("@every 90s", "UTC", "2026-01-01T00:00:00.7Z", &["2026-01-01T00:01:30Z"]);
    assert!(Schedule::parse("@every 1h").expect("a schedule").is_interval());
    assert!(!Schedule::parse("@hourly").expect("a schedule").is_interval());
}

#[test]
fn clocks_that_are_set_skip_and_repeat() {
    check("0 9 * * *", "America/New_York", "2026-01-01T00:00:00Z", &["2026-01-01T14:00:00Z"]);
    // From 2 to 3 in the morning of 29 March: half past two does not come that day.
    check("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-30T00:30:00Z"]);
    check("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", &["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]);
    // From 3 back to 2 in the morning of 25 October: half past two comes twice.
    check(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
    );
    // Midnight itself is skipped on 5 September.
    check("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", &["2026-09-07T03:00:00Z"]);
    check("0 1 * * *", "America/Santiago", "2026-09-05T12:00:00Z", &["2026-09-06T04:00:00Z"]);
    // The line's own zone counts.
    check("TZ=America/New_York 0 9 * * *", "UTC", "2026-01-01T00:00:00Z", &["2026-01-01T14:00:00Z"]);
}
