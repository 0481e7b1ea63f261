//! Transactions straight to the kernel.

use std::io::{Error, ErrorKind};
use std::sync::Arc;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size, set_socket_send_buffer_size_force,
    socket_send_buffer_size,
};
use rustix::net::{RecvFlags, SendFlags, netlink::SocketAddrNetlink, recv, sendto};

use crate::netlink::{ERROR, attributes, error_of, messages, text};
use crate::transaction::Batch;

/// A transaction is sent whole, or not this way.
const ROOM: usize = 8 * 1024 * 1024;
/// An answer is some hundred bytes.
const ROOM_FOR_ANSWERS: usize = 4 * 1024 * 1024;
/// The header of the message that an answer is about, which it repeats.
const REPEATED: usize = 4 + 16;
/// What the kernel says of an error in words.
const WORDS: u16 = 1;

/// A socket for transactions to the rules of the network that it was opened in. Clones share it.
#[derive(Clone)]
pub struct Writer {
    socket: Arc<Mutex<Socket>>,
    port: u32,
    most: usize,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("port", &self.port).field("most", &self.most).finish_non_exhaustive()
    }
}

impl Writer {
    /// To the network that this thread is in.
    pub fn open() -> std::io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        let port = socket.bind_auto()?.port_number();
        socket.set_ext_ack(true)?;
        // Answers repeat the beginning of a message only.
        socket.set_cap_ack(true)?;
        if set_socket_send_buffer_size_force(&socket, ROOM).is_err() {
            set_socket_send_buffer_size(&socket, ROOM)?;
        }
        // Without the right to it the usual size has to do: what does not fit is counted as refused.
        let _ = set_socket_recv_buffer_size_force(&socket, ROOM_FOR_ANSWERS);
        // The kernel counts some of its own beside the message.
        let most = socket_send_buffer_size(&socket)?.min(ROOM) / 2;
        Ok(Self { socket: Arc::new(Mutex::new(socket)), port, most })
    }

    /// As the kernel names it to those whom it tells of changes.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// So many bytes can be sent at once.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// All or nothing; the error says what the kernel refused. Blocks for as long as the kernel takes.
    pub(crate) fn write(&self, batch: &Batch) -> Result<(), String> {
        let socket = self.socket.lock();
        // Answers of a transaction that was given up.
        while recv(&*socket, &mut [0_u8; 64][..], RecvFlags::DONTWAIT).is_ok() {}
        let sent = sendto(&*socket, &batch.bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0));
        sent.map_err(|error| format!("the transaction cannot be sent: {error}"))?;
        // The kernel has decided when the message is sent: all answers are there.
        let (mut is_answered, mut refused) = (!batch.is_answered, None);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = match recv(&*socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((_, length)) => length,
                Err(Errno::INTR) => continue,
                Err(error) if Error::from(error).kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(refused.unwrap_or_else(|| format!("answers of the kernel are lost: {error}"))),
            };
            for answer in messages(&buffer[..length]).filter(|answer| answer.kind == ERROR) {
                match error_of(answer.body) {
                    None => is_answered = true,
                    Some(error) => {
                        refused.get_or_insert_with(|| refusal(batch, answer.body, &error));
                    }
                }
            }
        }
        match refused {
            Some(refused) => Err(refused),
            None if is_answered => Ok(()),
            None => Err("the kernel did not answer".to_owned()),
        }
    }
}

/// Which message, and why.
fn refusal(batch: &Batch, body: &[u8], error: &Error) -> String {
    let number = body.get(12..16).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let what = number.and_then(|number| batch.what.get(usize::try_from(number).ok()?));
    let what = what.map_or("the transaction", String::as_str);
    let words = attributes(body.get(REPEATED..).unwrap_or_default()).find(|(kind, _, _)| *kind == WORDS);
    let words = words.map(|(_, value, _)| format!(" ({})", text(value))).unwrap_or_default();
    format!("{what}: {error}{words}")
}
