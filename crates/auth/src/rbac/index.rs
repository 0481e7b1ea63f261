//! The index over roles and bindings: from a subject to the bindings that name it.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::object::{items, name, namespace, text};
use ferry_meta::{ObjectReader, UserInfo};
use serde_json::Value;

use super::aggregate::aggregated_rules;
use super::rule::{PolicyRule, rules_of};
use crate::resources::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};

/// Why a binding gives nobody anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    #[error("clusterrole.rbac.authorization.k8s.io {0:?} not found")]
    NoClusterRole(String),
    #[error("role.rbac.authorization.k8s.io {0:?} not found")]
    NoRole(String),
    #[error("unsupported role reference kind: {0:?}")]
    Kind(String),
}

/// A binding with the rules it gives.
pub(super) struct Binding {
    pub(super) rules: Result<Arc<Vec<PolicyRule>>, RoleError>,
    /// `ClusterRoleBinding "x" of ClusterRole "y"`.
    title: String,
    /// The binding's own namespace, where a service account without one lives.
    namespace: String,
    subjects: Vec<Subject>,
}

enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

impl Binding {
    /// `RBAC: allowed by …` for the first subject that the user is.
    pub(super) fn reason(&self, user: &UserInfo) -> String {
        let subject = self.subjects.iter().find_map(|subject| match subject {
            Subject::User(name) if *name == user.name => Some(format!("User {name:?}")),
            Subject::Group(group) if user.in_group(group) => Some(format!("Group {group:?}")),
            Subject::ServiceAccount { namespace, name } => {
                let full = if namespace.is_empty() { &self.namespace } else { namespace };
                (user.name == account_name(full, name)).then(|| format!("ServiceAccount \"{name}/{full}\""))
            }
            _ => None,
        });
        format!("RBAC: allowed by {} to {}", self.title, subject.unwrap_or_default())
    }
}

fn account_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The bindings of one scope by the names in them, in the order the reader lists them.
#[derive(Default)]
struct Scope {
    bindings: Vec<Arc<Binding>>,
    users: HashMap<String, Vec<u32>>,
    groups: HashMap<String, Vec<u32>>,
}

impl Scope {
    fn add(&mut self, binding: Binding) {
        let Ok(number) = u32::try_from(self.bindings.len()) else { return };
        for subject in &binding.subjects {
            let entry = match subject {
                Subject::User(name) => self.users.entry(name.clone()),
                Subject::Group(name) => self.groups.entry(name.clone()),
                Subject::ServiceAccount { namespace, name } => {
                    let namespace = if namespace.is_empty() { &binding.namespace } else { namespace };
                    self.users.entry(account_name(namespace, name))
                }
            };
            entry.or_default().push(number);
        }
        self.bindings.push(Arc::new(binding));
    }

    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Arc<Binding>> {
        let mut numbers: Vec<u32> = Vec::new();
        numbers.extend(self.users.get(&user.name).into_iter().flatten());
        for group in &user.groups {
            numbers.extend(self.groups.get(group).into_iter().flatten());
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| &self.bindings[number as usize])
    }
}

type RuleMap<Key> = HashMap<Key, Arc<Vec<PolicyRule>>>;

/// Immutable: a change of any role or binding makes a new one.
#[derive(Default)]
pub(super) struct Index {
    pub(super) versions: [u64; 4],
    cluster: Scope,
    namespaces: HashMap<String, Scope>,
    cluster_roles: RuleMap<String>,
    roles: RuleMap<(String, String)>,
}

pub(super) fn versions(reader: &dyn ObjectReader) -> [u64; 4] {
    [&*CLUSTER_ROLES, &*CLUSTER_ROLE_BINDINGS, &*ROLES, &*ROLE_BINDINGS].map(|resource| reader.version(resource))
}

impl Index {
    pub(super) fn build(reader: &dyn ObjectReader) -> Self {
        // Read before the objects: a change in between makes this index stale at once instead of never.
        let mut index = Self { versions: versions(reader), ..Self::default() };
        let cluster_roles = reader.list(&CLUSTER_ROLES, "");
        for role in &cluster_roles {
            // Aggregated roles are whole here at once, whether or not their controller has written them yet.
            let rules = match aggregated_rules(role, &cluster_roles) {
                Some(rules) => rules,
                None => rules_of(role),
            };
            index.cluster_roles.insert(name(role).to_owned(), Arc::new(rules));
        }
        for role in reader.list(&ROLES, "") {
            index.roles.insert((namespace(&role).to_owned(), name(&role).to_owned()), Arc::new(rules_of(&role)));
        }
        for object in reader.list(&CLUSTER_ROLE_BINDINGS, "") {
            let binding = index.binding(&object);
            index.cluster.add(binding);
        }
        for object in reader.list(&ROLE_BINDINGS, "") {
            let binding = index.binding(&object);
            index.namespaces.entry(namespace(&object).to_owned()).or_default().add(binding);
        }
        index
    }

    fn binding(&self, object: &Value) -> Binding {
        let namespace = namespace(object);
        let (kind, role) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
        let title = if namespace.is_empty() {
            format!("ClusterRoleBinding {:?} of {kind} {role:?}", name(object))
        } else {
            format!("RoleBinding \"{}/{namespace}\" of {kind} {role:?}", name(object))
        };
        let subjects = items(object, "/subjects")
            .iter()
            .filter_map(|subject| {
                let name = text(subject, "/name").to_owned();
                match text(subject, "/kind") {
                    "User" => Some(Subject::User(name)),
                    "Group" => Some(Subject::Group(name)),
                    "ServiceAccount" => {
                        Some(Subject::ServiceAccount { namespace: text(subject, "/namespace").to_owned(), name })
                    }
                    _ => None,
                }
            })
            .collect();
        Binding { rules: self.role_rules(namespace, kind, role), title, namespace: namespace.to_owned(), subjects }
    }

    /// The rules of the role that a binding refers to.
    pub(super) fn role_rules(
        &self,
        namespace: &str,
        kind: &str,
        role: &str,
    ) -> Result<Arc<Vec<PolicyRule>>, RoleError> {
        match kind {
            "ClusterRole" => {
                self.cluster_roles.get(role).cloned().ok_or_else(|| RoleError::NoClusterRole(role.to_owned()))
            }
            "Role" => {
                let known = self.roles.get(&(namespace.to_owned(), role.to_owned()));
                known.cloned().ok_or_else(|| RoleError::NoRole(role.to_owned()))
            }
            other => Err(RoleError::Kind(other.to_owned())),
        }
    }

    /// The bindings that name this user: those of the cluster, then those of the namespace.
    pub(super) fn bindings<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Arc<Binding>> {
        let local = self.namespaces.get(namespace).filter(|_| !namespace.is_empty());
        self.cluster.of(user).chain(local.into_iter().flat_map(|scope| scope.of(user)))
    }
}
