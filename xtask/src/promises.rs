//! `docs/promises.md`: what becomes of every field that a pod, a container or a kubelet can be given.
//!
//! The words are data (`docs/promises.tsv`, and `fields.tsv` of the KubeletConfiguration); the fields are the type
//! catalogue's, so that a new one cannot be forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

const API: &str = "io.k8s.api.core.v1.";
/// Where the walk through the types begins.
const ROOT: &str = "PodSpec";

/// One row: what becomes of a field.
#[derive(Clone, Debug)]
struct Row {
    ty: String,
    field: String,
    verdict: String,
    how: String,
    /// A test of this repository, or `conformance:` and a part of a conformance test's name.
    test: String,
}

fn rows(root: &Path) -> Result<Vec<Row>> {
    let text = std::fs::read_to_string(root.join("docs/promises.tsv")).context("docs/promises.tsv")?;
    let row = |line: &str| -> Result<Row> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [ty, field, verdict, how, test] = columns[..] else { anyhow::bail!("not five columns: {line}") };
        let text = |text: &str| text.to_owned();
        Ok(Row { ty: text(ty), field: text(field), verdict: text(verdict), how: text(how), test: text(test) })
    };
    text.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

/// The fields that need a row: those of a pod's spec, and those of the types of fields that are followed.
fn fields(rows: &[Row]) -> Vec<(String, String)> {
    let verdicts: BTreeMap<(&str, &str), &str> =
        rows.iter().map(|row| ((row.ty.as_str(), row.field.as_str()), row.verdict.as_str())).collect();
    let catalogue = ferry_schema::builtin();
    let (mut found, mut seen, mut open) = (Vec::new(), BTreeSet::new(), vec![ROOT.to_owned()]);
    while let Some(name) = open.pop() {
        let Some(ty) = catalogue.named(&format!("{API}{name}")).filter(|_| seen.insert(name.clone())) else { continue };
        for field in ty.fields().iter().map(|field| field.name.to_string()) {
            let verdict = verdicts.get(&(name.as_str(), field.as_str()));
            let inner = ty.child(&field).map(|inner| inner.name().to_owned());
            // What is refused or has no effect as a whole needs no words about its parts; a claim is an object of its own.
            let within = inner.as_deref().and_then(|inner| inner.strip_prefix(API));
            let within = within.filter(|inner| verdict == Some(&"followed") && *inner != "PersistentVolumeClaimSpec");
            open.extend(within.map(str::to_owned));
            found.push((name.clone(), field));
        }
    }
    found
}

/// Every field has one row, and no row is about a field that is not there.
fn check(rows: &[Row]) -> Result<()> {
    let listed: BTreeSet<(String, String)> = rows.iter().map(|row| (row.ty.clone(), row.field.clone())).collect();
    let needed: BTreeSet<(String, String)> = fields(rows).into_iter().collect();
    anyhow::ensure!(listed.len() == rows.len(), "a field has two rows");
    let missing: Vec<_> = needed.difference(&listed).collect();
    let needless: Vec<_> = listed.difference(&needed).collect();
    anyhow::ensure!(missing.is_empty() && needless.is_empty(), "missing: {missing:?}\nneedless: {needless:?}");
    Ok(())
}

/// The document.
pub fn generate(root: &Path) -> Result<String> {
    let rows = rows(root)?;
    check(&rows)?;
    let kubelet = std::fs::read_to_string(root.join("crates/cluster/src/kubelet_options/fields.tsv"))?;
    let mut text = String::from(
        "# Promises\n\nWhat Ferry accepts it does, or it says that it does not. This page has every field of a pod's spec and of a \
         KubeletConfiguration. It is made by `cargo run -p xtask -- promises`; a test compares it with the type catalogue, so that a \
         new field cannot be forgotten, and looks for the test that each row names.\n\n\
         | verdict | meaning |\n|---|---|\n\
         | followed | it is done |\n\
         | refused | the pod does not start, or the file is not taken, and the reason is told |\n\
         | no effect | it is accepted and changes nothing, for the reason given |\n\n\
         NetworkPolicies are followed by Ferry's own pod network (`network_policies_are_enforced`). Where the kernel cannot filter \
         packets between pods of one node, whoever writes one is warned.\n\n\
         Tests are in this repository, by the name of their function; `conformance:` is a part of the name of a test of the conformance \
         suite ([conformance](conformance.md)).\n",
    );
    let mut last = "";
    for row in &rows {
        if row.ty != last {
            write!(text, "\n## {}\n\n| field | verdict | | shown by |\n|---|---|---|---|\n", row.ty)?;
            last = &row.ty;
        }
        let test = match row.test.strip_prefix("conformance:") {
            Some(name) => format!("conformance: {}", name.replace('|', "\\|")),
            None => format!("`{}`", row.test),
        };
        writeln!(text, "| `{}` | {} | {} | {test} |", row.field, row.verdict, row.how)?;
    }
    text.push_str(
        "\n## KubeletConfiguration\n\nA file with a field that is refused is not taken. Of a field that is not followed, an empty value (null, 0, \"\", [], {}, \"0s\") is none at all. \
         Shown by `every_field_is_followed_or_refused_or_said_to_have_no_effect`, row by row.\n\n| field | verdict | |\n|---|---|---|\n",
    );
    for line in kubelet.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [field, verdict, values, why] = columns[..] else { anyhow::bail!("not four columns: {line}") };
        let verdict = match verdict {
            "only" => format!("refused, but for {}", values.replace(" | ", " and ")),
            verdict => verdict.to_owned(),
        };
        writeln!(text, "| `{field}` | {verdict} | {why} |")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_field_has_a_row() {
        let mut rows = rows(&root()).unwrap();
        check(&rows).unwrap();
        let forgotten = rows.remove(7);
        let error = check(&rows).unwrap_err().to_string();
        assert!(error.contains(&forgotten.field), "{error}");
    }

    #[test]
    fn every_row_has_a_verdict_and_a_test() {
        let ladder = std::fs::read_to_string(root().join("testdata/conformance-ladder.tsv")).unwrap();
        let mut sources = String::new();
        let mut folders = vec![root().join("crates")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    sources.push_str(&std::fs::read_to_string(&path).unwrap());
                }
            }
        }
        let mut wrong = Vec::new();
        for row in rows(&root()).unwrap() {
            let shown = match row.test.strip_prefix("conformance:") {
                Some(name) => ladder.contains(name),
                None => sources.contains(&format!("fn {}(", row.test)),
            };
            let told = row.verdict == "followed" || !row.how.is_empty();
            let known = ["followed", "refused", "no effect"].contains(&row.verdict.as_str());
            if !(shown && told && known) {
                wrong.push(row);
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        let kubelet = root().join("crates/cluster/src/kubelet_options/fields.tsv");
        for line in std::fs::read_to_string(kubelet).unwrap().lines() {
            let Some((_, test)) = line.split_once("shown by `") else { continue };
            let test = test.trim_end_matches('`');
            assert!(sources.contains(&format!("fn {test}(")), "{line}");
        }
    }

    #[test]
    fn the_page_is_current() {
        let page = std::fs::read_to_string(root().join("docs/promises.md")).unwrap();
        assert!(page == generate(&root()).unwrap(), "cargo run -p xtask -- promises");
    }
}
