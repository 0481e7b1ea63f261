use super::*;
use crate::serviceaccount::{SigningKey, TokenIssuer, jwks, openid_configuration};
use crate::testing::Objects;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

struct Cluster {
    objects: Arc<Objects>,
    issuer: TokenIssuer,
    tokens: ServiceAccountTokens,
}

fn cluster() -> Cluster {
    let objects = Arc::new(Objects::default());
    objects.put("", "serviceaccounts", json!({"metadata": {"name": "robot", "namespace": "a", "uid": "u1"}}));
    objects.put("", "nodes", json!({"metadata": {"name": "n1", "uid": "n-uid"}}));
    objects.put(
        "",
        "pods",
        json!({"metadata": {"name": "p", "namespace": "a", "uid": "p-uid"},
        "spec": {"serviceAccountName": "robot", "nodeName": "n1"}}),
    );
    let key = SigningKey::from_pem(&SigningKey::generate_pem().expect("a key")).expect("a key");
    let keys = vec![key.verifying_key().clone()];
    Cluster {
        issuer: TokenIssuer::new(ISSUER.into(), vec![ISSUER.into()], key, objects.clone()),
        tokens: ServiceAccountTokens::new(vec![ISSUER.into()], keys, objects.clone()),
        objects,
    }
}

impl Cluster {
    fn token(&self, spec: Value) -> String {
        let answer = self.issuer.request("a", "robot", &json!({"spec": spec}), false).expect("a token");
        text(&answer, "/status/token").to_owned()
    }

    fn verify(&self, token: &str, audience: &str, later: i64) -> Result<Option<TokenIdentity>, TokenError> {
        self.tokens.identity(token, &[audience.to_owned()], ferry_meta::time::now().as_second() + later)
    }
}

#[test]
fn a_pod_bound_token_says_who_and_where() {
    let cluster = cluster();
    let token = cluster.token(json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}));
    let user = cluster.verify(&token, ISSUER, 0).expect("valid").expect("a user").user;
    assert_eq!(user.name, "system:serviceaccount:a:robot");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:a"]);
    let extra = |key: &str| user.extra[&format!("authentication.kubernetes.io/{key}")][0].clone();
    assert_eq!(["pod-name", "pod-uid", "node-name", "node-uid"].map(extra), ["p", "p-uid", "n1", "n-uid"]);
    assert!(extra("credential-id").starts_with("JTI="));
    cluster.objects.remove("", "pods", "a", "p");
    let invalidated = TokenError::Invalidated("service account token has been invalidated".into());
    assert_eq!(cluster.verify(&token, ISSUER, 0), Err(invalidated));
}

#[test]
fn tokens_die_with_time_audience_and_account() {
    let cluster = cluster();
    let token = cluster.token(json!({"expirationSeconds": 600}));
    assert!(cluster.verify(&token, ISSUER, 0).is_ok());
    assert_eq!(cluster.verify(&token, ISSUER, 700), Err(TokenError::Time("service account token has expired")));
    assert_eq!(cluster.verify(&token, ISSUER, -120), Err(TokenError::Time("service account token is not valid yet")));
    assert_eq!(
        cluster.verify(&cluster.token(json!({"audiences": ["vault", "other"]})), ISSUER, 0),
        Err(TokenError::Audience(format!(
            "token audiences [\"vault\" \"other\"] is invalid for the target audiences [\"{ISSUER}\"]"
        )))
    );
    cluster.objects.put("", "serviceaccounts", json!({"metadata": {"name": "robot", "namespace": "a", "uid": "u2"}}));
    assert!(
        cluster.verify(&token, ISSUER, 0).expect_err("another account").to_string().contains("does not match claim")
    );
    cluster.objects.remove("", "serviceaccounts", "a", "robot");
    assert!(cluster.verify(&token, ISSUER, 0).is_err());
}

#[test]
fn forged_tokens_are_refused() {
    let cluster = cluster();
    let token = cluster.token(json!({}));
    let parts: Vec<&str> = token.split('.').collect();
    let header = |alg: &str| URL_SAFE_NO_PAD.encode(json!({"alg": alg}).to_string());
    let refused = |token: String| assert!(!matches!(cluster.verify(&token, ISSUER, 0), Ok(Some(_))), "{token}");
    refused(format!("{}.{}.", header("none"), parts[1]));
    refused(format!("{}.{}.{}", header("none"), parts[1], parts[2]));
    for alg in ["HS256", "RS256", "ES384", "es256"] {
        refused(format!("{}.{}.{}", header(alg), parts[1], parts[2]));
    }
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).expect("base64")).expect("json");
    claims["sub"] = json!("system:serviceaccount:kube-system:admin");
    refused(format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(claims.to_string()), parts[2]));
    let foreign = self::cluster();
    refused(foreign.token(json!({})));
    for garbage in ["", ".", "..", "a.b.c", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln"] {
        refused(garbage.to_owned());
    }
}

#[test]
fn requests_are_checked_as_upstream_checks_them() {
    let cluster = cluster();
    let check = |account: &str, spec: Value, code: u16, want: &str| {
        let error = cluster.issuer.request("a", account, &json!({"spec": spec}), false).expect_err("refused");
        assert_eq!((error.code(), error.0.message.as_str()), (code, want));
    };
    check(
        "robot",
        json!({"expirationSeconds": 60}),
        422,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
    );
    check("nobody", json!({}), 404, "serviceaccounts \"nobody\" not found");
    check(
        "robot",
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "nopod"}}),
        404,
        "pods \"nopod\" not found",
    );
    check(
        "robot",
        json!({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}),
        400,
        "cannot bind token to object of type /v1, Kind=ConfigMap",
    );
    let nameless = json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1"}});
    check("robot", nameless, 400, "Name parameter required.");
    // Of an API version the group alone counts.
    let other = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v9", "name": "nopod"}});
    check("robot", other, 404, "pods \"nopod\" not found");
    let of = |uid: &str| cluster.issuer.request("a", "robot", &json!({"metadata": {"uid": uid}}), true);
    assert_eq!(of("u1").expect("an answer")["metadata"]["uid"], "u1");
    let error = of("u0").expect_err("another account");
    let want = "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"robot\": the UID in the token request (u0) does not match the UID of the service account (u1)";
    assert_eq!((error.code(), error.0.message.as_str()), (409, want));
    let answer = cluster.issuer.request("a", "robot", &json!({}), true).expect("an answer");
    assert_eq!(answer["metadata"]["uid"], "u1");
    assert_eq!(answer["spec"], json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null}));
    assert_eq!(answer["status"]["token"], json!(""));
}

#[test]
fn the_default_token_of_a_pod_lives_on_after_its_warning() {
    let cluster = cluster();
    let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
    let token = cluster.token(json!({"expirationSeconds": 3607, "boundObjectRef": reference}));
    assert!(cluster.verify(&token, ISSUER, 86_400).is_ok());
}

#[test]
fn rsa_keys_sign_too_and_all_keys_are_published() {
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).expect("a key");
    let der = aws_lc_rs::encoding::AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'static>>::as_der(&pair).expect("a key");
    let encoded = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n");
    let cluster = cluster();
    let key = SigningKey::from_pem(&pem).expect("a key");
    let keys = VerifyingKey::all_from_pem(&pem).expect("a key");
    let issuer = TokenIssuer::new(ISSUER.into(), vec![ISSUER.into()], key, cluster.objects.clone());
    let answer = issuer.request("a", "robot", &json!({}), false).expect("a token");
    let tokens = ServiceAccountTokens::new(vec![ISSUER.into()], keys, cluster.objects.clone());
    let now = ferry_meta::time::now().as_second();
    assert!(tokens.identity(text(&answer, "/status/token"), &[ISSUER.into()], now).expect("valid").is_some());
    assert_eq!(jwks(tokens.keys())["keys"][0]["kty"], json!("RSA"));
    assert_eq!(jwks(tokens.keys())["keys"][0]["e"], json!("AQAB"));
    let document = openid_configuration(ISSUER, "https://x/openid/v1/jwks", cluster.tokens.keys());
    assert_eq!(document["id_token_signing_alg_values_supported"], json!(["ES256"]));
}
