//! `kubectl taint`.

use serde_json::{Value, json};

use super::common::{self, DryRun, Report, STRATEGIC, with};
use super::{Command, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, switch};
use crate::resource::{Builder, Info, read_all};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "taint",
    "NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N",
    "Update the taints on one or more nodes",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = with(&[], "kubectl-taint");
    flags.extend([
        common::VALIDATE,
        common::SELECTOR,
        common::ALL,
        switch("overwrite", "Change taints that are there."),
    ]);
    flags
}

struct Taint {
    key: String,
    value: String,
    effect: String,
}

fn parse(context: &Context, spec: &str) -> Result<Taint> {
    let refused = |reasons: Vec<String>| match reasons.is_empty() {
        true => Ok(()),
        false => Err(context.usage(format!("invalid taint spec: {spec}, {}", reasons.join("; ")))),
    };
    let (key, value, effect) = match &*spec.split(':').collect::<Vec<_>>() {
        [key] => (*key, "", ""),
        [pair, effect] => {
            if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(effect) {
                return Err(context.usage(format!("invalid taint effect: {effect}, unsupported taint effect")));
            }
            let (key, value) = pair.split_once('=').unwrap_or((*pair, ""));
            if value.contains('=') {
                return Err(context.usage(format!("invalid taint spec: {spec}")));
            }
            refused(ferry_meta::names::label_value(value))?;
            (key, value, *effect)
        }
        _ => return Err(context.usage(format!("invalid taint spec: {spec}"))),
    };
    refused(ferry_meta::names::qualified_name(key))?;
    Ok(Taint { key: key.into(), value: value.into(), effect: effect.into() })
}

async fn run(context: &Context) -> Result<()> {
    let words = context.words();
    let is_spec = |word: &String| word.contains(['=', ':']) || word.ends_with('-');
    let at = words.iter().position(is_spec).unwrap_or(words.len());
    let (resources, specs) = words.split_at(at);
    let (mut add, mut remove) = (Vec::new(), Vec::new());
    for spec in specs {
        match spec.strip_suffix('-') {
            Some(spec) => remove.push(parse(context, spec)?),
            None => {
                let taint = parse(context, spec)?;
                if taint.effect.is_empty() {
                    return Err(context.usage(format!("invalid taint spec: {spec}")));
                }
                if add.iter().any(|known: &Taint| known.key == taint.key && known.effect == taint.effect) {
                    let Taint { key, value, effect } = taint;
                    return Err(context.usage(format!(
                        "duplicated taints with the same key and effect: {{{key} {value} {effect} <nil>}}"
                    )));
                }
                add.push(taint);
            }
        }
    }
    if resources.is_empty() {
        return Err(Error::say("one or more resources must be specified as <resource> <name>"));
    }
    let kind = resources[0].split('/').next().unwrap_or_default();
    if !["node", "nodes", "no"].contains(&kind) {
        context.resource(kind).await.map_err(Error::plain)?;
        return Err(Error::say(format!(
            "invalid resource type {}, only node types are supported",
            resources[0].split('/').next().unwrap_or_default()
        )));
    }
    if add.is_empty() && remove.is_empty() {
        return Err(Error::say("at least one taint update is required"));
    }
    let both: Vec<String> = add
        .iter()
        .flat_map(|new| remove.iter().filter(|old| old.key == new.key && [&*new.effect, ""].contains(&&*old.effect)))
        .map(|old| format!("{}={}", old.key, old.effect))
        .collect();
    if !both.is_empty() {
        return Err(Error::say(format!(
            "can not both modify and remove the following taint(s) in the same command: {}",
            both.join(", ")
        )));
    }
    let report = Report::of(context)?.like_a_real_run();
    // All of them, whatever names stand there too.
    let resources = if context.flags.is("all") { &resources[..1] } else { resources };
    let mut builder = Builder::of(context).words(resources);
    builder.empty_selector = context.flags.is("all");
    let built = builder.build(context).await?;
    let (infos, mut errors) = read_all(context, &built.targets, 500).await;
    for info in infos {
        if let Err(error) = one(context, &info, &add, &remove, &report).await {
            errors.push(error);
        }
    }
    Error::all(errors)
}

async fn one(context: &Context, info: &Info, add: &[Taint], remove: &[Taint], report: &Report) -> Result<()> {
    let mut taints: Vec<Value> = info.object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let same = |known: &Value, taint: &Taint| {
        known["key"] == *taint.key && (taint.effect.is_empty() || known["effect"] == *taint.effect)
    };
    if !context.flags.is("overwrite") {
        let taken: Vec<String> = add
            .iter()
            .filter(|taint| taints.iter().any(|known| same(known, taint)))
            .map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect))
            .collect();
        if !taken.is_empty() {
            return Err(Error::say(format!(
                "node {} already has {} taint(s) with same effect(s) and --overwrite is false",
                info.name,
                add.iter()
                    .filter(|t| taints.iter().any(|k| same(k, t)))
                    .map(|t| t.key.as_str())
                    .collect::<Vec<_>>()
                    .join(",")
            )));
        }
    }
    for taint in remove {
        let before = taints.len();
        taints.retain(|known| !same(known, taint));
        if taints.len() == before {
            return Err(Error::say(match &*taint.effect {
                "" => format!("taint \"{}\" not found", taint.key),
                effect => format!("taint \"{}:{effect}\" not found", taint.key),
            }));
        }
    }
    let mut new: Vec<Value> = Vec::new();
    let mut replaced = false;
    for taint in add {
        replaced |= taints.iter().any(|known| same(known, taint));
        taints.retain(|known| !same(known, taint));
        let mut entry = json!({"key": taint.key, "effect": taint.effect});
        if !taint.value.is_empty() {
            entry["value"] = taint.value.clone().into();
        }
        new.push(entry);
    }
    new.extend(taints);
    let body =
        json!({"spec": {"taints": new}, "metadata": {"resourceVersion": info.object["metadata"]["resourceVersion"]}});
    let object = match report.dry_run {
        DryRun::Client => super::apply::merged(info, common::MERGE, &info.object, &body),
        dry_run => common::patch(context, info, STRATEGIC, &body, dry_run).await?,
    };
    let what = match (add.is_empty(), remove.is_empty()) {
        (false, false) => "modified",
        (false, true) if replaced => "modified",
        (false, true) => "tainted",
        _ => "untainted",
    };
    report.done(info, &object, what)
}
