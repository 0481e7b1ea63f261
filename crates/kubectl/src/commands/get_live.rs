//! `ferry get … --live`: the table stays where it is, and every change is shown in its place.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use serde_json::{Value, json};

use super::{get, get_watch, terminal};
use crate::client::TABLE;
use crate::error::{Error, Result};
use crate::print::Format;
use crate::print::table::Printer;
use crate::resource::{Builder, Pages, Selection, Target};
use crate::session::Context;
use crate::text::{age, flush, print};

/// Ages grow while nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// The rows that there are, by namespace and name.
#[derive(Default)]
struct Rows {
    columns: Value,
    rows: BTreeMap<(String, String), Value>,
}

impl Rows {
    /// Takes in a table: of a page, or of an event.
    fn take(&mut self, event: &str, table: &Value) {
        if table["columnDefinitions"].as_array().is_some_and(|columns| !columns.is_empty()) {
            self.columns = table["columnDefinitions"].clone();
        }
        for row in table["rows"].as_array().into_iter().flatten() {
            let text = |field: &str| row["object"]["metadata"][field].as_str().unwrap_or_default().to_owned();
            let key = (text("namespace"), text("name"));
            match event {
                "DELETED" => self.rows.remove(&key),
                _ => self.rows.insert(key, row.clone()),
            };
        }
    }

    /// The table as it is now: what says how old an object is is reckoned anew.
    fn table(&self) -> Value {
        let ages: Vec<usize> = self
            .columns
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, column)| column["name"] == "Age" && column["type"] == "string")
            .map(|(index, _)| index)
            .collect();
        let now = |row: &Value| {
            let mut row = row.clone();
            let made = row["object"]["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
            for index in &ages {
                if let Some(cell) = row["cells"].get_mut(*index).filter(|_| !made.is_empty()) {
                    *cell = age(&made).into();
                }
            }
            row
        };
        let rows: Vec<Value> = self.rows.values().map(now).collect();
        json!({"kind": "Table", "columnDefinitions": self.columns, "rows": rows})
    }
}

/// As much of a table as fits: the last line says how much does not.
fn fitting(text: &str, height: usize, width: usize) -> String {
    let cut = |line: &str| -> String { line.chars().take(width).collect() };
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() < height {
        return lines.iter().map(|line| format!("{}\n", cut(line))).collect();
    }
    let shown = height.saturating_sub(2);
    let rest = format!("… and {} more", lines.len() - shown);
    lines[..shown].iter().copied().chain([&*rest]).map(|line| format!("{}\n", cut(line))).collect()
}

struct Screen {
    /// So many lines are the table's.
    drawn: usize,
}

impl Screen {
    fn draw(&mut self, context: &Context, rows: &Rows, wide: bool, namespaced: bool) {
        let mut options = get::table_options(context, wide);
        options.namespace &= namespaced;
        let text = Printer::new(options).print(&rows.table(), None);
        let text = if text.is_empty() { "No resources found\n".to_owned() } else { text };
        let (width, height) = terminal::size().unwrap_or((80, 24));
        let text = fitting(&text, usize::from(height), usize::from(width));
        let back = if self.drawn == 0 { String::new() } else { format!("\x1b[{}A", self.drawn) };
        print(format!("{back}\r\x1b[J{text}"));
        flush();
        self.drawn = text.lines().count();
    }
}

pub async fn run(context: &Context, format: &Format) -> Result<()> {
    let Format::Human { wide } = format else {
        return Err(Error::say("--live shows a table: it goes with -o wide, and with no other output"));
    };
    if !std::io::stdout().is_terminal() {
        return Err(Error::say("--live needs a terminal; --watch writes the changes line by line"));
    }
    let mut builder = Builder::of(context).empty_selector().latest();
    builder.single_type = true;
    let built = builder.build(context).await?;
    let selection = match &*built.targets {
        [Target::Many(selection)] => selection.clone(),
        [Target::One { resource, namespace, name }] => Selection {
            resource: resource.clone(),
            namespace: namespace.clone(),
            labels: String::new(),
            fields: format!("metadata.name={name}"),
        },
        _ => return Err(Error::say("--live shows objects of one kind, all of them or one by its name")),
    };
    let mut screen = Screen { drawn: 0 };
    loop {
        let mut rows = Rows::default();
        let mut version = String::new();
        let mut pages = Pages::new(&selection, context.flags.int("chunk-size"), "");
        while let Some(page) = pages.next(context, TABLE).await? {
            version = page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            rows.take("ADDED", &page);
        }
        match follow(context, &selection, &version, &mut rows, &mut screen, *wide).await {
            // What was seen last is too long ago, or the server ended the watch: all is looked at anew.
            Ok(()) => {}
            Err(error) if error.reason() == "Expired" || error.reason() == "Gone" => {}
            Err(error) => return Err(error),
        }
    }
}

async fn follow(
    context: &Context,
    selection: &Selection,
    version: &str,
    rows: &mut Rows,
    screen: &mut Screen,
    wide: bool,
) -> Result<()> {
    let shared = std::cell::RefCell::new((rows, screen));
    let draw = || {
        let mut shared = shared.borrow_mut();
        let (rows, screen) = &mut *shared;
        screen.draw(context, rows, wide, selection.resource.namespaced);
    };
    draw();
    let changes = get_watch::watch(context, selection, version, TABLE, |kind, table| {
        shared.borrow_mut().0.take(kind, table);
        draw();
        Ok(true)
    });
    let older = async {
        loop {
            tokio::time::sleep(TICK).await;
            draw();
        }
    };
    tokio::select! {
        ended = changes => ended,
        () = older => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, phase: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "n"});
        json!({"kind": "Table", "columnDefinitions": [], "rows": [{"cells": [name, phase], "object": {"metadata": metadata}}]})
    }

    #[test]
    fn changes_take_the_place_of_their_rows() {
        let mut rows = Rows::default();
        let page = json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Phase"}], "rows": []});
        rows.take("ADDED", &page);
        for (kind, name, phase) in
            [("ADDED", "b", "Pending"), ("ADDED", "a", "Pending"), ("MODIFIED", "b", "Running"), ("DELETED", "a", "")]
        {
            rows.take(kind, &event(name, phase));
        }
        let table = rows.table();
        assert_eq!(table["rows"].as_array().map(Vec::len), Some(1));
        assert_eq!(table["rows"][0]["cells"], json!(["b", "Running"]));
        assert_eq!(table["columnDefinitions"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let text = "one\ntwo\nthree\nfour\n";
        assert_eq!(fitting(text, 24, 80), text);
        assert_eq!(fitting(text, 4, 80), "one\ntwo\n… and 2 more\n");
        assert_eq!(fitting(text, 24, 2), "on\ntw\nth\nfo\n");
    }
}
