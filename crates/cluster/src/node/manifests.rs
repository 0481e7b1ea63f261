//! Pods in files of the node, read as the API server would read them: with its defaults and by its rules.

use ferry_meta::FieldErrors;
use ferry_registry::core::pod;
use ferry_registry::cursor::Cursor;
use serde_json::Value;

pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    let (mut object, duplicates) = ferry_schema::yaml::parse_value(bytes).map_err(|error| error.to_string())?;
    if !duplicates.is_empty() {
        return Err(duplicates.join(", "));
    }
    let kind = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
    if kind != ("v1", "Pod") {
        return Err(format!("invalid pod: it is a {:?} of {:?}", kind.1, kind.0));
    }
    if let Some(map) = object.as_object_mut() {
        pod::default_template(map);
    }
    let mut errors = FieldErrors::default();
    pod::validate_template(&mut errors, &Cursor::root(&object));
    let lines: Vec<String> = errors.iter().map(|error| error.line()).collect();
    if lines.is_empty() { Ok(object) } else { Err(format!("invalid pod: {}", lines.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_the_defaults_and_the_rules_of_the_api() {
        let web = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n";
        let pod = parse(web.as_bytes()).expect("a pod");
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
        let refused = |text: &str, why: &str| {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(why), "{error}");
        };
        refused("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}\n", "spec.containers");
        refused("apiVersion: apps/v1\nkind: Deployment\n", "invalid pod: it is a \"Deployment\" of \"apps/v1\"");
        refused("a: [", "");
        refused("just text", "invalid pod");
    }
}
