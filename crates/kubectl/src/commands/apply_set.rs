//! `apply --applyset`: an object that remembers what was applied together, so that pruning needs no list of kinds.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use http::Method;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::apply_prune::{Visited, remove};
use super::common::{APPLY, DryRun, Report};
use crate::client::{Call, query};
use crate::discovery::{Resource, qualified};
use crate::error::{Error, Result};
use crate::log;
use crate::resource::{Info, Selection, list, of_object};
use crate::session::Context;
use crate::text::quote;

const TOOLING: &str = "applyset.kubernetes.io/tooling";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
const RESOURCES: &str = "applyset.kubernetes.io/contains-group-resources";
const ID: &str = "applyset.kubernetes.io/id";
const PART_OF: &str = "applyset.kubernetes.io/part-of";
const PARENT_TYPE: &str = "applyset.kubernetes.io/is-parent-type";
const TOOL: &str = "kubectl";
const VERSION: &str = "v1.37.0";
const MANAGER: &str = "kubectl-applyset";

/// Kinds by `Kind.group`, and namespaces.
#[derive(Clone, Default)]
struct Members {
    kinds: BTreeMap<String, Resource>,
    namespaces: BTreeSet<String>,
}

pub struct ApplySet {
    resource: Resource,
    namespace: Option<String>,
    name: String,
    /// As the set was before this run, and as it is to be.
    before: Members,
    after: Members,
}

impl ApplySet {
    /// From `[RESOURCE][.GROUP]/NAME`; a Secret where there is a name alone.
    pub async fn parse(context: &Context, text: &str) -> Result<Self> {
        let (kind, name) = text.split_once('/').unwrap_or(("secrets", text));
        let invalid = |why: String| Error::say(format!("invalid parent reference {}: {why}", quote(text)));
        if name.is_empty() {
            return Err(invalid("name cannot be blank".into()));
        }
        let resource = match context.with_mapper(|mapper| Ok(mapper.find(kind).cloned())).await? {
            Some(resource) if !name.contains('/') => resource,
            _ => {
                let (plural, group) = kind.split_once('.').unwrap_or((kind, ""));
                return Err(invalid(format!("no matches for {group}/, Resource={plural}")));
            }
        };
        // The namespace of the command line alone: that of a kubeconfig changes from one run to the next.
        let namespace = match resource.namespaced && context.namespace_is_explicit() {
            true => Some(context.namespace().await?),
            false => None,
        };
        let (before, after) = (Members::default(), Members::default());
        Ok(Self { resource, namespace, name: name.to_owned(), before, after })
    }

    fn shown(&self) -> String {
        quote(&format!("{}.{}/{}", self.resource.plural, self.resource.group, self.name))
    }

    fn is_built_in(&self) -> bool {
        self.resource.group.is_empty() && ["secrets", "configmaps"].contains(&&*self.resource.plural)
    }

    fn id(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let text = [&*self.name, namespace, &self.resource.kind, &self.resource.group].join(".");
        let hash = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(text));
        format!("applyset-{hash}-v1")
    }

    /// Only some kinds may remember a set.
    pub async fn validate(&self, context: &Context) -> Result<()> {
        let mut errors = Vec::new();
        if self.resource.namespaced && self.namespace.is_none() {
            errors.push("namespace is required to use namespace-scoped ApplySet".to_owned());
        }
        if !self.is_built_in() {
            let selection = Selection {
                resource: context.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").await?,
                labels: PARENT_TYPE.to_owned(),
                ..Selection::default()
            };
            let permitted = list(context, &selection, 0).await.unwrap_or_else(|error| {
                errors.push(format!("identifying allowed custom resource parent types: {}", error.inner()));
                Vec::new()
            });
            let (group, version, plural) = (&self.resource.group, &self.resource.version, &self.resource.plural);
            let name = qualified(plural, group);
            if !permitted.iter().any(|definition| definition["metadata"]["name"] == *name) {
                let shown = quote(&format!("{group}/{version}, Resource={plural}"));
                errors.push(format!("resource {shown} is not permitted as an ApplySet parent"));
            }
        }
        match &*errors {
            [] => Ok(()),
            [one] => Err(Error::say(one.as_str())),
            many => Err(Error::say(format!("[{}]", many.join(", ")))),
        }
    }

    /// Members are known by a label.
    pub fn label(&self, info: &mut Info) -> Result<()> {
        if info.object["metadata"]["labels"].get(PART_OF).is_some() {
            return Err(Error::say(format!("ApplySet label {} already set in input data", quote(PART_OF))));
        }
        if !info.object["metadata"]["labels"].is_object() {
            info.object["metadata"]["labels"] = json!({});
        }
        info.object["metadata"]["labels"][PART_OF] = self.id().into();
        Ok(())
    }

    /// Before anything is applied, the parent names what there is and what will be: an apply that is cut off leaves nothing
    /// behind that the next one does not find.
    pub async fn begin(&mut self, context: &Context, report: &Report, validation: &str, infos: &[Info]) -> Result<()> {
        self.fetch(context).await?;
        for info in infos {
            let key = qualified(&info.resource.kind, &info.resource.group);
            self.after.kinds.entry(key).or_insert_with(|| info.resource.clone());
            self.after.namespaces.extend(info.namespace.clone());
        }
        let mut both = self.before.clone();
        both.kinds.extend(self.after.kinds.clone());
        both.namespaces.extend(self.after.namespaces.clone());
        self.update(context, report, validation, &both).await
    }

    async fn fetch(&mut self, context: &Context) -> Result<()> {
        let shown = self.shown();
        let say = |why: String| Error::say(format!("ApplySet parent object {shown} {why}"));
        let path = self.resource.object(self.namespace.as_deref(), &self.name);
        let parent = match context.client().await?.json(Call::get(path)).await {
            Ok(parent) => parent,
            Err(error) if error.is_not_found() && self.is_built_in() => return Ok(()),
            Err(error) if error.is_not_found() => {
                return Err(Error::say("custom resource ApplySet parents cannot be created automatically"));
            }
            Err(error) => {
                return Err(Error::say(format!("failed to fetch ApplySet parent object {shown}: {}", error.inner())));
            }
        };
        let annotation = |key: &str| parent["metadata"]["annotations"][key].as_str();
        let Some(tooling) = annotation(TOOLING) else {
            return Err(say(format!("already exists and is missing required annotation {}", quote(TOOLING))));
        };
        let tool = tooling.rsplit_once('/').map_or(tooling, |(tool, _)| tool);
        if tool != TOOL {
            let (theirs, ours) = (quote(tool), quote(TOOL));
            return Err(say(format!("already exists and is managed by tooling {theirs} instead of {ours}")));
        }
        match parent["metadata"]["labels"][ID].as_str() {
            None => return Err(say(format!("exists and does not have required label {ID}"))),
            Some(id) if id != self.id() => {
                let (key, own) = (quote(ID), self.id());
                return Err(say(format!("exists and has incorrect value for label {key} (got: {id}, want: {own})")));
            }
            Some(_) => {}
        }
        let listed = annotation(KINDS).or_else(|| annotation(RESOURCES).filter(|text| !text.is_empty()));
        let Some(listed) = listed else {
            let key = quote(KINDS);
            return Err(Error::say(format!(
                "parsing ApplySet annotation on {shown}: kubectl requires the {key} annotation to be set on all ApplySet parent objects"
            )));
        };
        for kind in listed.split(',').filter(|kind| !kind.is_empty()) {
            let resource = context.resource(kind).await.map_err(|error| {
                let key = quote(if annotation(KINDS).is_some() { KINDS } else { RESOURCES });
                Error::say(format!(
                    "parsing ApplySet annotation on {shown}: could not find mapping for kind in {key} annotation: {}",
                    error.inner()
                ))
            })?;
            self.before.kinds.insert(qualified(&resource.kind, &resource.group), resource);
        }
        let namespaces = annotation(NAMESPACES).unwrap_or_default().split(',').filter(|text| !text.is_empty());
        self.before.namespaces = namespaces.map(str::to_owned).chain(self.namespace.clone()).collect();
        Ok(())
    }

    async fn update(&self, context: &Context, report: &Report, validation: &str, to: &Members) -> Result<()> {
        if report.dry_run == DryRun::Client {
            return Ok(());
        }
        let others = to.namespaces.iter().filter(|namespace| Some(*namespace) != self.namespace.as_ref());
        let namespaces: Vec<&str> = others.map(String::as_str).collect();
        let kinds: Vec<&str> = to.kinds.keys().map(String::as_str).collect();
        let mut parent = json!({
            "apiVersion": self.resource.api_version(), "kind": self.resource.kind,
            "metadata": {
                "name": self.name,
                "annotations": {
                    TOOLING: format!("{TOOL}/{VERSION}"),
                    KINDS: kinds.join(","),
                    NAMESPACES: namespaces.join(","),
                },
                "labels": {ID: self.id()},
            },
        });
        if let Some(namespace) = &self.namespace {
            parent["metadata"]["namespace"] = namespace.clone().into();
        }
        let path = self.resource.object(self.namespace.as_deref(), &self.name);
        for force in ["false", "true"] {
            let path = query(
                &path,
                &[
                    ("dryRun", report.dry_run.parameter()),
                    ("fieldManager", MANAGER),
                    ("fieldValidation", validation),
                    ("force", force),
                ],
            );
            let call = Call::new(Method::PATCH, path).body(APPLY, parent.to_string().into_bytes());
            match context.client().await?.json(call).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_conflict() && force == "false" => {
                    let why = error.inner();
                    let text = format!(
                        "WARNING: failed to update ApplySet: {why}\nApplySet field manager {MANAGER} should own these fields. Retrying with conflicts forced."
                    );
                    log::warning("applyset.go:453", &text);
                }
                Err(error) => return Err(Error::say(format!("failed to update ApplySet: {}", error.inner()))),
            }
        }
        Ok(())
    }

    /// Deletes the members that were not applied; then the parent names those that are left.
    pub async fn prune(&self, context: &Context, report: &Report, validation: &str, visited: &Visited) -> Result<()> {
        let mut gone = Vec::new();
        for resource in self.before.kinds.values() {
            let places: Vec<Option<String>> = match resource.namespaced {
                true => self.before.namespaces.iter().cloned().map(Some).collect(),
                false => vec![None],
            };
            for namespace in places {
                let labels = format!("{PART_OF}={}", self.id());
                let selection = Selection { resource: resource.clone(), namespace, labels, fields: String::new() };
                let found = list(context, &selection, 0).await.map_err(|error| {
                    let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
                    let kind = format!("{group}/{version}, Kind={kind}");
                    Error::say(format!("listing {kind} objects for pruning: {}", error.inner()))
                })?;
                gone.extend(found.into_iter().filter(|o| !visited.has(o)).map(|object| of_object(resource, object)));
            }
        }
        for info in &gone {
            remove(context, report, info).await.map_err(|error| {
                let kind = qualified(&info.resource.kind, &info.resource.group);
                let name = info.namespace.as_ref().map_or(info.name.clone(), |space| format!("{space}/{}", info.name));
                Error::say(format!("pruning {kind} {name}: {}", error.inner()))
            })?;
        }
        self.update(context, report, validation, &self.after).await.map_err(|error| {
            Error::say(format!("apply and prune succeeded, but ApplySet update failed: {}", error.inner()))
        })
    }
}
