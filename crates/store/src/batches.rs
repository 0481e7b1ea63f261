//! From an engine's watch to the stream that the store hands out.

use std::future::Future;

use futures::{StreamExt, stream};

use crate::types::WatchBatch;
use crate::{Result, WatchStream};

/// Who has the batches of a watch, one after the other.
pub(crate) trait Batches: Sized + Send + 'static {
    fn next(&mut self) -> impl Future<Output = Result<WatchBatch>> + Send;

    /// An error is the stream's last item.
    fn into_stream(self) -> WatchStream {
        stream::unfold(Some(self), |watch| async move {
            let mut watch = watch?;
            match watch.next().await {
                Ok(batch) => Some((Ok(batch), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}
