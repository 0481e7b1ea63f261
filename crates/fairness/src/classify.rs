//! From a request to its FlowSchema: the first one that fits, in the order of precedence.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use ferry_meta::object::{items, name, text, uid};
use ferry_meta::{GroupResource, ObjectReader, UserInfo};
use serde_json::{Value, json};

use crate::conditions::{LEVELS, SCHEMAS};
use crate::seats::{LevelConfig, Seats};
use crate::tally::{Tallies, Tally};
use crate::{group_resource, in_group};

/// What is asked of the server, as far as it matters here.
pub struct Ask<'a> {
    pub user: &'a UserInfo,
    pub verb: &'a str,
    pub is_resource: bool,
    pub namespace: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub path: &'a str,
    /// How many seats it takes: 1, or more for a long list.
    pub width: usize,
}

/// All schemas as they stood at one version of the cluster.
pub(crate) struct Schemas {
    pub version: (u64, u64),
    schemas: Vec<Schema>,
}

pub(crate) struct Schema {
    pub uid: Arc<str>,
    pub level_uid: Arc<str>,
    /// Its place among the seats.
    pub level: usize,
    pub tally: Arc<Tally>,
    name: String,
    precedence: i64,
    by: By,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Nothing,
    User,
    Namespace,
}

struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

enum Subject {
    User(String),
    Group(String),
    /// Everything before the account's name, and the name; `*` for all of a namespace.
    Account(String, String),
}

/// A list in which `*` stands for everything.
struct Names(Option<Vec<String>>);

struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

struct PathRule {
    verbs: Names,
    paths: Vec<String>,
}

pub(crate) fn version(reader: &dyn ObjectReader) -> (u64, u64) {
    // Every request asks.
    static RESOURCES: LazyLock<[GroupResource; 2]> = LazyLock::new(|| [SCHEMAS, LEVELS].map(group_resource));
    let [schemas, levels] = &*RESOURCES;
    (reader.version(schemas), reader.version(levels))
}

/// What holds even where nobody wrote it: administrators are never held up, and everyone else has a place.
fn mandatory() -> [(Value, Value); 2] {
    let everything = json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let schema = |name: &str, precedence: i64, groups: &[&str]| {
        let subjects: Vec<Value> = groups.iter().map(|g| json!({"kind": "Group", "group": {"name": g}})).collect();
        let mut rule = everything.clone();
        rule["subjects"] = subjects.into();
        json!({
            "metadata": {"name": name},
            "spec": {
                "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": name}, "rules": [rule],
                "distinguisherMethod": {"type": "ByUser"},
            },
        })
    };
    let limited = json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}});
    let level = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    [
        (schema("exempt", 1, &["system:masters"]), level("exempt", json!({"type": "Exempt"}))),
        (schema("catch-all", 10_000, &["*"]), level("catch-all", json!({"type": "Limited", "limited": limited}))),
    ]
}

impl Schemas {
    /// Reads everything anew, and tells the seats of the levels there are now.
    pub(crate) fn read(reader: &dyn ObjectReader, seats: &Seats, tallies: &Tallies) -> Self {
        // Before the objects: what is written meanwhile is read again with the next request.
        let version = version(reader);
        let mut levels = reader.list(&group_resource(LEVELS), "");
        let mut objects = reader.list(&group_resource(SCHEMAS), "");
        for (schema, level) in mandatory() {
            if !levels.iter().any(|known| name(known) == name(&level)) {
                levels.push(Arc::new(level));
            }
            if !objects.iter().any(|known| name(known) == name(&schema)) {
                objects.push(Arc::new(schema));
            }
        }
        let configs: Vec<LevelConfig> = levels.iter().map(|level| LevelConfig::read(level)).collect();
        let places = seats.configure(&configs);
        let find = |wanted: &str| {
            let at = levels.iter().position(|level| name(level) == wanted)?;
            Some((places[at], Arc::from(uid(&levels[at]))))
        };
        let mut schemas: Vec<Schema> = objects
            .iter()
            .filter_map(|object| {
                let level_name = text(object, "/spec/priorityLevelConfiguration/name");
                let (level, level_uid) = find(level_name)?;
                Some(Schema::read(object, level, level_uid, tallies.of(name(object), level_name)))
            })
            .collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        Self { version, schemas }
    }

    pub(crate) fn find(&self, ask: &Ask<'_>) -> &Schema {
        let fits = self.schemas.iter().find(|schema| schema.fits(ask));
        let last = || self.schemas.iter().find(|schema| schema.name == "catch-all");
        // There is always one: the mandatory ones are added where they are missing.
        fits.or_else(last).unwrap_or(&self.schemas[self.schemas.len() - 1])
    }
}

impl Schema {
    fn read(object: &Value, level: usize, level_uid: Arc<str>, tally: Arc<Tally>) -> Self {
        Self {
            uid: Arc::from(uid(object)),
            level_uid,
            level,
            tally,
            name: name(object).to_owned(),
            precedence: object.pointer("/spec/matchingPrecedence").and_then(Value::as_i64).unwrap_or(1000),
            by: match text(object, "/spec/distinguisherMethod/type") {
                "ByUser" => By::User,
                "ByNamespace" => By::Namespace,
                _ => By::Nothing,
            },
            rules: items(object, "/spec/rules").iter().map(Rule::read).collect(),
        }
    }

    fn fits(&self, ask: &Ask<'_>) -> bool {
        self.rules.iter().any(|rule| rule.fits(ask))
    }

    /// What tells the flows of this schema apart.
    pub(crate) fn distinguisher(&self, ask: &Ask<'_>) -> String {
        let own: Cow<'_, str> = match self.by {
            By::Nothing => "".into(),
            By::User => ask.user.name.as_str().into(),
            By::Namespace => ask.namespace.into(),
        };
        format!("{}\0{own}", self.name)
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let names = |of: &Value, field: &str| {
            let list: Vec<String> =
                items(of, &format!("/{field}")).iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
            Names((!list.iter().any(|one| one == "*")).then_some(list))
        };
        Self {
            subjects: items(rule, "/subjects").iter().filter_map(Subject::read).collect(),
            resources: items(rule, "/resourceRules")
                .iter()
                .map(|of| ResourceRule {
                    verbs: names(of, "verbs"),
                    groups: names(of, "apiGroups"),
                    resources: names(of, "resources"),
                    namespaces: names(of, "namespaces"),
                    cluster_scope: of.get("clusterScope").and_then(Value::as_bool).unwrap_or_default(),
                })
                .collect(),
            paths: items(rule, "/nonResourceRules")
                .iter()
                .map(|of| PathRule {
                    verbs: names(of, "verbs"),
                    paths: items(of, "/nonResourceURLs").iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
                })
                .collect(),
        }
    }

    fn fits(&self, ask: &Ask<'_>) -> bool {
        let wanted = if ask.is_resource {
            self.resources.iter().any(|rule| rule.fits(ask))
        } else {
            self.paths.iter().any(|rule| rule.fits(ask))
        };
        wanted && self.subjects.iter().any(|subject| subject.fits(ask.user))
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Self> {
        Some(match text(subject, "/kind") {
            "User" => Self::User(text(subject, "/user/name").to_owned()),
            "Group" => Self::Group(text(subject, "/group/name").to_owned()),
            "ServiceAccount" => Self::Account(
                format!("system:serviceaccount:{}:", text(subject, "/serviceAccount/namespace")),
                text(subject, "/serviceAccount/name").to_owned(),
            ),
            _ => return None,
        })
    }

    fn fits(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(group) => in_group(user, group),
            Self::Account(prefix, name) => {
                user.name.strip_prefix(&**prefix).is_some_and(|have| name == "*" || have == name)
            }
        }
    }
}

impl Names {
    fn has(&self, wanted: &str) -> bool {
        self.0.as_ref().is_none_or(|list| list.iter().any(|one| one == wanted))
    }

    /// `pods`, or `pods/status` for a subresource.
    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        let Some(list) = &self.0 else { return true };
        list.iter().any(|one| match one.split_once('/') {
            None => subresource.is_empty() && one == resource,
            Some((of, sub)) => of == resource && sub == subresource,
        })
    }
}

impl ResourceRule {
    fn fits(&self, ask: &Ask<'_>) -> bool {
        let place = if ask.namespace.is_empty() { self.cluster_scope } else { self.namespaces.has(ask.namespace) };
        place
            && self.verbs.has(ask.verb)
            && self.groups.has(ask.group)
            && self.resources.has_resource(ask.resource, ask.subresource)
    }
}

impl PathRule {
    fn fits(&self, ask: &Ask<'_>) -> bool {
        self.verbs.has(ask.verb)
            && self.paths.iter().any(|path| match path.strip_suffix('*') {
                Some(prefix) => path == "*" || (prefix.ends_with('/') && ask.path.starts_with(prefix)),
                None => path == ask.path,
            })
    }
}
