//! Who is at the other end: backends that are known by a BackendTLSPolicy, clients that show a certificate.

use ferry_client::ObjectKey;

use super::*;
use crate::testing::{served, text};

struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = parameters.self_signed(&key).expect("a certificate").pem();
    Authority { issuer: rcgen::Issuer::new(parameters, key), pem }
}

type Pair = (rustls_pki_types::CertificateDer<'static>, rustls_pki_types::PrivateKeyDer<'static>);

impl Authority {
    fn issue(&self, name: &str) -> Pair {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        (certificate.der().clone(), key)
    }

    fn add(&self, bed: &mut Bed, name: &str) {
        let map = json!({ "metadata": { "name": name, "namespace": "n" }, "data": { "ca.crt": self.pem } });
        bed.objects.config_maps.insert(ObjectKey::new("n", name), read(map));
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_are_who_the_policy_says_or_nobody() {
    let mut bed = Bed::http();
    let (known, other) = (authority(), authority());
    known.add(&mut bed, "known");
    other.add(&mut bed, "other");
    let (certificate, key) = known.issue("backend.test");
    let builder = rustls::ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = builder.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key);
    let endpoint = served(&bed.tasks, false, Some(Arc::new(config.expect("a server"))), |_| async {
        Ok(Response::new(text("secured")))
    })
    .await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    for (authority, hostname, want) in [
        ("known", "backend.test", 200),
        ("known", "other.test", 502),
        ("other", "backend.test", 502),
        ("absent", "backend.test", 502),
    ] {
        let policy = json!({
            "metadata": { "name": "p", "namespace": "n" },
            "spec": { "targetRefs": [{ "group": "", "kind": "Service", "name": "one" }],
                      "validation": { "hostname": hostname, "caCertificateRefs": [{ "group": "", "kind": "ConfigMap", "name": authority }] } },
        });
        bed.objects.policies = [read(policy)].into();
        bed.apply();
        let (code, body) = get(&client(false), &bed.url("/")).await;
        assert_eq!(code.as_u16(), want, "{authority} {hostname}: {body}");
    }
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_show_a_certificate_where_the_gateway_asks_for_one() {
    let listener = json!({ "name": "https", "port": 8443, "protocol": "HTTPS", "hostname": "a.com",
        "tls": { "mode": "Terminate", "certificateRefs": [{ "name": "c" }] } });
    let mut bed = Bed::new(json!([listener]));
    let (known, other) = (authority(), authority());
    known.add(&mut bed, "known");
    let own = add_certificate(&mut bed.objects, "c", &["a.com"]);
    let mut asking = gateway("g", json!([listener]));
    asking["spec"]["tls"] = json!({ "frontend": { "default": { "validation": {
        "caCertificateRefs": [{ "group": "", "kind": "ConfigMap", "name": "known" }] } } } });
    bed.objects.gateways = [read(asking)].into();
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    bed.apply();
    for (pair, want) in [(Some(known.issue("me")), true), (Some(other.issue("me")), false), (None, false)] {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(own.clone()).expect("a certificate");
        let builder = rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_root_certificates(roots);
        let config = match pair {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).expect("a client"),
            None => builder.with_no_client_auth(),
        };
        let answer = secure_get_with(&TlsConnector::from(Arc::new(config)), bed.at(8443), "a.com", "a.com").await;
        assert_eq!(answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")), want);
    }
    bed.tasks.stop(PATIENCE).await;
}
