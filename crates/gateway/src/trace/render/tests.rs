use super::super::{Failure, Stop};
use super::*;

fn answered() -> Traced {
    let way = Way {
        gateway: "default/web".into(),
        listener: "https".into(),
        route: "HTTPRoute default/shop".into(),
        rule: "0".into(),
        backend: "default/shop:80".into(),
        endpoint: "10.0.0.7:8080".parse().ok(),
        attempts: 2,
        matching: 20,
        connecting: 100,
        waiting: 1100,
        total: 1200,
        ..Way::default()
    };
    Traced {
        url: "https://shop.com/".into(),
        address: "192.0.2.1:443".parse().ok(),
        found_by: "its name".into(),
        status: 200,
        bytes: 5,
        tls: Some("TLSv1_3".into()),
        handshake: Some(900),
        total: 2500,
        way: Some(way),
        pod: Some("default/shop-1".into()),
        node: Some("n1".into()),
        ..Traced::default()
    }
}

#[test]
fn every_hop_has_a_line() {
    let text = answered().text();
    for want in [
        "GET https://shop.com/: 200 after 2.50 ms",
        "192.0.2.1:443, by its name",
        "TLSv1_3",
        "listener    https of Gateway default/web",
        "0.02 ms  route       HTTPRoute default/shop",
        "rule        0",
        "backend     Service default/shop:80",
        "pod         default/shop-1 at 10.0.0.7:8080 on n1, attempt 2",
        "by a connection that is new",
        "1.00 ms",
        "answer      200, 5 bytes",
    ] {
        assert!(text.contains(want), "{want} is not in\n{text}");
    }
    assert!(!text.contains("stuck"), "{text}");
}

#[test]
fn the_hop_that_failed_is_the_last() {
    let mut traced = answered();
    let failed = Failure { details: vec!["a detail".into()], ..Failure::new(Hop::Route, "no route") };
    traced.failed = Some(failed);
    let way = Way { stop: Some(Stop::NoRoute), gateway: "default/web".into(), ..Way::default() };
    traced.way = Some(way);
    let text = traced.text();
    assert!(text.contains("stuck  route       no route\n"), "{text}");
    assert!(text.ends_with("                          a detail\n"), "{text}");
    assert!(text.contains("gateway     Gateway default/web") && !text.contains("pod  "), "{text}");
    let failed = Some(Failure::new(Hop::Connection, "connection refused"));
    let refused = Traced { failed, status: 0, tls: None, way: None, ..answered() };
    let text = refused.text();
    assert!(text.starts_with("GET https://shop.com/: no answer\n"), "{text}");
    assert!(text.contains("address     192.0.2.1:443") && !text.contains("made"), "{text}");
    assert!(text.ends_with("stuck  connection  connection refused\n"), "{text}");
}
