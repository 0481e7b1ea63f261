//! Reading a Pod: short ways to the fields that the rest of the kubelet asks for again and again.

use std::borrow::Cow;
use std::hash::Hasher;

use ferry_semantics::qos::QosClass;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, EphemeralContainer, Pod, PodSpec, PodStatus};

/// Which list of the spec a container stands in, and how it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: started in order, then kept alive beside the others.
    Sidecar,
    Regular,
    /// Added to a running pod for debugging; never restarted.
    Ephemeral,
}

static EMPTY_SPEC: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
static EMPTY_STATUS: std::sync::LazyLock<PodStatus> = std::sync::LazyLock::new(PodStatus::default);

pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap_or(&EMPTY_SPEC)
}

pub(crate) fn status(pod: &Pod) -> &PodStatus {
    pod.status.as_ref().unwrap_or(&EMPTY_STATUS)
}

pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// As upstream prints a pod in messages: `name_namespace(uid)`.
pub(crate) fn printed(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

pub(crate) fn init_containers(pod: &Pod) -> &[Container] {
    spec(pod).init_containers.as_deref().unwrap_or_default()
}

pub(crate) fn containers(pod: &Pod) -> &[Container] {
    &spec(pod).containers
}

pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

pub(crate) fn role_of_init(container: &Container) -> Role {
    if is_sidecar(container) { Role::Sidecar } else { Role::Init }
}

/// Ephemeral containers as containers: the types differ by name and by one field only.
pub(crate) fn ephemeral_containers(pod: &Pod) -> Vec<Container> {
    let list = spec(pod).ephemeral_containers.as_deref().unwrap_or_default();
    list.iter().cloned().map(as_container).collect()
}

fn as_container(ephemeral: EphemeralContainer) -> Container {
    Container {
        args: ephemeral.args,
        command: ephemeral.command,
        env: ephemeral.env,
        env_from: ephemeral.env_from,
        image: ephemeral.image,
        image_pull_policy: ephemeral.image_pull_policy,
        lifecycle: ephemeral.lifecycle,
        liveness_probe: ephemeral.liveness_probe,
        name: ephemeral.name,
        ports: ephemeral.ports,
        readiness_probe: ephemeral.readiness_probe,
        resize_policy: ephemeral.resize_policy,
        resources: ephemeral.resources,
        restart_policy: ephemeral.restart_policy,
        restart_policy_rules: ephemeral.restart_policy_rules,
        security_context: ephemeral.security_context,
        startup_probe: ephemeral.startup_probe,
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        termination_message_path: ephemeral.termination_message_path,
        termination_message_policy: ephemeral.termination_message_policy,
        tty: ephemeral.tty,
        volume_devices: ephemeral.volume_devices,
        volume_mounts: ephemeral.volume_mounts,
        working_dir: ephemeral.working_dir,
    }
}

pub(crate) fn container<'a>(pod: &'a Pod, name: &str) -> Option<(Role, Cow<'a, Container>)> {
    if let Some(found) = containers(pod).iter().find(|c| c.name == name) {
        return Some((Role::Regular, Cow::Borrowed(found)));
    }
    if let Some(found) = init_containers(pod).iter().find(|c| c.name == name) {
        return Some((role_of_init(found), Cow::Borrowed(found)));
    }
    let found = ephemeral_containers(pod).into_iter().find(|c| c.name == name)?;
    Some((Role::Ephemeral, Cow::Owned(found)))
}

pub(crate) fn container_status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|s| s.name == name)
}

pub(crate) fn host_network(pod: &Pod) -> bool {
    spec(pod).host_network == Some(true)
}

/// Whether the pod has requests or limits of its own, beside those of its containers.
pub(crate) fn has_pod_resources(pod: &Pod) -> bool {
    spec(pod).resources.as_ref().is_some_and(|all| all.requests.is_some() || all.limits.is_some())
}

/// The user that every container of the pod runs as; none where one of them says nothing or another.
pub(crate) fn only_user(pod: &Pod) -> Option<i64> {
    let shared = spec(pod).security_context.as_ref().and_then(|context| context.run_as_user);
    let of = |container: &Container| {
        let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
        own.or(shared)
    };
    let ephemeral = ephemeral_containers(pod);
    let mut all = init_containers(pod).iter().chain(containers(pod)).chain(&ephemeral).map(of);
    let first = all.next()??;
    all.all(|user| user == Some(first)).then_some(first)
}

pub(crate) fn is_being_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

const SOURCE: &str = "kubernetes.io/config.source";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Notes where a pod comes from, over whatever it says itself: anybody may write annotations.
pub(crate) fn comes_from_api(pod: &mut Pod) {
    pod.metadata.annotations.get_or_insert_default().insert(SOURCE.to_owned(), "api".to_owned());
}

/// Whether the pod comes from a file of the node instead of the API server.
pub(crate) fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api")
}

/// Whether it says that it stands on the API server for a pod from a file. It never runs itself. Which pod that is, is
/// known by its place alone: see [`crate::manifests::Mirrors::runtime_uid`].
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// Which version of the pod from a file a mirror says it shows.
pub(crate) fn mirrored(pod: &Pod) -> Option<&str> {
    annotation(pod, MIRROR)
}

pub(crate) fn mark_as_mirror(pod: &mut Pod, of: &str) {
    pod.metadata.annotations.get_or_insert_default().insert(MIRROR.to_owned(), of.to_owned());
}

/// Succeeded and Failed are final: such a pod is never started again.
pub(crate) fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

pub(crate) fn grace_seconds(pod: &Pod) -> i64 {
    let of_deletion = pod.metadata.deletion_grace_period_seconds;
    of_deletion.or(spec(pod).termination_grace_period_seconds).unwrap_or(30).max(0)
}

/// What the first rule that matches says to do after an exit.
fn rule(container: &Container, exit_code: i32) -> Option<&str> {
    let matching = container.restart_policy_rules.iter().flatten().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.as_deref().unwrap_or_default().contains(&exit_code);
            listed == (codes.operator == "In")
        })
    });
    matching.map(|rule| rule.action.as_str())
}

const RESTART_ALL: &str = "RestartAllContainers";

/// Whether everything of the pod is started anew because this container ended.
pub(crate) fn restarts_all(container: &Container, exit_code: i32) -> bool {
    rule(container, exit_code) == Some(RESTART_ALL)
}

/// Whether some exit of some container starts everything of the pod anew.
pub(crate) fn could_restart_all(pod: &Pod) -> bool {
    let mut all = containers(pod).iter().chain(init_containers(pod));
    all.any(|c| c.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL))
}

/// Whether a container that ended with `exit_code` is started again.
pub(crate) fn restarts_after(pod: &Pod, role: Role, container: &Container, exit_code: i32) -> bool {
    match role {
        Role::Sidecar => return true,
        Role::Ephemeral => return false,
        Role::Init | Role::Regular => {}
    }
    if let Some(action) = rule(container, exit_code) {
        return matches!(action, "Restart" | RESTART_ALL);
    }
    let policy = container.restart_policy.as_deref().or(spec(pod).restart_policy.as_deref()).unwrap_or("Always");
    match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        // A finished init container is done, whatever the policy.
        _ => role == Role::Regular || exit_code != 0,
    }
}

/// Changes when the container has to be replaced. Only the image may change in a running pod.
pub(crate) fn container_hash(container: &Container) -> String {
    let mut hasher = Fnv1a::new();
    hasher.write(container.name.as_bytes());
    hasher.write(b"\0");
    hasher.write(container.image.as_deref().unwrap_or_default().as_bytes());
    format!("{:x}", hasher.finish())
}

/// Stable over restarts and versions, unlike the standard library's hasher: the value is kept on the container.
pub(crate) struct Fnv1a(u64);

impl Fnv1a {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv1a {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Guaranteed, Burstable or BestEffort.
pub(crate) fn qos_class(pod: &Pod) -> &'static str {
    if let Some(class) = status(pod).qos_class.as_deref().and_then(QosClass::named) {
        return class.as_str();
    }
    QosClass::of(spec(pod)).as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
    }

    #[test]
    fn ephemeral_containers_keep_what_they_say() {
        let said = json!({
            "args": ["a"], "command": ["c"], "env": [{"name": "E", "value": "1"}], "envFrom": [{"prefix": "P"}],
            "image": "i", "imagePullPolicy": "Always", "name": "debug", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            "resources": {"limits": {"cpu": "1"}}, "securityContext": {"runAsUser": 1}, "stdin": true, "stdinOnce": true,
            "terminationMessagePath": "/t", "terminationMessagePolicy": "File", "tty": true,
            "volumeDevices": [{"devicePath": "/d", "name": "d"}], "volumeMounts": [{"mountPath": "/m", "name": "m"}], "workingDir": "/w",
        });
        let mut with_target = said.clone();
        with_target["targetContainerName"] = "web".into();
        let containers = ephemeral_containers(&pod(json!({"containers": [], "ephemeralContainers": [with_target]})));
        assert_eq!(serde_json::to_value(&containers).expect("a value"), json!([said]));
    }

    #[test]
    fn a_pod_of_the_api_server_is_never_static() {
        let annotations = json!({"kubernetes.io/config.source": "file"});
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {"annotations": annotations}})).expect("a pod");
        assert!(is_static(&pod));
        comes_from_api(&mut pod);
        assert!(!is_static(&pod));
    }

    #[test]
    fn the_class_that_was_told_counts_before_the_spec() {
        let mut pod = pod(json!({"containers": [{"name": "a"}]}));
        assert_eq!(qos_class(&pod), "BestEffort");
        for (told, class) in [("Guaranteed", "Guaranteed"), ("Best", "BestEffort")] {
            pod.status = serde_json::from_value(json!({"qosClass": told})).expect("a status");
            assert_eq!(qos_class(&pod), class);
        }
    }

    #[test]
    fn restarts_follow_the_policy_and_its_rules() {
        let check = |policy: &str, container: serde_json::Value, role: Role, code: i32, expected: bool| {
            let pod = pod(json!({"restartPolicy": policy, "containers": [container]}));
            let container = &containers(&pod)[0];
            assert_eq!(restarts_after(&pod, role, container, code), expected, "{policy} {role:?} {code}");
        };
        check("Always", json!({"name": "a"}), Role::Regular, 0, true);
        check("Always", json!({"name": "a"}), Role::Init, 0, false);
        check("Always", json!({"name": "a"}), Role::Init, 1, true);
        check("OnFailure", json!({"name": "a"}), Role::Regular, 0, false);
        check("OnFailure", json!({"name": "a"}), Role::Regular, 2, true);
        check("Never", json!({"name": "a"}), Role::Regular, 2, false);
        check("Never", json!({"name": "a"}), Role::Sidecar, 0, true);
        let ruled = json!({"name": "a", "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]});
        check("Never", ruled.clone(), Role::Regular, 42, true);
        check("Never", ruled, Role::Regular, 1, false);
    }
}
