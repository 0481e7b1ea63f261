//! Labels and taints as flags give them.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Taint;

pub fn pairs(flag: &str, list: &[String]) -> Result<BTreeMap<String, String>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("--{flag} {text:?} is not understood; write it like key=value"),
    };
    list.iter().map(pair).collect()
}

pub fn taint(flag: &str, text: &str) -> Result<Taint> {
    let parts = text.rsplit_once(':').map(|(pair, effect)| (pair.split_once('=').unwrap_or((pair, "")), effect));
    match parts {
        Some(((key, value), effect @ ("NoSchedule" | "PreferNoSchedule" | "NoExecute"))) if !key.is_empty() => {
            let value = (!value.is_empty()).then(|| value.to_owned());
            Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
        }
        _ => bail!("--{flag} {text:?} is not understood; write it like key=value:NoSchedule"),
    }
}
