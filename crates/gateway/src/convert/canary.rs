//! Canaries: a second backend with its weight, and a rule before for those who ask for it by a header.

use k8s_openapi::api::networking::v1::Ingress;
use serde_json::{Value, json};

use super::{Converter, Route, path};
use crate::resolve::annotations::{Annotations, Canary};

impl Converter<'_> {
    pub(super) fn add_canary(&mut self, routes: &mut [Route], ingress: &Ingress, canary: &Canary) {
        if canary.cookie.is_some() {
            self.remark(ingress, "not turned: canary-by-cookie");
        }
        let own = ingress.metadata.namespace.as_deref().unwrap_or_default();
        for rule in ingress.spec.iter().flat_map(|spec| spec.rules.iter().flatten()) {
            let host = rule.host.as_deref().filter(|host| !host.is_empty());
            for one in rule.http.iter().flat_map(|http| &http.paths) {
                let text = one.path.as_deref().unwrap_or("/");
                let Some(backend) = self.backend(ingress, &one.backend) else { continue };
                // The main Ingress says what is done with the path.
                let Ok(turned) = path::turn(text, &one.path_type, &Annotations::default()) else { continue };
                let wanted = turned.rule(&Annotations::default(), &backend)["matches"].clone();
                let main = routes
                    .iter_mut()
                    .filter(|route| route.key.namespace == own && route.host.as_deref() == host)
                    .find_map(|route| {
                        let place = route.rules.iter().position(|rule| rule["matches"] == wanted)?;
                        Some((route, place))
                    });
                match main {
                    Some((route, place)) => share(route, place, canary, &backend),
                    None => {
                        self.remark(ingress, &format!("not turned: no other Ingress has path {text:?} of its host"))
                    }
                }
            }
        }
    }
}

fn share(route: &mut Route, place: usize, canary: &Canary, backend: &Value) {
    let Some(rule) = route.rules.get_mut(place) else { return };
    let main = rule["backendRefs"][0].clone();
    let before = headers(canary).into_iter().map(|(header, to_canary)| {
        let mut chosen = rule.clone();
        chosen["matches"][0]["headers"] = json!([header]);
        chosen["backendRefs"] = json!([if to_canary { backend } else { &main }]);
        chosen
    });
    let before: Vec<Value> = before.collect();
    if canary.weight > 0 {
        let weight = canary.weight.min(canary.total);
        let weighted = |backend: &Value, weight: u32| {
            let mut backend = backend.clone();
            backend["weight"] = json!(weight);
            backend
        };
        rule["backendRefs"] = json!([weighted(&main, canary.total - weight), weighted(backend, weight)]);
    }
    route.rules.splice(place..place, before);
}

/// Headers that decide, and whether for the canary.
fn headers(canary: &Canary) -> Vec<(Value, bool)> {
    let Some(name) = &canary.header else { return Vec::new() };
    let exact = |value: &str| json!({ "name": name, "value": value });
    match (&canary.header_value, &canary.header_pattern) {
        (Some(value), _) => vec![(exact(value), true)],
        (None, Some(pattern)) => {
            let pattern = format!(".*(?:{pattern}).*");
            vec![(json!({ "type": "RegularExpression", "name": name, "value": pattern }), true)]
        }
        (None, None) => vec![(exact("always"), true), (exact("never"), false)],
    }
}
