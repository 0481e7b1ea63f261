//! What the console asks about an object: `ferry why` and `ferry trace`, inside the server.

use ferry_apiserver::{ApiServer, InsightRequest};
use ferry_insight::{Cluster, Error, Resource, trace, why};
use ferry_meta::{ApiError, Reason};
use serde_json::Value;

/// Lets the console's pages ask.
pub fn offer(server: &ApiServer) {
    server.set_insight(Box::new(|client, request| {
        Box::pin(async move { answer(client, request).await.map_err(status) })
    }));
}

async fn answer(client: kube::Client, request: InsightRequest) -> Result<Value, Error> {
    let InsightRequest { what, group, version, plural, kind, namespaced, namespace, name } = request;
    let (cluster, resource) = (Cluster::new(client), Resource { group, version, plural, kind, namespaced });
    if what == "why" {
        let world = why::look(&cluster, &resource, &namespace, &name).await?;
        return Ok(why::to_json(&world, &why::findings(&world)));
    }
    let mut story = trace::read(&cluster, &resource, &namespace, &name).await?;
    trace::explain(&cluster, &resource, &namespace, &name, &mut story).await?;
    Ok(trace::to_json(&story, &trace::hops(&story)))
}

fn status(error: Error) -> ApiError {
    match error {
        Error::NotFound(why) => ApiError::new(404, Reason::NotFound, why),
        Error::Usage(why) => ApiError::bad_request(why),
        Error::Refused { code: 403, message, .. } => ApiError::new(403, Reason::Forbidden, message),
        other => ApiError::internal(other.to_string()),
    }
}
