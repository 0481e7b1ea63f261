use super::*;

#[test]
fn challenges_are_taken_apart() {
    let found =
        parse_parameters(r#"realm="https://auth.example/token",service="registry",scope="repository:a/b:pull,push""#);
    assert_eq!(found["realm"], "https://auth.example/token");
    assert_eq!(found["scope"], "repository:a/b:pull,push");
    assert_eq!(escaped("a b/c"), "a%20b%2Fc");
}

/// Answers every request of a connection with what `answer` says of its path, and keeps the heads of all.
async fn serve(tasks: &ferry_tasks::Tasks, answer: fn(&str) -> String) -> (String, Heads) {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let place = listener.local_addr().expect("an address").to_string();
    let heads = Heads::default();
    let (kept, all) = (heads.clone(), tasks.clone());
    tasks.spawn_until_stopped("server", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let kept = kept.clone();
            all.spawn_until_stopped("connection", async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                let head = String::from_utf8_lossy(&head).to_lowercase();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                kept.lock().push(head);
                let _ = stream.write_all(answer(&path).as_bytes()).await;
            });
        }
    });
    (place, heads)
}

type Heads = std::sync::Arc<parking_lot::Mutex<Vec<String>>>;

const EMPTY: &str = "content-length: 0\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn credentials_stay_with_their_registry() {
    let tasks = ferry_tasks::Tasks::new("test");
    let tls = ferry_outbound::roots(None).and_then(|roots| ferry_outbound::client_config(roots, None));
    let client = ferry_outbound::https(tasks.clone(), tls.expect("a client"), None);
    let asks = |path: &str| {
        let challenge = if path.starts_with("/v2/far/") {
            "Bearer realm=\"http://localhost:1/token\""
        } else {
            "Basic realm=\"x\""
        };
        format!("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: {challenge}\r\n{EMPTY}")
    };
    let (own, seen) = serve(&tasks, asks).await;
    let auth = AuthConfig { username: "me".into(), password: "secret".into(), ..AuthConfig::default() };
    let pull = async |image: &str, base: &str, namespace: Option<&str>| {
        let reference = Reference::parse(image).expect("a name");
        let place = (base.to_owned(), namespace.map(str::to_owned));
        let session = Session::new(&client, place, &reference, Some(&auth));
        let error = session.manifest("latest").await.err().expect("refused").to_string();
        let shown = seen.lock().drain(..).any(|head| head.contains("authorization:"));
        (error, shown)
    };
    let base = format!("http://{own}");
    assert!(pull(&format!("{own}/a/b"), &base, None).await.1, "the registry itself is shown them");
    assert!(!pull("quay.io/a/b", &base, Some("quay.io")).await.1, "its mirror is not");
    let (why, shown) = pull(&format!("{own}/far/b"), &base, None).await;
    assert!(why.contains("which is not https") && !shown, "{why}");
    tasks.stop(Duration::from_secs(5)).await;
}

#[test]
fn only_a_registry_is_quoted() {
    let said = |body: &str| complaints(body.as_bytes());
    assert_eq!(
        said(r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}"#).as_deref(),
        Some("TOOMANYREQUESTS: slow down")
    );
    for other in
        ["", "secret", r#"{"password": "secret"}"#, r#"{"errors": "secret"}"#, r#"{"errors": [{"message": "secret"}]}"#]
    {
        assert_eq!(said(other), None, "{other}");
    }
    let long = format!(r#"{{"errors": [{{"code": "A", "message": "{}"}}]}}"#, "x".repeat(10_000));
    assert_eq!(said(&long).map(|text| text.len()), Some(512));
}

#[test]
fn mirrors_come_first_and_loopback_is_plain() {
    let mirrors = Mirrors(vec![("docker.io".into(), "http://127.0.0.1:5000".into())]);
    let of = |name: &str| mirrors.places(&Reference::parse(name).expect("a name"));
    assert_eq!(of("busybox")[0], ("http://127.0.0.1:5000".to_owned(), Some("docker.io".to_owned())));
    assert_eq!(of("busybox")[1].0, "https://registry-1.docker.io");
    assert_eq!(of("127.0.0.1:99/a")[0].0, "http://127.0.0.1:99");
    assert_eq!(of("quay.io/a/b")[0].0, "https://quay.io");
}
