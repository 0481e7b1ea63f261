use super::*;

fn read(text: &str) -> Result<Settings, CorefileError> {
    let surroundings = Surroundings {
        service_addresses: Vec::new(),
        upstreams: Upstreams::These(Vec::new()),
        own: Vec::new(),
        metrics: Arc::default(),
    };
    Settings::read(text, &Files::default(), &surroundings)
}

#[test]
fn the_usual_corefile_and_kubeadms_are_known() {
    let kubeadm = ".:53 {\n errors\n health {\n lameduck 5s\n }\n ready\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n \
                   pods insecure\n fallthrough in-addr.arpa ip6.arpa\n ttl 30\n }\n prometheus :9153\n forward . \
                   /etc/resolv.conf {\n max_concurrent 1000\n }\n cache 30 {\n disable success cluster.local\n disable denial \
                   cluster.local\n }\n loop\n reload\n loadbalance\n}\n";
    for (text, ports) in [(usual("cluster.local").as_str(), vec![9153]), (kubeadm, vec![8080, 8181, 9153])] {
        let settings = read(text).expect("a Corefile");
        assert!(settings.complaints.is_empty(), "{:?}", settings.complaints);
        assert_eq!(settings.observed.iter().copied().collect::<Vec<u16>>(), ports);
    }
}

#[test]
fn a_name_is_of_the_zone_that_fits_best() {
    let settings = read(".:53 {\n}\nexample.org, dns://a.example.org:53 {\n}\n10.0.0.0/8 {\n}\n").expect("a Corefile");
    for (name, expected) in [
        ("x.", "."),
        ("Example.ORG.", "example.org."),
        ("b.a.example.org.", "a.example.org."),
        ("notexample.org.", "."),
        ("1.2.3.10.in-addr.arpa.", "10.in-addr.arpa."),
    ] {
        let name = Name::from_ascii(name).expect("a name");
        assert_eq!(settings.of(&name).expect("a block").zone.to_ascii(), expected, "{name}");
    }
    assert!(read("example.org {\n}\n").expect("a Corefile").of(&Name::root()).is_none());
}

#[test]
fn what_is_not_known_is_named_and_what_is_wrong_is_refused() {
    let complaints = |text: &str| read(text).expect("a Corefile").complaints.join("; ");
    assert_eq!(
        complaints(". {\n foo bar\n}\n.:5353 {\n}\ntls://. {\n}\n"),
        "line 2: the plug-in foo is not known; line 4: .:5353: only the port of the cluster's DNS is served, and it is written as 53; line 6: tls://.: tls is not served, only plain DNS is"
    );
    assert_eq!(
        complaints(
            ". {\n rewrite edns0 local set 0xffee x\n kubernetes cluster.local {\n labels a=b\n }\n forward . 1.1.1.1 tls://9.9.9.9\n}\n"
        ),
        "line 2: rewrite edns0 is not known; line 3: kubernetes: labels is not known; line 6: forward: tls://9.9.9.9: only plain DNS is known"
    );
    for (text, expected) in [
        (". {\n}\n.:53 {\n}\n", "line 3: . has a server block already"),
        (". {\n forward . nowhere\n}\n", "line 2: forward: \"nowhere\" is not an address"),
        (". {\n forward .\n}\n", "line 2: forward: it names no resolver that can be asked"),
        (". {\n forward\n}\n", "line 2: forward:  has too few arguments"),
        (". {\n cache 30 {\n success x\n}\n}\n", "line 2: cache: \"x\" is not a number it can have"),
        (". {\n rewrite name regex ( x\n}\n", "line 2: rewrite: \"(\" is not a pattern, or one that is too large"),
        (
            ". {\n hosts /etc/shadow\n}\n",
            "line 2: hosts: /etc/shadow is not read: only keys of the ConfigMap (/etc/coredns/KEY) and /etc/hosts are",
        ),
        (". {\n kubernetes cluster.local {\n ttl 4000\n}\n}\n", "line 2: kubernetes: ttl must be between 0 and 3600"),
        ("a..b {\n}\n", "line 1: \"a..b\" is not a domain name"),
    ] {
        assert_eq!(read(text).expect_err("an error").to_string(), expected, "{text}");
    }
}
