//! Which ports are meant: `8080:http` of a pod or a Service, and where to listen. Pure.

use std::net::IpAddr;

use serde_json::Value;

/// A port here and one of the pod. 0 here is any that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    pub local: u16,
    pub remote: u16,
}

/// An address to listen on. Of those that `localhost` means, one is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    pub one_is_enough: bool,
}

fn split(word: &str) -> (&str, &str) {
    let mut parts = word.split(':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(local), Some(remote), None) => (local, remote),
        (first, _, _) => (first.unwrap_or_default(), first.unwrap_or_default()),
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn list<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

fn is_named(port: &Value, name: &str) -> bool {
    port["name"].as_str().unwrap_or_default() == name
}

fn port_of_pod(pod: &Value, wanted: &str) -> Result<i64, String> {
    let containers = list(pod, "/spec/containers").chain(list(pod, "/spec/initContainers"));
    let mut ports = containers.flat_map(|container| list(container, "/ports"));
    let found = ports.find(|port| is_named(port, wanted)).and_then(|port| port["containerPort"].as_i64());
    found.ok_or_else(|| format!("Pod '{}' does not have a named port '{wanted}'", name(pod)))
}

fn port_of_service(service: &Value, wanted: &str) -> Result<i64, String> {
    let found = list(service, "/spec/ports").find(|port| is_named(port, wanted)).and_then(|port| port["port"].as_i64());
    found.ok_or_else(|| format!("Service '{}' does not have a named port '{wanted}'", name(service)))
}

/// A port of a Service that a pod has: by its number, which may be another there, or a name.
fn behind(service: &Value, pod: &Value, number: i64) -> Result<i64, String> {
    let Some(port) = list(service, "/spec/ports").find(|port| port["port"].as_i64() == Some(number)) else {
        return Err(format!("Service {} does not have a service port {number}", name(service)));
    };
    if service["spec"]["clusterIP"] == "None" {
        return Ok(number);
    }
    match &port["targetPort"] {
        Value::String(name) => port_of_pod(pod, name),
        target => Ok(target.as_i64().filter(|target| *target != 0).unwrap_or(number)),
    }
}

/// UDP cannot be forwarded: a port that is not of TCP as well is refused.
fn check_udp(words: &[String], object: &Value, ports: &[(i64, &str)]) -> Result<(), String> {
    for word in words {
        let (_, remote) = split(word);
        let number = match remote.parse::<i64>() {
            Ok(number) => number,
            Err(_) if object["kind"] == "Service" => port_of_service(object, remote)?,
            Err(_) => port_of_pod(object, remote)?,
        };
        let has = |protocol: &str| ports.contains(&(number, protocol));
        if has("UDP") && !has("TCP") {
            return Err(format!("UDP protocol is not supported for {remote}"));
        }
    }
    Ok(())
}

/// The words with the numbers of the pod's ports.
pub fn translated(words: &[String], object: &Value, pod: &Value) -> Result<Vec<String>, String> {
    let protocol = |port: &'_ Value| if port["protocol"] == "UDP" { "UDP" } else { "TCP" };
    let is_service = object["kind"] == "Service";
    if is_service {
        let ports: Vec<(i64, &str)> = list(object, "/spec/ports")
            .filter(|port| port["protocol"] != "SCTP")
            .filter_map(|port| Some((port["port"].as_i64()?, protocol(port))))
            .collect();
        check_udp(words, object, &ports)?;
    } else {
        let ports: Vec<(i64, &str)> = list(pod, "/spec/containers")
            .flat_map(|container| list(container, "/ports"))
            .filter(|port| port["protocol"] != "SCTP")
            .filter_map(|port| Some((port["containerPort"].as_i64()?, protocol(port))))
            .collect();
        check_udp(words, pod, &ports)?;
    }
    let mut found = Vec::new();
    for word in words {
        let (local, remote) = split(word);
        let mut local = local.to_owned();
        let target = if is_service {
            let number = match remote.parse::<i64>() {
                Ok(number) => number,
                Err(_) => {
                    let number = port_of_service(object, remote)?;
                    if local == remote {
                        local = number.to_string();
                    }
                    number
                }
            };
            behind(object, pod, number)?.to_string()
        } else if remote.is_empty() {
            return Err("remote port cannot be empty".into());
        } else {
            let same = local == remote;
            let target = match remote.parse::<i64>() {
                Ok(_) => remote.to_owned(),
                Err(_) => port_of_pod(pod, remote)?.to_string(),
            };
            if same {
                local.clone_from(&target);
            }
            target
        };
        found.push(if local == target { target } else { format!("{local}:{target}") });
    }
    Ok(found)
}

fn number(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let why = if digits { "value out of range" } else { "invalid syntax" };
    text.parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| format!("strconv.ParseUint: parsing {}: {why}", crate::text::quote(text)))
}

pub fn parse(words: &[String]) -> Result<Vec<Forward>, String> {
    let one = |word: &String| {
        let parts: Vec<&str> = word.split(':').collect();
        let (local, remote) = match &*parts {
            [port] => (*port, *port),
            [local, remote] => (if local.is_empty() { "0" } else { *local }, *remote),
            _ => return Err(format!("invalid port format '{word}'")),
        };
        let forward = Forward {
            local: number(local).map_err(|why| format!("error parsing local port '{local}': {why}"))?,
            remote: number(remote).map_err(|why| format!("error parsing remote port '{remote}': {why}"))?,
        };
        if forward.remote == 0 { Err("remote port must be > 0".to_owned()) } else { Ok(forward) }
    };
    words.iter().map(one).collect()
}

pub fn addresses(words: &[String]) -> Result<Vec<Address>, String> {
    let mut found: Vec<(String, Address)> = Vec::new();
    for word in words {
        if word == "localhost" {
            for text in ["127.0.0.1", "::1"] {
                if let (false, Ok(ip)) = (found.iter().any(|(known, _)| known == text), text.parse()) {
                    found.push((text.to_owned(), Address { ip, one_is_enough: true }));
                }
            }
            continue;
        }
        let ip = word.parse().map_err(|_| format!("{word} is not a valid IP"))?;
        found.retain(|(known, _)| known != word);
        found.push((word.clone(), Address { ip, one_is_enough: false }));
    }
    if found.is_empty() {
        return Err("you must specify at least 1 address".into());
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found.into_iter().map(|(_, address)| address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn names_and_service_ports_become_ports_of_the_pod() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"ports": [
            {"name": "http", "containerPort": 80}, {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ]}]}});
        let service = json!({"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [
            {"name": "web", "port": 8000, "targetPort": "http"}, {"name": "other", "port": 9000, "targetPort": 90},
        ]}});
        for (object, given, expected) in [
            (&pod, "http", Ok("80")),
            (&pod, "8080:http", Ok("8080:80")),
            (&pod, ":80", Ok(":80")),
            (&pod, "dns", Err("UDP protocol is not supported for dns")),
            (&pod, "nope", Err("Pod 'p' does not have a named port 'nope'")),
            (&service, "web", Ok("8000:80")),
            (&service, "9000", Ok("9000:90")),
            (&service, "1:other", Ok("1:90")),
            (&service, "80", Err("Service s does not have a service port 80")),
            (&service, "nope", Err("Service 's' does not have a named port 'nope'")),
        ] {
            let found = translated(&words(given), object, &pod).map(|found| found.join(" "));
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{given}");
        }
    }

    #[test]
    fn complaints_are_kubectls() {
        for (given, why) in [
            ("1:2:3", "invalid port format '1:2:3'"),
            ("x:80", r#"error parsing local port 'x': strconv.ParseUint: parsing "x": invalid syntax"#),
            (
                "80:70000",
                r#"error parsing remote port '70000': strconv.ParseUint: parsing "70000": value out of range"#,
            ),
            ("-1", r#"error parsing local port '-1': strconv.ParseUint: parsing "-1": invalid syntax"#),
            ("0", "remote port must be > 0"),
        ] {
            assert_eq!(parse(&words(given)).err().as_deref(), Some(why), "{given}");
        }
        assert_eq!(parse(&words(":80")), Ok(vec![Forward { local: 0, remote: 80 }]));
        assert_eq!(addresses(&words("nowhere")), Err("nowhere is not a valid IP".to_owned()));
        assert_eq!(addresses(&words("localhost 127.0.0.1")).map(|found| found.len()), Ok(2));
    }
}
