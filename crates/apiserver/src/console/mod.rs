//! What the console needs beyond the API, below `/console/`: sessions, and six pages that are answered with the caller's own
//! rights. `why` and `trace` tell what their caller could find out by other requests, so they ask for no right of their own. Who
//! wrote what, and what is no longer in the store, is the flight recorder's to tell: `feed`, `writes`, `history` and `events` ask
//! for the right to it.

mod feed;
mod history;
mod insight;
mod session;

use std::sync::Arc;

use bytes::Bytes;
use ferry_auth::Attributes;
use ferry_console::{Admitted, Console, Refusal};
use ferry_meta::ApiError;
use ferry_meta::user::ANONYMOUS;
use http::{Method, Response};

use crate::request::context::RequestContext;
use crate::response::answer::{Answer, Body, full};
use crate::server::Core;
use ferry_connections::Peer;

pub use insight::{Insight, InsightRequest};

/// What the pipeline knows of the console.
#[derive(Default)]
pub(crate) struct Pages {
    sessions: Console,
    insight: arc_swap::ArcSwapOption<insight::Insights>,
}

/// A file of the pages: the same to everybody, before anybody is asked who they are.
pub(crate) fn file(core: &Core, parts: &http::request::Parts, peer: &Peer) -> Option<Response<Body>> {
    core.console.as_ref()?;
    let response = ferry_console::respond(&parts.method, parts.uri.path(), &parts.headers)?;
    Some(response.map(|bytes: Bytes| peer.body(bytes)))
}

/// Puts the credential of a session in the place of its cookie.
pub(crate) fn admit(
    core: &Core,
    parts: &mut http::request::Parts,
    peer: &mut Peer,
) -> Result<Option<Admitted>, Refusal> {
    match &core.console {
        Some(pages) => pages.sessions.admit(parts, &mut peer.certificates),
        None => Ok(None),
    }
}

/// None: the path is none of the console's.
pub(crate) async fn handle(core: &Arc<Core>, context: &RequestContext) -> Option<Result<Answer, ApiError>> {
    let pages = core.console.as_ref()?;
    let rest = context.info.path.strip_prefix(ferry_console::ROOT)?;
    Some(match rest.split_once('/').unwrap_or((rest, "")) {
        ("session", "") => session::handle(core, pages, context).await,
        _ if context.user.name == ANONYMOUS => Err(ApiError::unauthorized()),
        ("code", "") => session::code(core, pages, context).await,
        _ if context.method != Method::GET => Err(ApiError::method_not_allowed()),
        ("feed", "") => may_ask_recorder(core, context).await.map(|()| feed::answer(core, context)),
        ("writes", "") => match may_ask_recorder(core, context).await {
            Ok(()) => Ok(feed::writes(core, context).await),
            Err(refused) => Err(refused),
        },
        ("history", path) => match may_ask_recorder(core, context).await {
            Ok(()) => history::answer(core, context, path).await,
            Err(refused) => Err(refused),
        },
        ("events", path) => match may_ask_recorder(core, context).await {
            Ok(()) => history::ended_events(core, context, path).await,
            Err(refused) => Err(refused),
        },
        (what @ ("why" | "trace"), path) => insight::answer(core, pages, context, what, path).await,
        _ => Ok(Answer::no_such_page()),
    })
}

/// As for `/debug/flight/…`, which tells the same.
async fn may_ask_recorder(core: &Core, context: &RequestContext) -> Result<(), ApiError> {
    core.authorization.check(&Attributes::path(&context.user, "get", "/debug/flight/console")).await
}

fn empty(code: http::StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = code;
    response
}
