//! The text of a Corefile: server blocks, their plug-ins, and the lines of each. What they mean is in `settings`.

/// A plug-in as it is written: its name, its arguments, and the lines between its braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directive {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) lines: Vec<Vec<String>>,
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerBlock {
    pub(crate) keys: Vec<String>,
    pub(crate) directives: Vec<Directive>,
    pub(crate) line: usize,
}

/// Why a Corefile cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct CorefileError {
    pub(crate) line: usize,
    pub(crate) problem: String,
}

impl CorefileError {
    pub(crate) fn at(line: usize, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}

/// One line that is not empty: its number and its words.
type Line = (usize, Vec<String>);

pub(crate) fn parse(text: &str) -> Result<Vec<ServerBlock>, CorefileError> {
    let mut lines = words(text)?.into_iter();
    let mut blocks = Vec::new();
    while let Some((line, mut keys)) = lines.next() {
        match keys.pop().as_deref() {
            Some("{") => {}
            Some(other) => {
                // A file of a single server may leave out the braces.
                if blocks.is_empty() && keys.is_empty() {
                    let directives = directives(&mut lines, line, false)?;
                    return Ok(vec![ServerBlock { keys: vec![other.to_owned()], directives, line }]);
                }
                return Err(CorefileError::at(line, format!("expected {{ after {other:?}")));
            }
            None => continue,
        }
        let keys: Vec<String> =
            keys.iter().flat_map(|key| key.split(',')).filter(|key| !key.is_empty()).map(str::to_owned).collect();
        if keys.is_empty() {
            return Err(CorefileError::at(line, "a server block without a zone"));
        }
        blocks.push(ServerBlock { keys, directives: directives(&mut lines, line, true)?, line });
    }
    match blocks.is_empty() {
        true => Err(CorefileError::at(1, "there is no server block")),
        false => Ok(blocks),
    }
}

fn directives(
    lines: &mut impl Iterator<Item = Line>,
    opened: usize,
    braces: bool,
) -> Result<Vec<Directive>, CorefileError> {
    let mut found = Vec::new();
    while let Some((line, mut words)) = lines.next() {
        if words == ["}"] && braces {
            return Ok(found);
        }
        let has_block = words.last().is_some_and(|word| word == "{");
        if has_block {
            words.pop();
        }
        if words.is_empty() || words.iter().any(|word| word == "{" || word == "}") {
            return Err(CorefileError::at(line, "a brace where a plug-in is expected"));
        }
        let name = words.remove(0);
        let inner = if has_block { self::lines(lines, line)? } else { Vec::new() };
        found.push(Directive { name, arguments: words, lines: inner, line });
    }
    match braces {
        true => Err(CorefileError::at(opened, "the server block is not closed")),
        false => Ok(found),
    }
}

fn lines(lines: &mut impl Iterator<Item = Line>, opened: usize) -> Result<Vec<Vec<String>>, CorefileError> {
    let mut found = Vec::new();
    for (line, words) in lines {
        if words == ["}"] {
            return Ok(found);
        }
        if words.iter().any(|word| word == "{" || word == "}") {
            return Err(CorefileError::at(line, "a brace inside of a plug-in's block"));
        }
        found.push(words);
    }
    Err(CorefileError::at(opened, "the plug-in's block is not closed"))
}

/// The words of each line. Quotes hold spaces together, over lines too; a word that begins with # ends the line.
fn words(text: &str) -> Result<Vec<Line>, CorefileError> {
    let mut found: Vec<Line> = Vec::new();
    let (mut line, mut words, mut word) = (1, Vec::new(), None::<String>);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' => {
                words.extend(word.take());
                if !words.is_empty() {
                    found.push((line, std::mem::take(&mut words)));
                }
                line += 1;
            }
            '#' if word.is_none() => {
                while characters.peek().is_some_and(|next| *next != '\n') {
                    characters.next();
                }
            }
            '"' if word.is_none() => {
                let (opened, mut quoted) = (line, String::new());
                loop {
                    match characters.next() {
                        None => return Err(CorefileError::at(opened, "a quote is not closed")),
                        Some('"') => break,
                        Some('\\') if characters.peek() == Some(&'"') => {
                            characters.next();
                            quoted.push('"');
                        }
                        Some(other) => {
                            line += usize::from(other == '\n');
                            quoted.push(other);
                        }
                    }
                }
                words.push(quoted);
            }
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if !words.is_empty() {
        found.push((line, words));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line for each server block: its keys, then each plug-in with its arguments and the lines of its block.
    fn check(text: &str, expected: &str) {
        let shown = match parse(text) {
            Err(error) => error.to_string(),
            Ok(blocks) => {
                let plugin = |directive: &Directive| {
                    let words: Vec<&str> =
                        std::iter::once(&directive.name).chain(&directive.arguments).map(String::as_str).collect();
                    let lines: Vec<String> = directive.lines.iter().map(|line| line.join(" ")).collect();
                    match lines.is_empty() {
                        true => words.join(" "),
                        false => format!("{} [{}]", words.join(" "), lines.join(" / ")),
                    }
                };
                let show = |block: &ServerBlock| {
                    let plugins: Vec<String> = block.directives.iter().map(plugin).collect();
                    format!("{}: {}", block.keys.join(" "), plugins.join("; "))
                };
                blocks.iter().map(show).collect::<Vec<String>>().join("\n")
            }
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn corefiles_are_read() {
        check(".:53 {\n errors\n cache 30\n}\n", ".:53: errors; cache 30");
        check(
            "a, b { # two\n forward . 1.1.1.1 {\n  policy random # x\n }\n}",
            "a b: forward . 1.1.1.1 [policy random]",
        );
        check(".\nerrors\nlog", ".: errors; log");
        check(". {\n log \"a \\\"b\\\" #c\"\n}\nexample.org {\n}\n", ".: log a \"b\" #c\nexample.org: ");
        for (text, expected) in [
            ("", "line 1: there is no server block"),
            ("# only words\n\n", "line 1: there is no server block"),
            (". {\n errors\n", "line 1: the server block is not closed"),
            (". {\n cache {\n prefetch 3\n", "line 2: the plug-in's block is not closed"),
            (". {\n cache {\n prefetch {\n } } }", "line 3: a brace inside of a plug-in's block"),
            (". {\n {\n }\n}", "line 2: a brace where a plug-in is expected"),
            ("{\n}", "line 1: a server block without a zone"),
            (". {\n log \"x\n}\n", "line 2: a quote is not closed"),
            (". {\n}\n. x\n", "line 3: expected { after \"x\""),
        ] {
            check(text, expected);
        }
    }
}
