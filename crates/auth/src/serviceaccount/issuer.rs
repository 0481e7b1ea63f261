//! Answers TokenRequests: checks what the token is to be bound to, and signs it.

use std::sync::Arc;

use ferry_meta::object::{name, text, uid};
use ferry_meta::{ApiError, FieldError, GroupKind, GroupResource, ObjectReader, Path};
use serde_json::{Value, json};

use super::{EXTENDED_SECONDS, SigningKey, VerifyingKey, WARN_ONLY_SECONDS};
use crate::resources::{NODES, PODS, SECRETS, SERVICE_ACCOUNTS};

const DEFAULT_SECONDS: i64 = 60 * 60;
const LEAST_SECONDS: i64 = 10 * 60;
const MOST_SECONDS: i64 = 1 << 32;

pub struct TokenIssuer {
    issuer: String,
    audiences: Vec<String>,
    key: SigningKey,
    published: Vec<VerifyingKey>,
    reader: Arc<dyn ObjectReader>,
}

impl TokenIssuer {
    /// `audiences` are those of this API server: what a token is for that asks for none.
    pub fn new(issuer: String, audiences: Vec<String>, key: SigningKey, reader: Arc<dyn ObjectReader>) -> Self {
        let published = vec![key.verifying_key().clone()];
        Self { issuer, audiences, key, published, reader }
    }

    /// Others that tokens of this cluster may be signed with, for who checks them elsewhere.
    pub fn with_published_keys(self, published: Vec<VerifyingKey>) -> Self {
        Self { published, ..self }
    }

    /// The keys that the server publishes.
    pub fn published_keys(&self) -> &[VerifyingKey] {
        &self.published
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    pub fn signing_key(&self) -> &SigningKey {
        &self.key
    }

    /// Fills in the defaults of a TokenRequest; admission sees the request with them.
    pub fn default_request(&self, request: &mut Value) {
        let spec = ferry_meta::object::child_mut(request, "spec");
        if spec.get("audiences").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.insert("audiences".into(), json!(self.audiences));
        }
        if spec.get("expirationSeconds").is_none_or(Value::is_null) {
            spec.insert("expirationSeconds".into(), json!(DEFAULT_SECONDS));
        }
        spec.entry("boundObjectRef").or_insert(Value::Null);
    }

    /// The answer to `POST …/serviceaccounts/{name}/token`. Nothing is signed on a dry run.
    pub fn request(&self, namespace: &str, account: &str, request: &Value, dry_run: bool) -> Result<Value, ApiError> {
        self.request_at(namespace, account, request, dry_run, ferry_meta::time::now())
    }

    fn request_at(
        &self,
        namespace: &str,
        account: &str,
        request: &Value,
        dry_run: bool,
        now: jiff::Timestamp,
    ) -> Result<Value, ApiError> {
        let account_object = self
            .reader
            .get(&SERVICE_ACCOUNTS, namespace, account)
            .ok_or_else(|| ApiError::not_found(&SERVICE_ACCOUNTS, account))?;
        // Of the same account that the token is for: another of its name may come at any moment.
        let (asked, have) = (text(request, "/metadata/uid"), uid(&account_object));
        if !asked.is_empty() && asked != have {
            let why = format!(
                "the UID in the token request ({asked}) does not match the UID of the service account ({have})"
            );
            // Upstream names the kind here, not the resource.
            let resource = GroupResource::new("authentication.k8s.io", "TokenRequest");
            return Err(ApiError::conflict(&resource, account, &why));
        }
        let mut request = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": account, "namespace": namespace,
                "uid": have, "creationTimestamp": ferry_meta::time::time(now),
            },
            "spec": request.get("spec").cloned().unwrap_or_else(|| json!({})),
        });
        self.default_request(&mut request);
        let seconds = expiration(&request)?;
        let bound = self.bound(namespace, account, &request)?;

        let audiences: Vec<&str> =
            ferry_meta::object::items(&request, "/spec/audiences").iter().filter_map(Value::as_str).collect();
        let ours = audiences.iter().all(|audience| self.audiences.iter().any(|own| own == audience));
        let extended = seconds == WARN_ONLY_SECONDS && ours && bound.pod;
        let started = now.as_second();
        let mut kubernetes = json!({
            "namespace": namespace,
            "serviceaccount": {"name": account, "uid": uid(&account_object)},
        });
        for (key, object) in bound.claims {
            kubernetes[key] = json!({"name": name(&object), "uid": uid(&object)});
        }
        if extended {
            kubernetes["warnafter"] = json!(started + seconds);
        }
        let life = if extended { EXTENDED_SECONDS } else { seconds };
        let claims = json!({
            "aud": audiences,
            "exp": started + life,
            "iat": started,
            "iss": self.issuer,
            "jti": uuid::Uuid::new_v4().to_string(),
            "kubernetes.io": kubernetes,
            "nbf": started,
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
        });
        let token = if dry_run { String::new() } else { self.key.sign(&claims).map_err(ApiError::internal)? };
        let expires = now + jiff::SignedDuration::from_secs(seconds);
        request["status"] = json!({"token": token, "expirationTimestamp": ferry_meta::time::time(expires)});
        Ok(request)
    }

    fn bound(&self, namespace: &str, account: &str, request: &Value) -> Result<Bound, ApiError> {
        let Some(reference) = request.pointer("/spec/boundObjectRef").filter(|r| !r.is_null()) else {
            return Ok(Bound::default());
        };
        let (kind, api_version) = (text(reference, "/kind"), text(reference, "/apiVersion"));
        let (object_name, wanted_uid) = (text(reference, "/name"), text(reference, "/uid"));
        let find = |resource: &GroupResource, namespace: &str| {
            if object_name.is_empty() {
                return Err(ApiError::bad_request("Name parameter required."));
            }
            let object = self
                .reader
                .get(resource, namespace, object_name)
                .ok_or_else(|| ApiError::not_found(resource, object_name))?;
            if !wanted_uid.is_empty() && wanted_uid != uid(&object) {
                let why = format!(
                    "the UID in the bound object reference ({wanted_uid}) does not match the UID in record. The object might have been deleted and then recreated"
                );
                // Upstream names the kind here, not the resource.
                return Err(ApiError::conflict(&GroupResource::new("", kind), object_name, &why));
            }
            Ok(object)
        };
        // The version is not looked at.
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        match (group, kind) {
            ("", "Pod") => {
                let pod = find(&PODS, namespace)?;
                if text(&pod, "/spec/serviceAccountName") != account {
                    return Err(ApiError::bad_request(format!(
                        "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                    )));
                }
                let node = text(&pod, "/spec/nodeName");
                let node = (!node.is_empty()).then(|| {
                    // The claim names the node even before it has registered; its uid is known only afterwards.
                    self.reader.get(&NODES, "", node).unwrap_or_else(|| Arc::new(json!({"metadata": {"name": node}})))
                });
                let mut claims = vec![("pod", pod)];
                claims.extend(node.map(|node| ("node", node)));
                Ok(Bound { pod: true, claims })
            }
            ("", "Secret") => Ok(Bound { pod: false, claims: vec![("secret", find(&SECRETS, namespace)?)] }),
            ("", "Node") => Ok(Bound { pod: false, claims: vec![("node", find(&NODES, "")?)] }),
            _ => Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            ))),
        }
    }
}

#[derive(Default)]
struct Bound {
    pod: bool,
    claims: Vec<(&'static str, Arc<Value>)>,
}

fn expiration(request: &Value) -> Result<i64, ApiError> {
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
    let path = Path::new("spec.expirationSeconds");
    let why = if seconds < LEAST_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MOST_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(seconds);
    };
    let kind = GroupKind { group: "authentication.k8s.io".into(), kind: "TokenRequest".into() };
    Err(ApiError::invalid(&kind, "", &FieldError::invalid(&path, seconds, why).into()))
}
