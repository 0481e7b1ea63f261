//! Providers by flags, and by the structured `AuthenticationConfiguration`.

use std::sync::Arc;

use ferry_cel::CompileError;
use ferry_meta::object::{items, text};
use serde::Deserialize;
use serde_json::Value;

use super::jwk::ALGORITHMS;
use super::mapping::{Expression, Mapping, Rule, Source};

/// One identity provider, checked.
#[derive(Clone)]
pub struct Provider {
    pub(super) issuer: String,
    pub(super) discovery_url: String,
    /// PEM; None trusts what this machine trusts.
    pub(super) ca: Option<Vec<u8>>,
    pub(super) audiences: Vec<String>,
    pub(super) algorithms: Vec<String>,
    pub(super) mapping: Mapping,
}

/// The `--oidc-*` flags.
#[derive(Clone, Debug, Default)]
pub struct OidcFlags {
    pub issuer_url: String,
    pub client_id: String,
    pub ca: Option<Vec<u8>>,
    pub username_claim: String,
    pub username_prefix: String,
    pub groups_claim: String,
    pub groups_prefix: String,
    /// `key=value`
    pub required_claims: Vec<String>,
    pub signing_algorithms: Vec<String>,
}

/// Why a provider cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("issuer {0:?}: URL scheme must be https")]
    Scheme(String),
    #[error("issuer {0:?}: it must not hold a query, a fragment or a user")]
    Issuer(String),
    #[error("--oidc-client-id is required with --oidc-issuer-url")]
    NoClientId,
    #[error("--oidc-signing-algs: {0:?} is not one of {known:?}", known = ALGORITHMS)]
    Algorithm(String),
    #[error("--oidc-required-claim {0:?} is no key=value")]
    RequiredClaim(String),
    #[error("it is no AuthenticationConfiguration of apiserver.config.k8s.io/v1")]
    Kind,
    #[error("anonymous: {0}")]
    Anonymous(serde_json::Error),
    #[error("anonymous.conditions: must be empty while anonymous is not enabled")]
    AnonymousConditions,
    /// One of several providers, by its place in the file.
    #[error("jwt[{index}]: {why}")]
    Provider { index: usize, why: Box<OidcError> },
    #[error("jwt[{index}].issuer.url: {issuer:?} is there twice")]
    DuplicateIssuer { index: usize, issuer: String },
    #[error("issuer.egressSelectorType: this server has no egress selectors")]
    EgressSelector,
    #[error("issuer.audiences: at least one is required")]
    NoAudience,
    #[error("issuer.audienceMatchPolicy: must be MatchAny for several audiences")]
    NoAudiencePolicy,
    #[error("issuer.audienceMatchPolicy: {0:?} is not MatchAny")]
    AudiencePolicy(String),
    #[error("{text}: {why}")]
    Expression { text: String, why: CompileError },
    #[error("{0}/prefix: required where a claim is given")]
    NoPrefix(String),
    #[error("{0}: claim and expression exclude each other")]
    ClaimAndExpression(String),
    #[error("{0}: a rule has either a claim or an expression")]
    Rule(String),
    #[error("claimMappings.username: claim or expression is required")]
    NoUsername,
}

pub(super) fn check_issuer(url: &str) -> Result<(), OidcError> {
    // Plain HTTP is for tests on loopback; nobody else can stand between.
    let loopback = url.starts_with("http://127.0.0.1:") && cfg!(any(test, feature = "testing"));
    if !url.starts_with("https://") && !loopback {
        return Err(OidcError::Scheme(url.to_owned()));
    }
    if url.contains(['?', '#', '@']) {
        return Err(OidcError::Issuer(url.to_owned()));
    }
    Ok(())
}

pub(super) fn discovery_of(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
}

impl Provider {
    pub fn of_flags(flags: &OidcFlags) -> Result<Self, OidcError> {
        check_issuer(&flags.issuer_url)?;
        if flags.client_id.is_empty() {
            return Err(OidcError::NoClientId);
        }
        for algorithm in &flags.signing_algorithms {
            if !ALGORITHMS.contains(&algorithm.as_str()) {
                return Err(OidcError::Algorithm(algorithm.clone()));
            }
        }
        let claim = if flags.username_claim.is_empty() { "sub" } else { &flags.username_claim };
        let prefix = match &*flags.username_prefix {
            "-" => String::new(),
            // Names of others must not meet those of this cluster by chance.
            "" if claim != "email" => format!("{}#", flags.issuer_url),
            given => given.to_owned(),
        };
        let mut claim_rules = Vec::new();
        for required in &flags.required_claims {
            let (name, value) = required.split_once('=').ok_or_else(|| OidcError::RequiredClaim(required.clone()))?;
            claim_rules.push(Rule::Claim { name: name.to_owned(), required: value.to_owned() });
        }
        let groups = (!flags.groups_claim.is_empty())
            .then(|| Source::Claim { name: flags.groups_claim.clone(), prefix: flags.groups_prefix.clone() });
        Ok(Self {
            discovery_url: discovery_of(&flags.issuer_url),
            issuer: flags.issuer_url.clone(),
            ca: flags.ca.clone(),
            audiences: vec![flags.client_id.clone()],
            algorithms: if flags.signing_algorithms.is_empty() {
                vec!["RS256".into()]
            } else {
                flags.signing_algorithms.clone()
            },
            mapping: Mapping {
                username: Source::Claim { name: claim.to_owned(), prefix },
                groups,
                uid: None,
                extra: Vec::new(),
                claim_rules,
                user_rules: Vec::new(),
            },
        })
    }
}

/// Who may come without credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnonymousConfig {
    pub enabled: bool,
    /// Only to these paths; empty: everywhere.
    #[serde(default, deserialize_with = "paths")]
    pub conditions: Vec<String>,
}

fn paths<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Condition {
        path: String,
    }
    Ok(Vec::<Condition>::deserialize(deserializer)?.into_iter().map(|condition| condition.path).collect())
}

/// The file of `--authentication-config`.
#[derive(Clone)]
pub struct AuthenticationConfig {
    pub providers: Vec<Provider>,
    pub anonymous: Option<AnonymousConfig>,
}

impl AuthenticationConfig {
    pub fn parse(file: &Value) -> Result<Self, OidcError> {
        let version = text(file, "/apiVersion");
        if !matches!(version, "apiserver.config.k8s.io/v1" | "apiserver.config.k8s.io/v1beta1")
            || text(file, "/kind") != "AuthenticationConfiguration"
        {
            return Err(OidcError::Kind);
        }
        let anonymous = match file.get("anonymous").filter(|v| !v.is_null()) {
            Some(value) => {
                let parsed = AnonymousConfig::deserialize(value).map_err(OidcError::Anonymous)?;
                if !parsed.enabled && !parsed.conditions.is_empty() {
                    return Err(OidcError::AnonymousConditions);
                }
                Some(parsed)
            }
            None => None,
        };
        let mut providers: Vec<Provider> = Vec::new();
        for (index, jwt) in items(file, "/jwt").iter().enumerate() {
            let provider = read(jwt).map_err(|why| OidcError::Provider { index, why: Box::new(why) })?;
            if providers.iter().any(|known| known.issuer == provider.issuer) {
                return Err(OidcError::DuplicateIssuer { index, issuer: provider.issuer });
            }
            providers.push(provider);
        }
        Ok(Self { providers, anonymous })
    }
}

fn read(jwt: &Value) -> Result<Provider, OidcError> {
    let issuer = text(jwt, "/issuer/url").to_owned();
    check_issuer(&issuer)?;
    let discovery_url = match text(jwt, "/issuer/discoveryURL") {
        "" => discovery_of(&issuer),
        url => {
            check_issuer(url)?;
            url.to_owned()
        }
    };
    if !text(jwt, "/issuer/egressSelectorType").is_empty() {
        return Err(OidcError::EgressSelector);
    }
    let audiences: Vec<String> =
        items(jwt, "/issuer/audiences").iter().filter_map(|a| a.as_str().map(str::to_owned)).collect();
    match (audiences.len(), text(jwt, "/issuer/audienceMatchPolicy")) {
        (0, _) => return Err(OidcError::NoAudience),
        (1, "" | "MatchAny") | (_, "MatchAny") => {}
        (_, "") => return Err(OidcError::NoAudiencePolicy),
        (_, other) => return Err(OidcError::AudiencePolicy(other.to_owned())),
    }
    let compile = |text: &str, variable: &str| -> Result<Arc<Expression>, OidcError> {
        Expression::compile(text, variable).map_err(|why| OidcError::Expression { text: text.to_owned(), why })
    };
    let source = |pointer: &str, prefix: bool| -> Result<Option<Source>, OidcError> {
        let Some(value) = jwt.pointer(pointer).filter(|v| !v.is_null()) else { return Ok(None) };
        let (claim, expression) = (text(value, "/claim"), text(value, "/expression"));
        match (claim.is_empty(), expression.is_empty()) {
            (true, true) => Ok(None),
            (false, true) if prefix && value.get("prefix").and_then(Value::as_str).is_none() => {
                Err(OidcError::NoPrefix(pointer.to_owned()))
            }
            (false, true) => {
                Ok(Some(Source::Claim { name: claim.to_owned(), prefix: text(value, "/prefix").to_owned() }))
            }
            (true, false) => Ok(Some(Source::Expression(compile(expression, "claims")?))),
            (false, false) => Err(OidcError::ClaimAndExpression(pointer.to_owned())),
        }
    };
    let rules = |pointer: &str, variable: &str| -> Result<Vec<Rule>, OidcError> {
        let mut rules = Vec::new();
        for rule in items(jwt, pointer) {
            let (claim, expression) = (text(rule, "/claim"), text(rule, "/expression"));
            rules.push(match (claim.is_empty(), expression.is_empty()) {
                (false, true) if variable == "claims" => {
                    Rule::Claim { name: claim.to_owned(), required: text(rule, "/requiredValue").to_owned() }
                }
                (true, false) => Rule::Expression {
                    expression: compile(expression, variable)?,
                    message: text(rule, "/message").to_owned(),
                },
                _ => return Err(OidcError::Rule(pointer.to_owned())),
            });
        }
        Ok(rules)
    };
    let mut extra = Vec::new();
    for mapping in items(jwt, "/claimMappings/extra") {
        let expression = compile(text(mapping, "/valueExpression"), "claims")?;
        extra.push((text(mapping, "/key").to_owned(), expression));
    }
    let username = source("/claimMappings/username", true)?.ok_or(OidcError::NoUsername)?;
    let ca = text(jwt, "/issuer/certificateAuthority");
    Ok(Provider {
        discovery_url,
        issuer,
        ca: (!ca.is_empty()).then(|| ca.as_bytes().to_vec()),
        audiences,
        algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
        mapping: Mapping {
            username,
            groups: source("/claimMappings/groups", true)?,
            uid: source("/claimMappings/uid", false)?,
            extra,
            claim_rules: rules("/claimValidationRules", "claims")?,
            user_rules: rules("/userValidationRules", "user")?,
        },
    })
}
