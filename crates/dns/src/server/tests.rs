//! The server over real sockets on loopback, itself standing in for the upstream resolver.

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use super::*;
use crate::cluster::tests::sample;
use crate::reload::{Live, Written};
use crate::{Config, DnsServer, Upstreams};

const PATIENCE: Duration = Duration::from_secs(60);

/// A Corefile without pages of its own.
fn corefile(zone: &str, more: &str) -> String {
    let kubernetes =
        format!("kubernetes {zone} in-addr.arpa {{\n pods insecure\n ttl 30\n fallthrough in-addr.arpa\n}}");
    format!(".:53 {{\n{kubernetes}\nforward . /etc/resolv.conf {{\n policy sequential\n}}\n{more}\n}}\n")
}

async fn start(zone: &str, corefile: String, upstreams: Vec<SocketAddr>, tasks: &Tasks) -> (SocketAddr, Live) {
    let config = Config {
        listen: vec![([127, 0, 0, 1], 0).into()],
        zone: zone.into(),
        upstreams: Upstreams::These(upstreams),
        service_addresses: Vec::new(),
        corefile: Some(corefile),
    };
    let (server, live): (DnsServer, Live) = crate::serve(config, sample(), tasks).await.expect("a server");
    (server.addresses()[0], live)
}

async fn serve(zone: &str, upstreams: Vec<SocketAddr>, tasks: &Tasks) -> SocketAddr {
    start(zone, corefile(zone, ""), upstreams, tasks).await.0
}

fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = rand::random();
    message.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    message.to_vec().expect("bytes")
}

async fn ask(server: SocketAddr, bytes: &[u8]) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.send_to(bytes, server).await.expect("sent");
    let mut buffer = [0; 4096];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await.expect("an answer");
    let message = Message::from_vec(&buffer[..length.expect("received")]).expect("a message");
    assert_eq!(message.metadata.id.to_be_bytes(), bytes[..2], "the id comes back");
    message
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

async fn a(server: SocketAddr, name: &str) -> String {
    shown(&ask(server, &question(name, RecordType::A)).await)
}

#[tokio::test]
async fn questions_are_answered_over_both_protocols() {
    let tasks = Tasks::new("test");
    // The upstream is a cluster of another name with the same services.
    let upstream = serve("elsewhere.test", Vec::new(), &tasks).await;
    let server = serve("cluster.local", vec![upstream], &tasks).await;
    for (name, expected) in [
        ("web.default.svc.cluster.local.", "NoError aa=true 10.96.0.7"),
        // Again, as it was prepared.
        ("web.default.svc.cluster.local.", "NoError aa=true 10.96.0.7"),
        ("nobody.default.svc.cluster.local.", "NXDomain aa=true "),
        ("web.default.svc.elsewhere.test.", "NoError aa=false 10.96.0.7"),
        ("nobody.default.svc.elsewhere.test.", "NXDomain aa=false "),
        ("inner.default.svc.cluster.local.", "NoError aa=true web.default.svc.cluster.local. 10.96.0.7"),
        // The upstream has no upstream of its own.
        ("example.com.", "ServFail aa=false "),
        ("ext.default.svc.cluster.local.", "ServFail aa=true Elsewhere.example."),
    ] {
        let bytes = question(name, RecordType::A);
        assert_eq!(shown(&ask(server, &bytes).await), expected, "{name} over UDP");
        assert_eq!(shown(&ask_tcp(server, &bytes).await), expected, "{name} over TCP");
    }
    let looped = ask(server, &question("loop.default.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(looped.answers.len(), 8, "an alias of itself ends");
    for kind in [RecordType::AXFR, RecordType::IXFR] {
        let refused = ask(server, &question("cluster.local.", kind)).await;
        assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
    }
    // Rubbish does not stop the server.
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    for rubbish in [&b""[..], b"x", &[0xff; 600]] {
        socket.send_to(rubbish, server).await.expect("sent");
    }
    let again = ask(server, &question("WEB.default.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(again.queries[0].name().to_ascii(), "WEB.default.svc.cluster.local.", "the case comes back");
    assert!(tasks.stop(PATIENCE).await);
}

#[tokio::test]
async fn a_bad_configuration_is_explained() {
    let tasks = Tasks::new("test");
    let config = |listen, zone: &str, corefile: Option<&str>| Config {
        listen,
        zone: zone.into(),
        corefile: corefile.map(str::to_owned),
        ..Config::default()
    };
    let taken = serve("cluster.local", Vec::new(), &tasks).await;
    let free = || vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    for (config, expected) in [
        (config(vec![taken], "cluster.local", None), "DNS cannot listen on 127.0.0.1:"),
        (config(Vec::new(), "cluster.local", None), "DNS has no address to listen on"),
        (config(vec![taken], "", None), "\"\" is not a domain name"),
        (config(vec![taken], "a..b", None), "\"a..b\" is not a domain name"),
        (config(free(), "cluster.local", Some(". {")), "the Corefile cannot be read: line 1: the server block"),
    ] {
        let error = crate::serve(config, sample(), &tasks).await.err().expect("an error").to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    tasks.stop(PATIENCE).await;
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
    let length = tokio::time::timeout(PATIENCE, other.recv(&mut buffer)).await.expect("an answer");
    let answer = Message::from_vec(&buffer[..length.expect("received")]).expect("a message");
    assert_eq!(shown(&answer), "NoError aa=false 10.96.0.7");
    assert!(tasks.stop(PATIENCE).await);
}

/// A few clients with their full share each had all the connections there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_gets_a_connection() {
    let tasks = Tasks::new("test");
    let server = serve("cluster.local", Vec::new(), &tasks).await;
    let mut open = Vec::new();
    for number in 0..600_u16 {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        let address = std::net::Ipv4Addr::new(127, 0, 1, 1 + u8::try_from(number % 10).expect("small"));
        socket.bind((address, 0).into()).expect("an address");
        open.push(socket.connect(server).await.expect("connected"));
    }
    let bytes = question("kubernetes.default.svc.cluster.local.", RecordType::A);
    ask_tcp(server, &bytes).await;
    drop(open);
    tasks.stop(PATIENCE).await;
}

fn written(text: &str, files: &[(&str, &str)]) -> Written {
    let mut data: std::collections::BTreeMap<String, String> =
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    data.insert("Corefile".into(), text.into());
    Written::of(&k8s_openapi::api::core::v1::ConfigMap { data: Some(data), ..Default::default() })
}

#[tokio::test]
async fn a_corefile_is_followed_and_a_bad_one_changes_nothing() {
    let tasks = Tasks::new("test");
    let stub = serve("stub.test", Vec::new(), &tasks).await;
    let (server, mut live) = start("cluster.local", corefile("cluster.local", ""), Vec::new(), &tasks).await;
    assert_eq!(a(server, "web.default.svc.stub.test.").await, "ServFail aa=false ", "nobody knows it");
    let text = format!(
        "{}\nstub.test {{\n forward . {stub}\n cache\n}}\n",
        corefile(
            "cluster.local",
            "template IN A\nrewrite name exact old.example. web.default.svc.cluster.local.\n\
             rewrite name suffix .corp.example .default.svc.cluster.local answer auto\n\
             hosts /etc/coredns/NodeHosts {\n 192.0.2.7 inline.example\n fallthrough\n}"
        )
    );
    let settings = live.apply(written(&text, &[("NodeHosts", "192.0.2.8 node-1\n")])).await;
    let settings = settings.expect("a change").expect("a Corefile");
    assert_eq!(settings.complaints, ["line 10: the plug-in template is not known"]);
    let check = async || {
        for (name, expected) in [
            ("web.default.svc.stub.test.", "NoError aa=false 10.96.0.7"),
            ("inline.example.", "NoError aa=true 192.0.2.7"),
            ("node-1.", "NoError aa=true 192.0.2.8"),
            ("old.example.", "NoError aa=true 10.96.0.7"),
            ("web.corp.example.", "NoError aa=true 10.96.0.7"),
            ("web.default.svc.cluster.local.", "NoError aa=true 10.96.0.7"),
        ] {
            assert_eq!(a(server, name).await, expected, "{name}");
        }
    };
    check().await;
    let renamed = ask(server, &question("web.corp.example.", RecordType::A)).await;
    assert_eq!(renamed.answers[0].name.to_ascii(), "web.corp.example.", "the answer is to what was asked");
    let error = live.apply(written(". {\n cache x {\n foo\n}\n}", &[])).await.expect("a change");
    assert_eq!(error.expect_err("an error").to_string(), "line 2: cache: \"foo\" is not known");
    check().await;
    assert!(live.apply(Written::default()).await.expect("a change").is_ok());
    assert_eq!(a(server, "inline.example.").await, "ServFail aa=false ", "nobody wrote one any more");
    assert!(tasks.stop(PATIENCE).await);
}

#[tokio::test]
async fn an_answer_is_asked_for_once_and_bridges_an_outage() {
    let tasks = Tasks::new("test");
    let upstream_tasks = Tasks::new("upstream");
    let (upstream, upstream_live) =
        start("elsewhere.test", corefile("elsewhere.test", ""), Vec::new(), &upstream_tasks).await;
    let text = corefile("cluster.local", "cache {\n serve_stale 1h verify\n}\nprometheus :0");
    let (server, live) = start("cluster.local", text, vec![upstream], &tasks).await;
    for _ in 0..10 {
        assert_eq!(a(server, "web.default.svc.elsewhere.test.").await, "NoError aa=false 10.96.0.7");
        assert_eq!(a(server, "nobody.default.svc.elsewhere.test.").await, "NXDomain aa=false ");
    }
    let page = upstream_live.handler().metrics().text(&upstream_live.handler().settings());
    assert!(page.contains("proto=\"udp\",family=\"1\",type=\"A\"} 2\n"), "each was asked for once: {page}");
    let page = live.handler().metrics().text(&live.handler().settings());
    let zone = "server=\"dns://:53\",zones=\".\",view=\"\"";
    for line in [
        format!("coredns_cache_hits_total{{{zone},type=\"success\"}} 9"),
        format!("coredns_cache_hits_total{{{zone},type=\"denial\"}} 9"),
        format!("coredns_cache_misses_total{{{zone}}} 2"),
        "coredns_dns_responses_total{server=\"dns://:53\",zone=\".\",view=\"\",rcode=\"NXDOMAIN\",plugin=\"\"} 10"
            .into(),
    ] {
        assert!(page.contains(&line), "{line} in {page}");
    }
    assert!(upstream_tasks.stop(PATIENCE).await);
    assert_eq!(a(server, "web.default.svc.elsewhere.test.").await, "NoError aa=false 10.96.0.7");
    assert!(tasks.stop(PATIENCE).await);
}

/// The server forwards to another that forwards back.
#[tokio::test]
async fn a_loop_through_another_resolver_ends() {
    let tasks = Tasks::new("test");
    let spare = server_address().await;
    let first = serve("cluster.local", vec![spare], &tasks).await;
    let config = Config {
        listen: vec![spare],
        upstreams: Upstreams::These(vec![first]),
        corefile: Some(corefile("other.local", "")),
        ..Config::default()
    };
    let (_, second) = crate::serve(config, sample(), &tasks).await.expect("a server");
    assert_eq!(a(first, "round.example.").await, "ServFail aa=false ");
    let page = second.handler().metrics().text(&second.handler().settings());
    let asked =
        "coredns_dns_requests_total{server=\"dns://:53\",zone=\".\",view=\"\",proto=\"udp\",family=\"1\",type=\"A\"} ";
    let count = page.lines().find_map(|line| line.strip_prefix(asked)).map_or(0, |n| n.parse().expect("a number"));
    assert!(count <= 4, "it goes round {count} times");
    assert!(tasks.stop(PATIENCE).await);
}

/// An address that nobody uses just now.
async fn server_address() -> SocketAddr {
    bind(([127, 0, 0, 1], 0).into()).await.expect("a socket").0
}

#[tokio::test]
async fn the_search_path_is_walked_for_pods() {
    let tasks = Tasks::new("test");
    let upstream = serve("elsewhere.test", Vec::new(), &tasks).await;
    let text = corefile("cluster.local", "autopath @kubernetes");
    let (server, _live) = start("cluster.local", text, vec![upstream], &tasks).await;
    for (name, expected) in [
        (
            "web.default.svc.elsewhere.test.default.svc.cluster.local.",
            "NoError aa=false web.default.svc.elsewhere.test. 10.96.0.7",
        ),
        ("web.default.default.svc.cluster.local.", "NoError aa=true web.default.svc.cluster.local. 10.96.0.7"),
        ("nobody.default.svc.cluster.local.", "NXDomain aa=true "),
    ] {
        assert_eq!(a(server, name).await, expected, "{name}");
    }
    assert!(tasks.stop(PATIENCE).await);
}

/// An upstream that answers for others, too late, or with something else is not believed.
#[tokio::test]
async fn a_lying_upstream_is_not_believed() {
    let tasks = Tasks::new("test");
    let liar = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = liar.local_addr().expect("an address");
    tasks.spawn_until_stopped("liar", async move {
        let mut buffer = [0; 4096];
        while let Ok((length, client)) = liar.recv_from(&mut buffer).await {
            let good = buffer[..length].to_vec();
            let mut another_id = good.clone();
            another_id[0] ^= 0xff;
            another_id[2] |= 0x80;
            let mut another_name = good.clone();
            another_name[2] |= 0x80;
            another_name[13] ^= 1;
            let no_answer = good.clone();
            for lie in [another_id, another_name, no_answer, vec![0; 3], vec![0xff; 2000]] {
                let _ = liar.send_to(&lie, client).await;
            }
            let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
            let mut forged = good.clone();
            forged[2] |= 0x80;
            let _ = stranger.send_to(&forged, client).await;
        }
    });
    let honest = serve("elsewhere.test", Vec::new(), &tasks).await;
    let server = serve("cluster.local", vec![address, honest], &tasks).await;
    assert_eq!(a(server, "web.default.svc.elsewhere.test.").await, "NoError aa=false 10.96.0.7");
    assert!(tasks.stop(PATIENCE).await);
}
