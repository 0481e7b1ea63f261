//! What the documents say exists: links and files resolve, the map is complete, decisions are numbered, the overview is short.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_OVERVIEW: usize = 150;
/// Folders of the repository: a word in backticks that begins with one of them is a path.
const FOLDERS: &[&str] = &["crates/", "docs/", "examples/", "fuzz/", "hack/", "packaging/", "testdata/", "xtask/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every document, with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut found: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .iter()
        .map(|name| root.join(name))
        .collect();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of `[text](target)`.
fn links(line: &str) -> Vec<&str> {
    let parts = line.split("](").skip(1);
    parts.filter_map(|part| part.split_once(')')).map(|(target, _)| target).collect()
}

/// What stands between backticks.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A heading as GitHub names it in links.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_between_documents_resolve() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for target in prose(&text).flat_map(links) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            if !there.exists() {
                wrong.push(format!("{}: {target} does not exist", path.display()));
            } else if !heading.is_empty() && !anchors(&read(&there)).contains(heading) {
                wrong.push(format!("{}: {target} has no such heading", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_that_documents_name_exist() {
    let (root, mut wrong) = (root(), Vec::new());
    for (path, text) in documents() {
        // The changelog tells of the past.
        if path.ends_with("CHANGELOG.md") {
            continue;
        }
        for name in prose(&text).flat_map(code) {
            let is_path = FOLDERS.iter().any(|folder| name.starts_with(folder));
            // `crates/<crate>/src` stands for any of them.
            if is_path && !name.contains(['<', '*', ' ', '…']) && !root.join(name).exists() {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "documents name files that do not exist: {wrong:#?}");
}

#[test]
fn flows_name_their_files_in_order() {
    let flows: Vec<_> = documents().into_iter().filter(|(path, _)| path.parent().unwrap().ends_with("flows")).collect();
    assert_eq!(flows.len(), 3, "three flows are drawn");
    for (path, text) in flows {
        assert!(text.contains("```mermaid"), "{} has no diagram", path.display());
        let steps: Vec<usize> =
            text.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok()).collect();
        assert_eq!(steps, (1..=steps.len()).collect::<Vec<_>>(), "{}", path.display());
        assert!(steps.len() > 5, "{} has no list of files", path.display());
    }
}

/// Whoever follows a tutorial writes what is there: a block with a path is in that file, and a row begins a line of it.
#[test]
fn tutorials_show_the_code_as_it_is() {
    let mut blocks = 0;
    for (path, text) in documents().into_iter().filter(|(path, _)| path.parent().unwrap().ends_with("tutorials")) {
        for block in text.split("\n```").skip(1).step_by(2) {
            let (head, block) = block.split_once('\n').unwrap_or((block, ""));
            let Some((kind, place)) = head.split_once(' ') else { continue };
            let code = read(&root().join(place));
            let shown = match kind {
                "tsv" => block.lines().all(|row| code.lines().any(|line| line.starts_with(row))),
                "json" => block.lines().all(|row| code.contains(row)),
                _ => format!("\n{code}").contains(&format!("\n{block}\n")),
            };
            assert!(shown, "{}: {place} has no longer\n{block}", path.display());
            blocks += 1;
        }
    }
    assert!(blocks > 10, "only {blocks} blocks name a file");
}

#[test]
fn the_overview_is_short_and_has_every_crate() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let lines = text.lines().count();
    assert!(lines < LONGEST_OVERVIEW, "ARCHITECTURE.md has {lines} lines: move details to docs/");
    for folder in fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = folder.file_name().into_string().unwrap();
        assert!(text.contains(&format!("| `{name}` |")), "crate {name} is not in the map of ARCHITECTURE.md");
    }
}

#[test]
fn decisions_are_numbered_and_listed() {
    let folder = root().join("docs/decisions");
    let index = read(&folder.join("README.md"));
    let mut names: Vec<String> =
        fs::read_dir(&folder).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "README.md");
    names.sort();
    // Changes that are made at the same time take numbers apart from each other: there may be gaps.
    let mut taken = BTreeSet::new();
    for name in &names {
        let number = name.split('-').next().and_then(|number| number.parse::<usize>().ok());
        let number = number.unwrap_or_else(|| panic!("{name} has no number"));
        assert!(name.starts_with(&format!("{number:04}-")) && taken.insert(number), "{name} has no number of its own");
        let text = read(&folder.join(name));
        assert!(text.starts_with(&format!("# {number}. ")), "{name} has another number in its title");
        assert!(index.contains(&format!("[{number:04}]({name})")), "{name} is not in the list of decisions");
        for part in ["- Status: ", "- Area: ", "## Decision", "## Reason"] {
            assert!(text.contains(part), "{name} has no {part:?}");
        }
    }
}
