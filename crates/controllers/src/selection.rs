//! Which controllers run: `*` for all, a name for one, `-name` for all but one.

/// As `--controllers` gives it. The default is all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    words: Vec<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Self { words: vec!["*".into()] }
    }
}

impl Selection {
    /// Reads `*,-job-controller`. A name that no controller has is an error that says so.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
        for word in &words {
            let name = word.strip_prefix('-').unwrap_or(word);
            if name != "*" && !crate::names().any(|known| known == name) {
                return Err(format!("{name:?} is not in the list of known controllers"));
            }
        }
        Ok(Self { words })
    }

    pub(crate) fn includes(&self, name: &str) -> bool {
        let has = |wanted: &str| self.words.iter().any(|word| word == wanted);
        !has(&format!("-{name}")) && (has(name) || has("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, job: bool, deployment: bool) {
        let selection = Selection::parse(text).expect("a selection");
        assert_eq!(selection.includes("job-controller"), job, "{text}");
        assert_eq!(selection.includes("deployment-controller"), deployment, "{text}");
    }

    #[test]
    fn controllers_are_selected_as_upstream() {
        check("*", true, true);
        check("*,-job-controller", false, true);
        check("job-controller", true, false);
        check("-job-controller", false, false);
        assert!(Selection::parse("*,nonsense").is_err());
        assert_eq!(Selection::default(), Selection::parse("*").expect("all"));
    }
}
