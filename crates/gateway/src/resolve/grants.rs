//! What the ReferenceGrants of all namespaces permit, found without looking at each of them.

use std::collections::{HashMap, HashSet};

use ferry_client::ObjectKey;

use super::certificates::fingerprint;
use super::objects::Referrer;
use crate::api::ReferenceGrant;

/// Who may refer to what, in few bytes: a short grant permits hundreds of pairs.
type Pair = [u8; 16];

/// By the namespace of the grants: how many of them permit something.
#[derive(Clone, Default)]
pub struct Granted(HashMap<String, HashMap<Pair, u32>>);

/// Without a name: any.
fn pair(from: Referrer<'_>, group: &str, kind: &str, name: Option<&str>) -> Pair {
    let is_any = [u8::from(name.is_none())];
    let texts = [from.group, from.kind, from.namespace, group, kind, name.unwrap_or_default()];
    let print = fingerprint(texts.iter().map(|text| text.as_bytes()).chain([&is_any[..]]));
    std::array::from_fn(|place| print[place])
}

/// Everything that a grant permits, each once.
fn pairs(grant: Option<&ReferenceGrant>) -> HashSet<Pair> {
    let mut all = HashSet::new();
    for spec in grant.into_iter().map(|grant| &grant.spec) {
        for from in &spec.from {
            let from = Referrer { group: &from.group, kind: &from.kind, namespace: &from.namespace };
            let named = |name: &'_ Option<String>| name.clone().filter(|name| !name.is_empty());
            all.extend(spec.to.iter().map(|to| pair(from, &to.group, &to.kind, named(&to.name).as_deref())));
        }
    }
    all
}

impl Granted {
    pub fn change(&mut self, namespace: &str, old: Option<&ReferenceGrant>, now: Option<&ReferenceGrant>) {
        let known = self.0.entry(namespace.to_owned()).or_default();
        for pair in pairs(old) {
            if let Some(count) = known.get_mut(&pair) {
                *count -= 1;
                if *count == 0 {
                    known.remove(&pair);
                }
            }
        }
        for pair in pairs(now) {
            *known.entry(pair).or_default() += 1;
        }
        if known.is_empty() {
            self.0.remove(namespace);
        }
    }

    pub fn permits(&self, from: Referrer<'_>, group: &str, kind: &str, to: &ObjectKey) -> bool {
        let Some(known) = self.0.get(&to.namespace) else { return false };
        [Some(&*to.name), None].into_iter().any(|name| known.contains_key(&pair(from, group, kind, name)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::read;

    #[test]
    fn what_several_grants_permit_stays_until_the_last_is_gone() {
        let grant = |names: &[&str]| {
            let to: Vec<_> = names.iter().map(|name| json!({ "group": "", "kind": "Service", "name": name })).collect();
            let from = json!([{ "group": "g", "kind": "HTTPRoute", "namespace": "m" }]);
            read::<ReferenceGrant>(
                json!({ "metadata": { "name": "a", "namespace": "n" }, "spec": { "from": from, "to": to } }),
            )
        };
        let from = Referrer { group: "g", kind: "HTTPRoute", namespace: "m" };
        let (one, two, any) = (grant(&["a"]), grant(&["a", "b", "a"]), grant(&[""]));
        let mut granted = Granted::default();
        let permits = |granted: &Granted| {
            let of = |name| granted.permits(from, "", "Service", &ObjectKey::new("n", name));
            (of("a"), of("b"), of("c"))
        };
        granted.change("n", None, Some(&one));
        granted.change("n", None, Some(&two));
        assert_eq!(permits(&granted), (true, true, false));
        granted.change("n", Some(&one), Some(&any));
        assert_eq!(permits(&granted), (true, true, true));
        granted.change("n", Some(&any), None);
        assert_eq!(permits(&granted), (true, true, false));
        let other = Referrer { namespace: "x", ..from };
        assert!(!granted.permits(other, "", "Service", &ObjectKey::new("n", "a")));
        assert!(!granted.permits(from, "", "Secret", &ObjectKey::new("n", "a")));
        granted.change("n", Some(&two), None);
        assert!(granted.0.is_empty());
    }
}
