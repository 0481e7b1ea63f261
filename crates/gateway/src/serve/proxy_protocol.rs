//! The PROXY protocol, versions 1 and 2: a load balancer in front says for whom it speaks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// What both versions have at least, so that it can be read at once.
const FIRST: usize = 15;
const MOST_LINE: usize = 107;
/// Addresses and what else a load balancer may add.
const MOST_BLOCK: usize = 4 << 10;

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the PROXY header cannot be read: {why}"))
}

/// Reads the header and nothing behind it. None: the load balancer speaks for itself.
pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<SocketAddr>> {
    let mut first = [0; FIRST];
    stream.read_exact(&mut first).await?;
    if first.starts_with(b"PROXY ") {
        let mut line = first.to_vec();
        while !line.ends_with(b"\r\n") {
            if line.len() == MOST_LINE {
                return Err(invalid("it has no end"));
            }
            line.push(stream.read_u8().await?);
        }
        return version_1(&line);
    }
    if !first.starts_with(&SIGNATURE) {
        return Err(invalid("it is not there"));
    }
    let last = stream.read_u8().await?;
    let [.., command, family, high] = first;
    let length = usize::from(u16::from_be_bytes([high, last]));
    if length > MOST_BLOCK {
        return Err(invalid("it is too long"));
    }
    let mut block = vec![0; length];
    stream.read_exact(&mut block).await?;
    version_2(command, family, &block)
}

fn version_1(line: &[u8]) -> io::Result<Option<SocketAddr>> {
    let text = std::str::from_utf8(line).map_err(|_| invalid("it is no text"))?;
    let words: Vec<&str> = text.trim_end_matches("\r\n").split(' ').collect();
    match words.as_slice() {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", family @ ("TCP4" | "TCP6"), source, destination, port, other] => {
            let address = |text: &str| text.parse::<IpAddr>().ok().filter(|ip| ip.is_ipv4() == (*family == "TCP4"));
            let (source, _) = address(source).zip(address(destination)).ok_or(invalid("its addresses"))?;
            let (port, _) = port.parse().ok().zip(other.parse::<u16>().ok()).ok_or(invalid("its ports"))?;
            Ok(Some(SocketAddr::new(source, port)))
        }
        _ => Err(invalid("it is no line of version 1")),
    }
}

fn version_2(command: u8, family: u8, block: &[u8]) -> io::Result<Option<SocketAddr>> {
    match command {
        // For itself: it asks whether anybody is there.
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(invalid("its version or command is not known")),
    }
    let short = || invalid("it is too short");
    let port = |at: usize| block.get(at..at + 2).and_then(|two| two.try_into().ok()).map(u16::from_be_bytes);
    match family >> 4 {
        0 => Ok(None),
        1 => {
            let source: [u8; 4] = block.get(..4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(short)?;
            let (port, _) = port(8).zip(port(10)).ok_or_else(short)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(source).into(), port)))
        }
        2 => {
            let source: [u8; 16] = block.get(..16).and_then(|bytes| bytes.try_into().ok()).ok_or_else(short)?;
            let (port, _) = port(32).zip(port(34)).ok_or_else(short)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(source).into(), port)))
        }
        // A socket of the machine that the load balancer runs on.
        3 => Ok(None),
        _ => Err(invalid("its family is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(header: &[u8]) -> Result<String, ()> {
        let mut all = header.to_vec();
        all.extend(b"GET /");
        let mut stream = all.as_slice();
        let read = read(&mut stream).await.map_err(drop)?;
        assert_eq!(stream, b"GET /", "what is behind the header is left alone");
        Ok(read.map_or("itself".to_owned(), |address| address.to_string()))
    }

    fn block(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body].concat()
    }

    #[tokio::test]
    async fn headers_are_read_or_refused() {
        let four = [192, 0, 2, 1, 10, 0, 0, 1, 0x30, 0x39, 0, 80];
        let mut six = [0; 36];
        (six[15], six[33]) = (1, 7);
        for (header, want) in [
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 12345 80\r\n".to_vec(), Ok("192.0.2.1:12345")),
            (b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n".to_vec(), Ok("[2001:db8::1]:1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Ok("itself")),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), Ok("itself")),
            (b"PROXY TCP4 2001:db8::1 10.0.0.1 1 2\r\n".to_vec(), Err(())),
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 70000 80\r\n".to_vec(), Err(())),
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 1\r\n".to_vec(), Err(())),
            (["PROXY TCP4 ", &"1".repeat(200)].concat().into_bytes(), Err(())),
            (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), Err(())),
            (block(0x21, 0x11, &four), Ok("192.0.2.1:12345")),
            (block(0x21, 0x11, &[&four[..], &[3, 0, 0]].concat()), Ok("192.0.2.1:12345")),
            (block(0x21, 0x21, &six), Ok("[::1]:7")),
            (block(0x20, 0x00, &[]), Ok("itself")),
            (block(0x21, 0x11, &four[..8]), Err(())),
            (block(0x31, 0x11, &four), Err(())),
            (block(0x21, 0x51, &four), Err(())),
            (block(0x21, 0x11, &[0; 5000]), Err(())),
        ] {
            assert_eq!(check(&header).await.as_deref(), want.as_ref().copied(), "{}", header.escape_ascii());
        }
        assert!(check(b"").await.is_err());
    }
}
