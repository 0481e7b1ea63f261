//! Revisions of a template kept as ControllerRevisions: DaemonSet and StatefulSet go back and forth between them.

use std::sync::Arc;

use ferry_client::{Api, Change, Error, ObjectKey, Wire, WorkQueue, owner, write};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::template;

pub(crate) const HASH_LABEL: &str = "controller-revision-hash";

/// Whose revision was changed or went looks: it may have to be made again. Those that come are made by the sets themselves.
pub(crate) fn wake(kind: &str, queue: &WorkQueue<ObjectKey>, change: &Change<ControllerRevision>) {
    if matches!(change, Change::Added(_)) {
        return;
    }
    for revision in change.old().into_iter().chain([change.object()]) {
        if let Some(reference) = owner::controller_of(&**revision).filter(|reference| reference.kind == kind) {
            queue.add(ObjectKey::new(revision.namespace().unwrap_or_default(), &*reference.name));
        }
    }
}

/// The template as the patch that brings it back.
pub(crate) fn data(template: &PodTemplateSpec) -> Value {
    let mut template = template::as_value(template);
    template["$patch"] = "replace".into();
    json!({ "spec": { "template": template } })
}

pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    PodTemplateSpec::decode(template.to_string().as_bytes()).ok()
}

pub(crate) fn hash_of(revision: &ControllerRevision) -> String {
    revision.labels().get(HASH_LABEL).cloned().unwrap_or_else(|| revision.name_any())
}

/// Oldest first.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|one, other| {
        let key = |revision: &ControllerRevision| {
            (revision.revision, revision.metadata.creation_timestamp.clone(), revision.name_any())
        };
        key(one).cmp(&key(other))
    });
}

/// What the revision of the current template needs.
#[derive(Debug)]
pub(crate) enum Current {
    /// It is the newest.
    Is(Arc<ControllerRevision>),
    /// It exists under an older number: it was gone back to.
    Renumber(ControllerRevision),
    Create(ControllerRevision),
}

/// `revisions` as sorted; `owner` will control a new one.
pub(crate) fn current(
    revisions: &[Arc<ControllerRevision>],
    template: &PodTemplateSpec,
    owner: &OwnerReference,
    collisions: Option<i32>,
    annotations: Option<std::collections::BTreeMap<String, String>>,
) -> Current {
    let newest = revisions.last().and_then(|revision| revision.revision).unwrap_or_default();
    let same = |revision: &&Arc<ControllerRevision>| {
        template_of(revision).is_some_and(|known| template::same(&known, template))
    };
    if let Some(found) = revisions.iter().rev().find(same) {
        if found.revision == Some(newest) {
            return Current::Is(found.clone());
        }
        let mut renumbered = (**found).clone();
        renumbered.revision = Some(newest.saturating_add(1));
        return Current::Renumber(renumbered);
    }
    let hash = template::hash(template, collisions);
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    Current::Create(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", cut(&owner.name, 252 - hash.len()))),
            labels: Some(labels),
            annotations,
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        data: RawExtension(data(template)),
        revision: Some(newest.saturating_add(1)),
    })
}

fn cut(text: &str, length: usize) -> &str {
    text.get(..length).unwrap_or(text)
}

/// What came of carrying `Current` out.
pub(crate) enum Settled {
    Revision(Arc<ControllerRevision>),
    /// Another template has the same hash: the owner must count a collision and try again.
    Collision,
}

pub(crate) async fn settle(api: &Api<ControllerRevision>, current: Current) -> Result<Settled, Error> {
    let revision = match current {
        Current::Is(revision) => return Ok(Settled::Revision(revision)),
        Current::Renumber(revision) => api.replace(&revision.name_any(), &PostParams::default(), &revision).await?,
        Current::Create(revision) => match api.create(&PostParams::default(), &revision).await {
            Ok(created) => created,
            Err(error) if write::is_already_exists(&error) => {
                let there = api.get(&revision.name_any()).await?;
                // Whoever it belongs to: one of a predecessor of the same name goes soon, and is made again then.
                match (template_of(&there), template_of(&revision)) {
                    (Some(one), Some(other)) if template::same(&one, &other) => there,
                    _ => return Ok(Settled::Collision),
                }
            }
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Settled::Revision(Arc::new(revision)))
}

/// The oldest revisions beyond the limit that nothing lives from. `counted` are those that are held against the limit; no
/// limit below zero is one.
pub(crate) fn superfluous(
    revisions: &[Arc<ControllerRevision>],
    limit: i32,
    counted: impl Fn(&ControllerRevision) -> bool,
    lives: impl Fn(&ControllerRevision) -> bool,
) -> Vec<&Arc<ControllerRevision>> {
    let Ok(limit) = usize::try_from(limit) else { return Vec::new() };
    let surplus = revisions.iter().filter(|revision| counted(revision)).count().saturating_sub(limit);
    revisions.iter().filter(|revision| !lives(revision)).take(surplus).collect()
}

pub(crate) async fn delete(api: &Api<ControllerRevision>, revisions: &[&Arc<ControllerRevision>]) -> Result<(), Error> {
    for revision in revisions {
        write::delete(api, &***revision, None).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(label: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({ "metadata": { "labels": { "a": label } } })).expect("a template")
    }

    /// Plays templates in turn and shows the number each ends up with.
    fn check(labels: &[&str], expected: &[i64]) {
        let owner = OwnerReference { name: "o".into(), ..OwnerReference::default() };
        let mut revisions: Vec<Arc<ControllerRevision>> = Vec::new();
        let mut numbers = Vec::new();
        for label in labels {
            let now = match current(&revisions, &template(label), &owner, None, None) {
                Current::Is(revision) => (*revision).clone(),
                Current::Renumber(revision) | Current::Create(revision) => revision,
            };
            numbers.extend(now.revision);
            revisions.retain(|known| known.name_any() != now.name_any());
            revisions.push(Arc::new(now));
            sort(&mut revisions);
        }
        assert_eq!(numbers, expected, "{labels:?}");
    }

    #[test]
    fn revisions_count_up_and_are_found_again() {
        check(&["x", "x", "y", "x", "x", "z"], &[1, 1, 2, 3, 3, 4]);
    }

    #[test]
    fn the_oldest_that_nothing_lives_from_go() {
        let named = |name: &&str| {
            let json = json!({ "metadata": { "name": name }, "revision": 1 });
            Arc::new(serde_json::from_value::<ControllerRevision>(json).expect("a revision"))
        };
        let revisions: Vec<_> = ["a", "live", "b", "c", "current"].iter().map(named).collect();
        let check = |limit: i32, all_but_current: bool, expected: &[&str]| {
            let lives = |revision: &ControllerRevision| ["live", "current"].contains(&&*revision.name_any());
            let counted = |revision: &ControllerRevision| {
                if all_but_current { revision.name_any() != "current" } else { !lives(revision) }
            };
            let gone = superfluous(&revisions, limit, counted, lives);
            assert_eq!(gone.iter().map(|gone| gone.name_any()).collect::<Vec<_>>(), expected, "{limit}");
        };
        check(2, false, &["a"]);
        check(2, true, &["a", "b"]);
        check(0, true, &["a", "b", "c"]);
        check(5, true, &[]);
        check(-1, false, &[]);
    }

    #[test]
    fn the_template_comes_back() {
        let owner = OwnerReference { name: "o".into(), ..OwnerReference::default() };
        let Current::Create(revision) = current(&[], &template("x"), &owner, None, None) else {
            panic!("a new revision");
        };
        assert_eq!(template_of(&revision), Some(template("x")));
    }
}
