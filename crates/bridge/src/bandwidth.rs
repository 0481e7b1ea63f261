//! Bounds for what a pod receives and sends: a token bucket at the device.

use futures::StreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use crate::error::BridgeError;

const PARAMETERS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
/// The kernel then needs no table of how long each size of packet takes.
const LINK_LAYER_ETHERNET: u8 = 1;
/// A packet of the largest size must fit into the bucket.
const SMALLEST_BURST: u64 = 64 * 1024;

/// Bounds what leaves by a device to `rate` bits a second; 0 is without bounds.
pub(crate) async fn limit(handle: &Handle, index: u32, rate: u64) -> Result<(), BridgeError> {
    if rate == 0 {
        return Ok(());
    }
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle::ROOT;
    message.header.handle = TcHandle { major: 1, minor: 0 };
    message.attributes = vec![TcAttribute::Kind("tbf".to_owned()), TcAttribute::Options(options(rate / 8))];
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    let refused = |source| BridgeError::Kernel { what: format!("bound a device to {rate} bit/s"), source };
    let mut answers = handle.clone().request(request).map_err(refused)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(refused(rtnetlink::Error::NetlinkError(error)));
        }
    }
    Ok(())
}

/// The kernel's `tc_tbf_qopt`: the rate, no peak rate, how much may wait, and what the bucket holds.
fn options(bytes_per_second: u64) -> Vec<TcOption> {
    let burst = u32::try_from((bytes_per_second / 10).max(SMALLEST_BURST)).unwrap_or(u32::MAX);
    // What waits longer than about 25 ms beyond the bucket is dropped, which the sender takes as a word to slow down.
    let waiting = u32::try_from((bytes_per_second / 40).saturating_add(u64::from(burst))).unwrap_or(u32::MAX);
    let rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX).max(1);
    let mut parameters = vec![0, LINK_LAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    parameters.extend(rate.to_ne_bytes());
    parameters.extend([0; 12]);
    for number in [waiting, 0, 0] {
        parameters.extend(number.to_ne_bytes());
    }
    let mut options = vec![
        TcOption::Other(DefaultNla::new(PARAMETERS, parameters)),
        TcOption::Other(DefaultNla::new(BURST, burst.to_ne_bytes().to_vec())),
    ];
    if bytes_per_second > u64::from(u32::MAX) {
        options.push(TcOption::Other(DefaultNla::new(RATE64, bytes_per_second.to_ne_bytes().to_vec())));
    }
    options
}
