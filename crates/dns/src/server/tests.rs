//! The server over real sockets on loopback, itself standing in for the upstream resolver.

use hickory_server::proto::op::{Message, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::Upstreams;
use crate::cluster::tests::sample;

async fn serve(zone: &str, upstreams: Vec<SocketAddr>, tasks: &Tasks) -> SocketAddr {
    let config = Config {
        listen: vec![([127, 0, 0, 1], 0).into()],
        zone: zone.into(),
        upstreams: Upstreams::These(upstreams),
        service_addresses: Vec::new(),
    };
    start(config, sample(), tasks).await.expect("a server").addresses()[0]
}

fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = 7;
    message.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    message.to_vec().expect("bytes")
}

async fn ask(server: SocketAddr, bytes: &[u8]) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.send_to(bytes, server).await.expect("sent");
    let mut buffer = [0; 4096];
    let length = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut buffer)).await.expect("an answer");
    Message::from_vec(&buffer[..length.expect("received")]).expect("a message")
}

async fn ask_tcp(server: SocketAddr, bytes: &[u8]) -> Message {
    let mut stream = TcpStream::connect(server).await.expect("connected");
    let length = u16::try_from(bytes.len()).expect("short");
    stream.write_all(&length.to_be_bytes()).await.expect("sent");
    stream.write_all(bytes).await.expect("sent");
    let mut buffer = vec![0; usize::from(stream.read_u16().await.expect("a length"))];
    stream.read_exact(&mut buffer).await.expect("an answer");
    Message::from_vec(&buffer).expect("a message")
}

fn shown(message: &Message) -> String {
    let answers: Vec<String> = message.answers.iter().map(|record| record.data.to_string()).collect();
    format!("{:?} aa={} {}", message.metadata.response_code, message.metadata.authoritative, answers.join(" "))
}

#[tokio::test]
async fn questions_are_answered_over_both_protocols() {
    let tasks = Tasks::new("test");
    // The upstream is a cluster of another name with the same services.
    let upstream = serve("elsewhere.test", Vec::new(), &tasks).await;
    let server = serve("cluster.local", vec![upstream], &tasks).await;
    for (name, expected) in [
        ("web.default.svc.cluster.local.", "NoError aa=true 10.96.0.7"),
        ("nobody.default.svc.cluster.local.", "NXDomain aa=true "),
        ("web.default.svc.elsewhere.test.", "NoError aa=false 10.96.0.7"),
        ("nobody.default.svc.elsewhere.test.", "NXDomain aa=false "),
        // The upstream has no upstream of its own.
        ("example.com.", "ServFail aa=false "),
        ("ext.default.svc.cluster.local.", "ServFail aa=true Elsewhere.example."),
    ] {
        let bytes = question(name, RecordType::A);
        assert_eq!(shown(&ask(server, &bytes).await), expected, "{name} over UDP");
        assert_eq!(shown(&ask_tcp(server, &bytes).await), expected, "{name} over TCP");
    }
    let refused = ask(server, &question("cluster.local.", RecordType::AXFR)).await;
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
    // Rubbish does not stop the server.
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    for rubbish in [&b""[..], b"x", &[0xff; 600]] {
        socket.send_to(rubbish, server).await.expect("sent");
    }
    let again = ask(server, &question("WEB.default.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(again.queries[0].name().to_ascii(), "WEB.default.svc.cluster.local.", "the case comes back");
    assert!(tasks.stop(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn a_bad_configuration_is_explained() {
    let tasks = Tasks::new("test");
    let config = |listen, zone: &str| Config { listen, zone: zone.into(), ..Config::default() };
    let taken = serve("cluster.local", Vec::new(), &tasks).await;
    for (config, expected) in [
        (config(vec![taken], "cluster.local"), "DNS cannot listen on 127.0.0.1:"),
        (config(Vec::new(), "cluster.local"), "DNS has no address to listen on"),
        (config(vec![taken], ""), "\"\" is not a domain name"),
        (config(vec![taken], "a..b"), "\"a..b\" is not a domain name"),
    ] {
        let error = start(config, sample(), &tasks).await.expect_err("an error").to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    tasks.stop(Duration::from_secs(10)).await;
}

/// Some hundred questions that no upstream answered once kept everybody from asking.
#[tokio::test]
async fn one_client_cannot_take_all_places() {
    let tasks = Tasks::new("test");
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let elsewhere = serve("elsewhere.test", Vec::new(), &tasks).await;
    // The first upstream never answers for whom the second one would.
    let server = serve("cluster.local", vec![silent.local_addr().expect("an address"), elsewhere], &tasks).await;
    let greedy = UdpSocket::bind("127.0.0.2:0").await.expect("a socket");
    let other = UdpSocket::bind("127.0.0.3:0").await.expect("a socket");
    for number in 0..2000 {
        let bytes = question(&format!("n{number}.elsewhere.test."), RecordType::A);
        greedy.send_to(&bytes, server).await.expect("sent");
        // Not faster than they are read, lest the kernel drop them.
        if number % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    // Those it could not have are refused: the places are taken by now.
    let mut buffer = [0; 4096];
    greedy.recv(&mut buffer).await.expect("a refusal");
    other.send_to(&question("web.default.svc.elsewhere.test.", RecordType::A), server).await.expect("sent");
    let length = tokio::time::timeout(Duration::from_secs(10), other.recv(&mut buffer)).await.expect("an answer");
    let answer = Message::from_vec(&buffer[..length.expect("received")]).expect("a message");
    assert_eq!(shown(&answer), "NoError aa=false 10.96.0.7");
    assert!(tasks.stop(Duration::from_secs(10)).await);
}
