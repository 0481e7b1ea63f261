//! The path of every request, from its headers to its answer, in one function.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_auth::{AuthnError, Authorizer, Credentials, Notes};
use ferry_meta::bounds::LARGEST_BODY;
use ferry_meta::{ApiError, Reason};
use ferry_registry::Resource;
use futures::FutureExt;
use http::{Method, Request, Response};
use http_body::Body as _;

use crate::answer::{self, Answer, Body};
use crate::context::{Peer, RequestContext, Stage};
use crate::heavy::{Heavy, Room};
use crate::listen::read_body;
use crate::rights::{attributes, selector_fields};
use crate::route::{self, Route};
use crate::server::Core;
use crate::{aggregation, audit, codec, fairness, heavy, negotiate, paths, reads, render, subresources, verbs};

/// A body that trickles in slower than this is refused.
const BODY_DEADLINE: Duration = Duration::from_secs(60);

pub(crate) async fn handle(core: &Arc<Core>, request: Request<Body>, peer: Peer) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let mut context = RequestContext::new(&mut parts, peer, core.cbor);
    let in_flight = core.metrics.in_flight(&context);
    // A handler that panics takes its request along, not the connection with all the others on it.
    let outcome = match AssertUnwindSafe(run(core, &mut context, parts, body)).catch_unwind().await {
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

/// A time limit that cannot be read is refused before anything else is looked at; requests that last have none.
fn check_timeout(context: &RequestContext) -> Result<(), ApiError> {
    let text = context.query.text("timeout");
    let lasts = matches!(&*context.info.verb, "watch" | "proxy" | "connect")
        || matches!(&*context.info.subresource, "exec" | "attach" | "portforward" | "proxy" | "log");
    if text.is_empty() || lasts {
        return Ok(());
    }
    let refused = |why| ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"));
    ferry_semantics::duration::parse(text).map(|_| ()).map_err(refused)
}

async fn run(
    core: &Arc<Core>,
    context: &mut RequestContext,
    parts: http::request::Parts,
    body: Body,
) -> Result<Answer, ApiError> {
    check_timeout(context)?;
    // Who is asking.
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
    context.stages.done(Stage::Authentication);
    // The old way to watch needs something to watch.
    if context.info.watch_prefix && context.info.resource.is_empty() {
        let path = &context.info.path;
        let why = format!("failed to create RequestInfo: unable to determine kind and namespace from url, {path}");
        return Ok(Answer::internal_error(context, &why));
    }
    audit::begin(core, context, &notes).await?;

    // As whom, and whether they may.
    let fields = selector_fields(context);
    if let Some(user) = core.impersonation.resolve(&context.headers, &attributes(context, &fields)).await? {
        if let Some(record) = &context.audit {
            record.impersonated(&user);
        }
        context.user = user;
    }
    // Whether there is room for it now. Its seats are free again when this function ends.
    let _seats = match fairness::enter(core, context).await {
        Ok(permit) => permit,
        Err(busy) => return Ok(fairness::too_busy(&busy)),
    };
    let wanted = attributes(context, &fields);
    let decision = core.authorization.authorize(&wanted).await;
    audit::decided(context, &decision);
    if let Some(error) = decision.error() {
        tracing::error!("who may do what could not be found out: {error}");
        return Ok(Answer::internal_error(context, error));
    }
    if !decision.is_allowed() {
        return Err(ferry_auth::forbidden(&wanted, decision.reason()));
    }
    context.stages.done(Stage::Authorization);

    // Another server may be meant.
    if let Some(remote) = core.aggregation.find(&context.info) {
        return Ok(aggregation::forward(core, context, &remote, context.restore(parts, body)).await);
    }

    // What for.
    let table = core.table();
    let found = match route::find(&table, context)? {
        Route::Path => return paths::handle(core, context).await,
        Route::NoSuchPage => return Ok(Answer::no_such_page()),
        Route::Resource(row) => {
            context.row = Some(row.clone());
            row
        }
    };
    if let Some(warning) = route::deprecation(&found) {
        context.warn(warning);
    }
    let watch = context.info.verb == "watch";
    let subresource = context.info.subresource.clone();
    if !route::is_stream(&found, &subresource) {
        if context.method == Method::PATCH {
            verbs::patch::check_route(&context.headers)?;
        }
        // A collection is listed and watched by one route.
        let collection = watch || context.info.verb == "list";
        negotiate::check_route(&context.headers, collection)?;
        if !watch {
            // What is answered and not kept has no metadata to make rows of.
            let kept = found.stored || found.gvk.kind == "ComponentStatus";
            let tables = kept && render::subresource_as_table(&found, &subresource);
            // A Scale is a Scale whatever it belongs to.
            let protobuf = !codec::is_custom(&found) || subresource == "scale";
            let offer = negotiate::Offer { transforms: true, tables, protobuf };
            context.negotiated = negotiate::output(&context.headers, &context.query, offer)?;
        }
    } else {
        return subresources::connect(core, context, &found, context.restore(parts, body)).await;
    }

    // With what.
    let _body_room;
    let body = if matches!(context.method, Method::GET | Method::HEAD) {
        Bytes::new()
    } else {
        let (body, room) = whole_body(&core.heavy, &context.user.name, body, BODY_DEADLINE).await?;
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
    let subresource = &*context.info.subresource;
    // A subresource that is its parent in part goes the way of the parent.
    let own_kind = found.subresource(subresource).is_some_and(|s| s.kind != found.gvk);
    if own_kind {
        return subresources::handle(core, context, found, body).await;
    }
    if !found.stored {
        return subresources::answered(core, context, found, body).await;
    }
    match &*context.info.verb {
        "get" => verbs::get::handle(core, context, found).await,
        "list" => verbs::list::handle(core, context, found).await,
        "watch" => verbs::watch::handle(core, context, found).await,
        "create" => verbs::create::handle(core, context, found, body).await,
        "update" => verbs::update::handle(core, context, found, body).await,
        "patch" => verbs::patch::handle(core, context, found, body).await,
        "delete" => verbs::delete::handle(core, context, found, body).await,
        "deletecollection" => verbs::deletecollection::handle(core, context, found, body).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// How large the object is that a write changes, as far as the cache knows. Reads are made of bytes.
fn size_of_live(core: &Core, context: &RequestContext, row: &Resource) -> usize {
    let info = &context.info;
    if !row.stored || !matches!(&*info.verb, "update" | "patch" | "delete") && info.subresource.is_empty() {
        return 0;
    }
    let live =
        core.cache.resource(&row.storage_prefix).and_then(|c| c.get(reads::scope(row, &info.namespace), &info.name));
    live.map_or(0, |live| live.json_length())
}

/// The body, and the room it takes.
async fn whole_body(heavy: &Heavy, user: &str, body: Body, deadline: Duration) -> Result<(Bytes, Room), ApiError> {
    let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(LARGEST_BODY));
    let read = async {
        let room = heavy.body(user, length).await;
        read_body(body, LARGEST_BODY).await.map(|body| (body, room))
    };
    match tokio::time::timeout(deadline, read).await {
        Ok(Ok((Some(body), room))) => Ok((body, room)),
        Ok(Ok((None, _))) => Err(ApiError::too_large(format!("limit is {LARGEST_BODY}"))),
        Ok(Err(error)) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
        Err(_) => Err(ApiError::new(408, Reason::Timeout, "the body did not arrive in time")),
    }
}

fn from_cbor(body: &[u8]) -> Result<Bytes, ApiError> {
    let value = ferry_schema::cbor::decode(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(value.to_string().into())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[tokio::test]
    async fn a_body_that_trickles_in_is_cut_off() {
        let start = Bytes::from_static(b"{\"metadata\":");
        let parts = futures::stream::iter([Ok(http_body::Frame::data(start))]).chain(futures::stream::pending());
        let body: Body = StreamBody::new(parts).boxed_unsync();
        let refused = whole_body(&Heavy::default(), "u", body, Duration::from_millis(10)).await;
        assert_eq!(refused.map(|(body, _)| body).map_err(|error| error.code()), Err(408));
    }
}
