//! Whether this machine can do what a mode needs, asked before anything is made for it.

use rtnetlink::{LinkVxlan, new_connection};

use crate::kernel::refused;
use crate::wireguard;
use crate::{Kernel, Mode, NetworkError};

/// Made for a moment, and never brought up.
const DEVICE: &str = "ferry-probe";
const UNUSED_ID: u32 = 4243;

pub async fn probe(mode: Mode) -> Result<(), NetworkError> {
    if !matches!(mode, Mode::Vxlan | Mode::Wireguard) {
        return Ok(());
    }
    let (connection, handle, _) = new_connection().map_err(NetworkError::Socket)?;
    let kernel = Kernel::new(handle, DEVICE);
    tokio::select! {
        () = connection => Err(NetworkError::Socket(std::io::ErrorKind::ConnectionAborted.into())),
        probed = ask(&kernel, mode) => probed,
    }
}

async fn ask(kernel: &Kernel, mode: Mode) -> Result<(), NetworkError> {
    kernel.remove_link(DEVICE).await?;
    match mode {
        Mode::Vxlan => {
            let link = LinkVxlan::new(DEVICE, UNUSED_ID).build();
            let made = kernel.handle.link().add(link).execute().await;
            made.map_err(refused("make a VXLAN device (is the kernel module vxlan there?)"))?;
        }
        Mode::Wireguard => wireguard::probe(kernel, DEVICE).await?,
        Mode::Auto | Mode::Routes | Mode::Cni => {}
    }
    kernel.remove_link(DEVICE).await.map(drop)
}
