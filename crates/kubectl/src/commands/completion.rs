//! `kubectl completion`: scripts that ask this program what may come next, and its answers.

use super::{COMMANDS, Command, GLOBAL, Run, leaf};
use crate::error::Result;
use crate::flags::Parsed;
use crate::resource::{Selection, list};
use crate::session::Context;
use crate::text::{line, print, quote};

pub const COMMAND: Command = leaf(
    "completion",
    "SHELL",
    "Output shell completion code for the specified shell (bash, zsh, fish, or powershell)",
    Vec::new,
    |c| Box::pin(run(c)),
);

const BASH: &str = r#"# kubectl for bash: source <(kubectl completion bash)
_kubectl_words() {
    mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _kubectl_words kubectl
"#;
const ZSH: &str = r#"#compdef kubectl
# kubectl for zsh: source <(kubectl completion zsh)
_kubectl() {
    local -a found
    found=("${(@f)$(${words[1]} __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -a found || _files
}
compdef _kubectl kubectl
"#;
const FISH: &str = r#"# kubectl for fish: kubectl completion fish | source
function __kubectl_words
    set -l before (commandline -opc)
    $before[1] __complete $before[2..-1] (commandline -ct) 2>/dev/null
end
complete -c kubectl -f -a '(__kubectl_words)'
"#;
const POWERSHELL: &str = r#"# kubectl for PowerShell: kubectl completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName kubectl -ScriptBlock {
    param($word, $line, $position)
    $before = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    if ($word -eq '') { $before += '' }
    kubectl __complete @before 2>$null | ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) }
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

/// What may stand in place of the last word.
pub async fn answer(arguments: &[String]) {
    let (word, before) = arguments.split_last().map_or(("", &[][..]), |(word, before)| (word.as_str(), before));
    for candidate in candidates(word, before).await.into_iter().filter(|candidate| candidate.starts_with(word)) {
        line(candidate);
    }
}

async fn candidates(word: &str, before: &[String]) -> Vec<String> {
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
    if word.starts_with('-') {
        return specs.iter().map(|flag| format!("--{}", flag.name)).collect();
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
    let mut all: Vec<String> = known.iter().map(|command| command.name.to_owned()).collect();
    let Ok(flags) = Parsed::parse(specs, &rest) else { return all };
    let context = Context::new(flags, "kubectl".to_owned(), crate::preferences::Policy::default());
    let more = match asked {
        Some(flag) => of_flag(&context, flag).await,
        None => of_command(&context, found.map(|command| command.name).unwrap_or_default(), word).await,
    };
    if asked.is_some() {
        all.clear();
    }
    all.extend(more.unwrap_or_default());
    all
}

async fn of_flag(context: &Context, flag: &str) -> Result<Vec<String>> {
    Ok(match flag {
        "namespace" => names(context, "namespaces").await?,
        "context" => context.loaded().await?.contexts(),
        "output" => {
            ["json", "yaml", "name", "wide", "jsonpath=", "custom-columns=", "go-template="].map(str::to_owned).to_vec()
        }
        "dry-run" => ["none", "client", "server"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    })
}

async fn of_command(context: &Context, command: &str, word: &str) -> Result<Vec<String>> {
    let kind: &str = match command {
        "logs" | "exec" | "attach" | "port-forward" | "pod" | "debug" => "pods",
        "drain" | "cordon" | "uncordon" | "node" => "nodes",
        "use-context" | "delete-context" | "rename-context" => return Ok(context.loaded().await?.contexts()),
        "get" | "describe" | "delete" | "edit" | "label" | "annotate" | "patch" | "scale" | "autoscale" | "expose"
        | "wait" | "taint" | "explain" | "status" | "history" | "restart" | "undo" | "pause" | "resume" | "image"
        | "env" | "resources" | "selector" | "subject" | "serviceaccount" | "view-last-applied"
        | "edit-last-applied" => {
            if let Some((kind, _)) = word.split_once('/') {
                return Ok(names(context, kind).await?.into_iter().map(|name| format!("{kind}/{name}")).collect());
            }
            match context.words().first().filter(|first| !first.contains('/') && command != "explain") {
                Some(first) => first,
                None => return types(context).await,
            }
        }
        _ => return Ok(Vec::new()),
    };
    if context.words().iter().skip(usize::from(kind != "pods" && kind != "nodes")).any(|known| known.contains('/')) {
        return Ok(Vec::new());
    }
    names(context, kind).await
}

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
