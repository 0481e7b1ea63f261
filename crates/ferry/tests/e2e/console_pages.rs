//! The pages of the console in a real browser, on a real cluster. Pictures of all of them are in `tmp/console` of the build
//! folder afterwards.

use std::path::Path;

use base64::Engine;
use serde_json::{Value, json};
use sha2::Digest;

use crate::browser::Browser;
use crate::cluster::{Cluster, until};

pub fn console(cluster: &Cluster) -> String {
    format!("{}/console/", cluster.server())
}

/// What `ferry console` prints.
fn link(cluster: &Cluster) -> String {
    let kubeconfig = cluster.data_dir().join("kubeconfig");
    let output = cluster.ferry().arg("console").arg("--kubeconfig").arg(kubeconfig).output().expect("ferry runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A browser that trusts the cluster's server and nobody else.
pub fn browser(cluster: &Cluster, name: &'static str) -> Browser {
    browser_of(cluster.data_dir(), cluster.port(), name)
}

/// The same for a server with these data.
pub fn browser_of(data_dir: &Path, port: u16, name: &'static str) -> Browser {
    let key = std::fs::read_to_string(data_dir.join("pki/apiserver.key")).unwrap();
    let key = rcgen::KeyPair::from_pem(&key).unwrap();
    let digest = sha2::Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&key));
    Browser::start(name, port, &base64::engine::general_purpose::STANDARD.encode(digest))
}

pub fn signed_in(cluster: &Cluster, name: &'static str) -> Browser {
    let mut browser = browser(cluster, name);
    browser.load(&link(cluster));
    browser.until("document.querySelector('nav')");
    browser
}

pub fn create_namespace(cluster: &Cluster, name: &str) {
    cluster.kubectl(&["create", "namespace", name]);
    until("its service account", || {
        let output = cluster.try_kubectl(&["get", "serviceaccount", "default", "-n", name], "");
        output.status.success().then_some(())
    });
}

/// A Deployment with the name of its namespace: the lanes show those of all namespaces.
fn web(namespace: &str, replicas: u8) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": namespace, "namespace": namespace },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "web", "image": "busybox:1.36",
                "command": ["sh", "-c", "echo it began; while true; do sleep 1; done"],
            }] },
        } },
    })
}

pub fn apply_web(cluster: &Cluster, namespace: &str, replicas: u8) {
    cluster.apply(&web(namespace, replicas).to_string());
    settle(cluster, namespace);
}

/// Waits until the Deployment is as it is to be, and its controller has written so.
fn settle(cluster: &Cluster, namespace: &str) {
    cluster.kubectl(&["-n", namespace, "rollout", "status", "deployment", namespace, "--timeout=180s"]);
}

pub fn one_pod(cluster: &Cluster, namespace: &str) -> String {
    cluster.kubectl(&["-n", namespace, "get", "pods", "-o", "jsonpath={.items[0].metadata.name}"])
}

pub fn pod_page(namespace: &str, pod: &str) -> String {
    format!("#/o/api/v1/namespaces/{namespace}/pods/{pod}")
}

pub fn deployment_page(namespace: &str) -> String {
    format!("#/o/apis/apps/v1/namespaces/{namespace}/deployments/{namespace}")
}

/// Waits until so many rows are in the table, and says which.
pub fn rows(browser: &mut Browser, count: usize) -> Vec<String> {
    browser.until(&format!("document.querySelectorAll('.grid .line:not(.heads)').length === {count}"));
    serde_json::from_value(browser.value("test.rows('.grid .line:not(.heads)')")).unwrap()
}

/// What is to be seen in the lanes after a Deployment was applied. Of the first of them, each follows from the one before it.
const LANES: &[(&str, &str)] = &[
    ("client", "^Deployment console-hops: created"),
    ("controllers", "^ReplicaSet console-hops-.*: created"),
    ("controllers", "^Pod console-hops-.*: created"),
    ("scheduler", "^Pod console-hops-.*: .*bound to"),
    ("network", "^console-hops-.* has the address"),
    ("proxy", "^EndpointSlice console-hops-.*: update"),
    ("api", "^Deployment console-hops: created"),
    ("store", "^Deployment console-hops: revision"),
    ("runtime", "^console-hops-.*: container web running"),
    ("kubelet", "^Pod console-hops-.*: .*Ready=True"),
];
const IN_ORDER: usize = 6;

pub fn an_apply_passes_all_lanes_and_all_hops(cluster: &mut Cluster) {
    let namespace = "console-hops";
    create_namespace(cluster, namespace);
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": namespace, "namespace": namespace },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    cluster.apply(&service.to_string());

    // Without a sign-in there is nothing to see.
    let mut browser = browser(cluster, "an_apply_passes_all_lanes_and_all_hops");
    browser.load(&console(cluster));
    browser.sees("ferry console");
    browser.is_accessible("sign-in");
    browser.picture("sign-in");
    browser.fill("input[name=token]", "wrong");
    browser.press("button", "Sign in");
    browser.sees("The server does not accept this token.");
    let link = link(cluster);
    browser.load(&link);
    browser.until("document.querySelector('.head .state')?.innerText === 'live'");
    assert_eq!(browser.value("location.hash"), "", "the code is not left in the address");

    // The lanes show what kubectl does, as it happens.
    apply_web(cluster, namespace, 2);
    let mut places = Vec::new();
    for (lane, label) in LANES {
        let left = browser.until(&format!(
            "[...document.querySelectorAll('.mark.lane-{lane}')].find((one) => /{label}/.test(one.ariaLabel))?.style.left"
        ));
        places.push(left.as_str().unwrap().trim_end_matches("px").parse::<f64>().unwrap());
    }
    assert!(places[..IN_ORDER].is_sorted(), "{places:?}");
    let write =
        browser.until("test.rows('.writes a').find((row) => /Deployment console-hops\\s.*created/.test(row))?.trim()");
    browser.press(".writes a", write.as_str().unwrap());
    all_hops(&mut browser);
    browser.until("document.querySelectorAll('.mark.of').length > 10");
    browser.is_accessible("hops");
    browser.picture("hops");

    // A manifest is tried, applied and watched.
    browser.types("a");
    browser.fill("dialog textarea", &web(namespace, 3).to_string());
    browser.press("dialog footer button", "Try it");
    browser.sees("Somebody else manages these fields.");
    browser.press("dialog footer label", "Take over fields of others");
    browser.press("dialog footer button", "Try it");
    browser.until("document.querySelector('dialog .diff .add')?.innerText.includes('replicas: 3')");
    browser.is_accessible("apply");
    browser.picture("apply");
    browser.press("dialog footer button", "Apply");
    browser.until(&format!("location.hash === '{}?tab=hops'", deployment_page(namespace)));
    all_hops(&mut browser);
    browser.picture("waterfall");
    assert!(cluster.kubectl(&["-n", namespace, "get", "deployment", namespace]).contains("/3"));
    browser.has_no_complaint();

    // A link is good once. Who signs out gets the page anew.
    browser.value("globalThis.old = true");
    browser.press("button", "Sign out");
    browser.until("!globalThis.old && document.querySelector('input[name=token]')");
    browser.load(&link);
    browser.sees("was used");
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

/// Waits until the object has arrived; then all of its hops are there in their order.
fn all_hops(browser: &mut Browser) {
    browser.until("document.querySelector('.body .badge.good')?.innerText === 'arrived'");
    let hops = browser.value("[...document.querySelectorAll('.fall .number')].map((one) => Number(one.innerText))");
    let hops: Vec<u64> = serde_json::from_value(hops).unwrap();
    assert!((1..=12).all(|hop| hops.contains(&hop)) && hops.is_sorted(), "{hops:?}");
}

/// A button of the page Learn, the object that it makes, and what is said of it.
const TROUBLES: &[(&str, &str, &str)] = &[
    ("pods/no-node", "disk=of-gold", "scheduler"),
    ("pods/crash", "cannot open the database", "kubelet"),
    ("pods/no-config", "not-there", "kubelet"),
    ("services/nobody", "app=not-there", ""),
];

pub fn troubles_are_caused_named_and_cleaned_up(cluster: &mut Cluster) {
    let mut browser = signed_in(cluster, "troubles_are_caused_named_and_cleaned_up");
    for (object, cause, place) in TROUBLES {
        browser.open("#/learn");
        browser.until(&format!("test.press('[data-lesson=\"{object}\"]', 'Cause it')"));
        browser.until(&format!("location.hash.endsWith('{}')", object.replace('/', "%2F")));
        browser.until(&format!("[...document.querySelectorAll('.finding')].some((one) => one.innerText.includes('{cause}') && one.innerText.includes('{place}'))"));
        let picture = object.replace('/', "-");
        browser.picture(&format!("learn-{picture}"));
        browser.is_accessible(&picture);
    }
    browser.press("button", "Clean up");
    browser.sees("and everything in it");
    cluster.kubectl(&["wait", "--for=delete", "namespace/ferry-learn", "--timeout=180s"]);
    browser.has_no_complaint();
}

pub fn a_pod_is_found_read_and_entered(cluster: &mut Cluster) {
    let namespace = "console-pod";
    create_namespace(cluster, namespace);
    apply_web(cluster, namespace, 2);
    let mut browser = signed_in(cluster, "a_pod_is_found_read_and_entered");

    // A table follows what happens.
    browser.open(&format!("#/r/core/pods?ns={namespace}"));
    rows(&mut browser, 2);
    cluster.kubectl(&["-n", namespace, "scale", "deployment", namespace, "--replicas=3"]);
    rows(&mut browser, 3);
    browser.until("test.rows('.grid .cell.good').filter((text) => text === 'Running').length === 3");
    browser.picture("pods");
    let pod = one_pod(cluster, namespace);
    browser.fill("input[type=search]", &pod);
    assert!(rows(&mut browser, 1)[0].contains(&pod));
    browser.fill("input[type=search]", "no such pod");
    browser.sees("No row fits the filter");

    // One of them.
    let page = pod_page(namespace, &pod);
    browser.open(&page);
    browser.sees("Nothing holds it up.");
    browser.picture("pod");
    browser.press("[role=tab]", "Logs");
    browser.until("document.querySelector('.log')?.innerText.includes('it began')");
    browser.picture("logs");
    browser.press("[role=tab]", "Terminal");
    browser
        .until("document.querySelector('.term')?.innerText.includes('#') && document.activeElement.matches('.term')");
    browser.types("echo in the $((6*7))nd pod\n");
    browser.until("document.querySelector('.term').innerText.includes('in the 42nd pod')");
    let wide = columns(&mut browser, "wide");
    browser.picture("terminal");
    browser.resize((900, 700));
    // The size goes its own way to the shell.
    until("a narrower terminal", || (columns(&mut browser, "narrow") < wide).then_some(()));
    browser.until("document.querySelector('.term').scrollWidth <= document.querySelector('.term').clientWidth");
    browser.has_no_complaint();
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

/// How wide the shell believes the terminal to be.
fn columns(browser: &mut Browser, word: &str) -> u64 {
    browser.types(&format!("clear; echo {word}:$(stty size):\n"));
    let found = browser.until(&format!("/{word}:\\d+ (\\d+):/.exec(document.querySelector('.term').innerText)?.[1]"));
    found.as_str().unwrap().parse().unwrap()
}

pub fn an_edit_that_comes_too_late_is_told_so(cluster: &mut Cluster) {
    let namespace = "console-edit";
    create_namespace(cluster, namespace);
    apply_web(cluster, namespace, 1);
    let mut browser = signed_in(cluster, "an_edit_that_comes_too_late_is_told_so");
    let page = deployment_page(namespace);
    browser.open(&format!("{page}?tab=yaml"));
    let edited = browser.until("/replicas: 1/.test(document.querySelector('textarea')?.value) && document.querySelector('textarea').value.replace('replicas: 1', 'replicas: 2')");
    cluster.kubectl(&["-n", namespace, "annotate", "deployment", namespace, "by=another"]);
    settle(cluster, namespace);
    browser.fill("textarea", edited.as_str().unwrap());
    browser.press("button", "Save");
    browser.sees("Somebody else changed it meanwhile.");
    browser.until("document.querySelector('.diff .add')?.innerText.includes('by: another')");
    browser.picture("conflict");
    browser.is_accessible("conflict");
    assert_eq!(cluster.json(&["-n", namespace, "get", "deployment", namespace])["spec"]["replicas"], 1);

    browser.press("button", "Keep my text, on their version");
    browser.press("button", "Try it");
    browser.until("[...document.querySelectorAll('.diff .add')].some((one) => one.innerText.includes('replicas: 2'))");
    browser.press("button", "Save");
    browser.sees("Deployment console-edit was saved.");
    let deployment = cluster.json(&["-n", namespace, "get", "deployment", namespace]);
    assert_eq!(deployment["spec"]["replicas"], 2);

    browser.open(&format!("{page}?tab=history"));
    browser.until("document.querySelectorAll('details.panel').length > 2");
    let write = browser.value("document.querySelector('details.panel summary').innerText.trim()");
    browser.press("details.panel summary", write.as_str().unwrap());
    browser.until("document.querySelector('details.panel .diff, details.panel .body p')");
    browser.picture("history");
    browser.has_no_complaint();
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

pub fn the_past_shows_a_pod_that_is_gone(cluster: &mut Cluster) {
    let namespace = "console-time";
    create_namespace(cluster, namespace);
    apply_web(cluster, namespace, 1);
    let pod = one_pod(cluster, namespace);
    cluster.kubectl(&["-n", namespace, "scale", "deployment", namespace, "--replicas=0"]);
    cluster.kubectl(&["-n", namespace, "wait", "--for=delete", "pod", &pod, "--timeout=180s"]);
    let mut browser = signed_in(cluster, "the_past_shows_a_pod_that_is_gone");
    browser.open(&format!("#/time?kind=%2Fpods&ns={namespace}"));
    browser.until("document.querySelector('.grid .empty')");
    // Back, one write after the other, to where it was.
    until("the pod in the past", || {
        browser.value("(() => { const bar = document.querySelector('input[type=range]'); document.querySelector('.grid').dataset.old = 1; bar.stepDown(); bar.dispatchEvent(new Event('input')); })()");
        browser.until("document.querySelector('.grid:not([data-old])')");
        browser.value("test.rows('.grid .line:not(.heads)').join()").as_str().unwrap().contains(&pod).then_some(())
    });
    browser.picture("past");
    browser.press("label", "compare with another moment");
    browser.until(&format!(
        "test.rows('table.plain tr').some((row) => row.includes('{pod}') && row.includes('gone since'))"
    ));
    browser.is_accessible("time");
    browser.picture("time");
    browser.has_no_complaint();
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}
