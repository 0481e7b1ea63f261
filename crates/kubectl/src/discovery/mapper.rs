//! From what a user writes to a resource: plural, singular, short name, kind, with or without group and version.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;

use super::{Discovered, Resource, cache};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::text::quote;

pub struct Mapper {
    pub found: Discovered,
    folder: PathBuf,
    fresh: bool,
    said: RefCell<HashSet<String>>,
}

impl Mapper {
    pub async fn load(client: &Client, folder: PathBuf) -> Result<Self> {
        if let Some(found) = cache::read(&folder) {
            return Ok(Self { found, folder, fresh: false, said: RefCell::default() });
        }
        let mut mapper = Self { found: Discovered::default(), folder, fresh: false, said: RefCell::default() };
        mapper.refresh(client).await?;
        Ok(mapper)
    }

    pub async fn refresh(&mut self, client: &Client) -> Result<()> {
        self.found = super::ask(client).await?;
        self.fresh = true;
        if self.found.stale.is_empty() {
            cache::write(&self.folder, &self.found);
        }
        Ok(())
    }

    /// Whether asking again may tell more.
    pub fn is_old(&self) -> bool {
        !self.fresh
    }

    /// `deploy`, `deployments.apps`, `deployments.v1.apps`, `Deployment`.
    pub fn resource(&self, argument: &str) -> Result<Resource> {
        self.find(argument).cloned().ok_or_else(|| {
            let (name, group) = argument.split_once('.').unwrap_or((argument, ""));
            Error::say(match group {
                "" => format!("the server doesn't have a resource type {}", quote(name)),
                group => format!("the server doesn't have a resource type {} in group {}", quote(name), quote(group)),
            })
        })
    }

    pub fn find(&self, argument: &str) -> Option<&Resource> {
        let parts: Vec<&str> = argument.splitn(3, '.').collect();
        if let [name, version, group] = &*parts
            && let Some(found) =
                self.named(name, Some(group), Some(version)).or_else(|| self.of_kind(name, Some(group), Some(version)))
        {
            return Some(found);
        }
        // A short name stands for its resource, whatever version is written behind it.
        if let [name, _, group] = &*parts
            && let Some(found) =
                self.named(name, Some(group), None).filter(|found| found.short_names.contains(&(*name).to_owned()))
        {
            return Some(found);
        }
        let (name, group) = match argument.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (argument, None),
        };
        self.named(name, group, None).or_else(|| self.of_kind(name, group, None))
    }

    fn candidates(&self, group: Option<&str>, version: Option<&str>) -> Vec<&Resource> {
        // The beginning of a group's name is enough.
        let of_group = |resource: &Resource| match group {
            None => true,
            Some(group) => {
                resource.group == group || (!group.is_empty() && resource.group.starts_with(&format!("{group}.")))
            }
        };
        let of_version =
            |resource: &Resource| version.map_or(resource.preferred, |version| resource.version == version);
        self.found.resources.iter().filter(|resource| of_group(resource) && of_version(resource)).collect()
    }

    fn named(&self, name: &str, group: Option<&str>, version: Option<&str>) -> Option<&Resource> {
        let name = name.to_lowercase();
        let all = self.candidates(group, version);
        let find = |is: &dyn Fn(&Resource) -> bool| all.iter().find(|resource| is(resource)).copied();
        find(&|resource| resource.plural == name).or_else(|| find(&|resource| resource.singular == name)).or_else(
            || {
                let mut short = all.iter().filter(|resource| resource.short_names.contains(&name));
                let first = short.next().copied()?;
                for other in short.filter(|other| other.group != first.group) {
                    self.say_once(format!(
                        "Warning: short name {} could also match lower priority resource {}",
                        quote(&name),
                        other.qualified()
                    ));
                }
                Some(first)
            },
        )
    }

    fn say_once(&self, text: String) {
        if self.said.borrow_mut().insert(text.clone()) {
            crate::text::warn(text);
        }
    }

    fn of_kind(&self, kind: &str, group: Option<&str>, version: Option<&str>) -> Option<&Resource> {
        self.candidates(group, version).into_iter().find(|resource| resource.kind == kind)
    }

    /// The resource of an object in a file.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.found.resources.iter().find(|r| r.group == group && r.version == version && r.kind == kind)
    }

    pub fn category(&self, name: &str) -> Vec<&Resource> {
        self.found.resources.iter().filter(|r| r.preferred && r.categories.iter().any(|known| known == name)).collect()
    }
}
