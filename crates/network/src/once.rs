//! What is asked or done once, with a connection to the kernel for as long as it takes.

use std::net::IpAddr;

use rtnetlink::new_connection;

use crate::{Kernel, Mode, NetworkError, announce};

/// The largest packet of pods that the way to other nodes takes; none where it cannot be told.
pub async fn pod_mtu(node_ip: IpAddr, mode: Mode) -> Option<u32> {
    let asked = with_kernel("", async |kernel| Ok(kernel.pod_mtu(node_ip, mode).await)).await;
    asked.ok().flatten()
}

/// Takes away the tunnel's device, and every route that is Ferry's. Blocks.
pub fn remove(device: &str) -> Result<(), NetworkError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(NetworkError::Socket)?;
    runtime.block_on(with_kernel(device, async |kernel| kernel.clear().await))
}

/// Takes away what the node announced. Blocks.
pub fn remove_announced(device: &str) -> Result<(), NetworkError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(NetworkError::Socket)?;
    runtime.block_on(with_kernel("", async |kernel| announce::clear(kernel.handle, device).await))
}

async fn with_kernel<T>(
    device: &str,
    work: impl AsyncFnOnce(Kernel) -> Result<T, NetworkError>,
) -> Result<T, NetworkError> {
    let (connection, handle, _) = new_connection().map_err(NetworkError::Socket)?;
    tokio::select! {
        () = connection => Err(NetworkError::Socket(std::io::Error::other("the connection ended"))),
        done = work(Kernel::new(handle, device)) => done,
    }
}
