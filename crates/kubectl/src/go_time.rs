//! Times as Go reads them: RFC 3339, with its complaints.

use crate::text::quote;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// Whether the text is a time; what Go says where it is none.
pub fn check(text: &str) -> Result<(), String> {
    let mut reader = Reader { whole: text, rest: text };
    let year = reader.digits("2006", 4)?;
    reader.literal("-")?;
    let month = reader.number("01", true, 1..=12, "month")?;
    reader.literal("-")?;
    let day = reader.number("02", true, 0..=99, "day")?;
    reader.literal("T")?;
    reader.number("15", false, 0..=23, "hour")?;
    reader.literal(":")?;
    reader.number("04", true, 0..=59, "minute")?;
    reader.literal(":")?;
    reader.number("05", true, 0..=59, "second")?;
    reader.fraction();
    reader.zone()?;
    if !reader.rest.is_empty() {
        return Err(reader.wrong(&format!("extra text: {}", quote(reader.rest))));
    }
    if day < 1 || day > days(year, month) {
        return Err(reader.wrong("day out of range"));
    }
    Ok(())
}

fn days(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
}

impl Reader<'_> {
    fn bad(&self, element: &str) -> String {
        let (whole, layout) = (quote(self.whole), quote(LAYOUT));
        format!("parsing time {whole} as {layout}: cannot parse {} as {}", quote(self.rest), quote(element))
    }

    fn wrong(&self, why: &str) -> String {
        format!("parsing time {}: {why}", quote(self.whole))
    }

    fn literal(&mut self, text: &str) -> Result<(), String> {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.bad(text)),
        }
    }

    fn digits(&mut self, element: &str, count: usize) -> Result<u32, String> {
        let digits = self.rest.get(..count).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let value = digits.and_then(|text| text.parse().ok()).ok_or_else(|| self.bad(element))?;
        self.rest = &self.rest[count..];
        Ok(value)
    }

    fn number(
        &mut self,
        element: &str,
        two: bool,
        range: std::ops::RangeInclusive<u32>,
        name: &str,
    ) -> Result<u32, String> {
        let count = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        let value = self.digits(element, if two { 2 } else { count.max(1) })?;
        if range.contains(&value) { Ok(value) } else { Err(self.wrong(&format!("{name} out of range"))) }
    }

    /// Parts of a second are read though the layout has none.
    fn fraction(&mut self) {
        let Some(behind) = self.rest.strip_prefix(['.', ',']) else { return };
        let after = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        if after.len() < behind.len() {
            self.rest = after;
        }
    }

    fn zone(&mut self) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(());
        }
        let two = |from: usize| {
            let text = self.rest.get(from..from + 2)?;
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok())?
        };
        let is_zone = self.rest.starts_with(['+', '-']) && self.rest.as_bytes().get(3) == Some(&b':');
        let (true, Some(hour), Some(minute)) = (is_zone, two(1), two(4)) else { return Err(self.bad("Z07:00")) };
        if hour > 24 {
            return Err(self.wrong("time zone offset hour out of range"));
        }
        if minute > 60 {
            return Err(self.wrong("time zone offset minute out of range"));
        }
        self.rest = &self.rest[6..];
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn complaints_are_gos() {
        let as_layout = |why: &str| format!(r#" as "2006-01-02T15:04:05Z07:00": cannot parse {why}"#);
        for (text, why) in [
            ("2020-02-29T01:02:03Z", None),
            ("2020-02-28T1:02:03.55+01:00", None),
            ("yesterday", Some(as_layout(r#""yesterday" as "2006""#))),
            ("", Some(as_layout(r#""" as "2006""#))),
            ("2020", Some(as_layout(r#""" as "-""#))),
            ("2020-1-01", Some(as_layout(r#""1-01" as "01""#))),
            ("2020-01-01", Some(as_layout(r#""" as "T""#))),
            ("2020-01-01 00:00:00", Some(as_layout(r#"" 00:00:00" as "T""#))),
            ("2020-01-01T00:00:00", Some(as_layout(r#""" as "Z07:00""#))),
            ("2020-13-01T00:00:00Z", Some(": month out of range".to_owned())),
            ("2021-02-29T00:00:00Z", Some(": day out of range".to_owned())),
            ("2020-01-01T24:00:00Z", Some(": hour out of range".to_owned())),
            ("2020-01-01T00:00:00Zx", Some(r#": extra text: "x""#.to_owned())),
        ] {
            let expected = why.map(|why| format!("parsing time {text:?}{why}"));
            assert_eq!(super::check(text).err(), expected, "{text}");
        }
    }
}
