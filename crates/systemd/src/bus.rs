//! A connection to D-Bus, or to a program that speaks it by itself.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::wire::{ANSWER, CALL, ERROR, LONGEST, Message, SIGNAL, Value, broken, decode, encode, length};

const MOST_DESCRIPTORS: usize = 4;

/// A call that was answered with an error.
#[derive(Debug, thiserror::Error)]
#[error("{member}: {name}: {text}")]
pub struct Refused {
    member: String,
    /// `org.freedesktop.systemd1.UnitExists`
    pub name: String,
    text: String,
}

/// A connection to the bus.
pub struct Bus {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// What came while an answer was waited for.
    kept: VecDeque<Message>,
    serial: u32,
}

impl Bus {
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let mut bus = Self::connect_directly(path).await?;
        bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "Hello", &[]).await?;
        Ok(bus)
    }

    /// To a program that nobody stands between.
    pub async fn connect_directly(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        let mut bus = Self::of(stream);
        let user: String =
            rustix::process::geteuid().as_raw().to_string().bytes().map(|b| format!("{b:02x}")).collect();
        bus.write(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes()).await?;
        bus.expect("OK").await?;
        bus.write(b"NEGOTIATE_UNIX_FD\r\n").await?;
        bus.expect("AGREE_UNIX_FD").await?;
        bus.write(b"BEGIN\r\n").await?;
        Ok(bus)
    }

    pub fn of(stream: UnixStream) -> Self {
        let (received, descriptors, kept) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { stream, received, descriptors, kept, serial: 0 }
    }

    async fn expect(&mut self, word: &str) -> io::Result<()> {
        let line = self.line().await?;
        if line.split(' ').next() == Some(word) {
            Ok(())
        } else {
            Err(io::Error::other(format!("the bus said {line:?}")))
        }
    }

    pub async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).take(end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.received.len() > LONGEST {
                return Err(broken("a line without end"));
            }
            self.receive().await?;
        }
    }

    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn receive(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let read = |bytes: &mut [u8], found: &mut VecDeque<OwnedFd>| -> io::Result<usize> {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got = rustix::net::recvmsg(&self.stream, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    found.extend(descriptors);
                }
            }
            Ok(got.bytes)
        };
        let count = loop {
            self.stream.readable().await?;
            match self.stream.try_io(Interest::READABLE, || read(&mut bytes, &mut self.descriptors)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => break other?,
            }
        };
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the bus is gone"));
        }
        self.received.extend(&bytes[..count]);
        Ok(())
    }

    pub async fn read(&mut self) -> io::Result<Message> {
        loop {
            if let Some(length) = length(&self.received)?.filter(|length| *length <= self.received.len()) {
                let bytes: Vec<u8> = self.received.drain(..length).collect();
                let (mut message, count) = decode(&bytes)?;
                let count = count.min(self.descriptors.len());
                message.descriptors = self.descriptors.drain(..count).collect();
                return Ok(message);
            }
            self.receive().await?;
        }
    }

    /// The next signal.
    pub async fn signal(&mut self) -> io::Result<Message> {
        loop {
            let message = match self.kept.pop_front() {
                Some(kept) => kept,
                None => self.read().await?,
            };
            if message.kind == SIGNAL {
                return Ok(message);
            }
        }
    }

    pub async fn send(&mut self, mut message: Message) -> io::Result<u32> {
        self.serial = self.serial.wrapping_add(1).max(1);
        message.serial = self.serial;
        self.write(&encode(&message)).await?;
        Ok(self.serial)
    }

    /// Calls a method of an interface that is named as its object: `org.freedesktop.login1.Manager.Inhibit`.
    pub async fn call(&mut self, destination: &str, path: &str, member: &str, values: &[Value]) -> io::Result<Message> {
        let (interface, member) = member.rsplit_once('.').unwrap_or((destination, member));
        let call = Message {
            kind: CALL,
            path: path.to_owned(),
            interface: interface.to_owned(),
            member: member.to_owned(),
            destination: destination.to_owned(),
            values: values.to_vec(),
            ..Message::default()
        };
        let serial = self.send(call).await?;
        loop {
            let message = self.read().await?;
            match message.kind {
                ANSWER if message.answers == serial => return Ok(message),
                ERROR if message.answers == serial => {
                    let text = match message.values.first() {
                        Some(Value::Text(text)) => text.clone(),
                        _ => String::new(),
                    };
                    let (member, name) = (member.to_owned(), message.error);
                    return Err(io::Error::other(Refused { member, name, text }));
                }
                // Many signals in the time of one answer would be somebody's mischief.
                SIGNAL if self.kept.len() < 64 => self.kept.push_back(message),
                _ => {}
            }
        }
    }
}

impl AsFd for Bus {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
