//! The rules of environment variables and of the sources they are filled from.

use ferry_meta::{FieldErrors, names};

use crate::check;
use crate::cursor::{Cursor, Report};
use crate::strategy::subdomain_name;

pub fn variables(errors: &mut FieldErrors, container: &Cursor<'_>) {
    for variable in container.items("env") {
        errors.named(variable.at("name"), variable.text("name"), names::environment_variable);
        value_from(errors, &variable);
    }
}

fn value_from(errors: &mut FieldErrors, variable: &Cursor<'_>) {
    let source = variable.get("valueFrom");
    if !source.exists() {
        return;
    }
    let mut count = 0;
    let mut each = |key: &str, rule: &dyn Fn(&mut FieldErrors, &Cursor<'_>)| {
        let part = source.get(key);
        if part.exists() {
            count += 1;
            rule(errors, &part);
        }
    };
    each("fieldRef", &|errors, part| field_reference(errors, part, &ENVIRONMENT_FIELDS));
    each("resourceFieldRef", &|errors, part| resource_reference(errors, part, false));
    each("configMapKeyRef", &key_reference);
    each("secretKeyRef", &key_reference);
    each("fileKeyRef", &file_reference);
    let path = source.path.clone();
    if count == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", detail);
    } else if !variable.text("value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// Fields a variable may show, sorted as the refusal lists them.
const ENVIRONMENT_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields a file of a volume may show.
pub const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// `path` and `key` of `path['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (path, rest) = path.split_once("['")?;
    Some((path, rest.strip_suffix("']")?))
}

pub fn field_reference(errors: &mut FieldErrors, reference: &Cursor<'_>, allowed: &[&str]) {
    if reference.text("apiVersion").is_empty() {
        return errors.required(reference.at("apiVersion"), "");
    }
    let field = reference.text("fieldPath");
    if field.is_empty() {
        return errors.required(reference.at("fieldPath"), "");
    }
    let version = reference.text("apiVersion");
    if version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        return errors.invalid(reference.at("fieldPath"), field, detail);
    }
    if let Some((path, key)) = subscript(field) {
        let path_of = reference.path.clone();
        match path {
            "metadata.annotations" => {
                errors.reasons(path_of, &key.to_lowercase(), names::qualified_name(&key.to_lowercase()))
            }
            "metadata.labels" => errors.reasons(path_of, key, names::qualified_name(key)),
            _ => {
                let detail = format!("error converting fieldPath: field label does not support subscript: {field}");
                errors.invalid(reference.at("fieldPath"), field, detail);
            }
        }
        return;
    }
    let known = ENVIRONMENT_FIELDS.contains(&field)
        || VOLUME_FIELDS.contains(&field)
        || ["spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"].contains(&field);
    if !known {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        errors.invalid(reference.at("fieldPath"), field, detail);
    } else if !allowed.contains(&field) {
        errors.unsupported(reference.at("fieldPath"), field, allowed);
    }
}

const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub fn resource_reference(errors: &mut FieldErrors, reference: &Cursor<'_>, in_volume: bool) {
    let resource = reference.text("resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|prefix| resource.starts_with(prefix));
    if in_volume && reference.text("containerName").is_empty() {
        errors.required(reference.at("containerName"), "");
    } else if resource.is_empty() {
        errors.required(reference.at("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !huge {
        errors.unsupported(reference.at("resource"), resource, &RESOURCE_FIELDS);
    }
    let Some(divisor) = reference.quantity("divisor").filter(|d| !d.is_zero()) else { return };
    let divisor = divisor.to_string();
    let sizes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let what = match resource {
        "limits.cpu" | "requests.cpu" => {
            if !["1m", "1"].contains(&divisor.as_str()) {
                let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
                errors.invalid(reference.at("divisor"), resource, detail);
            }
            return;
        }
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if huge => "hugepages",
        _ => return,
    };
    if !sizes.contains(&divisor.as_str()) {
        let detail = format!("only divisor's values {} are supported with the {what} resource", sizes.join(", "));
        errors.invalid(reference.at("divisor"), resource, detail);
    }
}

/// A key of a ConfigMap or a Secret.
fn key_reference(errors: &mut FieldErrors, reference: &Cursor<'_>) {
    let name = reference.text("name");
    errors.reasons(reference.at("name"), name, names::dns1123_subdomain(name));
    errors.named(reference.at("key"), reference.text("key"), names::config_key);
}

fn file_reference(errors: &mut FieldErrors, reference: &Cursor<'_>) {
    errors.named(reference.at("key"), reference.text("key"), names::environment_variable);
    errors.named(reference.at("volumeName"), reference.text("volumeName"), names::dns1123_label);
    match reference.text("path") {
        "" => errors.required(reference.at("path"), ""),
        path => check::no_backsteps(errors, reference.at("path"), path),
    }
}

/// `envFrom`: whole ConfigMaps and Secrets.
pub fn sources(errors: &mut FieldErrors, container: &Cursor<'_>) {
    for source in container.items("envFrom") {
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.reasons(source.at("prefix"), prefix, names::environment_variable(prefix));
        }
        let mut count = 0;
        for part in ["configMapRef", "secretRef"].map(|key| source.get(key)) {
            if part.exists() {
                count += 1;
                errors.named(part.at("name"), part.text("name"), |name| subdomain_name(name, true));
            }
        }
        let path = container.at("envFrom");
        match count {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}
