//! `printf` of Go templates.

use serde_json::Value;

use super::go_value::show;
use super::template_functions::Slot;

/// A value, and what Go calls its type.
pub type Typed<'a> = (&'a Slot, &'static str);

#[derive(Clone, Copy, Default)]
struct Flags {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// More is not a width that anybody means.
const WIDEST: usize = 4096;

pub fn sprintf(pattern: &str, arguments: &[Typed<'_>]) -> String {
    let (mut out, mut rest) = (String::new(), arguments.iter());
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut flags = Flags::default();
        while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '+' | '#' | ' ' | '0')) {
            match flag {
                '-' => flags.minus = true,
                '+' => flags.plus = true,
                '#' => flags.sharp = true,
                ' ' => flags.space = true,
                _ => flags.zero = true,
            }
        }
        let mut number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            if chars.next_if_eq(&'*').is_some() {
                let given = rest.next().and_then(|(slot, _)| slot.as_ref()?.as_u64());
                return given.and_then(|given| usize::try_from(given).ok()).map(|given| given.min(WIDEST));
            }
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            digits.parse::<usize>().ok().map(|wide| wide.min(WIDEST))
        };
        flags.width = number(&mut chars);
        if chars.next_if_eq(&'.').is_some() {
            flags.precision = Some(number(&mut chars).unwrap_or(0));
        }
        match chars.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(verb) => match rest.next() {
                None => out.push_str(&format!("%!{verb}(MISSING)")),
                Some(argument) => out.push_str(&one(verb, flags, *argument)),
            },
        }
    }
    let left: Vec<String> = rest.map(described).collect();
    if !left.is_empty() {
        out.push_str(&format!("%!(EXTRA {})", left.join(", ")));
    }
    out
}

/// `int=2`, as what does not fit is shown.
fn described((slot, name): &Typed<'_>) -> String {
    match slot {
        None | Some(Value::Null) => "<nil>".into(),
        Some(value) => format!("{name}={}", show(value)),
    }
}

fn one(verb: char, flags: Flags, argument: Typed<'_>) -> String {
    let bad = || match argument.0 {
        None | Some(Value::Null) => format!("%!{verb}(<nil>)"),
        _ => format!("%!{verb}({})", described(&argument)),
    };
    if verb == 'T' {
        return padded(flags, argument.1.to_owned());
    }
    let (slot, _) = argument;
    let Some(value) = slot.as_ref().filter(|value| !value.is_null()) else {
        return if verb == 'v' { padded(flags, "<nil>".into()) } else { bad() };
    };
    match (verb, value) {
        ('v', Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_)) if !flags.sharp => {
            signed(flags, show(value), value.is_number())
        }
        ('v', value) if flags.sharp => padded(flags, super::go_value::syntax(value)),
        ('s' | 'v', Value::String(text)) => padded(flags, cut(flags, text)),
        ('q', Value::String(text)) => padded(flags, crate::text::quote(&cut(flags, text))),
        ('x' | 'X', Value::String(text)) => {
            let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            padded(flags, if verb == 'X' { digits.to_uppercase() } else { digits })
        }
        ('t', Value::Bool(value)) => padded(flags, value.to_string()),
        (_, Value::Number(number)) if !number.is_f64() => match number.as_i64() {
            Some(number) => integer(verb, flags, number).unwrap_or_else(bad),
            None => signed(flags, number.to_string(), true),
        },
        (_, Value::Number(number)) => float(verb, flags, number.as_f64().unwrap_or_default()).unwrap_or_else(bad),
        // Each element by itself.
        (_, Value::Array(items)) => {
            let each = |item: &Value| one(verb, flags, (&Some(item.clone()), ferry_schema::go_type(item)));
            format!("[{}]", items.iter().map(each).collect::<Vec<_>>().join(" "))
        }
        (_, Value::Object(map)) => {
            let each = |(key, item): (&String, &Value)| {
                let key = one(verb, flags, (&Some(Value::from(key.as_str())), "string"));
                format!("{key}:{}", one(verb, flags, (&Some(item.clone()), ferry_schema::go_type(item))))
            };
            format!("map[{}]", map.iter().map(each).collect::<Vec<_>>().join(" "))
        }
        _ => bad(),
    }
}

fn integer(verb: char, flags: Flags, number: i64) -> Option<String> {
    let sign = if number < 0 { "-" } else { "" };
    let size = number.unsigned_abs();
    let prefix = |prefix: &'static str| if flags.sharp { prefix } else { "" };
    let digits = match verb {
        'd' => format!("{sign}{size}"),
        'b' => format!("{sign}{}{size:b}", prefix("0b")),
        'o' => format!("{sign}{}{size:o}", prefix("0")),
        'x' => format!("{sign}{}{size:x}", prefix("0x")),
        'X' => format!("{sign}{}{size:X}", prefix("0X")),
        'c' => u32::try_from(number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}').to_string(),
        'q' => format!("'{}'", u32::try_from(number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}')),
        'U' => format!("U+{size:04X}"),
        _ => return None,
    };
    let signs = matches!(verb, 'd' | 'b' | 'o' | 'x' | 'X');
    Some(signed(flags, digits, signs))
}

fn float(verb: char, flags: Flags, number: f64) -> Option<String> {
    let digits = match verb {
        'f' | 'F' => format!("{number:.*}", flags.precision.unwrap_or(6)),
        'e' | 'E' => {
            let text = format!("{number:.*e}", flags.precision.unwrap_or(6));
            let (digits, power) = text.split_once('e')?;
            let power: i32 = power.parse().ok()?;
            let sign = if power < 0 { '-' } else { '+' };
            let text = format!("{digits}e{sign}{:02}", power.abs());
            if verb == 'E' { text.to_uppercase() } else { text }
        }
        'g' | 'G' => show(&Value::from(number)),
        _ => return None,
    };
    Some(signed(flags, digits, true))
}

/// With its sign, and zeros behind it.
fn signed(flags: Flags, digits: String, is_number: bool) -> String {
    let digits = match (digits.starts_with('-'), is_number) {
        (false, true) if flags.plus => format!("+{digits}"),
        (false, true) if flags.space => format!(" {digits}"),
        _ => digits,
    };
    let missing = flags.width.unwrap_or(0).saturating_sub(digits.chars().count());
    if !flags.zero || flags.minus || !is_number || missing == 0 {
        return padded(flags, digits);
    }
    let at = usize::from(digits.starts_with(['-', '+', ' ']));
    format!("{}{}{}", &digits[..at], "0".repeat(missing), &digits[at..])
}

fn cut(flags: Flags, text: &str) -> String {
    text.chars().take(flags.precision.unwrap_or(usize::MAX)).collect()
}

fn padded(flags: Flags, text: String) -> String {
    let missing = flags.width.unwrap_or(0).saturating_sub(text.chars().count());
    match flags.minus {
        true => text + &" ".repeat(missing),
        false if flags.zero => "0".repeat(missing) + &text,
        false => " ".repeat(missing) + &text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_widths() {
        for (pattern, value, shown) in [
            ("%s|%v|%q", Value::from("a"), r#"a|%!v(MISSING)|%!q(MISSING)"#),
            ("%5s", "ab".into(), "   ab"),
            ("%-5s|", "ab".into(), "ab   |"),
            ("%.1s", "ab".into(), "a"),
            ("%x", "ab".into(), "6162"),
            ("%d", "api".into(), "%!d(string=api)"),
            ("%05d", 3.into(), "00003"),
            ("%+d", 3.into(), "+3"),
            ("%s", 3.into(), "%!s(int64=3)"),
            ("%.2f", 3.into(), "%!f(int64=3)"),
            ("%.2f", 1.5.into(), "1.50"),
            ("%8.3f|", (-1.5).into(), "  -1.500|"),
            ("%e", 1500.5.into(), "1.500500e+03"),
            ("%x %%", 255.into(), "ff %"),
            ("%t", true.into(), "true"),
            ("%v", serde_json::json!({"b": [1, "x"], "a": null}), "map[a:<nil> b:[1 x]]"),
            ("%s", serde_json::json!(["a", 1]), "[a %!s(int64=1)]"),
            ("%", 1.into(), "%!(NOVERB)%!(EXTRA int64=1)"),
            ("x", 1.into(), "x%!(EXTRA int64=1)"),
            ("%!", 1.into(), "%!!(int64=1)"),
        ] {
            let name = ferry_schema::go_type(&value);
            assert_eq!(sprintf(pattern, &[(&Some(value), name)]), shown, "{pattern}");
        }
        assert_eq!(
            sprintf("%v %s %d", &[(&None, "<nil>"), (&None, "<nil>"), (&None, "<nil>")]),
            "<nil> %!s(<nil>) %!d(<nil>)"
        );
    }
}
