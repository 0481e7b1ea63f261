//! What goes into volumes made of objects: ConfigMaps, Secrets, fields of the pod, tokens.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection};

use super::atomic::{Files, Payload};
use super::{Volumes, certificates, trust};
use crate::pod;
use crate::sources::missing;
use crate::spec::fields::{self, Surroundings};
use crate::spec::room::Room;

const DEFAULT_MODE: i32 = 0o644;

#[derive(Default)]
pub(super) struct Content {
    pub(super) files: Files,
    pub(super) refresh_at: Option<Timestamp>,
}

/// The data of an object, by key.
type Data = Vec<(String, Vec<u8>)>;

impl Volumes {
    /// The files of a volume, and the name of its kind; none for volumes that are no files. All those of a pod share `room`.
    pub(super) async fn content(
        &self,
        pod: &Pod,
        volume: &Volume,
        around: &Surroundings,
        room: &mut Room,
    ) -> Result<Option<(&'static str, Content)>, String> {
        let mut content = Content::default();
        if let Some(source) = &volume.config_map {
            let required = source.optional != Some(true);
            let data = self.config_map(pod, &source.name, required).await?;
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            content.files = project(&data, source.items.as_deref(), mode, required, "configmap", room)?;
            return Ok(Some(("configmap", content)));
        }
        if let Some(source) = &volume.secret {
            let required = source.optional != Some(true);
            let name = source.secret_name.as_deref().unwrap_or_default();
            let data = self.secret(pod, name, required).await?;
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            content.files = project(&data, source.items.as_deref(), mode, required, "secret", room)?;
            return Ok(Some(("secret", content)));
        }
        if let Some(source) = &volume.downward_api {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            content.files = downward(pod, source.items.as_deref(), mode, around, room)?;
            return Ok(Some(("downward-api", content)));
        }
        if let Some(source) = &volume.projected {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            for (index, projection) in source.sources.iter().flatten().enumerate() {
                self.projection(pod, projection, mode, around, &mut content, room).await?;
                if let Some(wanted) = &projection.pod_certificate {
                    let place = (volume.name.as_str(), index);
                    let issued = self.certificates.get(&self.sources, pod, place, wanted).await?;
                    let files = certificates::files(wanted, &issued).into_iter();
                    files.clone().try_for_each(|(_, data)| room.take_file(data.len()))?;
                    content.files.extend(files.map(|(path, data)| (path, credential(pod, data, mode))));
                    content.refresh_at = [content.refresh_at, Some(issued.refresh_at)].into_iter().flatten().min();
                }
            }
            return Ok(Some(("projected", content)));
        }
        Ok(None)
    }

    async fn projection(
        &self,
        pod: &Pod,
        projection: &VolumeProjection,
        mode: i32,
        around: &Surroundings,
        content: &mut Content,
        room: &mut Room,
    ) -> Result<(), String> {
        if let Some(source) = &projection.config_map {
            let required = source.optional != Some(true);
            let data = self.config_map(pod, &source.name, required).await?;
            content.files.extend(project(&data, source.items.as_deref(), mode, required, "configmap", room)?);
        }
        if let Some(source) = &projection.secret {
            let required = source.optional != Some(true);
            let data = self.secret(pod, &source.name, required).await?;
            content.files.extend(project(&data, source.items.as_deref(), mode, required, "secret", room)?);
        }
        if let Some(source) = &projection.downward_api {
            content.files.extend(downward(pod, source.items.as_deref(), mode, around, room)?);
        }
        if let Some(source) = &projection.service_account_token {
            let token = self.tokens.get(pod, source).await?;
            room.take_file(token.text.len())?;
            content.files.insert(source.path.clone(), credential(pod, token.text.into_bytes(), mode));
            content.refresh_at = [content.refresh_at, Some(token.refresh_at)].into_iter().flatten().min();
        }
        if let Some(source) = &projection.cluster_trust_bundle {
            let bundles = self.sources.trust_bundles.all(pod::uid(pod)).await?;
            let anchors = trust::anchors(&bundles, source)?;
            room.take_file(anchors.len())?;
            content.files.insert(source.path.clone(), credential(pod, anchors, mode));
        }
        Ok(())
    }

    async fn config_map(&self, pod: &Pod, name: &str, required: bool) -> Result<Data, String> {
        let found = self.sources.config_maps.get(pod::uid(pod), pod::namespace(pod), name).await;
        let Some(map) = found.map_err(|e| ferry_client::write::short(&e))? else {
            return if required { Err(missing("configmap", name)) } else { Ok(Data::new()) };
        };
        let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
        let binary = map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()));
        Ok(text.chain(binary).collect())
    }

    async fn secret(&self, pod: &Pod, name: &str, required: bool) -> Result<Data, String> {
        let found = self.sources.secrets.get(pod::uid(pod), pod::namespace(pod), name).await;
        let Some(secret) = found.map_err(|e| ferry_client::write::short(&e))? else {
            return if required { Err(missing("secret", name)) } else { Ok(Data::new()) };
        };
        Ok(secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect())
    }
}

fn payload(data: Vec<u8>, mode: i32) -> Payload {
    Payload { data, mode: u32::try_from(mode).unwrap_or(0o644) & 0o777, owner: None }
}

/// For one user's eyes where the pod has one user, for its group's where it has a group; for everybody's otherwise, as
/// nobody knows who is to read it.
fn credential(pod: &Pod, data: Vec<u8>, mode: i32) -> Payload {
    let owner = pod::only_user(pod).and_then(|user| u32::try_from(user).ok());
    let has_group = pod::spec(pod).security_context.as_ref().is_some_and(|context| context.fs_group.is_some());
    let mode = if owner.is_some() || has_group { 0o600 } else { mode };
    Payload { owner, ..payload(data, mode) }
}

/// All keys as files of their name, or the listed ones at their paths.
fn project(
    data: &Data,
    items: Option<&[KeyToPath]>,
    mode: i32,
    required: bool,
    kind: &str,
    room: &mut Room,
) -> Result<Files, String> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        data.iter().try_for_each(|(_, value)| room.take_file(value.len()))?;
        return Ok(data.iter().map(|(key, value)| (key.clone(), payload(value.clone(), mode))).collect());
    };
    let mut files = Files::new();
    for item in items {
        match data.iter().find(|(key, _)| *key == item.key) {
            Some((_, value)) => {
                room.take_file(value.len())?;
                files.insert(item.path.clone(), payload(value.clone(), item.mode.unwrap_or(mode)));
            }
            None if required => return Err(format!("references non-existent {kind} key: {}", item.key)),
            None => {}
        }
    }
    Ok(files)
}

fn downward(
    pod: &Pod,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: i32,
    around: &Surroundings,
    room: &mut Room,
) -> Result<Files, String> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let text = if let Some(field) = &item.field_ref {
            fields::field(pod, &field.field_path, around)?
        } else if let Some(selector) = &item.resource_field_ref {
            fields::resource(pod, None, selector, around)?
        } else {
            continue;
        };
        room.take_file(text.len())?;
        files.insert(item.path.clone(), payload(text.into_bytes(), item.mode.unwrap_or(mode)));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_those_who_run() {
        let check = |shared: serde_json::Value, users: &[Option<i64>], want: (u32, Option<u32>)| {
            let context = |user: &Option<i64>| user.map(|user| serde_json::json!({"runAsUser": user}));
            let containers: Vec<_> =
                users.iter().map(|user| serde_json::json!({"name": "c", "securityContext": context(user)})).collect();
            let spec = serde_json::json!({"securityContext": shared, "initContainers": containers[1..],
                "containers": containers[..1]});
            let pod: Pod = serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec})).expect("a pod");
            let made = credential(&pod, Vec::new(), 0o644);
            assert_eq!((made.mode, made.owner), want, "{users:?}");
        };
        let none = serde_json::json!({});
        check(none.clone(), &[None], (0o644, None));
        check(none.clone(), &[Some(5), Some(5)], (0o600, Some(5)));
        check(none.clone(), &[Some(5), Some(6)], (0o644, None));
        check(none, &[Some(5), None], (0o644, None));
        check(serde_json::json!({"runAsUser": 7}), &[None, None], (0o600, Some(7)));
        check(serde_json::json!({"runAsUser": 7}), &[None, Some(0)], (0o644, None));
        check(serde_json::json!({"fsGroup": 9}), &[None], (0o600, None));
    }

    #[test]
    fn keys_become_files_and_listed_ones_must_exist() {
        let data: Data = vec![("a".into(), b"1".to_vec()), ("b".into(), b"2".to_vec())];
        let projected = |items: Option<&[KeyToPath]>, required: bool| {
            project(&data, items, 0o644, required, "configmap", &mut Room::of_volumes())
        };
        let all = projected(None, true).expect("files");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b"]);
        let item = |key: &str| KeyToPath { key: key.into(), path: "x/y".into(), mode: Some(0o400), user: None };
        let one = projected(Some(&[item("b")]), true).expect("files");
        assert_eq!(one["x/y"], Payload { data: b"2".to_vec(), mode: 0o400, owner: None });
        let none = projected(Some(&[item("c")]), true);
        assert_eq!(none, Err("references non-existent configmap key: c".to_owned()));
        assert!(projected(Some(&[item("c")]), false).is_ok_and(|f| f.is_empty()));
    }

    /// One long value under very many names: each name took as much memory as the value.
    #[test]
    fn a_pod_has_so_many_files_and_no_more() {
        let data: Data = vec![("a".into(), vec![0; 1 << 20])];
        let item = |number: usize| KeyToPath { key: "a".into(), path: format!("{number}"), mode: None, user: None };
        let long =
            "the content of the pod's volumes of ConfigMaps, Secrets, fields and tokens is longer than 67108864 bytes";
        for (count, fits) in [(63, true), (64, false), (10_000, false)] {
            let items: Vec<KeyToPath> = (0..count).map(item).collect();
            let files = project(&data, Some(&items), 0o644, true, "secret", &mut Room::of_volumes());
            assert_eq!(files.map(|files| files.len()), if fits { Ok(count) } else { Err(long.to_owned()) });
        }
        // Those of all volumes together.
        let mut room = Room::of_volumes();
        let one = |room: &mut Room| project(&data, None, 0o644, true, "secret", room).map(|files| files.len());
        assert_eq!((0..64).find(|_| one(&mut room).is_err()), Some(63));
    }
}
