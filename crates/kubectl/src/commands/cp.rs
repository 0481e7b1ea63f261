//! `kubectl cp`: files and folders to and from a container, as a tar archive through `exec`.

mod archive;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::Either;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachedProcess};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Command, leaf, pods, stream};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::resource::get;
use crate::session::Context;
use crate::text::{line, print, warn};

pub const COMMAND: Command =
    leaf("cp", "<file-spec-src> <file-spec-dest>", "Copy files and directories to and from containers", flags, |c| {
        Box::pin(run(c))
    });

fn flags() -> Vec<Flag> {
    vec![
        text("container", "The container.").short('c'),
        switch("no-preserve", "Do not keep owners and permissions in the container."),
        Flag::new("retries", Kind::Int, "0", "How often a copy from a container is tried again."),
    ]
}

/// So much is shown of what tar complains about.
const MOST_COMPLAINTS: u64 = 64 << 10;
/// A container that complained and read nothing for so long has given up.
const STALLED: Duration = Duration::from_secs(10);
/// What was said before the end is here by then.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// `namespace/pod:path`, `pod:path` or a path of this machine.
struct Place {
    namespace: Option<String>,
    pod: Option<String>,
    path: String,
}

impl Place {
    fn parse(word: &str) -> Result<Self> {
        let wrong = || Error::say("filespec must match the canonical format: [[namespace/]pod:]file/path");
        let Some((pod, path)) = word.split_once(':') else {
            return Ok(Self { namespace: None, pod: None, path: word.to_owned() });
        };
        let parts: Vec<&str> = pod.split('/').collect();
        let (namespace, pod) = match &*parts {
            [""] => return Err(wrong()),
            [pod] => (None, *pod),
            [namespace, pod] => (Some((*namespace).to_owned()), *pod),
            _ => return Err(wrong()),
        };
        Ok(Self { namespace, pod: Some(pod.to_owned()).filter(|pod| !pod.is_empty()), path: path.to_owned() })
    }
}

async fn run(context: &Context) -> Result<()> {
    let [from, to] = context.words() else { return Err(Error::say("source and destination are required")) };
    let (from, to) = (Place::parse(from)?, Place::parse(to)?);
    if from.pod.is_some() && to.pod.is_some() {
        return Err(Error::say("one of src or dest must be a local file specification"));
    }
    if from.path.is_empty() || to.path.is_empty() {
        return Err(Error::say("filepath can not be empty"));
    }
    match (&from.pod, &to.pod) {
        (Some(pod), _) => download(context, &from, pod, Path::new(&to.path)).await,
        (_, Some(pod)) => upload(context, Path::new(&from.path), &to, pod).await,
        _ => Err(Error::say("one of src or dest must be a remote file specification")),
    }
}

/// A container that commands run in.
struct Container<'a> {
    context: &'a Context,
    pod: Value,
    name: String,
}

impl<'a> Container<'a> {
    async fn find(context: &'a Context, place: &Place, pod: &str, source: bool) -> Result<Self> {
        let namespace = match &place.namespace {
            Some(namespace) if !namespace.is_empty() => namespace.clone(),
            _ => context.namespace().await?,
        };
        let pod = get(context, &context.kind("v1", "Pod").await?, Some(&namespace), pod).await?;
        if let Some(phase) = pod["status"]["phase"].as_str().filter(|phase| matches!(*phase, "Succeeded" | "Failed")) {
            let why = format!("cannot exec into a container in a completed pod; current phase is {phase}");
            return Err(Error::say(why));
        }
        let given = context.flags.given("container");
        let name = pods::container(&pod, given, true)?;
        // Of a pod that is copied from, kubectl says it beside the files.
        match pods::defaulted(&pod).filter(|_| given.is_none()) {
            Some(text) if source => line(text),
            Some(text) => warn(text),
            None => {}
        }
        Ok(Self { context, pod, name })
    }

    async fn start(&self, command: &[&str], stdin: bool) -> Result<AttachedProcess> {
        let text = |field: &str| self.pod["metadata"][field].as_str().unwrap_or_default();
        let client = self.context.client().await?;
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.upgraded.clone(), text("namespace"));
        let parameters = stream::parameters(&self.name, stdin, false);
        api.exec(text("name"), command.iter().copied(), &parameters).await.map_err(|error| stream::failed(&error))
    }
}

async fn upload(context: &Context, from: &Path, to: &Place, pod: &str) -> Result<()> {
    if !from.exists() {
        return Err(Error::say(format!("{} doesn't exist in local filesystem", from.display())));
    }
    let container = Container::find(context, to, pod, false).await?;
    let mut target = PathBuf::from(&to.path);
    let base = from.canonicalize().ok().and_then(|path| path.file_name().map(PathBuf::from)).unwrap_or_default();
    let mut test = container.start(&["test", "-d", &to.path], false).await?;
    let status = test.take_status();
    drain(&mut test).await;
    if stream::ended(status).await.is_ok() {
        target.push(&base);
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.display().to_string();
    let name = target.file_name().map(PathBuf::from).unwrap_or(base);
    let mut command = vec!["tar"];
    if context.flags.is("no-preserve") {
        command.extend(["--no-same-permissions", "--no-same-owner"]);
    }
    command.extend(["-xmf", "-", "-C", &folder]);
    let mut process = container.start(&command, true).await?;
    let status = process.take_status();
    let mut input = process.stdin();
    let (parts, mut made) = tokio::sync::mpsc::channel(16);
    let source = from.to_owned();
    // Files of this machine are read on a thread of their own; the channel holds a few pieces of them.
    let packer = std::thread::spawn(move || archive::pack(&source, &name, archive::Pieces(parts)));
    let complained = AtomicBool::new(false);
    let feed = async {
        let Some(mut input) = input.take() else { return };
        while let Some(part) = made.recv().await {
            let mut write = pin!(input.write_all(&part));
            loop {
                tokio::select! {
                    written = &mut write => if written.is_err() { return } else { break },
                    () = tokio::time::sleep(STALLED) => if complained.load(Ordering::Relaxed) { return },
                }
            }
        }
        let mut end = pin!(async {
            let _ = input.shutdown().await;
            // What the container says of it is still to come.
            futures::future::pending::<()>().await;
        });
        loop {
            tokio::select! {
                () = &mut end => {}
                () = tokio::time::sleep(STALLED) => if complained.load(Ordering::Relaxed) { return },
            }
        }
    };
    let (output, errors) = (process.stdout(), process.stderr());
    let heard = async {
        let Some(mut errors) = errors else { return };
        let mut buffer = vec![0; 32 << 10];
        while let Ok(count @ 1..) = errors.read(&mut buffer).await {
            complained.store(true, Ordering::Relaxed);
            let _ = std::io::stderr().write_all(&buffer[..count]);
        }
    };
    let said = async { futures::join!(stream::copy(output, false), heard) };
    // A tar that ends early reads nothing more, and the connection then tells nothing more either: whoever waits for it to
    // read would wait for ever.
    let mut said = pin!(said);
    let mut status = pin!(finished(status));
    let mut told = None;
    let stalled = tokio::select! {
        () = feed => true,
        _ = &mut said => false,
        // A connection that broke ends nothing but this.
        ended = &mut status => {
            let _ = tokio::time::timeout(LAST_WORDS, said).await;
            told = Some(ended);
            false
        }
    };
    drop(made);
    let packed = packer.join().map_err(|_| Error::say("the archive could not be made"))?;
    if stalled {
        return Err(Error::say("the container no longer reads what is copied to it"));
    }
    match told {
        Some(told) => told?,
        None => status.await?,
    }
    match packed {
        // The end of an archive is padding, which tar need not read.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        packed => packed.map_err(|error| Error::say(error.to_string())),
    }
}

/// As `stream::ended`; but a connection that was cut has not copied everything.
async fn finished(status: Option<impl Future<Output = Option<Status>>>) -> Result<()> {
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    if status.is_none() {
        return Err(Error::say("the connection ended before everything was copied"));
    }
    stream::ended(Some(std::future::ready(status))).await
}

async fn drain(process: &mut AttachedProcess) {
    async fn none(from: Option<impl tokio::io::AsyncRead + Unpin>) {
        if let Some(mut from) = from {
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
        }
    }
    let (output, errors) = (process.stdout(), process.stderr());
    futures::join!(none(output), none(errors));
}

async fn download(context: &Context, from: &Place, pod: &str, to: &Path) -> Result<()> {
    let container = Container::find(context, from, pod, true).await?;
    let prefix = archive::prefix(&from.path);
    let mut attempt = 0;
    let retries = context.flags.int("retries");
    loop {
        match fetch(&container, from, &prefix, to).await {
            Err(error) if retries < 0 || attempt < retries => {
                attempt += 1;
                warn(format!("{}\nCopying again, retry {attempt}/{retries}", error.inner()));
            }
            result => return result,
        }
    }
}

async fn fetch(container: &Container<'_>, from: &Place, prefix: &str, to: &Path) -> Result<()> {
    let mut process = container.start(&["tar", "cf", "-", &from.path], false).await?;
    let status = process.take_status();
    let (parts, received) = std::sync::mpsc::sync_channel::<Vec<u8>>(16);
    let (target, beginning) = (to.to_owned(), prefix.to_owned());
    // Writes to this machine's disk wait on a thread of their own.
    let unpacker = std::thread::spawn(move || {
        let mut received = archive::Received::new(received);
        let skipped = archive::unpack(&mut received, &beginning, &target)?;
        // After the last file comes padding.
        std::io::copy(&mut received, &mut std::io::sink())?;
        Ok::<_, std::io::Error>(skipped)
    });
    let output = process.stdout();
    let errors = process.stderr();
    // Whether everything that came was taken.
    let carry = async move {
        let Some(mut output) = output else { return true };
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count) = output.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            // One that no longer takes anything has ended, and says why.
            if parts.send(buffer[..count].to_vec()).is_err() {
                return false;
            }
        }
        true
    };
    let said = async {
        let Some(mut errors) = errors else { return };
        let mut text = Vec::new();
        let _ = (&mut errors).take(MOST_COMPLAINTS).read_to_end(&mut text).await;
        print(text);
        // What nobody reads would hold the files up.
        let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
    };
    let taken = match futures::future::select(pin!(carry), pin!(said)).await {
        Either::Left((true, said)) => {
            said.await;
            true
        }
        Either::Left((false, _)) => false,
        Either::Right(((), carry)) => carry.await,
    };
    let unpacked = unpacker.join().map_err(|_| Error::say("the archive could not be read"))?;
    if taken {
        finished(status).await?;
    }
    for warning in unpacked.map_err(|error| Error::say(error.to_string()))? {
        warn(warning);
    }
    Ok(())
}
