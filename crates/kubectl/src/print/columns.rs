//! `-o custom-columns`.

use serde_json::Value;

use super::jsonpath::Template;
use crate::error::{Error, Result};

pub struct Columns {
    columns: Vec<(String, Template)>,
    no_headers: bool,
}

impl Columns {
    pub fn parse(spec: &str, no_headers: bool) -> Result<Self> {
        if spec.is_empty() {
            return Err(Error::say("custom-columns format specified but no custom columns given"));
        }
        let mut columns = Vec::new();
        for part in spec.split(',') {
            let bad =
                || Error::say(format!("unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"));
            let (header, path) = part.split_once(':').ok_or_else(bad)?;
            columns.push((header.to_owned(), Template::relaxed(path)?));
        }
        Ok(Self { columns, no_headers })
    }

    /// Headers in the first line, paths in the second.
    pub fn of_file(text: &str, no_headers: bool) -> Result<Self> {
        let mut lines = text.lines();
        let (Some(headers), Some(paths)) = (lines.next(), lines.next()) else {
            return Err(Error::say(
                "invalid template, missing spec line. Expected format is one line of space separated headers, one line of space separated column specs.",
            ));
        };
        let (headers, paths): (Vec<&str>, Vec<&str>) =
            (headers.split_whitespace().collect(), paths.split_whitespace().collect());
        if headers.len() != paths.len() {
            return Err(Error::say(format!(
                "number of headers ({}) and field specifications ({}) don't match",
                headers.len(),
                paths.len()
            )));
        }
        let columns =
            headers.into_iter().zip(paths).map(|(header, path)| Ok((header.to_owned(), Template::relaxed(path)?)));
        Ok(Self { columns: columns.collect::<Result<_>>()?, no_headers })
    }

    /// The lines, and what a path that cannot be followed ended them with.
    pub fn print(&self, object: &Value, first: bool) -> (String, Option<String>) {
        let mut text = if first { self.headers() } else { String::new() };
        let items: Vec<&Value> = match object["items"].as_array().filter(|_| super::is_list(object)) {
            Some(items) => items.iter().collect(),
            None => vec![object],
        };
        let mut wrong = None;
        for item in items {
            match self.row(item) {
                Ok(row) => text.push_str(&row),
                Err(why) => {
                    wrong = Some(why);
                    break;
                }
            }
        }
        (Self::aligned(&text), wrong)
    }

    /// Nothing where none are wanted.
    pub fn headers(&self) -> String {
        let headers: Vec<&str> = self.columns.iter().map(|(header, _)| &**header).collect();
        if self.no_headers { String::new() } else { headers.join("\t") + "\n" }
    }

    pub fn row(&self, object: &Value) -> Result<String, String> {
        let cells = self.columns.iter().map(|(_, path)| cell(path, object)).collect::<Result<Vec<String>, String>>()?;
        Ok(cells.join("\t") + "\n")
    }

    pub fn aligned(rows: &str) -> String {
        super::tabs::align(rows, 6, 3)
    }
}

fn cell(path: &Template, object: &Value) -> Result<String, String> {
    let found = path.find(object)?;
    if found.is_empty() {
        return Ok("<none>".into());
    }
    let shown = |value: &Value| match value {
        Value::Null => "<none>".to_owned(),
        value => super::go_value::show(value),
    };
    Ok(found.into_iter().map(shown).collect::<Vec<_>>().join(","))
}
