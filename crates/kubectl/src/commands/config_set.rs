//! `kubectl config set` and `unset`: one value of a kubeconfig, named by a path.

use base64::Engine;
use serde_json::{Value, json};

use super::config::{misused, place, read};
use super::{Command, leaf};
use crate::config::{entry, file};
use crate::error::{Error, Result};
use crate::flags::{Flag, switch};
use crate::session::Context;
use crate::text::{line, quote};

pub const SET: Command =
    leaf("set", "PROPERTY_NAME PROPERTY_VALUE", "Set an individual value in a kubeconfig file", flags, |c| {
        Box::pin(set(c))
    });
pub const UNSET: Command =
    leaf("unset", "PROPERTY_NAME", "Unset an individual value in a kubeconfig file", Vec::new, |c| Box::pin(unset(c)));

fn flags() -> Vec<Flag> {
    vec![switch("set-raw-bytes", "The value of a field of bytes is not in base64.")]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Bool,
    Bytes,
    /// Can be taken away, and not set.
    Other,
}

use Kind::{Bool, Bytes, Other, Text};

/// List, the part of its entries, and their fields: as the path names them, and as they stand in the file.
type Fields = &'static [(&'static str, &'static str, Kind)];
const LISTS: [(&str, &str, Fields); 3] = [
    (
        "clusters",
        "cluster",
        &[
            ("server", "server", Text),
            ("tls-server-name", "tls-server-name", Text),
            ("insecure-skip-tls-verify", "insecure-skip-tls-verify", Bool),
            ("certificate-authority", "certificate-authority", Text),
            ("certificate-authority-data", "certificate-authority-data", Bytes),
            ("proxy-url", "proxy-url", Text),
            ("disable-compression", "disable-compression", Bool),
            ("extensions", "extensions", Other),
        ],
    ),
    (
        "users",
        "user",
        &[
            ("client-certificate", "client-certificate", Text),
            ("client-certificate-data", "client-certificate-data", Bytes),
            ("client-key", "client-key", Text),
            ("client-key-data", "client-key-data", Bytes),
            ("token", "token", Text),
            ("tokenFile", "tokenFile", Text),
            ("act-as", "as", Text),
            ("act-as-uid", "as-uid", Text),
            ("act-as-groups", "as-groups", Other),
            ("act-as-user-extra", "as-user-extra", Other),
            ("username", "username", Text),
            ("password", "password", Text),
            ("auth-provider", "auth-provider", Other),
            ("exec", "exec", Other),
            ("extensions", "extensions", Other),
        ],
    ),
    (
        "contexts",
        "context",
        &[
            ("cluster", "cluster", Text),
            ("user", "user", Text),
            ("namespace", "namespace", Text),
            ("extensions", "extensions", Other),
        ],
    ),
];

/// What a path means.
#[derive(PartialEq, Debug)]
enum Place {
    Top(&'static str, Kind),
    /// `preferences.colors`.
    Colors,
    List(&'static str),
    Entry(&'static str, String),
    Field {
        list: &'static str,
        part: &'static str,
        name: String,
        field: &'static str,
        kind: Kind,
    },
}

/// Names may have dots: they end where a known field begins.
fn parse(path: &str) -> Result<Place> {
    let unknown = || Error::say(format!("unable to parse one or more field values of {path}"));
    let parts: Vec<&str> = path.split('.').collect();
    if parts == ["preferences", "colors"] {
        return Ok(Place::Colors);
    }
    for (top, kind) in
        [("current-context", Text), ("kind", Text), ("apiVersion", Text), ("preferences", Other), ("extensions", Other)]
    {
        if parts[0] == top {
            return if parts.len() == 1 { Ok(Place::Top(top, kind)) } else { Err(unknown()) };
        }
    }
    let Some((list, part, fields)) = LISTS.into_iter().find(|(list, ..)| *list == parts[0]) else {
        return Err(Error::say(format!("unable to parse {path} after [] at api.Config")));
    };
    let Some(first) = parts.get(1) else { return Ok(Place::List(list)) };
    let find = |text: &&str| fields.iter().find(|(known, ..)| known == text);
    let Some(at) = (2..parts.len()).find(|at| find(&parts[*at]).is_some()) else {
        return Ok(Place::Entry(list, parts[1..].join(".")));
    };
    match find(&parts[at]) {
        Some((_, field, kind)) if at + 1 == parts.len() => {
            let name = if at == 2 { (*first).to_owned() } else { parts[1..at].join(".") };
            Ok(Place::Field { list, part, name, field, kind: *kind })
        }
        _ => Err(unknown()),
    }
}

fn value(kind: Kind, text: &str, raw: bool) -> Result<Value> {
    match kind {
        Text => Ok(text.into()),
        Bool => match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true.into()),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false.into()),
            _ => Err(Error::say(format!("strconv.ParseBool: parsing {}: invalid syntax", quote(text)))),
        },
        Bytes if raw => Ok(base64::engine::general_purpose::STANDARD.encode(text).into()),
        Bytes => match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(_) => Ok(text.into()),
            Err(base64::DecodeError::InvalidByte(at, _)) => {
                Err(Error::say(format!("error decoding input value: illegal base64 data at input byte {at}")))
            }
            Err(_) => Err(Error::say(format!(
                "error decoding input value: illegal base64 data at input byte {}",
                text.len() / 4 * 4
            ))),
        },
        Other => Err(Error::say("it has values of its own and cannot be set to one")),
    }
}

async fn set(context: &Context) -> Result<()> {
    let [path, text] = context.words() else {
        return Err(misused(context));
    };
    if text.is_empty() {
        return Err(Error::say("you cannot use set to unset a property"));
    }
    if path.is_empty() {
        return Err(Error::say("you must specify a property"));
    }
    let raw = context.flags.is("set-raw-bytes");
    match parse(path)? {
        Place::Top(field, kind) => {
            let new = value(kind, text, raw)?;
            let file = place(context, "contexts", "");
            let mut config = read(&file)?;
            config[field] = new;
            file::write(&file, &config)?;
        }
        Place::Colors => {
            let new = value(Bool, text, raw)?;
            let file = place(context, "contexts", "");
            let mut config = read(&file)?;
            config["preferences"] = if new == json!(true) { json!({"colors": true}) } else { json!({}) };
            file::write(&file, &config)?;
        }
        Place::List(_) | Place::Entry(..) => return Err(Error::say("can't set a map to a value")),
        Place::Field { list, part, name, field, kind } => {
            let new = value(kind, text, raw)?;
            let new = if new == json!(false) { Value::Null } else { new };
            super::config::change(context, list, part, &name, &[(field, new)])?;
        }
    }
    line(format!("Property {} set.", quote(path)));
    Ok(())
}

async fn unset(context: &Context) -> Result<()> {
    let [path] = context.words() else {
        return Err(misused(context));
    };
    if path.is_empty() {
        return Err(Error::say("you must specify a property"));
    }
    let parsed = parse(path)?;
    let file = match &parsed {
        Place::Entry(list, name) | Place::Field { list, name, .. } => place(context, list, name),
        Place::List(_) | Place::Top(..) | Place::Colors => place(context, "contexts", ""),
    };
    let mut config = read(&file)?;
    match &parsed {
        Place::Top(field, Text) => config[*field] = "".into(),
        Place::Top(field, _) => config[*field] = json!({}),
        Place::Colors => config["preferences"] = json!({}),
        Place::List(list) => config[*list] = json!([]),
        Place::Entry(list, name) => {
            config[*list].as_array_mut().into_iter().for_each(|all| all.retain(|one| one["name"] != **name));
        }
        Place::Field { list, part, name, field, .. } => {
            if entry(&config, list, name).is_none() {
                return Err(Error::say(format!("current map key `{name}` is invalid")));
            }
            let all = config[*list].as_array_mut().into_iter().flatten();
            for one in all.filter(|one| one["name"] == **name) {
                one[*part].as_object_mut().into_iter().for_each(|map| drop(map.remove(*field)));
            }
        }
    }
    file::write(&file, &config)?;
    line(format!("Property {} unset.", quote(path)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_dots() {
        let field = |list, part, name: &str, field, kind| Place::Field { list, part, name: name.into(), field, kind };
        for (path, wanted) in [
            ("current-context", Place::Top("current-context", Text)),
            ("clusters", Place::List("clusters")),
            ("users.a.b", Place::Entry("users", "a.b".into())),
            ("clusters.10.0.0.1.server", field("clusters", "cluster", "10.0.0.1", "server", Text)),
            ("users.x.act-as", field("users", "user", "x", "as", Text)),
        ] {
            assert_eq!(parse(path).unwrap(), wanted, "{path}");
        }
        for path in ["nope", "clusters.x.server.y", "current-context.x"] {
            assert!(parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn bytes_are_base64_unless_they_are_raw() {
        assert_eq!(value(Bytes, "aGk=", false).unwrap(), "aGk=");
        assert_eq!(value(Bytes, "hi", true).unwrap(), "aGk=");
        assert!(value(Bytes, "h!", false).is_err());
        assert!(value(Bool, "perhaps", false).is_err());
    }
}
