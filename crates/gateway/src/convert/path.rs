//! A path of an Ingress as match and filters of a rule.

use serde_json::{Value, json};

use crate::resolve::annotations::Annotations;

/// What became of a path.
pub struct Turned {
    matched: Value,
    rewrite: Option<Value>,
}

impl Turned {
    /// What no other path has.
    pub fn all() -> Self {
        Self { matched: prefix("/"), rewrite: None }
    }

    pub fn rule(&self, annotations: &Annotations, backend: &Value) -> Value {
        let mut filters = Vec::new();
        if let Some(path) = &self.rewrite {
            filters.push(json!({ "type": "URLRewrite", "urlRewrite": { "path": path } }));
        }
        if let Some(cors) = &annotations.cors {
            filters.push(json!({ "type": "CORS", "cors": {
                "allowOrigins": cors.origins, "allowMethods": cors.methods, "allowHeaders": cors.headers,
                "exposeHeaders": cors.expose, "allowCredentials": cors.credentials, "maxAge": cors.max_age,
            } }));
        }
        let mut rule = json!({ "matches": [{ "path": self.matched }], "backendRefs": [backend] });
        if !filters.is_empty() {
            rule["filters"] = Value::Array(filters);
        }
        if let Some(time) = annotations.read_timeout {
            rule["timeouts"] = json!({ "backendRequest": format!("{}s", time.as_secs()) });
        }
        rule
    }
}

fn prefix(path: &str) -> Value {
    json!({ "type": "PathPrefix", "value": path })
}

fn full(to: &str) -> Value {
    json!({ "type": "ReplaceFullPath", "replaceFullPath": to })
}

/// Whether it has no character that an expression gives a meaning to, but for the dot, which nobody means so.
fn is_plain(path: &str) -> bool {
    !path.contains(['(', ')', '[', ']', '{', '}', '*', '+', '?', '|', '^', '$', '\\'])
}

/// `/api(/|$)(.*)` with `/$2`, and `/api/(.*)` with `/$1`: the prefix, and what it is replaced with.
fn as_prefix<'a>(path: &'a str, to: &'a str) -> Option<(&'a str, &'a str)> {
    let forms = [("(/|$)(.*)", "/$2"), ("/?(.*)", "/$1"), ("/(.*)", "/$1")];
    forms.into_iter().find_map(|(tail, group)| {
        let (start, new) = (path.strip_suffix(tail)?, to.strip_suffix(group)?);
        (is_plain(start) && !new.contains('$')).then_some((start, new))
    })
}

/// The match and the rewrite, or why there is none.
pub fn turn(path: &str, kind: &str, annotations: &Annotations) -> Result<Turned, String> {
    let target = annotations.rewrite_target.as_deref();
    if let Some((start, new)) = target.and_then(|to| as_prefix(path, to)) {
        let or_root = |text: &str| if text.is_empty() { "/".to_owned() } else { text.to_owned() };
        let rewrite = json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": or_root(new) });
        return Ok(Turned { matched: prefix(&or_root(start)), rewrite: Some(rewrite) });
    }
    if let Some(to) = target.filter(|to| to.contains('$')) {
        return Err(format!("its rewrite to {to:?} puts groups together in a way that routes cannot"));
    }
    let rewrite = target.map(full);
    if annotations.use_regex && !is_plain(path) {
        // An Ingress's expression matches the beginning of a path, a route's the whole of it.
        let expression = path.strip_suffix('$').map_or_else(|| format!("{path}.*"), str::to_owned);
        return Ok(Turned { matched: json!({ "type": "RegularExpression", "value": expression }), rewrite });
    }
    let matched = match kind {
        "Exact" => json!({ "type": "Exact", "value": path }),
        _ => prefix(path),
    };
    Ok(Turned { matched, rewrite })
}
