//! Signing in and out. The caller has proved who they are like any other caller, by a token, a certificate or a one-time code:
//! what is left to do is to keep that proof.

use ferry_auth::{Credentials, Notes};
use ferry_console::{Admitted, Credential};
use ferry_meta::ApiError;
use ferry_meta::user::ANONYMOUS;
use http::header::{CONTENT_TYPE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{Pages, empty};
use crate::observe::flight::json_answer;
use crate::request::context::RequestContext;
use crate::response::answer::{Answer, full};
use crate::server::Core;

pub(super) async fn handle(core: &Core, pages: &Pages, context: &RequestContext) -> Result<Answer, ApiError> {
    let known = context.user.name != ANONYMOUS;
    match context.method {
        Method::GET => Ok(json_answer(&who(context))),
        Method::POST if !known => Err(ApiError::unauthorized()),
        Method::POST => {
            let credential = held(core, context).await?;
            let began = pages.sessions.begin(&context.user.name, credential);
            let mut document = who(context);
            document["key"] = began.key.into();
            document["seconds"] = ferry_console::SESSION_LIFETIME.as_secs().into();
            let mut response = Response::new(full(document.to_string()));
            *response.status_mut() = StatusCode::CREATED;
            response.headers_mut().insert(SET_COOKIE, began.cookie);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(Answer::Ready(response))
        }
        Method::DELETE => {
            let Some(Admitted::Session(session)) = &context.admitted else {
                return Err(ApiError::bad_request("there is no session to end: the request brings none"));
            };
            let mut response = empty(StatusCode::NO_CONTENT);
            response.headers_mut().insert(SET_COOKIE, pages.sessions.end(session));
            Ok(Answer::Ready(response))
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

pub(super) async fn code(core: &Core, pages: &Pages, context: &RequestContext) -> Result<Answer, ApiError> {
    if context.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    if context.admitted.is_some() {
        return Err(ApiError::bad_request(
            "a session of the console gives out no codes; ask with a token or a certificate",
        ));
    }
    let credential = held(core, context).await?;
    Ok(json_answer(&json!({ "code": pages.sessions.issue_code(&context.user.name, credential) })))
}

fn who(context: &RequestContext) -> Value {
    let user = &context.user;
    let by = match (&context.admitted, context.peer.certificates.is_empty()) {
        (Some(Admitted::Session(_)), _) => "session",
        (Some(Admitted::Code), _) => "code",
        (None, _) if user.name == ANONYMOUS => "nothing",
        (None, true) => "token",
        (None, false) => "certificate",
    };
    json!({ "user": user.name, "groups": user.groups, "by": by })
}

/// The credential of the request, if it names the caller without anything else of the request: not where a proxy in front says
/// who calls, nor where somebody acts as somebody else.
async fn held(core: &Core, context: &RequestContext) -> Result<Credential, ApiError> {
    let refused = || {
        ApiError::bad_request("only callers with a bearer token or a client certificate of their own can sign in here")
    };
    let credential = Credential::of(&context.headers, &context.peer.certificates).ok_or_else(refused)?;
    let (mut headers, mut certificates) = (HeaderMap::new(), Default::default());
    credential.show(&mut headers, &mut certificates);
    let shown = Credentials { headers: &headers, certificates: &certificates, path: &context.info.path };
    match core.authentication.authenticate(&shown, &Notes::default()).await {
        Ok(user) if user == context.user => Ok(credential),
        _ => Err(refused()),
    }
}
