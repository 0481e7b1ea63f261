use super::*;
use crate::authorize::{AuthorizerChain, Decision};
use crate::rbac::PolicyRule;

struct Rules(Vec<PolicyRule>);

#[async_trait::async_trait]
impl Authorizer for Rules {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if self.0.iter().any(|rule| rule.allows(attributes)) { Decision::allow() } else { Decision::no_opinion("") }
    }
}

fn headers(pairs: &[(&str, &str)]) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    for (name, value) in pairs {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).expect("a name"),
            http::HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        );
    }
    headers
}

async fn resolve(impersonator: &Impersonator, user: &UserInfo, pairs: &[(&str, &str)]) -> Result<UserInfo, String> {
    let attributes = Attributes { namespace: "a", ..Attributes::resource(user, "list", "", "configmaps") };
    let user = impersonator.resolve(&headers(pairs), &attributes).await.map_err(|error| error.0.message)?;
    Ok(user.unwrap_or_default())
}

#[tokio::test]
async fn admin_becomes_anyone() {
    let impersonator = Impersonator::new(Arc::new(AuthorizerChain::new()));
    let admin = UserInfo::new("admin", &[MASTERS]);
    let check = async |pairs: &[(&str, &str)], groups: &[&str]| {
        assert_eq!(resolve(&impersonator, &admin, pairs).await.expect("a user").groups, groups);
    };
    check(&[("Impersonate-User", "jane")], &["system:authenticated"]).await;
    check(&[("Impersonate-User", "jane"), ("Impersonate-Group", "ops")], &["ops", "system:authenticated"]).await;
    check(&[("Impersonate-User", "system:anonymous")], &["system:unauthenticated"]).await;
    check(&[("Impersonate-User", "jane"), ("Impersonate-Group", MASTERS)], &[MASTERS, "system:authenticated"]).await;
    check(
        &[("Impersonate-User", "system:serviceaccount:default:robot")],
        &["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
    )
    .await;
    // What can be no account is a user like others.
    for odd in ["system:serviceaccount:BAD:robot", "system:serviceaccount:default:", "system:serviceaccount:a:b:c"] {
        check(&[("Impersonate-User", odd)], &["system:authenticated"]).await;
    }
    let extra = [("Impersonate-User", "jane"), ("Impersonate-Extra-Acme.com%2Fproject", "x")];
    assert_eq!(resolve(&impersonator, &admin, &extra).await.expect("a user").extra["acme.com/project"], ["x"]);
    assert_eq!(
        resolve(&impersonator, &admin, &[("Impersonate-Group", "ops")]).await,
        Err("requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"ops\"}, Extra:map[string][]string(nil)} without impersonating a user name".into())
    );
}

#[tokio::test]
async fn whoever_is_meant_is_meant_or_nobody() {
    let impersonator = Impersonator::new(Arc::new(AuthorizerChain::new()));
    let admin = UserInfo::new("admin", &[MASTERS]);
    let attributes = Attributes::resource(&admin, "list", "", "configmaps");
    let check = async |pairs: &[(&str, &[u8])], want: Result<Option<&str>, u16>| {
        let mut headers = http::HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, http::HeaderValue::from_bytes(value).expect("a value"));
        }
        let got = impersonator.resolve(&headers, &attributes).await;
        let got = got.map(|user| user.map(|user| user.name)).map_err(|error| error.code());
        assert_eq!(got.as_ref().map(Option::as_deref), want.as_ref().map(|name| *name), "{pairs:?}");
    };
    let jane = ("Impersonate-User", &b"jane"[..]);
    check(&[("Impersonate-User", "jörg".as_bytes())], Ok(Some("jörg"))).await;
    check(&[("Impersonate-User", b"j\xf6rg")], Err(400)).await;
    check(&[jane, ("Impersonate-Group", b"g\xf6")], Err(400)).await;
    check(&[jane, ("Impersonate-Group", b"g"), ("Impersonate-Group", b"\xff")], Err(400)).await;
    check(&[jane, ("Impersonate-Uid", b"\xff")], Err(400)).await;
    check(&[jane, ("Impersonate-Extra-a", b"\xff")], Err(400)).await;
    check(&[jane, ("Impersonate-Extra-%ff", b"a")], Err(400)).await;
    // Without the name there is nobody to be, whatever else is given.
    for name in ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-a"] {
        check(&[(name, b"a")], Err(400)).await;
        check(&[("Impersonate-User", b""), (name, b"a")], Err(400)).await;
    }
    check(&[("Impersonate-Group", b"")], Err(400)).await;
    // Nor is it plain who is meant.
    check(&[jane, jane], Err(400)).await;
    check(&[jane, ("Impersonate-User", b"admin")], Err(400)).await;
    check(&[jane, ("Impersonate-Uid", b"1"), ("Impersonate-Uid", b"2")], Err(400)).await;
    for name in ["Impersonate-Usr", "Impersonate-", "Impersonate-Groups", "Impersonate-Extra", "Impersonate-User-Extra"]
    {
        check(&[(name, b"a")], Err(400)).await;
        check(&[jane, (name, b"a")], Err(400)).await;
    }
    check(&[jane, ("Impersonate_User", b"a"), ("X-Impersonate-User", b"a")], Ok(Some("jane"))).await;
    check(&[], Ok(None)).await;
    check(&[("Impersonate-User", b"")], Ok(None)).await;
}

/// Extras without a domain are known to the old mode alone, which is then the one that last worked.
#[tokio::test]
async fn extras_of_no_domain_are_the_old_modes() {
    let admin = UserInfo::new("admin", &[MASTERS]);
    for (key, groups) in [
        ("Impersonate-Extra-Acme.com%2Fa", vec!["system:nodes", "system:authenticated"]),
        ("Impersonate-Extra-A", vec!["system:authenticated"]),
        ("Impersonate-Extra-_%2Fa", vec!["system:authenticated"]),
    ] {
        let impersonator = Impersonator::new(Arc::new(AuthorizerChain::new()));
        let jane = resolve(&impersonator, &admin, &[("Impersonate-User", "jane"), (key, "x")]).await;
        assert!(jane.is_ok_and(|jane| jane.extra.len() == 1), "{key}");
        let node = resolve(&impersonator, &admin, &[("Impersonate-User", "system:node:n")]).await;
        assert_eq!(node.expect("a node").groups, groups, "{key}");
    }
    let why = not_in_a_domain("scopes");
    assert_eq!(
        why.as_deref(),
        Some("extra.key: Invalid value: \"scopes\": must be a domain-prefixed path (such as \"acme.io/foo\")")
    );
}

#[tokio::test]
async fn refusals_speak_of_the_mode_that_last_worked() {
    let jane =
        PolicyRule { resource_names: vec!["jane".into()], ..PolicyRule::new(&["impersonate"], &[""], &["users"]) };
    let impersonator = Impersonator::new(Arc::new(Rules(vec![jane])));
    let bob = UserInfo::new("bob", &[]);
    let refused = async |pairs: &[(&str, &str)], want: &str| {
        assert_eq!(resolve(&impersonator, &bob, pairs).await, Err(want.to_owned()));
    };
    let (jim, node) = (("Impersonate-User", "jim"), ("Impersonate-User", "system:node:n1"));
    refused(&[jim], r#"configmaps is forbidden: User "bob" cannot impersonate-on:user-info:list resource "configmaps" in API group "" in the namespace "a""#).await;
    refused(&[node], r#"configmaps is forbidden: User "bob" cannot impersonate-on:arbitrary-node:list resource "configmaps" in API group "" in the namespace "a""#).await;
    assert_eq!(resolve(&impersonator, &bob, &[("Impersonate-User", "jane")]).await.expect("jane").name, "jane");
    refused(&[jim], r#"users "jim" is forbidden: User "bob" cannot impersonate resource "users" in API group "" at the cluster scope"#).await;
    refused(&[("Impersonate-User", "jane"), ("Impersonate-Extra-Scopes", "view")], r#"userextras.authentication.k8s.io "view" is forbidden: User "bob" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope"#).await;
}
