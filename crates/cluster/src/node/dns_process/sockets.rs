//! The sockets that DNS answers on, handed from process to process: they stay open, and what arrives waits in them, while one
//! process holds them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Of each family of addresses one for each protocol.
const MOST: usize = 4;

#[derive(Debug)]
pub struct Sockets(Vec<(UdpSocket, TcpListener)>);

impl Sockets {
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let bound = addresses.iter().map(|address| Ok((UdpSocket::bind(address)?, TcpListener::bind(address)?)));
        Ok(Self(bound.collect::<io::Result<_>>()?))
    }

    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.0.iter().map(|(datagrams, _)| datagrams.local_addr()).collect()
    }

    pub fn into_pairs(self) -> Vec<(UdpSocket, TcpListener)> {
        self.0
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        let cloned =
            self.0.iter().map(|(datagrams, connections)| Ok((datagrams.try_clone()?, connections.try_clone()?)));
        Ok(Self(cloned.collect::<io::Result<_>>()?))
    }

    /// Sends copies of them. One byte goes with them: without any, nothing would be sent.
    pub fn send(&self, to: &UnixStream) -> io::Result<()> {
        let both = self.0.iter().flat_map(|(datagrams, connections)| [datagrams.as_fd(), connections.as_fd()]);
        let all: Vec<_> = both.collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if all.len() > MOST || !control.push(SendAncillaryMessage::ScmRights(&all)) {
            return Err(io::Error::other("too many sockets"));
        }
        sendmsg(to, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for them, as long as the stream does.
    pub fn receive(from: &UnixStream) -> io::Result<Self> {
        let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut all: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                all.extend(sockets);
            }
        }
        let (mut all, mut pairs) = (all.into_iter(), Vec::new());
        while let (Some(datagrams), Some(connections)) = (all.next(), all.next()) {
            pairs.push((UdpSocket::from(datagrams), TcpListener::from(connections)));
        }
        match pairs.is_empty() {
            true => Err(io::Error::other("no sockets came")),
            false => Ok(Self(pairs)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_in_sockets_is_read_by_who_gets_them() {
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap();
        let sockets = Sockets::bind(&[free]).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"waits", free).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        sockets.send(&here).unwrap();
        drop(sockets);
        let received = Sockets::receive(&there).unwrap();
        assert_eq!(received.addresses().unwrap(), [free]);
        let mut buffer = [0; 16];
        let (length, from) = received.0[0].0.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&b"waits"[..], client.local_addr().unwrap()));
        assert!(std::net::TcpStream::connect(free).is_ok());
        drop(here);
        assert!(Sockets::receive(&there).is_err(), "nobody sends any more");
    }
}
