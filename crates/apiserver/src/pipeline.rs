//! The path of every request, from its headers to its answer: `run` has the stages in order, `dispatch` chooses the verb.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_auth::{AuthnError, Authorizer, Credentials, Notes};
use ferry_connections::Peer;
use ferry_console::{Admitted, Refusal};
use ferry_meta::bounds::LARGEST_BODY;
use ferry_meta::user::ANONYMOUS;
use ferry_meta::{ApiError, Reason};
use ferry_registry::Resource;
use futures::FutureExt;
use http::{Method, Request, Response};
use http_body::Body as _;

use crate::filters::heavy::{Heavy, Room};
use crate::filters::rights::{attributes, selector_fields};
use crate::filters::{audit, fairness, heavy};
use crate::request::body::{self, Read};
use crate::request::call::Call;
use crate::request::context::{RequestContext, Stage};
use crate::request::negotiate;
use crate::request::route::{self, Route};
use crate::request::verb::{Subresource, Verb};
use crate::response::answer::{self, Answer, Body};
use crate::response::render;
use crate::server::Core;
use crate::storage::codec;
use crate::transport::websocket;
use crate::write::patching::PatchType;
use crate::{aggregation, console, nonresource, read, subresources, verbs};

/// How long a large body waits for others of its user.
const BODY_ROOM_DEADLINE: Duration = Duration::from_secs(60);

pub(crate) async fn handle(core: &Arc<Core>, request: Request<Body>, peer: Peer) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    if let Some(file) = console::file(core, &parts, &peer) {
        return file;
    }
    let mut peer = peer;
    let admitted = console::admit(core, &mut parts, &mut peer);
    let mut context = RequestContext::new(&mut parts, peer, core.cbor);
    let in_flight = core.metrics.in_flight(&context);
    // A handler that panics takes its request along, not the connection with all the others on it.
    let outcome = match AssertUnwindSafe(run(core, &mut context, admitted, parts, body)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => audit::panicked(&context).await,
    };
    context.stages.done(Stage::Answer);
    let status = audit::answered(&context, &outcome);
    let response = match answer::labour(&context, &outcome) {
        size if size <= heavy::LIGHT => answer::respond(&context, outcome),
        size => core.heavy.run(&context.user.name, size, async { answer::respond(&context, outcome) }).await,
    };
    core.metrics.finished(&context, response.status().as_u16());
    if context.method != Method::GET {
        core.flight.record(&context);
    }
    drop(in_flight);
    audit::finish(&context, status, response).await
}

/// An invalid timeout is refused before any other check. Long-running requests have no timeout.
fn check_timeout(context: &RequestContext) -> Result<(), ApiError> {
    let text = context.query.text("timeout");
    let lasts =
        matches!(context.info.verb, Verb::Watch | Verb::Proxy | Verb::Connect) || context.info.subresource.is_stream();
    if text.is_empty() || lasts {
        return Ok(());
    }
    let refused = |why| ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"));
    ferry_semantics::duration::parse(text).map(|_| ()).map_err(refused)
}

async fn run(
    core: &Arc<Core>,
    context: &mut RequestContext,
    admitted: Result<Option<Admitted>, Refusal>,
    parts: http::request::Parts,
    body: Body,
) -> Result<Answer, ApiError> {
    check_timeout(context)?;
    // Console session: a browser's cookie is refused here if it is not valid for this request.
    context.admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => {
            audit::refused(core, context, &Notes::default()).await;
            return Err(refusal.error());
        }
    };
    // Authentication.
    let credentials =
        Credentials { headers: &context.headers, certificates: &context.peer.certificates, path: &context.info.path };
    let notes = Notes::default();
    context.user = match core.authentication.authenticate(&credentials, &notes).await {
        Ok(user) => user,
        Err(error) => {
            tracing::debug!("refused: {error}");
            audit::refused(core, context, &notes).await;
            return Err(match error {
                AuthnError::Unreadable(why) => ApiError::bad_request(why),
                AuthnError::Invalid(_) => ApiError::unauthorized(),
            });
        }
    };
    if context.user.name != ANONYMOUS {
        context.peer.authenticated(&context.user.name);
    }
    context.stages.done(Stage::Authentication);
    // The deprecated path /watch/… needs a resource.
    if context.info.watch_prefix && context.info.resource.is_empty() {
        let path = &context.info.path;
        let why = format!("failed to create RequestInfo: unable to determine kind and namespace from url, {path}");
        return Ok(Answer::internal_error(context, &why));
    }
    audit::begin(core, context, &notes).await?;

    // Impersonation.
    let fields = selector_fields(context);
    if let Some(user) = core.impersonation.resolve(&context.headers, &attributes(context, &fields)).await? {
        if let Some(record) = &context.audit {
            record.impersonated(&user);
        }
        context.user = user;
    }
    // The console's own paths: they read with the caller's rights, request by request, and need no right of their own.
    if let Some(answer) = console::handle(core, context).await {
        return answer;
    }
    // Priority and fairness. The seats are released when this function returns.
    let _seats = match fairness::enter(core, context).await {
        Ok(permit) => permit,
        Err(busy) => return Ok(fairness::too_busy(&busy)),
    };
    // Authorization.
    let wanted = attributes(context, &fields);
    let decision = core.authorization.authorize(&wanted).await;
    audit::decided(context, &decision);
    if let Some(error) = decision.error() {
        tracing::error!("authorization failed with an error: {error}");
        return Ok(Answer::internal_error(context, error));
    }
    if !decision.is_allowed() {
        return Err(ferry_auth::forbidden(&wanted, decision.reason()));
    }
    if let Some(fence) = &context.stages.fence {
        fence.check_rights(core, &context.user).await?;
    }
    context.stages.done(Stage::Authorization);

    // Aggregation: requests for the API of another server.
    if let Some(remote) = core.aggregation.find(&context.info) {
        return Ok(aggregation::forward(core, context, &remote, context.restore(parts, body)).await);
    }

    // Routing.
    let table = core.table();
    let found = match route::find(&table, context)? {
        Route::Path => return nonresource::handle(core, context).await,
        Route::NoSuchPage => return Ok(Answer::no_such_page()),
        Route::Resource(row) => {
            context.row = Some(row.clone());
            row
        }
    };
    if let Some(warning) = route::deprecation(&found) {
        context.warn(warning);
    }
    let watch = context.info.verb == Verb::Watch;
    let subresource = context.info.subresource.clone();
    if !route::is_stream(&found, &subresource) {
        if context.method == Method::PATCH {
            context.patch = Some(PatchType::of(&context.headers)?);
        }
        // A collection is listed and watched by one route.
        let collection = watch || context.info.verb == Verb::List;
        // Custom resources are behind no route of their own: only what they are turned into is judged.
        if !codec::is_custom(&found) {
            negotiate::check_route(&context.headers, collection)?;
        }
        if !watch {
            // What is answered and not kept has no metadata to make rows of.
            let kept = found.stored || found.has_verb("list");
            let tables = kept && render::subresource_as_table(&found, subresource.as_str());
            // A Scale is a Scale whatever it belongs to.
            let protobuf = !codec::is_custom(&found) || subresource == Subresource::Scale;
            let offer = negotiate::Offer { transforms: true, tables, protobuf };
            context.negotiated = negotiate::output(&context.headers, &context.query, offer)?;
        }
    } else {
        return subresources::connect(core, context, &found, context.restore(parts, body)).await;
    }

    if watch && websocket::is_wanted(&context.headers) {
        if context.cbor.answer {
            let why = "watches over WebSockets are JSON or protobuf";
            return Err(ApiError::new(406, Reason::NotAcceptable, why));
        }
        return match dispatch(core, context, &found, Bytes::new()).await? {
            Answer::Ready(answer) => Ok(Answer::Ready(websocket::watch(core, context.restore(parts, body), answer))),
            other => Ok(other),
        };
    }

    // The body.
    let _body_room;
    let body = if matches!(context.method, Method::GET | Method::HEAD) {
        Bytes::new()
    } else {
        let (body, room) = whole_body(&core.heavy, &context.user.name, body).await?;
        _body_room = room;
        body
    };
    match body.len() + size_of_live(core, context, &found) {
        size if size <= heavy::LIGHT => dispatch(core, context, &found, body).await,
        size => core.heavy.run(&context.user.name, size, dispatch(core, context, &found, body)).await,
    }
}

async fn dispatch(
    core: &Arc<Core>,
    context: &RequestContext,
    found: &Arc<Resource>,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let body = if context.cbor.body && !body.is_empty() { from_cbor(&body)? } else { body };
    let call = Call { core, context, row: found, body };
    // A subresource that is its parent in part goes the way of the parent.
    let subresource = found.subresource(context.info.subresource.as_str());
    if subresource.is_some_and(|subresource| subresource.kind != found.gvk) {
        return subresources::handle(call).await;
    }
    if !found.stored {
        return subresources::answered(call).await;
    }
    match context.info.verb {
        Verb::Get => verbs::get::handle(call).await,
        Verb::List => verbs::list::handle(call).await,
        Verb::Watch => verbs::watch::handle(call).await,
        Verb::Create => verbs::create::handle(call).await,
        Verb::Update => verbs::update::handle(call).await,
        Verb::Patch => verbs::patch::handle(call).await,
        Verb::Delete => verbs::delete::handle(call).await,
        Verb::DeleteCollection => verbs::deletecollection::handle(call).await,
        Verb::Proxy | Verb::Connect | Verb::Other(_) => Err(ApiError::method_not_allowed()),
    }
}

/// How large the object is that a write changes, as far as the cache knows. Reads are made of bytes.
fn size_of_live(core: &Core, context: &RequestContext, row: &Resource) -> usize {
    let info = &context.info;
    if !row.stored || !matches!(info.verb, Verb::Update | Verb::Patch | Verb::Delete) && info.subresource.is_main() {
        return 0;
    }
    let live =
        core.cache.resource(&row.storage_prefix).and_then(|c| c.get(read::scope(row, &info.namespace), &info.name));
    live.map_or(0, |live| live.json_length())
}

/// The body, and the room it takes.
async fn whole_body(heavy: &Heavy, user: &str, body: Body) -> Result<(Bytes, Room), ApiError> {
    let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(LARGEST_BODY));
    let late = || ApiError::new(408, Reason::Timeout, "the body did not arrive in time");
    let room = tokio::time::timeout(BODY_ROOM_DEADLINE, heavy.body(user, length)).await.map_err(|_| late())?;
    match body::read(body, LARGEST_BODY).await {
        Ok(Read::Whole(body)) => Ok((body, room)),
        Ok(Read::TooLarge) => Err(ApiError::too_large(format!("limit is {LARGEST_BODY}"))),
        Ok(Read::TooSlow) => Err(late()),
        Err(error) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
    }
}

fn from_cbor(body: &[u8]) -> Result<Bytes, ApiError> {
    let value = ferry_schema::cbor::decode(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(value.to_string().into())
}
