//! Tables as the server sends them. Lines are held until they are released: their columns are as wide as the widest cell of all.

use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub wide: bool,
    pub no_headers: bool,
    pub namespace: bool,
    pub show_labels: bool,
    pub label_columns: Vec<String>,
    /// `pod/` before names: the kind and its group.
    pub kind: Option<String>,
}

#[derive(Debug, Default)]
pub struct Printer {
    options: Options,
    columns: Option<Value>,
    headers: bool,
    widths: Vec<usize>,
    /// Lines whose cells end with [`END`], which no cell has.
    held: String,
    /// Lines of other columns before them.
    aligned: String,
}

const END: char = '\u{1f}';

const LEAST: usize = 6;
const PADDING: usize = 3;

struct Column {
    name: String,
    shown: bool,
    is_name: bool,
}

impl Printer {
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// The lines of a table, or of an object that is none; `event` goes before them.
    pub fn print(&mut self, table: &Value, event: Option<&str>) -> String {
        self.hold(table, event);
        self.release()
    }

    /// Keeps the lines. Returns whether there are any.
    pub fn hold(&mut self, table: &Value, event: Option<&str>) -> bool {
        if table["kind"] != "Table" {
            return self.hold(&of_object(table), event);
        }
        let definitions = &table["columnDefinitions"];
        let given = definitions.as_array().is_some_and(|list| !list.is_empty());
        let mut no_headers = self.options.no_headers;
        if self.headers && (!given || self.columns.as_ref() == Some(definitions)) {
            no_headers = true;
        }
        if given && self.columns.as_ref() != Some(definitions) {
            self.aligned = self.release();
            self.columns = Some(definitions.clone());
            self.headers = false;
            self.widths.clear();
        }
        let Some(definitions) = &self.columns else { return false };
        let rows = table["rows"].as_array().map_or(&[][..], Vec::as_slice);
        if rows.is_empty() {
            return false;
        }
        self.headers = true;
        let columns = self.decorated(definitions, event.is_some());
        if !no_headers {
            let shown = columns.iter().filter(|column| column.shown);
            let headers: Vec<String> = shown.map(|column| column.name.to_uppercase()).collect();
            self.keep(&headers);
        }
        for row in rows {
            let cells = self.cells(row, &columns, event);
            self.keep(&cells);
        }
        true
    }

    /// How many bytes are held.
    pub fn size(&self) -> usize {
        self.held.len() + self.aligned.len()
    }

    fn keep(&mut self, cells: &[String]) {
        for (index, cell) in cells.iter().enumerate() {
            if index + 1 < cells.len() {
                if self.widths.len() <= index {
                    self.widths.push(LEAST);
                }
                self.widths[index] = self.widths[index].max(cell.chars().count() + PADDING);
            }
            self.held.extend(cell.chars().filter(|c| *c != END));
            self.held.push(if index + 1 < cells.len() { END } else { '\n' });
        }
    }

    /// The lines that were held, with their columns aligned. Lines that come later have columns at least as wide.
    pub fn release(&mut self) -> String {
        let mut out = std::mem::take(&mut self.aligned);
        let held = std::mem::take(&mut self.held);
        for line in held.lines() {
            let mut cells = line.split(END).enumerate().peekable();
            while let Some((index, cell)) = cells.next() {
                out.push_str(cell);
                if cells.peek().is_some() {
                    let width = self.widths.get(index).copied().unwrap_or(LEAST);
                    out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
                }
            }
            out.push('\n');
        }
        out
    }

    fn decorated(&self, definitions: &Value, event: bool) -> Vec<Column> {
        let plain = |name: &str| Column { name: name.to_owned(), shown: true, is_name: false };
        let mut columns = Vec::new();
        if event {
            columns.push(plain("Event"));
        }
        if self.options.namespace {
            columns.push(plain("Namespace"));
        }
        for definition in definitions.as_array().into_iter().flatten() {
            columns.push(Column {
                name: definition["name"].as_str().unwrap_or_default().to_owned(),
                shown: self.options.wide || definition["priority"].as_i64().unwrap_or(0) == 0,
                is_name: definition["format"] == "name" && definition["type"] == "string",
            });
        }
        for label in &self.options.label_columns {
            columns.push(plain(label.rsplit('/').next().unwrap_or(label)));
        }
        if self.options.show_labels {
            columns.push(plain("Labels"));
        }
        columns
    }

    fn cells(&self, row: &Value, columns: &[Column], event: Option<&str>) -> Vec<String> {
        let metadata = &row["object"]["metadata"];
        let mut cells: Vec<String> = Vec::with_capacity(columns.len());
        if let Some(event) = event {
            cells.push(format!("{event:<8}"));
        }
        if self.options.namespace {
            cells.push(metadata["namespace"].as_str().unwrap_or_default().to_owned());
        }
        let before = cells.len();
        let extra = self.options.label_columns.len() + usize::from(self.options.show_labels);
        let own = columns.len() - before - extra;
        let sent = row["cells"].as_array().map_or(&[][..], Vec::as_slice);
        let mut named = self.options.kind.is_none();
        for index in 0..own {
            let mut text = sent.get(index).map(cell).unwrap_or_default();
            if !named && columns[before + index].is_name {
                text = format!("{}/{text}", self.options.kind.as_deref().unwrap_or_default());
                named = true;
            }
            cells.push(text);
        }
        let labels = metadata["labels"].as_object();
        for label in &self.options.label_columns {
            let value = labels.and_then(|labels| labels.get(label)).and_then(Value::as_str);
            cells.push(value.unwrap_or_default().to_owned());
        }
        if self.options.show_labels {
            cells.push(show_labels(&metadata["labels"]));
        }
        let shown = cells.into_iter().zip(columns).filter(|(_, column)| column.shown);
        shown.map(|(cell, _)| cell).collect()
    }
}

/// A table of one row for what the server sent as it is.
fn of_object(object: &Value) -> Value {
    let list = object["items"].as_array().filter(|_| super::is_list(object));
    let all: Vec<&Value> = list.map_or_else(|| vec![object], |items| items.iter().collect());
    let rows: Vec<Value> = all
        .into_iter()
        .map(|object| {
            let metadata = &object["metadata"];
            let age = crate::text::age(metadata["creationTimestamp"].as_str().unwrap_or_default());
            serde_json::json!({"cells": [metadata["name"], age], "object": {"metadata": metadata}})
        })
        .collect();
    serde_json::json!({
        "kind": "Table",
        "columnDefinitions": [{"name": "Name", "type": "string", "format": "name"}, {"name": "Age", "type": "string"}],
        "rows": rows,
    })
}

pub fn show_labels(labels: &Value) -> String {
    match labels.as_object().filter(|labels| !labels.is_empty()) {
        Some(labels) => {
            let all: Vec<String> =
                labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
            all.join(",")
        }
        None => "<none>".to_owned(),
    }
}

/// One line: what stands behind its end is left out, and nothing can steer a terminal.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        other => super::go_value::show(other),
    };
    let text = match text.find(['\n', '\r', '\u{c}']) {
        Some(end) => format!("{}...", &text[..end]),
        None => text,
    };
    if text.contains('\u{1b}') { text.replace('\u{1b}', "^[") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_are_held_have_the_same_columns() {
        let chunk = |name: &str| {
            serde_json::json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Age"}],
                "rows": [{"cells": [name, "1d"]}]})
        };
        let mut printer = Printer::new(Options::default());
        assert!(printer.hold(&chunk("a"), None));
        assert!(printer.hold(&chunk("much-longer"), None));
        assert!(!printer.hold(&serde_json::json!({"kind": "Table", "rows": []}), None));
        assert_eq!(printer.release(), "NAME          AGE\na             1d\nmuch-longer   1d\n");
        assert_eq!(printer.print(&chunk("b"), None), "b             1d\n");
        assert_eq!(printer.size(), 0);
    }
}
