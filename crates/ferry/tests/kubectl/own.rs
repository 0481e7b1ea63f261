//! What Ferry has beside kubectl: `ferry apply`, which waits, and `ferry get --live`.

use crate::lines::Answer;
use crate::server::Server;

fn ferry(server: &Server, line: &str) -> Answer {
    server.run(env!("CARGO_BIN_EXE_ferry").as_ref(), &[], line)
}

#[test]
fn apply_waits_until_all_is_there_or_says_why_not() {
    let server = Server::start();
    let applied = ferry(&server, "apply -f files/secret.yaml");
    assert_eq!(applied.code, 0, "{applied:?}");
    assert!(applied.output.starts_with("secret/") && applied.output.contains(" serverside-applied\n"), "{applied:?}");
    // Nobody makes pods of it here: it does not get ready, and that is said.
    let waiting = ferry(&server, "apply -f files/deployment.yaml --timeout=1s");
    assert!(matches!(waiting.code, 1 | 3), "{waiting:?}");
    assert!(waiting.output.contains("deployment.apps/shop serverside-applied\n"), "{waiting:?}");
    assert!(waiting.output.matches("shop").count() > 1, "it says what it waits for: {waiting:?}");
    let not_waited_for = ferry(&server, "apply -f files/deployment.yaml --no-wait");
    assert_eq!((not_waited_for.code, &*not_waited_for.output), (0, "deployment.apps/shop serverside-applied\n"));
    let refused = ferry(&server, "apply -f files/bad-pod.yaml");
    assert_eq!((refused.code, &*refused.output), (1, ""), "{refused:?}");
}

#[test]
fn get_is_kubectls_and_live_needs_a_terminal() {
    let server = Server::start();
    assert_eq!(ferry(&server, "get ns default -o name").output, "namespace/default\n");
    let live = ferry(&server, "get ns --live");
    assert_eq!(live.code, 1);
    assert_eq!(live.errors, "error: --live needs a terminal; --watch writes the changes line by line\n");
    assert_eq!(ferry(&server, "kubectl get ns --live").errors.lines().next(), Some("error: unknown flag: --live"));
}
