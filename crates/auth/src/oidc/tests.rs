//! A provider on loopback: discovery, keys that change, claims and what is refused.

use super::*;
use crate::serviceaccount::SigningKey;
use crate::testing_server::serve;
use serde_json::Value;
use serde_json::json;

struct Setup {
    oidc: Arc<Oidc>,
    issuer: String,
    key: SigningKey,
    tasks: Tasks,
}

fn key() -> SigningKey {
    SigningKey::from_pem(&SigningKey::generate_pem().expect("a key")).expect("a key")
}

async fn setup(change: impl FnOnce(&mut OidcFlags)) -> Setup {
    let tasks = Tasks::new("test");
    let key = key();
    let jwks = crate::jwks(&[key.verifying_key().clone()]).to_string();
    let own = Arc::new(parking_lot::Mutex::new(String::new()));
    let issuer = own.clone();
    let (url, _) = serve(&tasks, move |path, _| match path {
        "/.well-known/openid-configuration" => {
            let issuer = issuer.lock().clone();
            (200, json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string())
        }
        "/keys" => (200, jwks.clone()),
        _ => (404, String::new()),
    })
    .await;
    *own.lock() = url.clone();
    let mut flags = OidcFlags {
        issuer_url: url.clone(),
        client_id: "ferry".into(),
        username_claim: "email".into(),
        groups_claim: "groups".into(),
        groups_prefix: "oidc:".into(),
        required_claims: vec!["hd=example.com".into()],
        signing_algorithms: vec!["ES256".into()],
        ..OidcFlags::default()
    };
    change(&mut flags);
    let provider = Provider::of_flags(&flags).expect("a provider");
    let oidc = Oidc::start(provider, vec!["api".into()], &tasks).expect("started");
    oidc.wait().await;
    Setup { oidc, issuer: url, key, tasks }
}

fn now() -> i64 {
    ferry_meta::time::now().as_second()
}

#[tokio::test]
async fn good_tokens_name_their_users_and_bad_ones_are_refused() {
    let Setup { oidc, issuer, key, tasks } = setup(|_| {}).await;
    let good = json!({
        "iss": issuer, "aud": ["ferry", "other"], "exp": now() + 600, "email": "a@example.com", "email_verified": true,
        "groups": ["dev", "ops"], "hd": "example.com", "jti": "7",
    });
    let asked = ["api".to_owned()];
    let check = async |change: Value, signer: &SigningKey| {
        let mut claims = good.clone();
        for (name, value) in change.as_object().expect("a map") {
            claims[name] = value.clone();
        }
        let token = signer.sign(&claims).expect("a token");
        oidc.authenticate_token(&token, &asked).await
    };
    let identity = check(json!({}), &key).await.expect("valid").expect("ours");
    assert_eq!(identity.user.name, "a@example.com");
    assert_eq!(identity.user.groups, ["oidc:dev", "oidc:ops"]);
    assert_eq!(identity.audiences, asked);
    assert_eq!(check(json!({"groups": "one"}), &key).await.expect("valid").expect("ours").user.groups, ["oidc:one"]);
    assert_eq!(check(json!({"iss": "https://elsewhere"}), &key).await, Ok(None));
    for (change, why) in [
        (json!({"exp": now() - 1}), "expired"),
        (json!({"exp": null}), "expired"),
        (json!({"nbf": now() + 3600}), "nbf"),
        (json!({"aud": "somebody"}), "audience"),
        (json!({"aud": null}), "audience"),
        (json!({"hd": "evil.com"}), "required claim hd"),
        (json!({"hd": null}), "required claim hd"),
        (json!({"email_verified": false}), "not verified"),
        (json!({"email": 7}), "no string"),
        (json!({"groups": {"a": 1}}), "groups"),
    ] {
        let error = check(change.clone(), &key).await.expect_err("refused").to_string();
        assert!(error.contains(why), "{change}: {error}");
    }
    let error = check(json!({}), &self::key()).await.expect_err("another key");
    assert!(matches!(error, TokenError::Signature(_)), "{error}");
    // What the header says about the algorithm is never believed.
    use base64::Engine;
    let encode = |text: String| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    for header in [json!({"alg": "none"}), json!({"alg": "HS256"}), json!({"alg": "RS256"}), json!({})] {
        let token = format!("{}.{}.{}", encode(header.to_string()), encode(good.to_string()), encode("x".into()));
        assert!(oidc.authenticate_token(&token, &asked).await.is_err(), "{header}");
    }
    for junk in ["", "a", "a.b", "a.b.c", "....", "eyJ.eyJ.x"] {
        assert_eq!(oidc.authenticate_token(junk, &asked).await, Ok(None), "{junk}");
    }
    tasks.stop(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn names_of_others_carry_a_prefix() {
    let Setup { oidc, issuer, key, tasks } = setup(|flags| {
        flags.username_claim = String::new();
        flags.required_claims.clear();
    })
    .await;
    let claims = json!({"iss": issuer, "aud": "ferry", "exp": now() + 600, "sub": "system:admin"});
    let token = key.sign(&claims).expect("a token");
    let identity = oidc.authenticate_token(&token, &["api".to_owned()]).await.expect("valid").expect("ours");
    assert_eq!(identity.user.name, format!("{issuer}#system:admin"));
    tasks.stop(Duration::from_secs(10)).await;
}

#[test]
fn structured_configurations_are_checked() {
    let file = |jwt: Value| json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]});
    let good = json!({
        "issuer": {"url": "https://idp.example.com", "audiences": ["a"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "g", "prefix": "p:"}},
        "claimValidationRules": [{"claim": "hd", "requiredValue": "x"}],
    });
    let config = AuthenticationConfig::parse(&file(good.clone())).expect("a configuration");
    let user = config.providers[0].user(&json!({"sub": "u", "g": ["x"], "hd": "x"})).expect("a user");
    assert_eq!((user.name.as_str(), &user.groups[..]), ("u", &["p:x".to_owned()][..]));
    for (pointer, value, why) in [
        ("/issuer/url", json!("http://idp"), "https"),
        ("/issuer/audiences", json!([]), "at least one"),
        ("/issuer/audiences", json!(["a", "b"]), "MatchAny"),
        ("/claimMappings/username", json!({}), "required"),
        ("/claimMappings/username", json!({"claim": "a"}), "prefix"),
        ("/claimMappings/username", json!({"claim": "a", "prefix": "", "expression": "x"}), "exclude"),
        ("/claimMappings/username", json!({"expression": "claims.sub +"}), "claims.sub"),
        ("/claimMappings/username", json!({"expression": "user.name"}), "user"),
        ("/claimValidationRules", json!([{}]), "either"),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect("a place") = value;
        let error = AuthenticationConfig::parse(&file(bad)).err().expect("refused").to_string();
        assert!(error.contains(why), "{error}");
    }
    let anonymous = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]},
    });
    let config = AuthenticationConfig::parse(&anonymous).expect("a configuration");
    assert_eq!(config.anonymous, Some(AnonymousConfig { enabled: true, conditions: vec!["/livez".into()] }));
}

#[test]
fn expressions_map_and_judge_claims() {
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": "https://idp.example.com", "audiences": ["a"]},
            "claimMappings": {
                "username": {"expression": "'idp:' + claims.sub"},
                "groups": {"expression": "claims.roles.split(',')"},
                "uid": {"claim": "sub"},
                "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}],
            },
            "claimValidationRules": [{"expression": "claims.exp - claims.iat <= 86400", "message": "too long a life"}],
            "userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "reserved"}],
        }],
    });
    let config = AuthenticationConfig::parse(&file).expect("a configuration");
    let claims = json!({"sub": "u", "roles": "dev,ops", "tenant": "t", "iat": 1000, "exp": 2000});
    let user = config.providers[0].user(&claims).expect("a user");
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("idp:u", "u"));
    assert_eq!(user.groups, ["dev", "ops"]);
    assert_eq!(user.extra["example.com/tenant"], ["t"]);
    let mut long = claims.clone();
    long["exp"] = json!(1_000_000);
    assert!(config.providers[0].user(&long).expect_err("refused").contains("too long a life"));
}

#[tokio::test]
async fn groups_may_be_elsewhere() {
    let Setup { oidc, issuer, key, tasks } = setup(|_| {}).await;
    let claims_key = self::key();
    let jwks = crate::jwks(&[claims_key.verifying_key().clone()]).to_string();
    let (own, served) =
        (Arc::new(parking_lot::Mutex::new(String::new())), Arc::new(parking_lot::Mutex::new(String::new())));
    let (of_issuer, of_token) = (own.clone(), served.clone());
    let (source, _) = serve(&tasks, move |path, _| match path {
        "/.well-known/openid-configuration" => {
            let issuer = of_issuer.lock().clone();
            (200, json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string())
        }
        "/keys" => (200, jwks.clone()),
        "/groups" => (200, of_token.lock().clone()),
        _ => (404, String::new()),
    })
    .await;
    *own.lock() = source.clone();
    let sign = |change: Value, signer: &SigningKey| {
        let mut claims = json!({"iss": source, "aud": "ferry", "exp": now() + 600, "groups": ["far", "away"]});
        for (name, value) in change.as_object().expect("a map") {
            claims[name] = value.clone();
        }
        signer.sign(&claims).expect("a token")
    };
    let ask = async |change: Value| {
        let mut claims = json!({
            "iss": issuer, "aud": "ferry", "exp": now() + 600, "email": "a@example.com", "hd": "example.com",
            "_claim_names": {"groups": "there"},
            "_claim_sources": {"there": {"endpoint": format!("{source}/groups"), "access_token": "open sesame"}},
        });
        for (name, value) in change.as_object().expect("a map") {
            claims[name] = value.clone();
        }
        let token = key.sign(&claims).expect("a token");
        let identity = oidc.authenticate_token(&token, &["api".to_owned()]).await?;
        Ok::<_, TokenError>(identity.expect("ours").user.groups)
    };
    *served.lock() = sign(json!({}), &claims_key);
    assert_eq!(ask(json!({})).await.expect("valid"), ["oidc:far", "oidc:away"]);
    // A claim in the token itself is enough, and so is none that is elsewhere.
    assert_eq!(ask(json!({"groups": ["near"]})).await.expect("valid"), ["oidc:near"]);
    assert_eq!(ask(json!({"_claim_names": {"address": "there"}})).await.expect("valid"), Vec::<String>::new());
    assert_eq!(ask(json!({"_claim_sources": {"there": {"JWT": "x"}}})).await.expect("valid"), Vec::<String>::new());
    for (change, why) in [
        (json!({"_claim_sources": {}}), "missing in _claims_sources"),
        (json!({"_claim_names": "groups"}), "distributed claim names"),
        (json!({"_claim_sources": {"there": {"endpoint": format!("{source}/nothing")}}}), "404"),
    ] {
        let error = ask(change.clone()).await.expect_err("refused").to_string();
        assert!(
            error.starts_with("oidc: could not expand distributed claims") && error.contains(why),
            "{change}: {error}"
        );
    }
    for (token, why) in [
        (sign(json!({}), &self::key()), "signature"),
        (sign(json!({"exp": now() - 1}), &claims_key), "expired"),
        (sign(json!({"aud": "somebody"}), &claims_key), "audience"),
        (sign(json!({"iss": "ftp://x"}), &claims_key), "untrusted issuer"),
        ("junk".into(), "malformed token"),
        (
            claims_key.sign(&json!({"iss": source, "aud": "ferry", "exp": now() + 600})).expect("a token"),
            "did not contain claim",
        ),
    ] {
        *served.lock() = token;
        let error = ask(json!({})).await.expect_err("refused").to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    tasks.stop(Duration::from_secs(10)).await;
}
