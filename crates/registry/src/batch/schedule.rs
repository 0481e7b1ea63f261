//! Cron schedules, judged with the words of the library upstream reads them with.

struct Bounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds { low: 1, high: 12, names: &MONTHS },
    Bounds { low: 0, high: 6, names: &DAYS },
];

/// Why a text is no schedule.
pub(super) fn refusal(schedule: &str) -> Option<String> {
    check(schedule).err()
}

fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let mut text = schedule;
    if let Some(rest) = ["TZ=", "CRON_TZ="].iter().find_map(|prefix| schedule.strip_prefix(prefix)) {
        let (zone, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if jiff::tz::TimeZone::get(zone).is_err() {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        text = rest.trim();
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| field.split(',').try_for_each(|part| range(part, bounds)))
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            Some(duration) if is_go_duration(duration) => Ok(()),
            Some(duration) => Err(format!("failed to parse duration {text}: time: invalid duration \"{duration}\"")),
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        if number == 0 {
            return false;
        }
        rest = &rest[number..];
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|unit| rest.starts_with(**unit)) else {
            return false;
        };
        rest = &rest[unit.len()..];
        parts += 1;
    }
    parts > 0
}

fn range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = expression.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let single = ends.len() == 1;
    let (start, mut end) = if ends[0] == "*" || ends[0] == "?" {
        (bounds.low, bounds.high)
    } else {
        let start = number_or_name(ends[0], bounds)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, last] => (start, number_or_name(last, bounds)?),
            _ => return Err(format!("too many hyphens: {expression}")),
        }
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if single {
                end = bounds.high;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {expression}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {expression}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(index) => Ok(bounds.low + u32::try_from(index).unwrap_or_default()),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_judged_as_upstream_does() {
        let check = |text: &str, want: Option<&str>| assert_eq!(refusal(text).as_deref(), want, "{text}");
        check("*/5 * * * *", None);
        check("@daily", None);
        check("0 0 1-5 jan,mar mon", None);
        check("@every 1h30m", None);
        check("99 * * * *", Some("end of range (99) above maximum (59): 99"));
        check("* * * *", Some("expected exactly 5 fields, found 4: [* * * *]"));
        check("5-1 * * * *", Some("beginning of range (5) beyond end of range (1): 5-1"));
        check("@never", Some("unrecognized descriptor: @never"));
        check("x * * * *", Some("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"));
    }
}
