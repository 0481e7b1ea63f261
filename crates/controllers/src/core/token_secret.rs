//! Token Secrets: a Secret of type `kubernetes.io/service-account-token` gets a token of the account it names, and goes with it.

use std::sync::Arc;

use ferry_client::controller::{self, Action, failure};
use ferry_client::{Api, Change, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::{Context, SignToken};

const NAME: &str = "tokens-controller";
pub(super) const TYPE: &str = "kubernetes.io/service-account-token";
pub(super) const ACCOUNT: &str = "kubernetes.io/service-account.name";
pub(super) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const ISSUER: &str = "kubernetes/serviceaccount";

/// A token Secret, and the account it is of: when it is gone, nobody else knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    secret: ObjectKey,
    account: String,
}

struct Tokens {
    client: Client,
    secrets: Informer<Secret>,
    accounts: Informer<ServiceAccount>,
    root_ca: String,
    sign: SignToken,
}

pub(crate) fn start(context: &Context) {
    let Some(sign) = context.config.sign_token.clone() else {
        tracing::info!(controller = NAME, "no key for service-account tokens given, Secrets get none");
        return;
    };
    let (secrets, accounts) = (context.informers.of::<Secret>(), context.informers.of::<ServiceAccount>());
    let queue: WorkQueue<Key> = context.queue("serviceaccount_tokens_secret");

    let keys = queue.clone();
    secrets.on_change(move |change| {
        let secret = change.object();
        if is_token(secret) {
            keys.add(Key { secret: ObjectKey::of(&**secret), account: annotation(secret, ACCOUNT) });
        }
    });
    let (keys, known) = (queue.clone(), secrets.clone());
    accounts.on_change(move |change| {
        let account = change.object();
        if matches!(change, Change::Modified { .. }) {
            return;
        }
        let namespace = account.namespace().unwrap_or_default();
        for secret in known.list_in(&namespace) {
            if is_token(&secret) && annotation(&secret, ACCOUNT) == account.name_any() {
                keys.add(Key { secret: ObjectKey::of(&*secret), account: account.name_any() });
            }
        }
    });

    let synced = (secrets.clone(), accounts.clone());
    let ready = async move {
        synced.0.synced().await;
        synced.1.synced().await;
    };
    // Upstream's acts as the controller manager itself: it is what accounts of controllers come from.
    let client = context.informers.client().clone();
    let root_ca = context.config.root_ca.clone();
    let tokens = Arc::new(Tokens { client, secrets, accounts, root_ca, sign });
    controller::run(&context.tasks, NAME, &queue, 5, ready, move |key: Key| {
        let tokens = tokens.clone();
        async move { tokens.reconcile(&key).await }
    });
}

pub(super) fn is_token(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(TYPE)
}

pub(super) fn annotation(secret: &Secret, key: &str) -> String {
    secret.annotations().get(key).cloned().unwrap_or_default()
}

fn is_of(secret: &Secret, account: &ServiceAccount) -> bool {
    let uid = annotation(secret, ACCOUNT_UID);
    uid.is_empty() || Some(&uid) == account.metadata.uid.as_ref()
}

impl Tokens {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let namespace = &key.secret.namespace;
        let Some(secret) = self.secrets.get_key(&key.secret) else {
            if let Some(account) = self.accounts.get(namespace, &key.account) {
                self.forget(&account, &key.secret.name).await?;
            }
            return Ok(Action::Done);
        };
        let name = annotation(&secret, ACCOUNT);
        let account = match self.accounts.get(namespace, &name).filter(|account| is_of(&secret, account)) {
            Some(account) => account,
            // The cache may be behind: the account may have been made a moment before its Secret.
            None => match Api::<ServiceAccount>::namespaced(self.client.clone(), namespace).get_opt(&name).await? {
                Some(account) if is_of(&secret, &account) => Arc::new(account),
                _ => {
                    let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
                    write::delete(&api, &*secret, None).await?;
                    return Ok(Action::Done);
                }
            },
        };
        if let Some(filled) = fill(&secret, &account, &self.root_ca, &self.sign).map_err(failure)? {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
            match api.replace(&key.secret.name, &PostParams::default(), &filled).await {
                // Whoever changed it meanwhile brings it here again.
                Err(error) if !write::is_conflict(&error) && !write::is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::Done)
    }

    /// Takes a Secret that is gone out of the account's list.
    async fn forget(&self, account: &ServiceAccount, secret: &str) -> Result<(), Error> {
        let listed = |account: &ServiceAccount| {
            account.secrets.iter().flatten().any(|reference| reference.name.as_deref() == Some(secret))
        };
        if !listed(account) {
            return Ok(());
        }
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &account.namespace().unwrap_or_default());
        let Some(mut live) = api.get_opt(&account.name_any()).await?.filter(&listed) else { return Ok(()) };
        if let Some(secrets) = &mut live.secrets {
            secrets.retain(|reference| reference.name.as_deref() != Some(secret));
        }
        api.replace(&account.name_any(), &PostParams::default(), &live).await?;
        Ok(())
    }
}

fn claims(namespace: &str, account: &ServiceAccount, secret: &str) -> Value {
    let name = account.name_any();
    json!({
        "iss": ISSUER,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account.metadata.uid,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}

/// The Secret with what it lacks; None when it lacks nothing.
fn fill(secret: &Secret, account: &ServiceAccount, ca: &str, sign: &SignToken) -> Result<Option<Secret>, String> {
    let namespace = secret.namespace().unwrap_or_default();
    let has = |key: &str| secret.data.iter().flatten().find(|(have, _)| *have == key).map(|(_, value)| &*value.0);
    let (needs_ca, needs_namespace, needs_token) = (
        !ca.is_empty() && has("ca.crt") != Some(ca.as_bytes()),
        has("namespace").is_none_or(<[u8]>::is_empty),
        has("token").is_none_or(<[u8]>::is_empty),
    );
    if !needs_ca && !needs_namespace && !needs_token {
        return Ok(None);
    }
    let mut filled = secret.clone();
    let data = filled.data.get_or_insert_default();
    let mut put = |key: &str, value: String| data.insert(key.to_owned(), ByteString(value.into_bytes()));
    if needs_ca {
        put("ca.crt", ca.to_owned());
    }
    if needs_token {
        put("token", sign(&claims(&namespace, account, &secret.name_any()))?);
    }
    if needs_namespace {
        put("namespace", namespace);
    }
    filled.annotations_mut().insert(ACCOUNT.into(), account.name_any());
    filled.annotations_mut().insert(ACCOUNT_UID.into(), account.metadata.uid.clone().unwrap_or_default());
    Ok(Some(filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_filled_once() {
        let account: ServiceAccount =
            serde_json::from_value(json!({ "metadata": { "name": "robot", "namespace": "a", "uid": "u" } }))
                .expect("an account");
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "s", "namespace": "a", "annotations": { ACCOUNT: "robot" } }, "type": TYPE,
        }))
        .expect("a secret");
        let sign: SignToken = Arc::new(|claims| Ok(claims.to_string()));
        let filled = fill(&secret, &account, "PEM", &sign).expect("signed").expect("a change");
        let text = |key: &str| String::from_utf8(filled.data.as_ref().expect("data")[key].0.clone()).expect("a text");
        assert_eq!((text("ca.crt").as_str(), text("namespace").as_str()), ("PEM", "a"));
        assert_eq!(annotation(&filled, ACCOUNT_UID), "u");
        let claims: Value = serde_json::from_str(&text("token")).expect("claims");
        assert_eq!(claims["sub"], "system:serviceaccount:a:robot");
        assert!(claims.get("exp").is_none());
        assert_eq!(fill(&filled, &account, "PEM", &sign), Ok(None));
        let renewed = fill(&filled, &account, "OTHER", &sign).expect("signed").expect("another CA");
        assert_eq!(renewed.data.as_ref().expect("data")["token"], filled.data.as_ref().expect("data")["token"]);
        let other: ServiceAccount =
            serde_json::from_value(json!({ "metadata": { "name": "robot", "uid": "v" } })).expect("an account");
        assert!(is_of(&secret, &other) && !is_of(&filled, &other));
    }
}
