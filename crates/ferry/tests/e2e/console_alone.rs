//! The pages of the console over an API server alone: tables of many rows, and moments of the past.

use std::path::Path;

use futures::StreamExt;
use serde_json::{Value, json};

use crate::alone::{Apiserver, TOKEN, runtime};
use crate::browser::Browser;
use crate::components::Program;
use crate::console_pages::{browser_of, rows};

const PODS: usize = 10_000;
const NODES: usize = 100;
const NAMESPACE: &str = "large";
/// Many more than any screen has room for.
const MOST_LINES: u64 = 100;

/// Seconds of frames while the table moves: how many, how long, and the most lines that were in the page.
const SCROLL: &str = r#"new Promise((done) => {
    const grid = document.querySelector(".grid"), gaps = [];
    let before, lines = 0, turn = 0;
    const frame = (now) => {
        if (before) gaps.push(now - before);
        before = now;
        lines = Math.max(lines, grid.querySelectorAll(".line").length);
        grid.scrollTop = turn % 2 ? grid.scrollTop + 240 : Math.random() * grid.scrollHeight;
        if (++turn < 300) return requestAnimationFrame(frame);
        gaps.sort((a, b) => a - b);
        const at = (share) => Math.round(gaps[Math.floor((gaps.length - 1) * share)] * 10) / 10;
        done({ frames: gaps.length, p50: at(0.5), p99: at(0.99), longest: at(1), lines });
    };
    requestAnimationFrame(frame);
})"#;

/// An API server alone, and its client.
struct Bed {
    server: Apiserver,
    client: kube::Client,
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Nobody makes service accounts here.
        let mut server = Apiserver::start(folder.path(), &["--disable-admission-plugins", "ServiceAccount"]);
        let runtime = runtime();
        let client = runtime.block_on(server.client());
        Self { server, client, runtime, folder }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.runtime.block_on(ask(&self.client, method, path, body))
    }

    fn signed_in(&self, name: &'static str) -> Browser {
        let (host, port) = self.server.address();
        let mut browser = browser_of(self.folder.path(), port, name);
        browser.load(&format!("https://{host}:{port}/console/"));
        browser.fill("input[name=token]", TOKEN);
        browser.press("button", "Sign in");
        browser.until("document.querySelector('nav') !== null");
        browser
    }

    fn kubeconfig(&self) -> std::path::PathBuf {
        let path = self.folder.path().join("kubeconfig");
        self.server.write_kubeconfig(&path);
        path
    }
}

async fn ask(client: &kube::Client, method: &str, path: &str, body: &Value) -> Value {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.request(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// Simulated nodes with their pods.
fn fill(bed: &Bed, kubeconfig: &Path) -> Program {
    let nodes = Program::start(kubeconfig, &["node", "simulate", "--nodes", &NODES.to_string()]);
    bed.ask("POST", "/api/v1/namespaces", &json!({ "metadata": { "name": NAMESPACE } }));
    let pod = |number: usize| {
        json!({
            "metadata": { "name": format!("pod-{number:05}") },
            "spec": { "nodeName": format!("node-{}", number % NODES), "containers": [{ "name": "c", "image": "example.test/none" }] },
        })
    };
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    bed.runtime.block_on(async {
        let created = futures::stream::iter(0..PODS).map(|number| {
            let (client, path) = (bed.client.clone(), path.clone());
            async move { ask(&client, "POST", &path, &pod(number)).await }
        });
        created.buffer_unordered(32).for_each(|_| async {}).await;
    });
    nodes
}

pub fn ten_thousand_pods_are_scrolled() {
    let bed = Bed::new();
    let _nodes = fill(&bed, &bed.kubeconfig());
    let mut browser = bed.signed_in("ten_thousand_pods_are_scrolled");
    browser.open(&format!("#/r/core/pods?ns={NAMESPACE}"));
    browser.until(&format!("document.querySelector('.grid')?.getAttribute('aria-rowcount') === '{PODS}'"));
    browser.until("document.querySelector('.head .state').innerText === 'live'");

    // The server was asked for pages, and for the changes since.
    let asked = browser.value(&format!(
        "performance.getEntriesByType('resource').map((one) => one.name).filter((name) => name.includes('/{NAMESPACE}/pods'))"
    ));
    let asked: Vec<String> = serde_json::from_value(asked).unwrap();
    assert!(asked.len() >= PODS / 500 && asked.iter().all(|one| one.contains("limit=500")), "{asked:?}");

    let told = browser.value(SCROLL);
    let memory = browser.value("Math.round(performance.memory.usedJSHeapSize / 2 ** 20)");
    println!("{PODS} rows, frame times in milliseconds: {told}; {memory} MiB of objects");
    assert!(told["lines"].as_u64().is_some_and(|lines| (10..MOST_LINES).contains(&lines)), "{told}");
    browser.picture("ten-thousand");

    // Changes arrive one by one; counts, order and filter follow.
    let changed = format!("/api/v1/namespaces/{NAMESPACE}/pods/pod-04242");
    browser.press(".heads button", "Status");
    bed.ask("PATCH", &format!("{changed}/status"), &json!({ "status": { "reason": "Aaa" } }));
    browser.value("document.querySelector('.grid').scrollTop = 0");
    browser
        .until("test.rows('.grid .line:not(.heads)').some((row) => row.includes('pod-04242') && row.includes('Aaa'))");
    browser.fill("input[type=search]", "pod-0424");
    rows(&mut browser, 10);
    browser.sees(&format!("10 of {PODS}"));
    let gone = format!("{changed}?gracePeriodSeconds=0");
    bed.ask("DELETE", &gone, &json!({}));
    rows(&mut browser, 9);
    browser.sees(&format!("9 of {}", PODS - 1));
    browser.has_no_complaint();
}

pub fn a_past_moment_has_tables_maps_and_lanes() {
    let bed = Bed::new();
    let space = "/api/v1/namespaces/past";
    bed.ask("POST", "/api/v1/namespaces", &json!({ "metadata": { "name": "past" } }));
    let pod = json!({ "metadata": { "name": "web", "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "example.test/none" }] } });
    let service =
        json!({ "metadata": { "name": "front" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    bed.ask("POST", &format!("{space}/pods"), &pod);
    bed.ask("POST", &format!("{space}/services"), &service);
    bed.ask("PATCH", &format!("{space}/services/front"), &json!({ "metadata": { "labels": { "step": "two" } } }));
    bed.ask("DELETE", &format!("{space}/pods/web?gracePeriodSeconds=0"), &json!({}));
    // More than one page of writes lies between then and now.
    for number in 0..300 {
        bed.ask("PATCH", space, &json!({ "metadata": { "annotations": { "number": number.to_string() } } }));
    }
    let mut browser = bed.signed_in("a_past_moment_has_tables_maps_and_lanes");
    // Back to the write that changed the Service, where the pod was still there.
    let moment = browser.value(
        "(async () => { const { json } = await import('./api.js'); let from = 0;
            for (;;) { const page = await json('/console/writes?from=' + from); const found = page.writes.find((one) => one.object.name === 'front' && !one.created);
                if (found) return found.number; if (!page.writes.length) return -1; from = page.writes.at(-1).next; } })()",
    );
    let moment = moment.as_i64().unwrap();
    assert!(moment > 0);
    browser.open(&format!("#/time?ns=past&moment={moment}"));
    browser.until("document.querySelector('.grid .line:not(.heads)')?.innerText.includes('web')");
    browser.picture("moment-table");
    browser.is_accessible("moment, table");
    browser.press("label", "compare with another moment");
    browser.until("test.rows('table.plain tr').some((row) => row.includes('web') && row.includes('gone since'))");
    browser.open(&format!("#/time?view=map&ns=past&moment={moment}"));
    browser.until("document.querySelectorAll('.mapbox a').length === 2 && document.querySelector('.mapbox path.selects') !== null");
    browser.picture("moment-map");
    browser.is_accessible("moment, map");
    browser.open(&format!("#/time?view=lanes&moment={moment}"));
    browser.until("[...document.querySelectorAll('.mark')].some((one) => /^Pod web: created/.test(one.ariaLabel))");
    browser.until("test.rows('.writes a')[0]?.includes('front')");
    browser.picture("moment-lanes");
    browser.is_accessible("moment, lanes");

    // What is gone still has its history, by author.
    browser.open("#/o/api/v1/namespaces/past/pods/web");
    browser.sees("Below is what is still known of it.");
    // Created, asked to go, removed.
    browser.until("document.querySelectorAll('details.panel').length === 3");
    browser.until("[...document.querySelectorAll('details.panel')].every((one) => (one.open = true)) && [...document.querySelectorAll('.diff .add')].some((one) => one.innerText.includes('example.test/none'))");
    browser.sees("by admin");
    browser.picture("gone");
    browser.is_accessible("gone");
    browser.has_no_complaint();
}

/// A quarter of an hour before the server's clock.
const WRONG_CLOCK: &str = "(() => { const now = Date.now.bind(Date); Date.now = () => now() + 900000; })()";

/// Whether a write is to be seen in the lanes: its mark is where the lanes are.
const IN_THE_LANES: &str = "(() => { const field = document.querySelector('.field').getBoundingClientRect();
    return [...document.querySelectorAll('.mark')].some((one) => { const { left, right } = one.getBoundingClientRect();
        return /^Pod web: created/.test(one.ariaLabel) && left > field.left && right <= field.right + 1; }); })()";

/// In the place of a pod's log: a gigabyte without a newline, as fast as it is read.
const FLOOD: &str = "(() => { const real = fetch, chunk = new TextEncoder().encode('x'.repeat(1 << 16)); globalThis.left = 1 << 14;
    globalThis.fetch = (path, options) => (!path.includes('/log?') ? real(path, options) : Promise.resolve(new Response(new ReadableStream({
        pull(control) { if (left-- > 0 && !options.signal.aborted) control.enqueue(chunk); else control.close(); } })))); })()";

pub fn clocks_that_differ_and_floods_of_text_do_no_harm() {
    let bed = Bed::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "example.test/none" }] } });
    let mut browser = bed.signed_in("clocks_that_differ_and_floods_of_text_do_no_harm");
    browser.command("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WRONG_CLOCK }));
    browser.command("Page.reload", json!({}));
    browser.until("document.querySelector('.head .state')?.innerText === 'live'");
    bed.ask("POST", pods, &pod("web"));
    browser.until(IN_THE_LANES);
    browser.open("#/r/core/pods?ns=default");
    assert!(!rows(&mut browser, 1)[0].contains("15m"), "the age is that of the server's clock");

    // A line that is cut again and again: the page says so, keeps what it has, and catches up.
    browser.until("document.querySelector('.head .state').innerText === 'live'");
    for turn in 0..8 {
        browser.road.cut();
        browser.sees("behind, trying again");
        rows(&mut browser, 1 + turn);
        bed.ask("POST", pods, &pod(&format!("pod-{turn}")));
        browser.road.mend();
        rows(&mut browser, 2 + turn);
    }
    browser.until("document.querySelector('.head .state').innerText === 'live'");

    // Who is on a row stays on it when the table changes.
    browser.value("document.querySelector('.grid .line a').focus()");
    let focused = browser.value("document.activeElement.innerText");
    bed.ask("PATCH", &format!("{pods}/web/status"), &json!({ "status": { "reason": "Changed" } }));
    browser.until("test.rows('.grid .line').some((row) => row.includes('Changed'))");
    assert_eq!(browser.value("document.activeElement.innerText"), focused);

    browser.value(FLOOD);
    browser.open("#/o/api/v1/namespaces/default/pods/web?tab=logs");
    browser.until("left < 0 && document.querySelector('.log')?.innerText.includes('(cut)')");
    let drawn = browser.value("document.querySelector('.log').innerText.length");
    assert!(drawn.as_u64().is_some_and(|drawn| drawn < 1 << 20), "{drawn} characters are drawn");
    browser.press("[role=tab]", "Overview");
    browser.sees("General");
    browser.has_no_complaint();
}
