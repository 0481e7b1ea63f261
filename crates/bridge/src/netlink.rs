//! Netlink requests from code that blocks: a runtime and a connection for as long as they take.

use rtnetlink::Handle;
use tokio::sync::oneshot;

use crate::error::BridgeError;

/// The kernel's numbers for errors, as it writes them.
pub(crate) const NO_DEVICE: i32 = -19;
pub(crate) const EXISTS: i32 = -17;

pub(crate) fn is(error: &rtnetlink::Error, code: i32) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(error) if error.raw_code() == code)
}

/// Does work that waits, on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, BridgeError>>) -> Result<T, BridgeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(BridgeError::Socket)?;
    runtime.block_on(work)
}

/// Talks to the kernel of the network namespace that this thread is in.
pub(crate) fn with_kernel<T>(work: impl AsyncFnOnce(Handle) -> Result<T, BridgeError>) -> Result<T, BridgeError> {
    block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(BridgeError::Socket)?;
        tokio::select! {
            () = connection => Err(BridgeError::Socket(std::io::Error::other("the connection ended"))),
            result = work(handle) => result,
        }
    })
}

/// Work that blocks, on a thread of its own.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BridgeError> + Send + 'static,
) -> Result<T, BridgeError> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("pod-network".into()).spawn(move || {
        let _ = sender.send(work());
    });
    thread.map_err(|error| BridgeError::Thread(error.to_string()))?;
    receiver.await.map_err(|error| BridgeError::Thread(error.to_string()))?
}
