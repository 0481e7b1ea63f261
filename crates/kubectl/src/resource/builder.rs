//! Arguments in kubectl's forms to targets, with its complaints.

use super::{Info, files};
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::session::Context;
use crate::text::quote;

#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub resource: Resource,
    /// None for all of them.
    pub namespace: Option<String>,
    pub labels: String,
    pub fields: String,
}

#[derive(Clone, Debug)]
pub enum Target {
    Many(Selection),
    One { resource: Resource, namespace: Option<String>, name: String },
    File(Info),
}

impl Target {
    pub fn resource(&self) -> &Resource {
        match self {
            Self::Many(selection) => &selection.resource,
            Self::One { resource, .. } => resource,
            Self::File(info) => &info.resource,
        }
    }
}

/// What is asked for, in the order in which kubectl looks at it.
#[derive(Default)]
pub struct Builder {
    pub words: Vec<String>,
    pub labels: Option<String>,
    pub fields: Option<String>,
    pub all: bool,
    pub all_namespaces: bool,
    /// A type alone means all of its objects.
    pub empty_selector: bool,
    pub single_type: bool,
    pub files: Vec<String>,
    pub recursive: bool,
    /// Objects of files are asked for anew.
    pub latest: bool,
    pub subresource: bool,
}

pub struct Built {
    pub targets: Vec<Target>,
    /// One object is meant, not a list of one.
    pub single: bool,
    /// By name or file, not by selector.
    pub by_name: bool,
    /// Documents of files that are no objects; the others are there.
    pub errors: Vec<Error>,
}

pub const MISSING: &str = "You must provide one or more resources by argument or filename.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'";
const COMBINED: &str = "there is no need to specify a resource type as a separate argument when passing arguments in resource/name form (e.g. 'kubectl get resource/<resource_name>' instead of 'kubectl get resource resource/<resource_name>'";

impl Builder {
    /// From the flags that most commands share.
    pub fn of(context: &Context) -> Self {
        let flags = &context.flags;
        let given = |name: &str| flags.given(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        Self {
            words: flags.words.clone(),
            labels: given("selector"),
            fields: given("field-selector"),
            all: flags.is("all"),
            all_namespaces: flags.is("all-namespaces"),
            files: flags.list("filename"),
            recursive: flags.is("recursive"),
            ..Self::default()
        }
    }

    pub fn words(mut self, words: &[String]) -> Self {
        self.words = words.to_vec();
        self
    }

    pub fn empty_selector(mut self) -> Self {
        self.empty_selector = true;
        self
    }

    pub fn latest(mut self) -> Self {
        self.latest = true;
        self
    }

    pub async fn build(mut self, context: &Context) -> Result<Built> {
        let kustomize = context.flags.given("kustomize").is_some();
        if kustomize && !self.files.is_empty() {
            return Err(Error::say("only one of -f or -k can be specified"));
        }
        let (mut tuples, mut types, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let words = self.expand(context).await?;
        let slashes = words.iter().filter(|word| word.contains('/')).count();
        if slashes > 0 && slashes != words.len() {
            return Err(Error::say(COMBINED));
        }
        if slashes > 0 {
            for word in &words {
                tuples.push(tuple(word)?);
            }
        } else if let Some((first, rest)) = words.split_first() {
            types = first.split(',').map(str::to_owned).collect();
            names = rest.to_vec();
            if rest.is_empty() && self.labels.is_none() && self.empty_selector {
                self.labels = Some(String::new());
            }
        }
        if self.all && (self.labels.as_ref().is_some_and(|l| !l.is_empty()) || self.fields.is_some()) {
            return Err(Error::say("setting 'all' parameter but found a non empty selector. "));
        }
        if self.all {
            self.labels = Some(String::new());
        }
        let namespace = if self.all_namespaces { None } else { Some(context.namespace().await?) };
        if !self.files.is_empty() || kustomize {
            return self.by_paths(context, &types, &names, &tuples).await;
        }
        if self.labels.is_some() || self.fields.is_some() {
            return self.by_selector(context, &types, &names, &tuples, namespace).await;
        }
        if !tuples.is_empty() {
            let mut targets = Vec::new();
            for (kind, name) in &tuples {
                targets.push(self.one(context, context.resource(kind).await?, name, &namespace)?);
            }
            let first = targets[0].resource().clone();
            if self.single_type && targets.iter().any(|target| *target.resource() != first) {
                return Err(Error::say("you may only specify a single resource type"));
            }
            return Ok(Built { single: targets.len() == 1, targets, by_name: true, errors: Vec::new() });
        }
        if !names.is_empty() {
            let [kind] = &*types else { return Err(Error::say("you must specify only one resource")) };
            let resource = context.resource(kind).await?;
            let targets = names
                .iter()
                .map(|name| self.one(context, resource.clone(), name, &namespace))
                .collect::<Result<Vec<_>>>()?;
            return Ok(Built { single: targets.len() == 1, targets, by_name: true, errors: Vec::new() });
        }
        for kind in &types {
            context.resource(kind).await?;
        }
        Err(Error::say(if types.is_empty() { MISSING } else { "resource(s) were provided, but no name was specified" }))
    }

    /// `a,b x` is `a/x b/x`; a category is its resources.
    async fn expand(&self, context: &Context) -> Result<Vec<String>> {
        let Some((first, rest)) = self.words.split_first() else { return Ok(Vec::new()) };
        if first.contains('/') {
            return Ok(self.words.clone());
        }
        let mut types = Vec::new();
        for part in first.split(',').filter(|part| !part.is_empty()) {
            let names = context
                .with_mapper(|mapper| {
                    // A name that is no resource may be a category.
                    match mapper.category(part) {
                        found if found.is_empty() => mapper.resource(part).map(|_| vec![part.to_owned()]),
                        found => Ok(found.iter().map(|resource| resource.qualified()).collect()),
                    }
                })
                .await?;
            types.extend(names);
        }
        if types.len() > 1 && !rest.is_empty() {
            let all = types.iter().flat_map(|kind| rest.iter().map(move |name| format!("{kind}/{name}")));
            return Ok(all.collect());
        }
        let mut words = vec![types.join(",")];
        words.extend(rest.iter().cloned());
        Ok(words)
    }

    fn one(&self, _: &Context, resource: Resource, name: &str, namespace: &Option<String>) -> Result<Target> {
        if resource.namespaced && namespace.is_none() {
            return Err(Error::say("a resource cannot be retrieved by name across all namespaces"));
        }
        let namespace = namespace.clone().filter(|_| resource.namespaced);
        Ok(Target::One { resource, namespace, name: name.to_owned() })
    }

    async fn by_selector(
        &self,
        context: &Context,
        types: &[String],
        names: &[String],
        tuples: &[(String, String)],
        namespace: Option<String>,
    ) -> Result<Built> {
        if !names.is_empty() {
            return Err(Error::say("name cannot be provided when a selector is specified"));
        }
        if !tuples.is_empty() {
            return Err(Error::say("selectors and the all flag cannot be used when passing resource/name arguments"));
        }
        if types.is_empty() {
            return Err(Error::say("at least one resource must be specified to use a selector"));
        }
        if self.subresource {
            return Err(Error::say("subresource cannot be used when bulk resources are specified"));
        }
        if self.single_type && types.len() > 1 {
            return Err(Error::say("you may only specify a single resource type"));
        }
        let mut targets: Vec<Target> = Vec::new();
        for kind in types {
            let resource = context.resource(kind).await?;
            if targets.iter().any(|target| *target.resource() == resource) {
                continue;
            }
            targets.push(Target::Many(Selection {
                namespace: namespace.clone().filter(|_| resource.namespaced),
                resource,
                labels: self.labels.clone().unwrap_or_default(),
                fields: self.fields.clone().unwrap_or_default(),
            }));
        }
        Ok(Built { targets, single: false, by_name: false, errors: Vec::new() })
    }

    async fn by_paths(
        &self,
        context: &Context,
        types: &[String],
        names: &[String],
        tuples: &[(String, String)],
    ) -> Result<Built> {
        if !types.is_empty() {
            return Err(Error::say(
                "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
            ));
        }
        if !names.is_empty() || !tuples.is_empty() {
            return Err(Error::say("resource/name arguments cannot be provided when a path is specified"));
        }
        let (infos, errors, one_file) = files::read(context, &self.files, self.recursive).await?;
        let selector =
            match self.labels.as_deref().filter(|labels| !labels.is_empty()) {
                Some(labels) => Some(ferry_meta::selector::LabelSelector::parse(labels).map_err(|why| {
                    Error::say(format!("the provided selector {} is not valid: {why}", quote(labels)))
                })?),
                None => None,
            };
        let kept = infos
            .into_iter()
            .filter(|info| selector.as_ref().is_none_or(|s| s.matches(ferry_meta::object::labels(&info.object))));
        let targets: Vec<Target> = kept
            .map(|info| match self.latest {
                true => Target::One { resource: info.resource, namespace: info.namespace, name: info.name },
                false => Target::File(info),
            })
            .collect();
        Ok(Built { single: one_file && targets.len() == 1 && errors.is_empty(), targets, by_name: true, errors })
    }
}

/// `type/name`.
pub fn tuple(word: &str) -> Result<(String, String)> {
    let parts: Vec<&str> = word.split('/').collect();
    match &*parts {
        [kind, name] if !kind.is_empty() && !name.is_empty() && !kind.contains(',') => {
            Ok(((*kind).to_owned(), (*name).to_owned()))
        }
        [_, _] => Err(Error::say("arguments in resource/name form must have a single resource and name")),
        _ => Err(Error::say("arguments in resource/name form may not have more than one slash")),
    }
}
