//! Flags as kubectl's library reads them: `--name=value`, `--name value`, `-n value`, `-nvalue`, words and flags mixed,
//! everything behind `--` left alone. Complaints are in its words.

use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Text,
    Int,
    Duration,
    /// Each use adds one value.
    Array,
    /// Each use adds values, split at commas.
    Slice,
}

#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub kind: Kind,
    pub default: &'static str,
    /// The value where none is given: `--dry-run`.
    pub bare: Option<&'static str>,
    pub help: &'static str,
    /// What to do instead, told to whoever uses it; helps do not show it.
    pub deprecated: Option<&'static str>,
}

impl Flag {
    pub const fn new(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Self {
        let bare = match kind {
            Kind::Bool => Some("true"),
            _ => None,
        };
        Self { name, short: None, kind, default, bare, help, deprecated: None }
    }

    pub const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    pub const fn bare(mut self, value: &'static str) -> Self {
        self.bare = Some(value);
        self
    }

    pub const fn deprecated(mut self, instead: &'static str) -> Self {
        self.deprecated = Some(instead);
        self
    }

    fn shown(&self) -> String {
        match self.short {
            Some(short) => format!("-{short}, --{}", self.name),
            None => format!("--{}", self.name),
        }
    }
}

pub const fn text(name: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Kind::Text, "", help)
}

pub const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Kind::Bool, "false", help)
}

pub const fn array(name: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Kind::Array, "", help)
}

pub const fn slice(name: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Kind::Slice, "", help)
}

/// What was given on the command line.
#[derive(Debug, Default)]
pub struct Parsed {
    specs: Vec<Flag>,
    values: HashMap<&'static str, Vec<String>>,
    /// The flags in the order of the line, each with its value.
    pub line: Vec<(&'static str, String)>,
    pub words: Vec<String>,
    /// Names of global flags that mean something else to this command.
    pub shadowed: Vec<&'static str>,
    /// How many words stood before `--`.
    pub dash: Option<usize>,
    /// Asked for help; a mistake in the line is told first.
    help: bool,
}

impl Parsed {
    pub fn parse(specs: Vec<Flag>, arguments: &[String]) -> Result<Self, String> {
        let mut parsed = Self { specs, ..Self::default() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                parsed.dash = Some(parsed.words.len());
                parsed.words.extend(rest.cloned());
                break;
            }
            if let Some(long) = argument.strip_prefix("--") {
                parsed.long(long, &mut rest)?;
            } else if argument.len() > 1 && argument.starts_with('-') {
                parsed.short(&argument[1..], &mut rest)?;
            } else {
                parsed.words.push(argument.clone());
            }
        }
        if parsed.help {
            return Err(HELP.to_owned());
        }
        Ok(parsed)
    }

    fn long<'a>(&mut self, long: &str, rest: &mut impl Iterator<Item = &'a String>) -> Result<(), String> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        if name.is_empty() || name.starts_with('-') || name.starts_with('=') {
            return Err(format!("bad flag syntax: --{long}"));
        }
        // Underscores are read as dashes.
        let wanted = name.replace('_', "-");
        let Some(flag) = self.specs.iter().find(|flag| flag.name == wanted).copied() else {
            if name != "help" {
                return Err(format!("unknown flag: --{name}"));
            }
            let value = value.unwrap_or_else(|| "true".to_owned());
            check(Kind::Bool, &value)
                .map_err(|why| format!("invalid argument {value:?} for \"-h, --help\" flag: {why}"))?;
            self.help = is_true(&value);
            return Ok(());
        };
        let value = match (value, flag.bare) {
            (Some(value), _) => value,
            (None, Some(bare)) => bare.to_owned(),
            (None, None) => rest.next().ok_or_else(|| format!("flag needs an argument: --{name}"))?.clone(),
        };
        self.give(flag, &value)
    }

    fn short<'a>(&mut self, letters: &str, rest: &mut impl Iterator<Item = &'a String>) -> Result<(), String> {
        let mut left = letters;
        while let Some(letter) = left.chars().next() {
            let after = &left[letter.len_utf8()..];
            let Some(flag) = self.specs.iter().find(|flag| flag.short == Some(letter)).copied() else {
                if letter == 'h' {
                    self.help = true;
                    left = after;
                    continue;
                }
                return Err(format!("unknown shorthand flag: {letter:?} in -{left}"));
            };
            // `-o=` alone has `=` as its value.
            if let Some(value) = after.strip_prefix('=').filter(|value| !value.is_empty()) {
                return self.give(flag, value);
            }
            if let Some(bare) = flag.bare {
                self.give(flag, bare)?;
                left = after;
                continue;
            }
            if !after.is_empty() {
                return self.give(flag, after);
            }
            let value = rest.next().ok_or_else(|| format!("flag needs an argument: {letter:?} in -{left}"))?;
            return self.give(flag, value);
        }
        Ok(())
    }

    /// Sets a flag that stands on the line.
    fn give(&mut self, flag: Flag, value: &str) -> Result<(), String> {
        self.set(flag, value)?;
        self.line.push((flag.name, value.to_owned()));
        Ok(())
    }

    /// What is told of the deprecated flags on the line, in its order.
    pub fn deprecations(&self) -> impl Iterator<Item = String> + '_ {
        let instead = |name: &str| self.spec(name).and_then(|flag| flag.deprecated);
        self.line
            .iter()
            .filter_map(move |(name, _)| Some(format!("Flag --{name} has been deprecated, {}", instead(name)?)))
    }

    fn set(&mut self, flag: Flag, value: &str) -> Result<(), String> {
        if let Err(why) = check(flag.kind, value) {
            return Err(format!("invalid argument {value:?} for {:?} flag: {why}", flag.shown()));
        }
        let values = self.values.entry(flag.name).or_default();
        match flag.kind {
            Kind::Array => values.push(value.to_owned()),
            Kind::Slice => values.extend(value.split(',').map(str::to_owned).filter(|_| !value.is_empty())),
            _ => *values = vec![value.to_owned()],
        }
        Ok(())
    }

    /// A value for a flag that is not written.
    pub fn prefer(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(flag) = self.spec(name).copied() else { return Err(format!("invalid flag {name}")) };
        if self.changed(name) {
            return Ok(());
        }
        self.set(flag, value).map_err(|why| format!(" value {value} to flag {name}\n{why}"))
    }

    /// Whether the command has such a flag.
    pub fn knows(&self, name: &str) -> bool {
        self.spec(name).is_some()
    }

    fn spec(&self, name: &str) -> Option<&Flag> {
        self.specs.iter().find(|flag| flag.name == name)
    }

    pub fn text(&self, name: &str) -> &str {
        match self.values.get(name).and_then(|values| values.last()) {
            Some(value) => value,
            None => self.spec(name).map_or("", |flag| flag.default),
        }
    }

    /// The text, where it is not empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// A global flag's text, where the command has none of this name.
    pub fn global(&self, name: &str) -> Option<&str> {
        self.given(name).filter(|_| !self.shadowed.contains(&name))
    }

    pub fn is(&self, name: &str) -> bool {
        is_true(self.text(name))
    }

    pub fn list(&self, name: &str) -> Vec<String> {
        match self.values.get(name) {
            Some(values) => values.clone(),
            None => self
                .spec(name)
                .map(|flag| flag.default)
                .filter(|d| !d.is_empty())
                .map(str::to_owned)
                .into_iter()
                .collect(),
        }
    }

    pub fn int(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// In nanoseconds.
    pub fn duration(&self, name: &str) -> i64 {
        ferry_semantics::duration::parse(self.text(name)).unwrap_or_default()
    }

    pub fn changed(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }
}

fn is_true(value: &str) -> bool {
    matches!(value, "true" | "1" | "t" | "T" | "TRUE" | "True")
}

/// Told instead of a complaint where help is asked for.
pub const HELP: &str = "pflag: help requested";

fn check(kind: Kind, value: &str) -> Result<(), String> {
    match kind {
        Kind::Bool => match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(()),
            _ => Err(format!("strconv.ParseBool: parsing {value:?}: invalid syntax")),
        },
        Kind::Int => match value.parse::<i64>() {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("strconv.ParseInt: parsing {value:?}: invalid syntax")),
        },
        Kind::Duration => ferry_semantics::duration::parse(value).map(|_| ()).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Parsed, String> {
        let specs = vec![
            text("output", "").short('o'),
            switch("watch", "").short('w'),
            text("dry-run", "").bare("unchanged"),
            slice("label-columns", "").short('L'),
            array("filename", "").short('f'),
            Flag::new("replicas", Kind::Int, "1", ""),
        ];
        Parsed::parse(specs, &arguments.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_stand_beside_behind_and_in_the_flag() {
        for line in [&["-o", "json", "a"][..], &["-ojson", "a"], &["-o=json", "a"], &["a", "--output=json"]] {
            let parsed = parse(line).unwrap();
            assert_eq!((parsed.text("output"), &*parsed.words), ("json", &["a".to_owned()][..]), "{line:?}");
        }
        let parsed = parse(&["-wojson", "--dry-run", "x", "-L", "a,b", "-L", "c", "--", "-o"]).unwrap();
        assert!(parsed.is("watch"));
        assert_eq!(parsed.text("dry-run"), "unchanged");
        assert_eq!(parsed.list("label-columns"), ["a", "b", "c"]);
        assert_eq!((parsed.words, parsed.dash), (vec!["x".to_owned(), "-o".to_owned()], Some(1)));
    }

    #[test]
    fn an_equals_sign_alone_is_a_value() {
        assert_eq!(parse(&["-o="]).unwrap().text("output"), "=");
        assert!(parse(&["--help=false"]).is_ok());
    }

    #[test]
    fn complaints_are_the_librarys() {
        for (line, complaint) in [
            (&["--nope"][..], "unknown flag: --nope"),
            (&["-x"], "unknown shorthand flag: 'x' in -x"),
            (&["-o"], "flag needs an argument: 'o' in -o"),
            (&["-h-x"], "unknown shorthand flag: '-' in --x"),
            (&["-h", "--nope"], "unknown flag: --nope"),
            (&["-h"], HELP),
            (&["--output"], "flag needs an argument: --output"),
            (
                &["--watch=perhaps"],
                r#"invalid argument "perhaps" for "-w, --watch" flag: strconv.ParseBool: parsing "perhaps": invalid syntax"#,
            ),
            (
                &["--replicas=x"],
                r#"invalid argument "x" for "--replicas" flag: strconv.ParseInt: parsing "x": invalid syntax"#,
            ),
        ] {
            assert_eq!(parse(line).err().as_deref(), Some(complaint), "{line:?}");
        }
    }
}
