//! Roles, ClusterRoles and their bindings.

use serde_json::Value;

use super::parts::{list, marks, text};

fn head(object: &Value) -> String {
    format!("Name:\t{}\n", text(&object["metadata"], "name")) + &marks(object)
}

/// What a rule allows, of one resource or path.
#[derive(PartialEq, Eq)]
struct Row {
    group: Option<String>,
    resource: String,
    path: Option<String>,
    name: Option<String>,
    verbs: Vec<String>,
}

impl Row {
    /// What rows are sorted by: the verbs come first.
    fn key(&self) -> String {
        let of = |value: &Option<String>| value.clone().unwrap_or_default();
        format!(
            "Verbs:[{}],APIGroups:[{}],Resources:[{}],ResourceNames:[{}],NonResourceURLs:[{}],",
            self.verbs.join(" "),
            of(&self.group),
            self.resource,
            of(&self.name),
            of(&self.path)
        )
    }
}

fn texts(value: &Value) -> impl Iterator<Item = String> + '_ {
    list(value).iter().filter_map(Value::as_str).map(str::to_owned)
}

fn rows(rules: &Value) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for rule in list(rules) {
        let names: Vec<Option<String>> = match list(&rule["resourceNames"]) {
            [] => vec![None],
            _ => texts(&rule["resourceNames"]).map(Some).collect(),
        };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        let same = |row: &&mut Row| {
                            row.group.as_ref() == Some(&group) && row.resource == resource && row.name == *name
                        };
                        match rows.iter_mut().find(same) {
                            Some(row) => row.verbs.push(verb.clone()),
                            None => rows.push(Row {
                                group: Some(group.clone()),
                                resource: resource.clone(),
                                path: None,
                                name: name.clone(),
                                verbs: vec![verb.clone()],
                            }),
                        }
                    }
                }
            }
        }
        for path in texts(&rule["nonResourceURLs"]) {
            for verb in texts(&rule["verbs"]) {
                let path = Some(path.clone());
                rows.push(Row { group: None, resource: String::new(), path, name: None, verbs: vec![verb] });
            }
        }
    }
    rows.sort_by_key(Row::key);
    rows
}

pub fn role(object: &Value) -> String {
    let mut out = head(object) + "PolicyRule:\n";
    out.push_str("  Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    out.push_str("  ---------\t-----------------\t--------------\t-----\n");
    for row in rows(&object["rules"]) {
        let (plural, below) =
            row.resource.split_once('/').map_or((&*row.resource, None), |(p, below)| (p, Some(below)));
        let mut resource = plural.to_owned();
        if let Some(group) = row.group.as_ref().filter(|group| !group.is_empty()) {
            resource.push_str(&format!(".{group}"));
        }
        if let Some(below) = below {
            resource.push_str(&format!("/{below}"));
        }
        let (path, name) = (row.path.unwrap_or_default(), row.name.unwrap_or_default());
        out.push_str(&format!("  {resource}\t[{path}]\t[{name}]\t[{}]\n", row.verbs.join(" ")));
    }
    out
}

pub fn binding(object: &Value) -> String {
    let role = &object["roleRef"];
    let mut out = head(object);
    out.push_str(&format!("Role:\n  Kind:\t{}\n  Name:\t{}\n", text(role, "kind"), text(role, "name")));
    out.push_str("Subjects:\n  Kind\tName\tNamespace\n  ----\t----\t---------\n");
    for subject in list(&object["subjects"]) {
        let of = |field: &str| text(subject, field);
        out.push_str(&format!("  {}\t{}\t{}\n", of("kind"), of("name"), of("namespace")));
    }
    out
}
