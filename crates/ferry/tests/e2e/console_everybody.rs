//! The pages of the console for those who may see little, for those who see badly, on a phone, behind a bad line, and with
//! objects that mean harm.

use serde_json::{Value, json};

use crate::browser::{Browser, PHONE, WIDE};
use crate::cluster::Cluster;
use crate::console_pages::{
    apply_web, browser, console, create_namespace, deployment_page, one_pod, pod_page, rows, signed_in,
};

/// Text that would do something if it were markup.
const MARKUP: &str = r#"<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>"#;

pub fn somebody_sees_what_they_may(cluster: &mut Cluster) {
    let namespace = "console-rights";
    create_namespace(cluster, namespace);
    apply_web(cluster, namespace, 1);
    let pod = one_pod(cluster, namespace);
    cluster.kubectl(&["-n", namespace, "create", "role", "pods", "--verb=get,list,watch", "--resource=pods"]);
    let visitor = format!("--serviceaccount={namespace}:default");
    cluster.kubectl(&["-n", namespace, "create", "rolebinding", "pods", "--role=pods", &visitor]);
    let token = cluster.kubectl(&["-n", namespace, "create", "token", "default"]);
    let mut browser = browser(cluster, "somebody_sees_what_they_may");
    browser.load(&console(cluster));
    browser.fill("input[name=token]", token.trim());
    browser.press("button", "Sign in");
    browser.until(&format!(
        "document.querySelector('.bar')?.innerText.includes('system:serviceaccount:{namespace}:default')"
    ));
    browser.open(&format!("#/r/core/pods?ns={namespace}"));
    assert!(rows(&mut browser, 1)[0].contains(&pod));

    // What they may not is said in the server's words, with what to do.
    for (page, refusal) in [
        (format!("#/r/core/secrets?ns={namespace}"), r#"cannot list resource "secrets""#),
        ("#/r/core/pods?ns=kube-system".into(), r#"cannot list resource "pods""#),
        (deployment_page(namespace), r#"cannot get resource "deployments""#),
        (pod_page(namespace, &pod) + "?tab=logs", r#"cannot get resource "pods/log""#),
        (pod_page(namespace, &pod) + "?tab=history", "/debug/flight"),
        ("#/time".into(), "/debug/flight"),
        ("#/hops".into(), "/debug/flight"),
    ] {
        browser.open(&page);
        browser.sees("You may not see this.");
        browser.sees(refusal);
        browser.is_accessible(&page);
    }
    browser.picture("refused");
    browser.open(&(pod_page(namespace, &pod) + "?tab=terminal"));
    browser.sees("You may not exec into this pod");
    browser.has_no_complaint();
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

pub fn pages_catch_up_after_a_cut_and_a_killed_server(cluster: &mut Cluster) {
    let namespace = "console-cut";
    create_namespace(cluster, namespace);
    apply_web(cluster, namespace, 1);
    let mut browser = signed_in(cluster, "pages_catch_up_after_a_cut_and_a_killed_server");
    let page = format!("#/r/core/pods?ns={namespace}");
    browser.open(&page);
    rows(&mut browser, 1);

    // The page says that it is behind, and goes on where it was.
    browser.road.cut();
    browser.sees("behind, trying again");
    browser.picture("behind");
    apply_web(cluster, namespace, 2);
    rows(&mut browser, 1);
    browser.road.mend();
    rows(&mut browser, 2);
    browser.until("document.querySelector('.head .state').innerText === 'live'");
    cluster.kubectl(&["-n", namespace, "scale", "deployment", namespace, "--replicas=3"]);
    rows(&mut browser, 3);

    // Sessions end with their server. The page asks for another sign-in and goes on where it was.
    cluster.kill();
    browser.sees("behind, trying again");
    cluster.up();
    browser.until("document.querySelector('input[name=token]')");
    browser.picture("signed-out");
    let token = cluster.kubectl(&["-n", "kube-system", "create", "token", "default"]);
    let viewer =
        ["create", "clusterrolebinding", "console-cut", "--clusterrole=view", "--serviceaccount=kube-system:default"];
    cluster.kubectl(&viewer);
    browser.fill("input[name=token]", token.trim());
    browser.press("button", "Sign in");
    rows(&mut browser, 3);
    assert_eq!(browser.value("location.hash"), page);
    browser.command("Page.reload", json!({}));
    rows(&mut browser, 3);
    browser.has_no_complaint();
    cluster.kubectl(&["delete", "clusterrolebinding", "console-cut"]);
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

/// Objects that say markup wherever something may be said.
fn markup(namespace: &str) -> Value {
    let meta = |name: &str| json!({ "name": name, "namespace": namespace, "annotations": { "note": MARKUP } });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": meta("markup"), "spec": {
        "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "containers": [{
            "name": "main", "image": "busybox:1.36", "env": [{ "name": "TEXT", "value": MARKUP }],
            "command": ["sh", "-c", r#"echo "$TEXT"; printf 'red \033[31mtext\033[0m\n'; echo "$TEXT" >/dev/termination-log; exit 1"#],
        }] } });
    let config =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("markup"), "data": { "text": MARKUP } });
    let event = json!({ "apiVersion": "v1", "kind": "Event", "metadata": meta("markup"), "type": "Warning",
        "reason": MARKUP, "message": MARKUP, "reportingComponent": MARKUP,
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "markup" } });
    json!({ "apiVersion": "v1", "kind": "List", "items": [config, pod, event] })
}

pub fn what_objects_say_stays_text(cluster: &mut Cluster) {
    let namespace = "console-markup";
    create_namespace(cluster, namespace);
    let mut browser = signed_in(cluster, "what_objects_say_stays_text");
    browser.until("document.querySelector('.head .state')?.innerText === 'live'");
    let author = format!("--as={MARKUP}");
    let manager = format!("--field-manager={MARKUP}");
    let words = ["apply", "--server-side", "-f", "-", &manager, &author, "--as-group=system:masters"];
    cluster.kubectl_with(&words, &markup(namespace).to_string());
    cluster.kubectl(&[
        "-n",
        namespace,
        "wait",
        "pod/markup",
        "--for=jsonpath={.status.phase}=Failed",
        "--timeout=180s",
    ]);
    let says = |browser: &mut Browser, selector: &str| {
        let expression = format!(
            "[...document.querySelectorAll({})].some((one) => (one.title + one.ariaLabel + one.value + one.innerText).includes({}))",
            json!(selector),
            json!(MARKUP)
        );
        browser.until(&expression);
    };
    // In the lanes as the author, on the pages of objects as what they are.
    says(&mut browser, ".mark");
    says(&mut browser, ".writes [title]");
    let (pod, config) = (pod_page(namespace, "markup"), format!("#/o/api/v1/namespaces/{namespace}/configmaps/markup"));
    for (page, selector) in [
        (pod.clone(), ".finding"),
        (format!("{pod}?tab=hops"), ".fall"),
        (format!("{pod}?tab=yaml"), "textarea"),
        (format!("{pod}?tab=logs"), ".log"),
        (format!("{pod}?tab=history"), "details.panel summary"),
        (format!("{config}?tab=yaml"), "textarea"),
        (format!("#/r/core/events?ns={namespace}"), ".grid .line"),
    ] {
        browser.open(&page);
        says(&mut browser, selector);
    }
    browser.picture("markup");
    browser.open(&format!("{pod}?tab=logs"));
    browser.sees("red text");
    browser.open(&format!("{config}?tab=history"));
    browser.until("document.querySelectorAll('details.panel').length > 0 && [...document.querySelectorAll('details.panel')].every((one) => (one.open = true))");
    says(&mut browser, ".diff");
    for page in ["#/map?ns=", "#/time?kind=%2Fevents&ns="] {
        browser.open(&format!("{page}{namespace}"));
        browser.until("document.querySelector('.grid .line:not(.heads), .mapbox a')");
    }
    // What is no longer in the store.
    cluster.kubectl(&["-n", namespace, "delete", "event", "markup"]);
    browser.open(&format!("{pod}?tab=events"));
    browser.until("[...document.querySelectorAll('td .badge')].some((one) => one.innerText === 'ended')");
    says(&mut browser, "td");
    assert_eq!(browser.value("[globalThis.harmed ?? 0, document.querySelectorAll('[src=x]').length]"), json!([0, 0]));
    browser.has_no_complaint();

    // If it had become markup, this would have been told.
    browser.value("(() => { try { document.body.innerHTML = '<i>'; } catch {} })()");
    let complaints = browser.complaints();
    assert!(complaints.iter().any(|one| one.contains("Content")), "{complaints:?}");
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

pub fn every_page_is_for_everybody(cluster: &mut Cluster) {
    let namespace = "console-everybody";
    create_namespace(cluster, namespace);
    apply_web(cluster, namespace, 2);
    let pod = pod_page(namespace, &one_pod(cluster, namespace));
    let mut browser = signed_in(cluster, "every_page_is_for_everybody");
    let page = |name: &str, hash: String, ready: &str| (name.to_owned(), hash, ready.to_owned());
    let line = "document.querySelector('.grid .line:not(.heads)')";
    let pages = [
        page("hops", "#/hops".into(), "document.querySelector('.writes a')"),
        page("map", format!("#/map?ns={namespace}"), "document.querySelectorAll('.mapbox path').length > 2"),
        page("time", format!("#/time?kind=%2Fpods&ns={namespace}"), line),
        page("learn", "#/learn".into(), "document.querySelector('.card')"),
        page("pods", format!("#/r/core/pods?ns={namespace}"), line),
        page("nodes", "#/r/core/nodes".into(), line),
        page("events", format!("#/r/core/events?ns={namespace}"), line),
        page("no-such-kind", "#/r/core/nothing".into(), "document.querySelector('.empty')"),
        page("no-such-object", pod_page(namespace, "nothing"), "document.querySelector('.empty')"),
        page("pod", pod.clone(), "document.querySelector('.note.good')"),
        page(
            "pod-hops",
            format!("{pod}?tab=hops"),
            "document.querySelector('.badge.good') && document.querySelector('.fall')",
        ),
        page("pod-yaml", format!("{pod}?tab=yaml"), "document.querySelector('textarea')?.value"),
        page("pod-events", format!("{pod}?tab=events"), "document.querySelector('td')"),
        page("pod-history", format!("{pod}?tab=history"), "document.querySelector('details.panel')"),
        page("pod-logs", format!("{pod}?tab=logs"), "document.querySelector('.log')?.innerText.includes('it began')"),
        page("pod-terminal", format!("{pod}?tab=terminal"), "document.querySelector('.term')?.innerText.includes('#')"),
        page(
            "deployment",
            deployment_page(namespace),
            "document.querySelector('.note.good') && document.querySelectorAll('td a').length > 0",
        ),
        page("node", "#/o/api/v1/nodes/e2e?tab=pods".into(), "document.querySelector('td a')"),
    ];
    for (look, size) in [("light", WIDE), ("dark", WIDE), ("phone", PHONE)] {
        browser.resize(size);
        for (name, hash, ready) in &pages {
            browser.open(hash);
            browser.until(ready);
            browser.picture(&format!("{look}-{name}"));
            browser.is_accessible(&format!("{name}, {look}"));
        }
        if look == "light" {
            browser.press("button", "Switch between light and dark");
            browser.until("document.documentElement.dataset.theme === 'dark'");
        }
    }

    // The palette opens without a mouse.
    browser.resize(WIDE);
    browser.value("document.body.focus()");
    browser.types(":");
    browser.until("document.activeElement.matches('dialog input')");
    browser.is_accessible("palette");
    browser.has_no_complaint();
    cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}
