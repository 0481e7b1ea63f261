use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use super::*;

fn pem_of(der: &[u8], label: &str) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn request(common_name: &str) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().expect("a name"))];
    let key = KeyPair::generate().expect("a key");
    params.serialize_request(&key).expect("a request").der().to_vec()
}

fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut der = match u8::try_from(length) {
        Ok(short) if short < 0x80 => vec![tag, short],
        Ok(byte) => vec![tag, 0x81, byte],
        Err(_) => {
            vec![tag, 0x82, u8::try_from(length >> 8).expect("short"), u8::try_from(length & 255).expect("a byte")]
        }
    };
    der.extend_from_slice(content);
    der
}

/// A request with this subject and these attributes; its signature is of no matter here.
fn made(attributes: &[(u8, u8, &[u8])], extensions: &[u8]) -> Vec<u8> {
    let rdn = |(kind, encoding, text): &(u8, u8, &[u8])| {
        wrap(0x31, &wrap(0x30, &[&[6, 3, 0x55, 4, *kind][..], &wrap(*encoding, text)].concat()))
    };
    let subject = wrap(0x30, &attributes.iter().map(rdn).collect::<Vec<_>>().concat());
    let own = request("x");
    let (_, parsed) = X509CertificationRequest::from_der(&own).expect("a request");
    let key = parsed.certification_request_info.subject_pki.raw;
    let info = [&[2, 1, 0][..], &subject, key, &wrap(0xa0, extensions)].concat();
    // ecdsa-with-SHA256, and a signature of nothing.
    let algorithm = wrap(0x30, &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
    wrap(0x30, &[wrap(0x30, &info), algorithm, wrap(3, &[0, 0])].concat())
}

/// A request for one extension: its last number below 2.5.29 and its content.
fn extension_request(extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, content)| wrap(0x30, &[&[6, 3, 0x55, 0x1d, *kind][..], &wrap(4, content)].concat()))
        .collect();
    let oid = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
    wrap(0x30, &[&oid[..], &wrap(0x31, &wrap(0x30, &list))].concat())
}

const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;
const UTF8: u8 = 0x0c;
const TELETEX: u8 = 0x14;

#[test]
fn a_request_is_one_block_of_the_right_label_and_nothing_else() {
    let der = request("system:node:a");
    let good = pem_of(&der, REQUEST_LABEL);
    let check = |text: &str, want: Result<&str, &str>| {
        let got = Request::from_pem(text.as_bytes());
        let got = got.as_ref().map(|request| request.common_name().expect("one name")).map_err(ToString::to_string);
        match (&got, want) {
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}: {text}"),
            _ => assert_eq!(got, want.map_err(str::to_owned), "{text}"),
        }
    };
    check(&good, Ok("system:node:a"));
    check(&format!("Certificate Request:\n  Subject: CN = b\n{good}\n \n"), Ok("system:node:a"));
    check(&good.replace('\n', "\r\n"), Ok("system:node:a"));
    let other = pem_of(&request("system:kube-controller-manager"), REQUEST_LABEL);
    check(&format!("{good}{other}"), Err("nothing after it"));
    check(&format!("{good}text"), Err("nothing after it"));
    check(&format!("text {good}"), Err("one PEM block"));
    for label in ["CERTIFICATE", "NEW CERTIFICATE REQUEST", "X509 CRL"] {
        check(&pem_of(&der, label), Err("PEM block type must be CERTIFICATE REQUEST"));
        check(&format!("{}{good}", pem_of(&der, label)), Err("PEM block type must be CERTIFICATE REQUEST"));
        check(&format!("{good}{}", pem_of(&der, label)), Err("nothing after it"));
        let mixed = good.replace("-----END CERTIFICATE REQUEST", &format!("-----END {label}"));
        check(&mixed, Err("PEM block type must be"));
    }
    let inside = good.replacen('\n', "\n-----BEGIN CERTIFICATE REQUEST-----\n", 1);
    check(&inside, Err("one PEM block"));
    check(&good.replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1), Err("no base64"));
    check(&pem_of(&[&der[..], &[0]].concat(), REQUEST_LABEL), Err("trailing data"));
    check(&pem_of(b"nonsense", REQUEST_LABEL), Err("not a certificate request"));
    for text in ["", "nonsense", "-----BEGIN CERTIFICATE REQUEST-----", "-----BEGIN "] {
        check(text, Err("PEM block type must be CERTIFICATE REQUEST"));
    }
    assert!(Request::from_pem(&[0xff, 0xfe]).is_err());
}

#[test]
fn what_is_asked_for_is_read_whole() {
    let asked = Request::from_der(request("system:node:a")).expect("a request");
    assert_eq!((asked.dns_names.as_slice(), asked.addresses.len(), asked.uris), (&["a.example".to_owned()][..], 0, 0));
    assert_eq!(asked.subject.organizations, ["system:nodes"]);
    assert!(asked.is_signed_by_its_key());
    // The subject that node `a` was once given another's certificate with.
    let two =
        made(&[(COMMON_NAME, UTF8, b"system:node:a"), (COMMON_NAME, UTF8, b"system:kube-controller-manager")], &[]);
    let asked = Request::from_der(two).expect("it can be read");
    assert_eq!(
        asked.common_name().expect_err("two names").to_string(),
        "the subject has 2 common names, where one is meant"
    );
    assert_eq!(asked.subject.common_name(), Some("system:kube-controller-manager"));
    assert!(!asked.is_signed_by_its_key());
    let none = Request::from_der(made(&[(ORGANIZATION, UTF8, b"a")], &[])).expect("it can be read");
    assert_eq!((none.common_name(), none.subject.common_name()), (Ok(""), None));
    // What is no text is not left out.
    for attribute in [(COMMON_NAME, TELETEX, &b"a"[..]), (ORGANIZATION, UTF8, b"\xff"), (ORGANIZATION, TELETEX, b"g")] {
        let why =
            Request::from_der(made(&[(COMMON_NAME, UTF8, b"a"), attribute], &[])).expect_err("unreadable").to_string();
        assert!(why.contains("is no text"), "{why}");
    }
    let odd = Request::from_der(made(&[(COMMON_NAME, UTF8, b"a"), (7, TELETEX, b"l")], &[])).expect("it can be read");
    assert!(odd.subject.odd);
}

#[test]
fn names_of_all_kinds_are_counted() {
    let names =
        |list: &[(u8, &[u8])]| wrap(0x30, &list.iter().flat_map(|(kind, name)| wrap(*kind, name)).collect::<Vec<_>>());
    let all = names(&[(0x82, b"a"), (0x87, &[10, 0, 0, 1]), (0x81, b"a@b"), (0x86, b"spiffe://a"), (0x88, &[0x2a, 3])]);
    let read = |attributes: &[u8]| Request::from_der(made(&[(COMMON_NAME, UTF8, b"a")], attributes));
    let asked = read(&extension_request(&[(17, &all)])).expect("names");
    assert_eq!((asked.dns_names.len(), asked.addresses.len(), asked.mails, asked.uris), (1, 1, 1, 2));
    // Whoever reads only one of two lists sees less than another.
    let twice = [extension_request(&[(17, &all)]), extension_request(&[(17, &names(&[(0x82, b"b")]))])].concat();
    assert!(read(&twice).expect_err("twice").to_string().contains("twice"));
    let twice = extension_request(&[(17, &all), (17, &names(&[(0x82, b"b")]))]);
    assert!(read(&twice).expect_err("twice").to_string().contains("twice"));
    assert!(
        read(&extension_request(&[(17, b"nonsense")])).expect_err("nonsense").to_string().contains("cannot be read")
    );
}

/// Of `openssl req -new -newkey rsa:1024`: the kinds of keys that machines of before made.
const SHORT: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBbjCB2AIBADAvMRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxFjAUBgNVBAMMDXN5
c3RlbTpub2RlOmEwgZ8wDQYJKoZIhvcNAQEBBQADgY0AMIGJAoGBALYqpBQEU1Gx
AUhPLt/CGCDoL59phwFOr7TRpiLVpvXc4vOwhvHGkNg96/rLCxBkR12EgQBd/cpn
ItUUpjYFSV6wDf/CgLtum+J+9qCsAyut/oML6QWORE2uLLDdl1ahfw493n0xc78Q
X5Td4Ypf7eYzsUxDkZkCPRVvR0jLP7YVAgMBAAGgADANBgkqhkiG9w0BAQsFAAOB
gQAbYNVqoVaBdEy46HrOv2kp3I/KwLmrsP64BbuvHygw87vIwISZWjMyG4k81E7g
wkjpZO32bTHOYgarJFy7IPMu/s2pmWrQYDfJI+odop3UMt4LZbaMBza3uPiZKZaC
+qxpz4+GSwVQLdoD1tfYl+tVlpsTd8VyACC9gSHa04jNng==
-----END CERTIFICATE REQUEST-----
";

#[test]
fn a_short_rsa_key_signs_too() {
    let request = Request::from_pem(SHORT.as_bytes()).expect("a request");
    assert_eq!((request.key().expect("a key").kind, request.check_signature()), (KeyKind::Rsa(1024), Ok(())));
    let mut changed = request.der.clone();
    *changed.last_mut().expect("bytes") ^= 1;
    let changed = Request::from_der(changed).expect("a request");
    assert_eq!(changed.check_signature(), Err(Error::Signature("crypto/rsa: verification error")));
    // The same signature is not one over another hash.
    let rsa = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];
    let at = request.der.windows(rsa.len()).rposition(|window| window == rsa).expect("the algorithm");
    let mut other = request.der.clone();
    other[at + 8] = 5;
    assert!(!Request::from_der(other).expect("a request").is_signed_by_its_key());
}
