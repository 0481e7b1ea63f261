//! As much of netlink as the kernel's packet filter needs: requests, dumps, messages and attributes.

use std::io::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with};

pub const REQUEST: u16 = 1;
pub const ACKNOWLEDGE: u16 = 4;
pub const CREATE: u16 = 0x400;
pub const DUMP: u16 = 0x300;
const DONE: u16 = 3;
pub const ERROR: u16 = 2;
const PATIENCE: Duration = Duration::from_secs(5);
/// A change of ten thousand Services is told in some megabytes.
const TOLD_BUFFER: usize = 16 * 1024 * 1024;

/// For questions, to the network that this thread is in.
pub fn open() -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

/// For what the kernel tells a group of listeners.
pub fn listen(group: u32) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
    // Without the right to it the usual size has to do.
    let _ = set_socket_recv_buffer_size_force(&socket, TOLD_BUFFER);
    bind(&socket, &SocketAddrNetlink::new(0, 1 << (group - 1)))?;
    Ok(socket)
}

pub fn send(socket: &impl AsFd, kind: u16, flags: u16, family: u8, attributes: &[u8]) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(16 + 4 + attributes.len());
    message(&mut bytes, kind, flags, 0, |out| {
        out.extend([family, 0, 0, 0]);
        out.extend(attributes);
    });
    sendto(socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    Ok(())
}

/// Appends a message; answers to it have its number.
pub(crate) fn message(out: &mut Vec<u8>, kind: u16, flags: u16, number: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(number.to_ne_bytes());
    out.extend([0; 4]);
    body(out);
    let length = u32::try_from(out.len() - begin).unwrap_or(u32::MAX);
    out[begin..begin + 4].copy_from_slice(&length.to_ne_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends an attribute. Whoever puts much into one looks that it stays below 64 KiB.
pub(crate) fn put(out: &mut Vec<u8>, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend([0; 2]);
    out.extend(kind.to_ne_bytes());
    value(out);
    let length = u16::try_from(out.len() - begin).unwrap_or(u16::MAX);
    out[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

pub fn receive(socket: &impl AsFd) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 64 * 1024];
    let (_, length) = recv(socket, buffer.as_mut_slice(), RecvFlags::empty())?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Asks for a list, and calls `each` with the body of every entry. Blocks for as long as the kernel takes.
pub fn dump(
    socket: &impl AsFd,
    kind: u16,
    family: u8,
    attributes: &[u8],
    mut each: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    send(socket, kind, REQUEST | DUMP, family, attributes)?;
    loop {
        let bytes = receive(socket)?;
        for Message { kind, body, .. } in messages(&bytes) {
            match kind {
                DONE => return Ok(()),
                ERROR => return Err(error_of(body).unwrap_or_else(|| Error::other("the dump ended early"))),
                _ => each(body),
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub kind: u16,
    /// The socket of whoever caused it.
    pub port: u32,
    pub body: &'a [u8],
}

pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let port = u32::from_ne_bytes(bytes.get(12..16)?.try_into().ok()?);
        let body = bytes.get(16..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, port, body })
    })
}

/// Type, value and whole bytes of each attribute.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8], &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
        let (value, whole) = (bytes.get(4..length)?, bytes.get(..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value, whole))
    })
}

/// One attribute that holds a text.
pub fn text_attribute(kind: u16, text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, kind, |out| {
        out.extend(text.as_bytes());
        out.push(0);
    });
    bytes
}

/// One attribute that holds a number in the order of this machine, as those of devices do.
pub fn number_attribute(kind: u16, number: u32) -> Vec<u8> {
    [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &number.to_ne_bytes()].concat()
}

/// The text of an attribute, without its end mark.
pub fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

pub fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

/// Nothing when it is an acknowledgement.
pub fn error_of(body: &[u8]) -> Option<Error> {
    let code = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    (code != 0).then(|| Error::from_raw_os_error(-code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_messages_end_the_walk() {
        for bytes in [&[][..], &[1], &[0; 16], &[255; 40], &[4, 0, 1, 0, 4, 0, 1, 0], &[3, 0, 1, 0]] {
            assert!(messages(bytes).count() <= 1);
            assert!(attributes(bytes).count() <= 2);
        }
        let bytes = text_attribute(1, "filter");
        assert_eq!(bytes.len() % 4, 0);
        let all: Vec<_> = attributes(&bytes).map(|(kind, value, _)| (kind, text(value))).collect();
        assert_eq!(all, [(1, "filter".to_owned())]);
    }
}
