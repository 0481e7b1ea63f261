//! Requests on their way to a server behind this one: without the caller's credentials, with the caller's name.

use std::sync::Arc;

use ferry_meta::UserInfo;
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Remote;
use crate::request::context::RequestContext;
use crate::response::answer::{Answer, Body};
use crate::server::Core;
use crate::transport::kubelet::{self, Target};

pub(crate) async fn forward(
    core: &Arc<Core>,
    context: &RequestContext,
    remote: &Remote,
    mut request: Request<Body>,
) -> Answer {
    if !remote.available {
        return Answer::text(503, "service unavailable\n");
    }
    if let Err(error) = name_caller(request.headers_mut(), &context.user) {
        return Answer::text(500, format!("the caller's name fits into no header: {error}\n"));
    }
    let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    match exchange(core, remote, &path, request).await {
        // The client would follow with its credentials, to wherever the other server wants to have them.
        Ok(response) if response.status().is_redirection() && response.headers().contains_key(LOCATION) => {
            Answer::text(502, "the backend attempted to redirect this request, which is not permitted")
        }
        Ok(response) => Answer::Ready(response),
        Err(why) => {
            tracing::debug!("{}/{} does not answer: {why}", remote.group, remote.version);
            Answer::text(503, format!("error trying to reach service: {why}\n"))
        }
    }
}

/// Headers that only this server may set: what the caller put there is dropped.
fn name_caller(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), http::Error> {
    let given: Vec<HeaderName> = headers.keys().filter(|n| n.as_str().starts_with("x-remote-")).cloned().collect();
    for name in given {
        headers.remove(name);
    }
    let mut add = |name: &str, value: &str| -> Result<(), http::Error> {
        headers.append(HeaderName::try_from(name)?, HeaderValue::from_bytes(value.as_bytes())?);
        Ok(())
    };
    add("x-remote-user", &user.name)?;
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid)?;
    }
    for group in &user.groups {
        add("x-remote-group", group)?;
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", escape(key));
        for value in values {
            add(&name, value)?;
        }
    }
    Ok(())
}

/// Header names hold fewer characters than keys do.
fn escape(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        if plain {
            name.push(byte as char);
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

/// One request to one endpoint of the server's Service.
pub(super) async fn exchange(
    core: &Core,
    remote: &Remote,
    path: &str,
    request: Request<Body>,
) -> Result<Response<Body>, String> {
    let host = remote.service.host();
    let tls = remote.tls.clone()?;
    let (address, port) = ferry_admission::resolve_service(&*core.cache, &host, remote.service.port)
        .map_err(|error| error.to_string())?;
    let dial = async {
        let tcp = TcpStream::connect((address.as_str(), port)).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(host.clone()).map_err(std::io::Error::other)?;
        // HTTP/1.1 alone: upgrades need a connection of their own.
        let mut config = (*tls).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    };
    let io = match tokio::time::timeout(kubelet::DIAL, dial).await {
        Ok(dialled) => dialled.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("dial tcp {address}:{port}: i/o timeout")),
    };
    let target = Target { host, port: remote.service.port, tls: None, kubelet_of: None, path: path.to_owned() };
    kubelet::exchange(&core.tasks, io, &target, request).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_server_names_the_caller() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-scopes"] {
            headers.insert(name, HeaderValue::from_static("forged"));
        }
        let mut user = UserInfo::new("eve", &["a", "b"]);
        user.extra.insert("example.org/Scope s".into(), vec!["x".into(), "y".into()]);
        name_caller(&mut headers, &user).expect("plain text");
        let seen: Vec<(String, String)> =
            headers.iter().map(|(n, v)| (n.to_string(), v.to_str().expect("text").to_owned())).collect();
        let wanted = [
            ("x-remote-user", "eve"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.org%2fscope%20s", "x"),
            ("x-remote-extra-example.org%2fscope%20s", "y"),
        ];
        assert_eq!(seen.len(), wanted.len(), "{seen:?}");
        for (name, value) in wanted {
            assert!(seen.contains(&(name.into(), value.into())), "{name}: {value} in {seen:?}");
        }
        // Who cannot be named whole is not named in part.
        assert!(name_caller(&mut HeaderMap::new(), &UserInfo::new("eve", &["a", "b\nc"])).is_err());
    }
}
