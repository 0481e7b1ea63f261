//! ComponentStatuses, which nobody keeps: how those that the server cannot do without are now. That is the store; the
//! scheduler and the controllers tell of themselves by their leases.

use bytes::Bytes;
use ferry_meta::{ApiError, GroupResource};
use serde_json::{Value, json};

use crate::read::selection::Selection;
use crate::request::call::Call;
use crate::request::options::ListOptions;
use crate::request::verb::Verb;
use crate::response::answer::Answer;
use crate::response::render::{self, ListMeta};

const STORE: &str = "etcd-0";

pub(super) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, .. } = call;
    let object = status(core.store.health().await.err().map(|error| error.to_string()));
    let encode = |mut object: Value| -> Bytes {
        object["kind"] = "ComponentStatus".into();
        object["apiVersion"] = "v1".into();
        crate::storage::codec::encode(&row.gvk, &object).into()
    };
    if context.info.verb == Verb::List {
        let options = ListOptions::read(&context.query, false)?;
        let selection = Selection::new(row, &options, "")?;
        let shown = selection.labels.matches(&Default::default()) && selection.fields.matches(|_| STORE.into());
        let items: Vec<Bytes> = shown.then(|| encode(object)).into_iter().collect();
        return render::list(context, row, &ListMeta { revision: 0, continue_token: None, remaining: None }, &items);
    }
    match context.info.path_name() {
        STORE => render::object(context, row, 200, &row.gvk, encode(object)),
        other => Err(ApiError::not_found(&GroupResource::new("", "componentstatus"), other)),
    }
}

fn status(why: Option<String>) -> Value {
    let condition = match why {
        None => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Some(why) => json!({"type": "Healthy", "status": "False", "message": why}),
    };
    json!({"metadata": {"name": STORE}, "conditions": [condition]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_is_told() {
        assert_eq!(status(None)["conditions"][0]["status"], "True");
        assert_eq!(status(Some("gone".into()))["conditions"][0]["message"], "gone");
    }
}
