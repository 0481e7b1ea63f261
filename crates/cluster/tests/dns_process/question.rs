//! A client that asks for an address, once.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use crate::PATIENCE;

const FAILED: &str = "SERVFAIL";
pub const NO_SUCH_NAME: &str = "NXDOMAIN";
const REFUSED: &str = "REFUSED";
const EMPTY_TYPE: &str = "no address";

pub struct Client {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Client {
    pub fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        // Connected, it would be told of a port that nobody has.
        socket.connect(server).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        Self { socket, server }
    }

    pub fn ask(&self, name: &str) -> Result<String, &'static str> {
        self.socket.send(&question(name)).expect("sent, as somebody has the port");
        let mut buffer = [0; 1500];
        let length = self.socket.recv(&mut buffer).expect("an answer");
        answer(&buffer[..length])
    }

    /// Asks until that is the answer: a server just started has to be told first.
    pub fn learns(&self, name: &str, wanted: Result<&str, &'static str>) {
        crate::eventually(&format!("{name} is {wanted:?}"), || self.ask(name) == wanted.map(str::to_owned));
    }

    pub fn ask_tcp(&self, name: &str) -> Result<String, &'static str> {
        let mut stream = TcpStream::connect(self.server).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let question = question(name);
        let length = u16::try_from(question.len()).expect("short");
        stream.write_all(&[&length.to_be_bytes(), question.as_slice()].concat()).expect("sent");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("a length");
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut bytes).expect("an answer");
        answer(&bytes)
    }
}

fn question(name: &str) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a label"));
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

/// The last address; the only record of the answers here ends with it.
fn answer(bytes: &[u8]) -> Result<String, &'static str> {
    match (bytes[3] & 0x0f, bytes[7]) {
        (0, 0) => Err(EMPTY_TYPE),
        (0, _) => {
            let [.., a, b, c, d] = bytes else { panic!("a short answer") };
            Ok(Ipv4Addr::new(*a, *b, *c, *d).to_string())
        }
        (2, _) => Err(FAILED),
        (3, _) => Err(NO_SUCH_NAME),
        (5, _) => Err(REFUSED),
        (code, _) => panic!("code {code}"),
    }
}
