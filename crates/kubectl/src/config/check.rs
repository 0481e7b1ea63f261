//! Whether what a kubeconfig names is there, before anybody is asked.

use std::path::Path;

use base64::Engine;
use serde_json::Value;

use super::file::go_error;
use crate::error::{Error, Result};
use crate::text::quote;

/// The files of a cluster and a user can be read and are what they are said to be.
pub fn readable(cluster_name: &str, cluster: &Value, user_name: &str, user: &Value) -> Result<()> {
    let mut missing = Vec::new();
    if let Some(url) = cluster["proxy-url"].as_str().filter(|url| !url.is_empty())
        && let Some(why) = super::proxy::unusable(url)
    {
        missing.push(format!("invalid 'proxy-url' {} for cluster {}: {why}", quote(url), quote(cluster_name)));
    }
    let authority = contents(cluster, "certificate-authority", "certificate-authority", cluster_name, &mut missing);
    one_or_many(std::mem::take(&mut missing))?;
    let certificate = contents(user, "client-certificate", "client-cert", user_name, &mut missing);
    contents(user, "client-key", "client-key", user_name, &mut missing);
    let asks = ["as-uid", "as-groups", "as-user-extra"].iter().any(|field| !user[*field].is_null());
    if asks && user["as"].as_str().is_none_or(str::is_empty) {
        missing.push(format!("requesting uid, groups or user-extra for {user_name} without impersonating a user"));
    }
    let given = |field: &str| user[field].as_str().is_some_and(|text| !text.is_empty());
    let methods: Vec<&str> = [("token", given("token")), ("basicAuth", given("username") || given("password"))]
        .into_iter()
        .filter_map(|(name, there)| there.then_some(name))
        .collect();
    if methods.len() > 1 {
        let methods = methods.join(" ");
        missing.push(format!(
            "more than one authentication method found for {user_name}; found [{methods}], only one is allowed"
        ));
    }
    if certificate.is_some() && !given("client-key") && !given("client-key-data") {
        missing.push(format!(
            "client-key-data or client-key must be specified for {user_name} to use the clientCert authentication method."
        ));
    }
    super::exec::lacks(user_name, user, &mut missing);
    one_or_many(missing)?;
    let is_pem = |body: &[u8]| body.windows(11).any(|window| window == b"-----BEGIN ");
    if authority.is_some_and(|body| !is_pem(&body)) {
        return Err(Error::say("unable to load root certificates: unable to parse bytes as PEM block"));
    }
    if certificate.is_some_and(|body| !is_pem(&body)) {
        let why = "tls: failed to find any PEM data in certificate input".to_owned();
        return Err(Error::Connection { host: String::new(), refused: false, why });
    }
    Ok(())
}

fn one_or_many(missing: Vec<String>) -> Result<()> {
    match &*missing {
        [] => Ok(()),
        [one] => Err(Error::say(one.clone())),
        many => {
            let all: String = many.iter().map(|why| format!("\n* {why}")).collect();
            Err(Error::Configuration(all))
        }
    }
}

/// What the data or the file of this name hold; data count before files.
fn contents(part: &Value, field: &str, shown: &str, of: &str, missing: &mut Vec<String>) -> Option<Vec<u8>> {
    if let Some(data) = part[format!("{field}-data")].as_str().filter(|data| !data.is_empty()) {
        return base64::engine::general_purpose::STANDARD.decode(data).ok();
    }
    let path = part[field].as_str().filter(|path| !path.is_empty())?;
    match std::fs::read(path) {
        Ok(body) => Some(body),
        Err(error) => {
            let why = go_error("open", Path::new(path), &error);
            missing.push(format!("unable to read {shown} {path} for {of} due to {why}"));
            None
        }
    }
}
