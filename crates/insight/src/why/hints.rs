//! What the line of a log that matters is about, where the pod or its namespace tells: a Service without endpoints, a file
//! system that may not be written to, the rights of its user. None of it is proved to be the cause, and so it stands beside it.

use ferry_meta::object;
use serde_json::{Map, Value};

use super::containers::{edit, spec};
use super::{Finding, in_namespace, named, near, service};
use crate::gather::ALL_PODS;
use crate::world::World;

/// Adds what is known of what the line names.
pub(super) fn add(world: &World, pod: &Value, container: &str, line: &str, finding: Finding) -> Finding {
    let finding = dark_services(world, pod, line, finding);
    let finding = unknown_name(world, pod, line, finding);
    let lower = line.to_lowercase();
    let finding = match lower.contains("read-only file system") {
        true => read_only(world, pod, container, line, finding),
        false => finding,
    };
    let finding = match lower.contains("address already in use") || lower.contains("eaddrinuse") {
        true => finding.detail(holder_of_port(world, pod, container, line)),
        false => finding,
    };
    if lower.contains("permission denied") || lower.contains("operation not permitted") || lower.contains("eacces") {
        return finding.detail(rights(pod, container));
    }
    // The file is there, as its name tells; what its first line names, or what it is linked with, is not.
    if line.starts_with("exec /") && lower.ends_with("no such file or directory") {
        return finding.detail(
            "if the file is in the image, its interpreter is not: the one of its first line (#!), which may end with a carriage return, or the C library that it is linked with",
        );
    }
    finding
}

/// Who has the port already on which the line says that nobody can listen: another container of the pod, or on the network
/// of the node another pod there. Only what they say of their ports is known.
fn holder_of_port(world: &World, pod: &Value, container: &str, line: &str) -> String {
    let numbers = line.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == ':'));
    let ports: Vec<i64> = numbers
        .flat_map(|word| word.rsplit(':').next())
        .filter_map(|number| number.parse().ok())
        .filter(|number| (1..=65_535).contains(number))
        .collect();
    let has = |one: &Value, field: &str| {
        object::items(one, "/ports")
            .iter()
            .find_map(|port| port.get(field)?.as_i64().filter(|port| ports.contains(port)))
    };
    let containers = ["/spec/initContainers", "/spec/containers"].into_iter();
    let mut containers = containers.flat_map(|list| object::items(pod, list));
    let own = containers.find_map(|one| {
        let name = object::text(one, "/name");
        Some((name, has(one, "containerPort")?)).filter(|_| name != container)
    });
    if let Some((name, port)) = own {
        return format!("container {name} of the same pod has port {port}: containers of a pod share their ports");
    }
    if pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) != Some(true) {
        return String::new();
    }
    let node = object::text(pod, "/spec/nodeName");
    let mut there = world.all(ALL_PODS).iter().filter(|other| {
        object::text(other, "/spec/nodeName") == node
            && object::uid(other) != object::uid(pod)
            && !matches!(object::text(other, "/status/phase"), "Succeeded" | "Failed")
    });
    let holder = there.find_map(|other| {
        let shared = other.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true);
        let field = if shared { "containerPort" } else { "hostPort" };
        let port = object::items(other, "/spec/containers").iter().find_map(|one| has(one, field))?;
        Some((other, port))
    });
    holder.map_or_else(String::new, |(other, port)| {
        format!(
            "it shares the ports of node {node} (hostNetwork), where pod/{} in {} has port {port}",
            object::name(other),
            object::namespace(other)
        )
    })
}

fn is_of_host(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_')
}

/// Words behind which a host stands.
const ASK: [&str; 4] = ["lookup", "host:", "ENOTFOUND", "UnknownHostException:"];
/// Words behind which one may stand.
const MAY_ASK: [&str; 9] = ["to", "at", "address", "resolve", "host", "hostname", "name", "name:", "upstream"];
/// What stands there instead, in the sentences of resolvers.
const NO_HOSTS: [&str; 6] = ["address", "host", "name", "information", "not", "server"];

/// The hosts that a line may name, in their order, each with whether it is certain to be one: it has a port, stands in quotes
/// or behind a word that asks for one.
fn hosts(line: &str) -> Vec<(&str, bool)> {
    let mut found: Vec<(&str, bool)> = Vec::new();
    let mut before = "";
    for word in line.split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | ';' | '=' | '(' | ')')) {
        if word.is_empty() {
            continue;
        }
        let asked = ASK.iter().any(|ask| before.ends_with(ask));
        let may_be = MAY_ASK.contains(&before);
        before = word;
        let word = word.trim_end_matches([':', '.']);
        let bare = word.trim_matches(|letter: char| matches!(letter, '"' | '\'' | '`'));
        let quoted = may_be && bare.len() < word.len();
        let bare = bare.trim_matches(|letter: char| matches!(letter, '<' | '>' | '[' | ']'));
        let (rest, schemed) = match bare.split_once("://") {
            Some((_, rest)) => (rest.split('/').next().and_then(|rest| rest.rsplit('@').next()).unwrap_or(rest), true),
            None => (bare.split('/').next().unwrap_or_default(), false),
        };
        let (host, port) = rest.split_once(':').unwrap_or((rest, ""));
        let numbered = port.parse::<u16>().is_ok();
        let is_host = !host.is_empty() && host.chars().all(is_of_host) && !NO_HOSTS.contains(&host);
        let certain = numbered || schemed || quoted || asked;
        if is_host && (certain || may_be || host.parse::<std::net::IpAddr>().is_ok()) {
            found.push((host, certain));
        }
    }
    found
}

/// The Service of the pod's namespace that a host means: by its name or by its address.
fn meant<'a>(world: &'a World, pod: &Value, host: &str) -> Option<&'a Value> {
    let (name, rest) = host.split_once('.').unwrap_or((host, ""));
    let namespace = object::namespace(pod);
    let own = ["", namespace].contains(&rest)
        || rest.strip_prefix(namespace).is_some_and(|rest| rest == ".svc" || rest.starts_with(".svc."));
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    world.all("services").iter().find(|one| {
        let addresses = object::items(one, "/spec/clusterIPs").iter().filter_map(Value::as_str);
        let mut addresses = addresses.chain([object::text(one, "/spec/clusterIP")]);
        own && object::name(one) == name || is_address && addresses.any(|address| address == host)
    })
}

/// A Service that it names and behind which nothing is ready: everyday trouble of what depends on it.
fn dark_services(world: &World, pod: &Value, line: &str, mut finding: Finding) -> Finding {
    let mut told: Vec<&str> = Vec::new();
    for (host, _) in hosts(line) {
        let Some(found) = meant(world, pod, host).filter(|found| service::is_dark(world, found)) else { continue };
        let name = object::name(found);
        // A line may name it twice: by its name, and by its address.
        if told.contains(&name) {
            continue;
        }
        told.push(name);
        finding = finding
            .detail(format!("it names {host}, which is the Service {name}, behind which nothing is ready"))
            .advise(format!("ferry why {}service/{name}", in_namespace(pod)));
    }
    finding
}

/// Words with which resolvers say that there is no such name.
const UNRESOLVED: [&str; 9] = [
    "host not found",
    "unknownhostexception",
    "no such host",
    "could not resolve",
    "couldn't resolve",
    "name or service not known",
    "enotfound",
    "unknown host",
    "bad address",
];

/// A plain name that did not resolve: in a cluster that is a Service of the pod's own namespace.
fn unknown_name(world: &World, pod: &Value, line: &str, finding: Finding) -> Finding {
    let lower = line.to_lowercase();
    let Some(services) = world.seen("services").filter(|_| UNRESOLVED.iter().any(|text| lower.contains(text))) else {
        return finding;
    };
    let is_plain = |host: &str| {
        let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        host.len() > 1 && host.starts_with(|letter: char| letter.is_ascii_lowercase()) && host.chars().all(letters)
    };
    let is_there = |host: &str| services.iter().any(|one| object::name(one) == host);
    let asked = hosts(line).into_iter().filter(|(host, certain)| *certain && is_plain(host) && !is_there(host));
    let Some(host) = asked.map(|(host, _)| host).next() else { return finding };
    let names = near::sorted(host, services.iter().map(object::name).collect());
    let there = match names.is_empty() {
        true => String::new(),
        false => format!("; there are {}", named(&names)),
    };
    finding
        .detail(format!("there is no Service {host:?} in namespace {}{there}", object::namespace(pod)))
        .advise(format!("kubectl get services {}", in_namespace(pod).trim_end()))
}

/// What makes a file system read-only: the container's own, or a volume that is so by its kind.
fn read_only(world: &World, pod: &Value, container: &str, line: &str, finding: Finding) -> Finding {
    let Some(spec) = spec(pod, container) else { return finding };
    let under = |mount: &&Value| {
        let path = object::text(mount, "/mountPath").trim_end_matches('/');
        !path.is_empty() && line.contains(path)
    };
    let mounts = object::items(spec, "/volumeMounts").iter().filter(under);
    if let Some(mount) = mounts.max_by_key(|mount| object::text(mount, "/mountPath").len()) {
        let name = object::text(mount, "/name");
        let volume = object::items(pod, "/spec/volumes").iter().find(|one| object::text(one, "/name") == name);
        let kinds = ["configMap", "secret", "downwardAPI", "projected", "image"];
        let kind = volume.and_then(|volume| kinds.into_iter().find(|kind| volume.get(*kind).is_some()));
        let path = object::text(mount, "/mountPath");
        let why = match kind {
            Some(kind) => Some(format!("is of kind {kind} and cannot be written to")),
            None if mount["readOnly"].as_bool() == Some(true) => Some("is mounted with readOnly: true".to_owned()),
            None => None,
        };
        if let Some(why) = why {
            return finding.detail(format!("{path} is its volume {name:?}, which {why}")).advise(format!(
                "copy what is needed to an emptyDir, or let it write elsewhere: {}",
                edit(world, pod)
            ));
        }
        return finding;
    }
    if spec.pointer("/securityContext/readOnlyRootFilesystem").and_then(Value::as_bool) != Some(true) {
        return finding;
    }
    finding
        .detail("its own file system is read-only (securityContext.readOnlyRootFilesystem)")
        .advise(format!("mount an emptyDir at the folder that it writes to: {}", edit(world, pod)))
}

/// As whom a container runs, as far as its manifest says so.
fn rights(pod: &Value, container: &str) -> String {
    let own = spec(pod, container).map(|spec| &spec["securityContext"]);
    let of =
        |field: &str| own.and_then(|own| own.get(field)).or_else(|| pod.pointer("/spec/securityContext")?.get(field));
    let mut told = Vec::new();
    if let Some(user) = of("runAsUser").and_then(Value::as_i64) {
        told.push(format!("runs as user {user}"));
    }
    if let Some(group) = of("fsGroup").and_then(Value::as_i64) {
        told.push(format!("has its volumes for group {group}"));
    }
    let none = Map::new();
    let dropped = own.map_or(&none, |own| object::map(own, "/capabilities")).get("drop").and_then(Value::as_array);
    let dropped: Vec<&str> = dropped.into_iter().flatten().filter_map(Value::as_str).collect();
    if !dropped.is_empty() {
        told.push(format!("lacks the capabilities {}", named(&dropped)));
    }
    match told.is_empty() {
        true => String::new(),
        false => format!("the container {} (securityContext)", told.join(", and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::hosts;

    #[test]
    fn hosts_are_found_in_lines() {
        for (line, want) in [
            ("dial tcp: lookup redis on 10.96.0.10:53: no such host", &["redis", "10.96.0.10"][..]),
            ("could not translate host name \"db\" to address: Name or service not known", &["db"]),
            ("failed to lookup address information: Name or service not known", &[]),
            ("curl: (6) Could not resolve host: redis", &["redis"]),
            ("Error: getaddrinfo ENOTFOUND mongo", &["mongo"]),
            ("java.net.UnknownHostException: kafka: Name or service not known", &["kafka"]),
            ("nginx: [emerg] host not found in upstream \"api\" in /etc/nginx/conf.d/default.conf:5", &["api"]),
            ("wget: bad address 'web:80'", &["web"]),
            ("Error -2 connecting to redis:6379. Name or service not known.", &["redis"]),
            ("GET http://user:secret@shop.prod.svc/x: EOF", &["shop.prod.svc"]),
            ("panic: at line 5", &[]),
            ("", &[]),
        ] {
            let found: Vec<&str> =
                hosts(line).into_iter().filter(|(_, certain)| *certain).map(|(host, _)| host).collect();
            assert_eq!(found, want, "{line}");
        }
    }
}
