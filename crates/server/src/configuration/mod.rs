//! Configuration files, read strictly: a field that is unknown, there twice or of the wrong type is an error that names it.
//! A misspelt rule would be no rule.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::server_options::read_document;

const SHAPES: &str = include_str!("shapes.txt");
/// So many faults are named at most.
const MOST: usize = 10;

/// The file of a flag, which must be of this type if it says that it is.
pub fn read(path: &Path, kind: &str) -> Result<Value> {
    let document = read_document(path)?;
    check(kind, &document).map_err(|error| error.context(path.display().to_string()))?;
    Ok(document)
}

/// Whether a document has the fields of the type and no others. One of another kind is left to who reads it.
pub fn check(kind: &str, document: &Value) -> Result<()> {
    let said = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    let is_it = said == kind || (kind == EVENT_RATE_LIMIT && said == "Configuration");
    if !is_it {
        return Ok(());
    }
    let mut faults = Vec::new();
    Shapes::get().check(kind, document, "", &mut faults);
    if faults.is_empty() {
        return Ok(());
    }
    let more = faults.len().saturating_sub(MOST);
    let end = if more > 0 { format!(", and {more} more") } else { String::new() };
    faults.truncate(MOST);
    bail!("strict decoding error: {}{end}", faults.join(", "))
}

/// The fields that a type of configuration has.
pub fn fields(kind: &str) -> Vec<&'static str> {
    Shapes::get().0.get(kind).into_iter().flat_map(|fields| fields.keys().copied()).collect()
}

/// The type of one field.
pub fn field_type(kind: &str, field: &str) -> Option<&'static str> {
    Shapes::get().0.get(kind)?.get(field).copied()
}

/// Upstream calls it just `Configuration`.
pub const EVENT_RATE_LIMIT: &str = "EventRateLimitConfiguration";

struct Shapes(HashMap<&'static str, HashMap<&'static str, &'static str>>);

impl Shapes {
    fn get() -> &'static Self {
        static ALL: OnceLock<Shapes> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut all: HashMap<_, HashMap<_, _>> = HashMap::new();
            let mut current = "";
            for line in SHAPES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                match line.strip_prefix('\t').and_then(|field| field.split_once(' ')) {
                    Some((field, kind)) => drop(all.entry(current).or_default().insert(field, kind)),
                    None => {
                        current = line;
                        all.entry(current).or_default();
                    }
                }
            }
            Self(all)
        })
    }

    fn check(&self, kind: &str, value: &Value, at: &str, faults: &mut Vec<String>) {
        if value.is_null() || kind == "any" {
            return;
        }
        let mut wrong =
            |what: &str| faults.push(format!("{}: must be {what}", if at.is_empty() { "the file" } else { at }));
        if let Some(kind) = kind.strip_prefix("[]") {
            let Some(items) = value.as_array() else { return wrong("a list") };
            for (index, item) in items.iter().enumerate() {
                self.check(kind, item, &format!("{at}[{index}]"), faults);
            }
        } else if let Some(kind) = kind.strip_prefix("{}") {
            let Some(map) = value.as_object() else { return wrong("a map") };
            for (key, item) in map {
                self.check(kind, item, &format!("{at}[{key}]"), faults);
            }
        } else if let Some(fields) = self.0.get(kind) {
            let Some(map) = value.as_object() else { return wrong("a map") };
            for (key, item) in map {
                let place = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                match fields.get(&**key) {
                    Some(kind) => self.check(kind, item, &place, faults),
                    None => faults.push(format!("unknown field {place:?}")),
                }
            }
        } else {
            let (fits, what) = match kind {
                "bool" => (value.is_boolean(), "true or false"),
                "int" => (value.is_i64() || value.is_u64(), "a whole number"),
                "number" => (value.is_number(), "a number"),
                "quantity" => (value.is_number() || value.is_string(), "a quantity"),
                "duration" => (value.is_string(), "a duration such as 30s"),
                _ => (value.is_string(), "a string"),
            };
            if !fits {
                wrong(what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(kind: &str, mut document: Value) -> String {
        document["kind"] = json!(kind);
        check(kind, &document).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn every_type_is_there() {
        let shapes = Shapes::get();
        for (name, fields) in &shapes.0 {
            for (field, kind) in fields {
                let kind = kind.trim_start_matches(['[', ']', '{', '}']);
                let plain = ["string", "bool", "int", "number", "duration", "quantity", "any"].contains(&kind);
                assert!(plain || shapes.0.contains_key(kind), "{name}.{field}: {kind}");
            }
        }
        assert!(shapes.0["KubeletConfiguration"].len() > 100);
    }

    #[test]
    fn a_fault_is_named_by_its_place() {
        for (kind, document, want) in [
            ("AuthenticationConfiguration", json!({"jwt": [{"issuer": {"url": "https://a", "audiences": ["a"]}}]}), ""),
            ("AuthenticationConfiguration", json!({"jwt": null}), ""),
            ("AuthenticationConfiguration", json!({"jwts": []}), r#"unknown field "jwts""#),
            (
                "AuthenticationConfiguration",
                json!({"jwt": [{"claimValidationRule": [{"claim": "hd"}], "issuer": {"URL": ""}}]}),
                r#"unknown field "jwt[0].claimValidationRule", unknown field "jwt[0].issuer.URL""#,
            ),
            (
                "AuthenticationConfiguration",
                json!({"jwt": [{"issuer": {"audiences": "a"}}], "anonymous": {"enabled": "no"}}),
                "anonymous.enabled: must be true or false, jwt[0].issuer.audiences: must be a list",
            ),
            (
                "AuthorizationConfiguration",
                json!({"authorizers": [{"webhook": {"failurePolice": "Deny", "timeout": 3}}]}),
                r#"unknown field "authorizers[0].webhook.failurePolice", authorizers[0].webhook.timeout: must be a duration such as 30s"#,
            ),
            (
                "AdmissionConfiguration",
                json!({"plugins": [{"nam": "PodSecurity"}]}),
                r#"unknown field "plugins[0].nam""#,
            ),
            (
                "EncryptionConfiguration",
                json!({"resources": [{"providers": [{"identity": {"keys": []}}]}]}),
                r#"unknown field "resources[0].providers[0].identity.keys""#,
            ),
            ("Policy", json!({"rules": [{"levels": "None"}]}), r#"unknown field "rules[0].levels""#),
            (
                "KubeletConfiguration",
                json!({"evictionHard": {"memory.available": 5}, "maxPod": 1}),
                r#"evictionHard[memory.available]: must be a string, unknown field "maxPod""#,
            ),
            (
                "KubeSchedulerConfiguration",
                json!({"profiles": [{"plugins": {"score": {"enabled": {}}}, "schedulerName": 5}], "parallelism": "many"}),
                "parallelism: must be a whole number, profiles[0].plugins.score.enabled: must be a list, profiles[0].schedulerName: must be a string",
            ),
            (
                "PodSecurityConfiguration",
                json!({"defaults": {"enforced": "x"}}),
                r#"unknown field "defaults.enforced""#,
            ),
        ] {
            let want = if want.is_empty() { String::new() } else { format!("strict decoding error: {want}") };
            assert_eq!(faults(kind, document), want);
        }
        assert!(check("Policy", &json!({"kind": "Pod", "x": 1})).is_ok(), "who reads it says what it is not");
        let many = json!({"plugins": (0..30).map(|_| json!({"a": 1})).collect::<Vec<_>>()});
        assert!(faults("AdmissionConfiguration", many).ends_with(", and 20 more"));
    }
}
