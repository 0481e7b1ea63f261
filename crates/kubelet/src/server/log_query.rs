//! `/logs/?query=`: logs of services by journalctl, and of files below `/var/log` where a service has no journal. As upstream's
//! NodeLogQuery, with its rules and its words.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::mpsc::Sender;

use super::{Body, Server, node_logs, text};

const MOST_LINES: i64 = 100_000;
const MOST_SERVICES: usize = 4;
const LONGEST_NAME: usize = 256;
/// For all that one request asks for.
const PATIENCE: Duration = Duration::from_secs(30);
const PIECE: usize = 16 << 10;

/// What a request wants to see.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Query {
    pub(super) services: Vec<String>,
    pub(super) files: Vec<String>,
    options: Options,
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    lines: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

type Refusal = (StatusCode, String);

fn invalid(field: &str, value: impl Display, why: impl Display) -> String {
    format!("{field}: Invalid value: {value}: {why}")
}

fn refused(code: StatusCode, errors: &[String]) -> Refusal {
    let text = match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    (code, format!("{text}\n"))
}

impl Query {
    /// None where nothing is asked that way.
    pub(super) fn parse(given: &[(String, String)]) -> Result<Option<Self>, Refusal> {
        let (mut query, mut errors) = (Self::default(), Vec::new());
        let first = |name: &str| given.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
        let asked: Vec<&String> = given.iter().filter(|(key, _)| key == "query").map(|(_, value)| value).collect();
        for name in &asked {
            if name.contains(['/', '\\']) {
                query.files.push((*name).clone());
            } else if !name.trim().is_empty() {
                query.services.push((*name).clone());
            }
        }
        if !asked.is_empty() && query.files.is_empty() && query.services.is_empty() {
            errors.push(invalid("query", format!("{asked:?}"), "may not be empty"));
        }
        for (name, place) in [("sinceTime", &mut query.options.since), ("untilTime", &mut query.options.until)] {
            match first(name) {
                "" => {}
                time => match time.parse() {
                    Ok(time) => *place = Some(time),
                    Err(_) => errors.push(invalid(name, format!("{time:?}"), "invalid time format")),
                },
            }
        }
        for (name, place) in [("boot", &mut query.options.boot), ("tailLines", &mut query.options.lines)] {
            match first(name) {
                "" => {}
                number => match number.parse() {
                    Ok(number) => *place = Some(number),
                    Err(_) => {
                        errors.push(invalid(name, format!("{number:?}"), format!("parsing {number:?}: invalid syntax")))
                    }
                },
            }
        }
        first("pattern").clone_into(&mut query.options.pattern);
        if !errors.is_empty() {
            return Err(refused(StatusCode::BAD_REQUEST, &errors));
        }
        Ok(Some(query).filter(|query| *query != Self::default()))
    }

    pub(super) fn validate(&self) -> Result<(), Refusal> {
        let (mut errors, options) = (Vec::new(), &self.options);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        for service in &self.services {
            if service.len() > LONGEST_NAME {
                errors.push(invalid(
                    "query",
                    format!("{service:?}"),
                    format!("length must be less than {LONGEST_NAME}"),
                ));
            } else if !service.chars().all(plain) {
                errors.push(invalid("query", format!("{service:?}"), "input contains unsupported characters"));
            }
        }
        if self.services.len() > MOST_SERVICES {
            let count = self.services.len();
            errors.push(format!("query: Too many: {count}: must have at most {MOST_SERVICES} items"));
        }
        let files = format!("{:?}", self.files);
        match (self.files.len(), self.services.len()) {
            (0, 0) => errors.push("query: Required value: cannot be empty with options".to_owned()),
            (1.., 1..) => errors.push(invalid("query", files, "cannot specify a file and service")),
            (2.., _) => errors.push(invalid("query", files, "cannot specify more than one file")),
            (1, _) if *options != Options::default() => {
                errors.push(invalid("query", files, "cannot specify file with options"));
            }
            _ => {}
        }
        if let (Some(since), Some(until)) = (options.since, options.until)
            && since > until
        {
            errors.push(invalid("untilTime", format!("\"{until}\""), "must be after `sinceTime`"));
        }
        if let Some(boot) = options.boot.filter(|boot| *boot > 0) {
            errors.push(invalid("boot", boot, "must be less than 1"));
        }
        if let Some(lines) = options.lines.filter(|lines| !(0..=MOST_LINES).contains(lines)) {
            errors.push(invalid("tailLines", lines, format!("must be between 0 and {MOST_LINES}, inclusive")));
        }
        if options.pattern.contains('\0') {
            errors.push(invalid("pattern", format!("{:?}", options.pattern), "it has a zero byte"));
        }
        if errors.is_empty() { Ok(()) } else { Err(refused(StatusCode::NOT_ACCEPTABLE, &errors)) }
    }

    /// The arguments of journalctl for these services.
    fn arguments(&self, services: &[String]) -> Vec<String> {
        let options = &self.options;
        let time = |time: Timestamp| time.strftime("%Y-%-m-%-d %-H:%-M:%-S").to_string();
        let mut all = ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned).to_vec();
        all.extend(options.since.map(|since| format!("--since={}", time(since))));
        all.extend(options.until.map(|until| format!("--until={}", time(until))));
        if let Some(lines) = options.lines {
            all.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
        }
        all.extend(services.iter().map(|service| format!("--unit={service}")));
        if !options.pattern.is_empty() {
            all.push(format!("--grep={}", options.pattern));
        }
        if let Some(boot) = options.boot {
            all.extend(["--boot".to_owned(), boot.to_string()]);
        }
        all
    }
}

/// Where the logs are: another program and folder in tests.
#[derive(Clone)]
struct Places {
    journalctl: PathBuf,
    folder: PathBuf,
}

impl Server {
    /// The logs of services, as they come.
    pub(super) fn service_logs(&self, query: Query) -> Response<Body> {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(4);
        let places = Places { journalctl: "journalctl".into(), folder: node_logs::FOLDER.into() };
        self.tasks.spawn_until_stopped("service logs", async move {
            let _ = tokio::time::timeout(PATIENCE, copy(&query, &places, &sender)).await;
        });
        let body = futures::stream::unfold(receiver, |mut receiver| async {
            let piece = receiver.recv().await?;
            Some((Ok::<_, io::Error>(Frame::data(piece)), receiver))
        });
        let mut response = text(StatusCode::OK, "");
        let kind = HeaderValue::from_static("text/plain;charset=UTF-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        *response.body_mut() = StreamBody::new(body).map_err(Into::into).boxed_unsync();
        response
    }
}

/// Journals first, then the files of services without one.
async fn copy(query: &Query, places: &Places, to: &Sender<Bytes>) {
    let units = units(&places.journalctl).await;
    let has_journal = |service: &&String| units.contains(&format!("{service}.service"));
    let (native, files): (Vec<String>, Vec<String>) = {
        let (native, files): (Vec<&String>, Vec<&String>) = query.services.iter().partition(has_journal);
        (native.into_iter().cloned().collect(), files.into_iter().cloned().collect())
    };
    if !native.is_empty() && journal(&places.journalctl, &query.arguments(&native), to).await.is_err() {
        say(to, "\nerror: journal output not available\n").await;
    }
    if files.is_empty() {
        return;
    }
    if query.options != Options::default() {
        let message = format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            files.join(" ")
        );
        return say(to, &message).await;
    }
    for service in files {
        match file_of(&places.folder, &service).await {
            Ok(Some(file)) => pass(tokio::fs::File::from_std(file), to).await,
            Ok(None) => say(to, &format!("\nlog not found for {service}\n")).await,
            Err(error) => say(to, &format!("\nerror getting log for {service}: {error}\n")).await,
        }
    }
}

async fn say(to: &Sender<Bytes>, text: &str) {
    let _ = to.send(Bytes::from(text.to_owned())).await;
}

/// The units that the journal knows.
async fn units(journalctl: &Path) -> String {
    let mut command = Command::new(journalctl);
    command.args(["--field", "_SYSTEMD_UNIT"]).stdin(Stdio::null()).kill_on_drop(true);
    let answer = command.output().await;
    let known = answer.ok().filter(|answer| answer.status.success());
    known.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default()
}

async fn journal(journalctl: &Path, arguments: &[String], to: &Sender<Bytes>) -> io::Result<()> {
    let mut command = Command::new(journalctl);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = async {
        if let Some(out) = out {
            pass(out, to).await;
        }
    };
    let err = async {
        if let Some(err) = err {
            pass(err, to).await;
        }
    };
    tokio::join!(out, err);
    // What it has to say about a failure, it has said.
    child.wait().await.map(drop)
}

async fn pass(mut from: impl AsyncRead + Unpin, to: &Sender<Bytes>) {
    let mut piece = vec![0; PIECE];
    while let Ok(count) = from.read(&mut piece).await
        && count > 0
    {
        if to.send(Bytes::copy_from_slice(&piece[..count])).await.is_err() {
            return;
        }
    }
}

/// `foo`, `foo.log` or `foo/foo.log`, whichever is there first.
async fn file_of(folder: &Path, service: &str) -> io::Result<Option<std::fs::File>> {
    let names = [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")];
    let folder = folder.to_owned();
    let found = move || {
        let root = ferry_podfs::Root::open(&folder)?;
        for name in names {
            match root.file(Path::new(&name)) {
                Ok(file) if file.metadata()?.is_file() => return Ok(Some(file)),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {}
                // A folder of this name is no file; what it holds is looked for.
                Err(_) if folder.join(&name).is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    };
    tokio::task::spawn_blocking(found).await.map_err(io::Error::other).flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(query: &str) -> Result<Option<Query>, Refusal> {
        let uri: http::Uri = format!("/logs/?{query}").parse().expect("a uri");
        Query::parse(&super::super::query(&uri))
    }

    #[test]
    fn queries_are_checked_with_upstreams_words() {
        let check = |query: &str, want: Result<(), (u16, &str)>| {
            let got = parse(query).and_then(|parsed| parsed.map_or(Ok(()), |query| query.validate()));
            match (got, want) {
                (Ok(()), Ok(())) => {}
                (Err((code, text)), Err((want, words))) => {
                    assert!(code.as_u16() == want && text.contains(words), "{query}: {code} {text}");
                }
                (got, want) => panic!("{query}: {got:?} instead of {want:?}"),
            }
        };
        check("", Ok(()));
        check("query=kubelet&tailLines=100&boot=-1&pattern=a%20b", Ok(()));
        check("query=kubelet&query=containerd&sinceTime=2026-01-02T03:04:05Z", Ok(()));
        check("query=/foo.log", Ok(()));
        check("query=", Err((400, "query: Invalid value: [\"\"]: may not be empty")));
        check("query=%20%20", Err((400, "may not be empty")));
        check(
            "query=a&sinceTime=yesterday",
            Err((400, "sinceTime: Invalid value: \"yesterday\": invalid time format")),
        );
        check("query=a&tailLines=x", Err((400, "tailLines: Invalid value: \"x\": parsing \"x\": invalid syntax")));
        check("query=a&boot=x&untilTime=y", Err((400, "[untilTime: Invalid value")));
        check("tailLines=5", Err((406, "query: Required value: cannot be empty with options")));
        check("query=a&query=/b", Err((406, "cannot specify a file and service")));
        check("query=/a&query=/b", Err((406, "cannot specify more than one file")));
        check("query=/a&boot=0", Err((406, "cannot specify file with options")));
        check("query=a%3Brm", Err((406, "input contains unsupported characters")));
        check("query=a&query=b&query=c&query=d&query=e", Err((406, "query: Too many: 5: must have at most 4 items")));
        check(&format!("query={}", "a".repeat(257)), Err((406, "length must be less than 256")));
        check("query=a&boot=1", Err((406, "boot: Invalid value: 1: must be less than 1")));
        check("query=a&tailLines=100001", Err((406, "must be between 0 and 100000, inclusive")));
        check("query=a&tailLines=-1", Err((406, "tailLines: Invalid value: -1")));
        check(
            "query=a&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-01T03:04:05Z",
            Err((406, "must be after `sinceTime`")),
        );
    }

    #[test]
    fn journalctl_is_told_what_was_asked() {
        let query = "query=a&query=b&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-11-12T13:14:15%2B01:00&tailLines=7&pattern=x.*&boot=-2";
        let query = parse(query).expect("valid").expect("a query");
        let want = [
            "--utc",
            "--no-pager",
            "--output=short-precise",
            "--since=2026-1-2 3:4:5",
            "--until=2026-11-12 12:14:15",
            "--pager-end",
            "--lines=7",
            "--unit=a",
            "--unit=b",
            "--grep=x.*",
            "--boot",
            "-2",
        ];
        assert_eq!(query.arguments(&query.services), want);
        assert_eq!(parse("other=1").expect("valid"), None);
    }

    async fn shown(query: &str, places: &Places) -> String {
        let query = parse(query).expect("valid").expect("a query");
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<Bytes>(4);
        let read = async {
            let mut all = Vec::new();
            while let Some(piece) = receiver.recv().await {
                all.extend_from_slice(&piece);
            }
            String::from_utf8(all).expect("text")
        };
        let write = async move { copy(&query, places, &sender).await };
        tokio::join!(read, write).0
    }

    #[tokio::test]
    async fn logs_come_from_the_journal_or_from_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let journalctl = folder.path().join("journalctl");
        let script = "#!/bin/sh\ncase \"$1\" in --field) echo kubelet.service;; *) echo \"journal $*\";; esac\n";
        std::fs::write(&journalctl, script).expect("written");
        std::fs::set_permissions(&journalctl, PermissionsExt::from_mode(0o755)).expect("set");
        let logs = folder.path().join("log");
        std::fs::create_dir_all(logs.join("deep")).expect("a folder");
        std::fs::write(logs.join("plain.log"), "plain says\n").expect("written");
        std::fs::write(logs.join("deep/deep.log"), "deep says\n").expect("written");
        std::os::unix::fs::symlink("/etc/passwd", logs.join("out.log")).expect("a link");
        let places = Places { journalctl, folder: logs };
        let journal = "journal --utc --no-pager --output=short-precise --unit=kubelet\n";
        assert_eq!(shown("query=kubelet", &places).await, journal);
        assert_eq!(shown("query=kubelet&query=plain", &places).await, format!("{journal}plain says\n"));
        assert_eq!(shown("query=deep", &places).await, "deep says\n");
        assert_eq!(shown("query=none", &places).await, "\nlog not found for none\n");
        let optioned = shown("query=plain&tailLines=1", &places).await;
        assert!(optioned.contains("query resolved to log files for [plain]"), "{optioned}");
        // A link leads nowhere else.
        assert!(!shown("query=out", &places).await.contains("root:"));
        let gone = Places { journalctl: "/nonexistent".into(), ..places };
        assert_eq!(shown("query=kubelet", &gone).await, "\nlog not found for kubelet\n");
    }
}
