//! The users of an htpasswd file, of which there may be very many: its text, and where each line begins.

/// Sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    text: Box<str>,
    starts: Box<[u32]>,
}

impl Users {
    /// Lines `name:hash`; others are left out. Of lines of the same name the last one counts.
    pub fn read(text: &str) -> Self {
        let mut kept = String::new();
        let mut starts = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| line.contains(':')) {
            let Ok(start) = u32::try_from(kept.len()) else { break };
            starts.push(start);
            kept.push_str(line);
            kept.push('\n');
        }
        let mut this = Self { text: kept.into(), starts: Box::default() };
        starts.sort_by(|a, b| this.line(*a).0.cmp(this.line(*b).0));
        this.starts = starts.into();
        this
    }

    fn line(&self, start: u32) -> (&str, &str) {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let line = self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        line.split_once(':').unwrap_or_default()
    }

    pub fn hash(&self, name: &str) -> Option<&str> {
        let behind = self.starts.partition_point(|start| self.line(*start).0 <= name);
        let (known, hash) = self.line(*self.starts.get(behind.checked_sub(1)?)?);
        (known == name).then_some(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_among_very_many() {
        let mut text: String = (0..100_000).map(|number| format!("user{number}:hash{number}\n")).collect();
        text.push_str("# no user\n  spaced:x y \nuser5:again\nempty:\n");
        let users = Users::read(&text);
        for (name, want) in [
            ("user7", Some("hash7")),
            ("user99999", Some("hash99999")),
            ("user5", Some("again")),
            ("spaced", Some("x y")),
            ("empty", Some("")),
            ("user", None),
            ("", None),
            ("zzz", None),
        ] {
            assert_eq!(users.hash(name), want, "{name}");
        }
        // What is kept is hardly more than what there was.
        assert!(users.text.len() + users.starts.len() * 4 < text.len() * 3 / 2);
        assert_eq!(Users::read("").hash("a"), None);
    }
}
