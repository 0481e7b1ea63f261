//! `kubectl completion`: scripts that ask this program what may come next, and its answers.

use super::{COMMANDS, Command, GLOBAL, Run, leaf};
use crate::error::Result;
use crate::flags::Parsed;
use crate::resource::{Selection, list};
use crate::session::Context;
use crate::text::{line, print, quote, warn};

pub const COMMAND: Command = leaf(
    "completion",
    "SHELL",
    "Output shell completion code for the specified shell (bash, zsh, fish, or powershell)",
    Vec::new,
    |c| Box::pin(run(c)),
);

const BASH: &str = r#"# kubectl for bash: source <(kubectl completion bash)
_kubectl_words() {
    mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" __completeNoDesc "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | sed '$d')
}
complete -o default -F _kubectl_words kubectl
"#;
const ZSH: &str = r#"#compdef kubectl
# kubectl for zsh: source <(kubectl completion zsh)
_kubectl() {
    local -a found
    found=("${(@f)$(${words[1]} __completeNoDesc "${(@)words[2,$CURRENT]}" 2>/dev/null | sed '$d')}")
    [[ -n "$found" ]] && compadd -a found || _files
}
compdef _kubectl kubectl
"#;
const FISH: &str = r#"# kubectl for fish: kubectl completion fish | source
function __kubectl_words
    set -l before (commandline -opc)
    $before[1] __complete $before[2..-1] (commandline -ct) 2>/dev/null | string match -v ':*'
end
complete -c kubectl -f -a '(__kubectl_words)'
"#;
const POWERSHELL: &str = r#"# kubectl for PowerShell: kubectl completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName kubectl -ScriptBlock {
    param($word, $line, $position)
    $before = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    if ($word -eq '') { $before += '' }
    kubectl __completeNoDesc @before 2>$null | Where-Object { $_ -notmatch '^:' } | ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) }
}
"#;

async fn run(context: &Context) -> Result<()> {
    let shell = match context.words() {
        [] => return Err(context.usage("Shell not specified.")),
        [shell] => shell,
        _ => return Err(context.usage("Too many arguments. Expected only the shell type.")),
    };
    print(match &**shell {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        "powershell" => POWERSHELL,
        other => return Err(context.usage(format!("Unsupported shell type {}.", quote(other)))),
    });
    Ok(())
}

/// What the shell does with the answer, by the numbers that kubectl's own scripts know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Default = 0,
    NoFileComp = 4,
    /// A slash follows, and then a name.
    NoSpaceNoFileComp = 6,
    FilterFileExt = 8,
}

impl Directive {
    fn name(self) -> &'static str {
        match self {
            Self::Default => "ShellCompDirectiveDefault",
            Self::NoFileComp => "ShellCompDirectiveNoFileComp",
            Self::NoSpaceNoFileComp => "ShellCompDirectiveNoSpace, ShellCompDirectiveNoFileComp",
            Self::FilterFileExt => "ShellCompDirectiveFilterFileExt",
        }
    }
}

/// A word that may come, and what it is for.
type Candidate = (String, String);

fn plain(words: impl IntoIterator<Item = impl Into<String>>) -> Vec<Candidate> {
    words.into_iter().map(|word| (word.into(), String::new())).collect()
}

/// What may stand in place of the last word: a word in each line, what the shell is to do with them in the last.
pub async fn answer(arguments: &[String], described: bool) {
    let (word, before) = arguments.split_last().map_or(("", &[][..]), |(word, before)| (word.as_str(), before));
    let (found, directive) = candidates(word, before).await;
    // Endings of files are no beginnings of words.
    let fits = |name: &str| directive == Directive::FilterFileExt || name.starts_with(word);
    for (name, about) in found.into_iter().filter(|(name, _)| fits(name)) {
        line(if described && !about.is_empty() { format!("{name}\t{about}") } else { name });
    }
    line(format!(":{}", directive as u8));
    warn(format!("Completion ended with directive: {}", directive.name()));
}

async fn candidates(word: &str, before: &[String]) -> (Vec<Candidate>, Directive) {
    let mut known = COMMANDS;
    let mut found: Option<&Command> = None;
    let mut rest: Vec<String> = Vec::new();
    for word in before {
        match known.iter().find(|command| command.name == *word || command.aliases.contains(&&**word)) {
            Some(command) if rest.iter().all(|word| word.starts_with('-')) => {
                found = Some(command);
                known = match command.run {
                    Run::Group(below) | Run::Both(_, below) => below,
                    Run::Leaf(_) => &[],
                };
            }
            _ => rest.push(word.clone()),
        }
    }
    let mut specs = found.map(|command| (command.flags)()).unwrap_or_default();
    specs.extend(
        GLOBAL.iter().filter(|flag| !specs.iter().any(|own| own.name == flag.name)).copied().collect::<Vec<_>>(),
    );
    if word.starts_with('-') && !word.contains('=') {
        specs.sort_by_key(|flag| flag.name);
        let mut all: Vec<Candidate> = Vec::new();
        for flag in specs.iter().filter(|flag| flag.deprecated.is_none()) {
            let about = flag.help.trim_end_matches('.').to_owned();
            all.push((format!("--{}", flag.name), about.clone()));
            all.extend(flag.short.map(|short| (format!("-{short}"), about)));
        }
        return (all, Directive::NoFileComp);
    }
    let last = before.last().map(String::as_str).unwrap_or_default();
    let asked = specs.iter().find(|flag| {
        flag.bare.is_none()
            && (last.strip_prefix("--") == Some(flag.name)
                || (last.len() == 2 && last.starts_with('-') && flag.short == last.chars().nth(1)))
    });
    let asked = asked.map(|flag| flag.name);
    if asked.is_some() {
        rest.pop();
    }
    let mut all: Vec<Candidate> =
        known.iter().map(|command| (command.name.to_owned(), command.about.to_owned())).collect();
    if found.is_none() {
        all.retain(|(name, _)| name != "alpha");
        all.push(("help".into(), "Help about any command".into()));
        let plugins = super::plugin::first_words().into_iter();
        all.extend(plugins.map(|name| {
            let about = format!("The command {name} is a plugin installed by the user");
            (name, about)
        }));
    }
    all.sort();
    let name = found.map(|command| command.name).unwrap_or_default();
    let Ok(flags) = Parsed::parse(specs, &rest) else { return (all, Directive::NoFileComp) };
    let context = Context::new(flags, "kubectl".to_owned(), crate::preferences::Policy::default());
    match asked {
        Some(flag) => of_flag(&context, name, flag).await,
        None if found.is_none() && !rest.is_empty() => (Vec::new(), Directive::Default),
        None if UNKNOWN.contains(&name) => (Vec::new(), Directive::Default),
        None => {
            let found = of_command(&context, name, word).await.unwrap_or_default();
            let of_pods = matches!(name, "logs" | "exec" | "attach" | "port-forward") && context.words().is_empty();
            let types_alone = of_pods && !found.iter().any(|one| !one.ends_with('/') && one.starts_with(word));
            all.extend(plain(found));
            (all, if types_alone && !word.contains('/') { Directive::NoSpaceNoFileComp } else { Directive::NoFileComp })
        }
    }
}

const WRITES: [&str; 11] = [
    "json",
    "yaml",
    "kyaml",
    "name",
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
];

async fn of_flag(context: &Context, command: &str, flag: &str) -> (Vec<Candidate>, Directive) {
    let names = async |kind: &str| plain(names(context, kind).await.unwrap_or_default());
    let configured = async |list: &str| {
        let loaded = context.loaded().await.ok();
        let all = loaded.and_then(|loaded| loaded.merged[list].as_array()).into_iter().flatten();
        let mut names: Vec<String> = all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        plain(names)
    };
    let found = match flag {
        "namespace" => names("namespaces").await,
        "context" => configured("contexts").await,
        "cluster" => configured("clusters").await,
        "user" => configured("users").await,
        "output" if command == "get" => {
            plain(WRITES.into_iter().chain(["custom-columns", "custom-columns-file", "wide"]))
        }
        "output" => plain(WRITES),
        "dry-run" => plain(["none", "client", "server"]),
        "container" if matches!(command, "exec" | "attach") => match context.words().first() {
            Some(pod) => plain(containers(context, pod).await.unwrap_or_default()),
            None => Vec::new(),
        },
        "filename" => return (plain(["json", "yaml", "yml"]), Directive::FilterFileExt),
        _ => return (Vec::new(), Directive::Default),
    };
    (found, Directive::NoFileComp)
}

async fn of_command(context: &Context, command: &str, word: &str) -> Result<Vec<String>> {
    if let ("logs", [pod]) = (command, context.words()) {
        return containers(context, pod).await;
    }
    let kind: &str = match command {
        "logs" | "exec" | "attach" | "port-forward" if word.contains('/') => {
            let kind = word.split('/').next().unwrap_or_default();
            return Ok(names(context, kind).await?.into_iter().map(|name| format!("{kind}/{name}")).collect());
        }
        "logs" | "exec" | "attach" | "port-forward" | "pod" | "debug" => "pods",
        "drain" | "cordon" | "uncordon" | "node" => "nodes",
        "completion" => return Ok(["bash", "zsh", "fish", "powershell"].map(str::to_owned).to_vec()),
        "use-context" | "delete-context" | "rename-context" => return Ok(context.loaded().await?.contexts()),
        "get" | "describe" | "delete" | "edit" | "label" | "annotate" | "patch" | "scale" | "autoscale" | "expose"
        | "taint" | "status" | "history" | "restart" | "undo" | "pause" | "resume" | "image" | "view-last-applied"
        | "edit-last-applied" => {
            if let Some((kind, _)) = word.split_once('/') {
                return Ok(names(context, kind).await?.into_iter().map(|name| format!("{kind}/{name}")).collect());
            }
            match context.words().first().filter(|first| !first.contains('/')) {
                Some(first) => first,
                None if !own_types(command).is_empty() => {
                    return Ok(own_types(command).iter().map(|kind| (*kind).to_owned()).collect());
                }
                None => return types(context).await,
            }
        }
        _ => return Ok(Vec::new()),
    };
    if context.words().iter().skip(usize::from(kind != "pods" && kind != "nodes")).any(|known| known.contains('/')) {
        return Ok(Vec::new());
    }
    let mut found = names(context, kind).await?;
    if matches!(command, "logs" | "exec" | "attach" | "port-forward") && context.words().is_empty() {
        found.extend(WITH_PODS.map(|kind| format!("{kind}/")));
    }
    Ok(found)
}

/// Those of a pod, the first of them that start first.
async fn containers(context: &Context, pod: &str) -> Result<Vec<String>> {
    let resource = context.kind("v1", "Pod").await?;
    let namespace = context.namespace().await?;
    let name = pod.strip_prefix("pod/").or_else(|| pod.strip_prefix("pods/")).unwrap_or(pod);
    let pod = crate::resource::get(context, &resource, Some(&namespace), name).await?;
    let of = |field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let all = [of("initContainers"), of("containers")].concat();
    Ok(all.iter().filter_map(|container| container["name"].as_str().map(str::to_owned)).collect())
}

/// The types of commands that are for some only.
fn own_types(command: &str) -> &'static [&'static str] {
    match command {
        "status" | "history" | "restart" | "undo" => &["deployment", "daemonset", "statefulset"],
        "pause" | "resume" => &["deployment"],
        "scale" | "autoscale" => &["deployment", "replicaset", "replicationcontroller", "statefulset"],
        "taint" => &["node"],
        "expose" => &["pod", "service", "replicationcontroller", "deployment", "replicaset"],
        "image" => {
            &["daemonsets", "deployments", "pods", "cronjobs", "replicasets", "replicationcontrollers", "statefulsets"]
        }
        _ => &[],
    }
}

/// Commands whose words nobody but the shell completes: perhaps they are files.
const UNKNOWN: [&str; 6] = ["wait", "explain", "env", "resources", "selector", "subject"];

/// What stands for its pods.
const WITH_PODS: [&str; 8] =
    ["daemonsets", "deployments", "pods", "jobs", "replicasets", "replicationcontrollers", "services", "statefulsets"];

async fn types(context: &Context) -> Result<Vec<String>> {
    context
        .with_mapper(|mapper| {
            let listed = mapper.found.resources.iter().filter(|r| r.preferred && r.allows("list"));
            Ok(listed.map(|r| if r.group.is_empty() { r.plural.clone() } else { r.qualified() }).collect())
        })
        .await
}

async fn names(context: &Context, kind: &str) -> Result<Vec<String>> {
    let resource = context.resource(kind).await?;
    let namespace = if resource.namespaced { Some(context.namespace().await?) } else { None };
    let selection = Selection { resource, namespace, labels: String::new(), fields: String::new() };
    let objects = list(context, &selection, 500).await?;
    Ok(objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).map(str::to_owned).collect())
}
