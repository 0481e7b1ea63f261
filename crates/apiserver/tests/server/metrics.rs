//! What a scrape of the server's metrics gets.

use http::Request;
use http_body_util::{BodyExt, Full};

use super::{Fixture, Peer};

impl Fixture {
    async fn scrape(&self, method: &str, path: &str, accept: &str) -> (String, Vec<u8>) {
        let body = Full::<bytes::Bytes>::default().map_err(|never| match never {}).boxed_unsync();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.admin))
            .header("accept", accept)
            .body(body)
            .expect("a request");
        let response = self.server.handle(request, Peer::default()).await;
        assert_eq!(response.status(), 200);
        let content_type = response.headers()["content-type"].to_str().expect("text").to_owned();
        (content_type, response.into_body().collect().await.expect("a body").to_bytes().to_vec())
    }
}

#[tokio::test]
async fn metrics_are_text_or_protobuf_as_a_scraper_accepts() {
    let fixture = Fixture::new().await;
    fixture.scrape("GET", "/api/v1/namespaces", "").await;
    let families = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    for path in ["/metrics", "/metrics/slis"] {
        for accept in ["", "*/*", "application/openmetrics-text;version=1.0.0"] {
            let (content_type, body) = fixture.scrape("GET", path, accept).await;
            assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
            assert!(body.starts_with(b"# HELP "));
        }
        let (content_type, body) = fixture.scrape("GET", path, families).await;
        assert_eq!(
            content_type,
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=underscores"
        );
        assert!(!body.is_empty() && !body.starts_with(b"#"));
    }
    let durations = "/metrics?name[]=apiserver_request_duration_seconds";
    let (_, text) = fixture.scrape("GET", durations, "").await;
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.contains("apiserver_request_duration_seconds_bucket{") && text.matches("# HELP").count() == 1,
        "{text}"
    );
    // Field 5 of a histogram is the schema of its native buckets: 3, as a signed number.
    let (_, body) = fixture.scrape("GET", durations, families).await;
    let threshold = 2.938_735_877_055_719e-39_f64.to_le_bytes();
    let native = [&[5 << 3, 6, 6 << 3 | 1][..], &threshold].concat();
    assert!(body.windows(native.len()).any(|part| part == native), "{body:?}");

    assert_eq!(fixture.scrape("DELETE", "/metrics", "").await.1, b"metrics reset\n");
    let (_, text) = fixture.scrape("GET", "/metrics?name[]=apiserver_request_total", "").await;
    let text = String::from_utf8(text).expect("text");
    assert!(!text.contains("resource=\"namespaces\",scope=\"cluster\",subresource=\"\",verb=\"LIST\""), "{text}");
    fixture.stop().await;
}
