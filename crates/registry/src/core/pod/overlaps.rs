//! Files of a volume that would lie in the way of one another.

use crate::cursor::Cursor;

/// As many are told; an answer has no room for more.
const MOST: usize = 1000;
/// Each file is compared with as many of those before it.
const COMPARED: usize = 1000;

/// A path in a volume, and what puts a file there.
#[derive(Clone)]
struct File {
    path: String,
    source: String,
}

impl File {
    fn shown(&self) -> String {
        if self.source.is_empty() { format!("{:?}", self.path) } else { format!("{:?} ({})", self.path, self.source) }
    }

    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let below =
            |one: &str, two: &str| one.strip_prefix(two).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below(&self.path, &other.path) || below(&other.path, &self.path)
    }
}

pub fn of(volume: &Cursor<'_>) -> Vec<String> {
    let name = volume.text("name");
    let mut found = Vec::new();
    let (maps, secret) = (volume.get("configMap"), volume.get("secret"));
    for (source, what) in [
        (&maps, format!("ConfigMap {:?}", maps.text("name"))),
        (&secret, format!("Secret {:?}", secret.text("secretName"))),
        (&volume.get("downwardAPI"), "DownwardAPI".to_owned()),
    ] {
        let mut before = Vec::new();
        let each = collisions(&mut before, listed(source, "")).into_iter();
        found.extend(each.map(|body| format!("volume {name:?} ({what}): overlapping paths: {body}")));
    }
    let mut before = Vec::new();
    for source in volume.get("projected").items("sources") {
        let Some(files) = projected(&source) else {
            found.push(format!("volume {name:?} (Projected) has no sources provided"));
            continue;
        };
        let each = collisions(&mut before, files).into_iter();
        found.extend(each.map(|body| format!("volume {name:?} (Projected): overlapping paths: {body}")));
        if found.len() >= MOST {
            break;
        }
    }
    found
}

fn listed(source: &Cursor<'_>, what: &str) -> Vec<File> {
    source.items("items").iter().map(|item| File { path: item.text("path").into(), source: what.into() }).collect()
}

/// The files of one source of a projected volume; None: it has no source at all.
fn projected(source: &Cursor<'_>) -> Option<Vec<File>> {
    let file = |path: &str, source: String| File { path: path.to_owned(), source };
    let part = |key: &str| source.has(key).then(|| source.get(key));
    let kinds = ["configMap", "secret", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
    kinds.iter().find(|kind| source.has(kind))?;
    if let Some(map) = part("configMap").filter(|map| map.has("items")) {
        return Some(listed(&map, &format!("ConfigMap {:?}", map.text("name"))));
    }
    if let Some(secret) = part("secret").filter(|secret| secret.has("items")) {
        return Some(listed(&secret, &format!("Secret {:?}", secret.text("name"))));
    }
    if let Some(fields) = part("downwardAPI").filter(|fields| fields.has("items")) {
        return Some(listed(&fields, "DownwardAPI"));
    }
    if let Some(token) = part("serviceAccountToken") {
        return Some(vec![file(token.text("path"), "ServiceAccountToken".into())]);
    }
    if let Some(bundle) = part("clusterTrustBundle") {
        let name = if bundle.has("name") { bundle.text("name") } else { bundle.text("signerName") };
        return Some(vec![file(bundle.text("path"), format!("ClusterTrustBundle {name:?}"))]);
    }
    let certificate = part("podCertificate");
    let paths = [("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle")];
    let of_certificate = |certificate: &Cursor<'_>| {
        let set = paths.iter().filter(|(key, _)| !certificate.text(key).is_empty());
        set.map(|(key, what)| file(certificate.text(key), format!("PodCertificate {what}"))).collect()
    };
    Some(certificate.as_ref().map(of_certificate).unwrap_or_default())
}

/// What the new files meet, among themselves and among those before them.
fn collisions(before: &mut Vec<File>, files: Vec<File>) -> Vec<String> {
    let mut found = Vec::new();
    for mut file in files {
        file.path.truncate(file.path.trim_end_matches('/').len());
        if !file.path.is_empty() {
            let met = before.iter().filter(|other| !other.path.is_empty() && file.is_in_the_way_of(other));
            found.extend(met.map(|other| format!("{} with {}", file.shown(), other.shown())));
        }
        if found.len() >= MOST {
            break;
        }
        if before.len() < COMPARED {
            before.push(file);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_in_the_way_of_one_another_are_told() {
        let check = |volume: serde_json::Value, want: &[&str]| assert_eq!(of(&Cursor::root(&volume)), want);
        check(
            json!({"name": "v", "configMap": {"name": "m", "items": [{"path": "a"}, {"path": "b"}, {"path": "a/c"}]}}),
            &[r#"volume "v" (ConfigMap "m"): overlapping paths: "a/c" with "a""#],
        );
        check(
            json!({"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t"}},
                {},
                {"secret": {"name": "s", "items": [{"path": "t/"}]}},
            ]}}),
            &[
                r#"volume "v" (Projected) has no sources provided"#,
                r#"volume "v" (Projected): overlapping paths: "t" (Secret "s") with "t" (ServiceAccountToken)"#,
            ],
        );
    }
}
