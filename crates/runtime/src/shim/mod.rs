//! The shim: one small process per pod that holds its containers' pipes and terminals, writes their logs and learns of
//! their end, so that they go on while Ferry is away.
//!
//! It is this binary executed again, single-threaded. Containers are made by a program of their own and inherited from
//! it; nothing is cloned here.

mod container;
mod exec;
mod log;
mod reaper;
mod terminal;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::rc::Rc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, broadcast};

use crate::oci::{self, Oci};
use crate::protocol::{Reply, Report, Request, ShimConfig, read_line, write_line};
use container::Container;
use reaper::Reaper;

/// What one shim knows.
pub(crate) struct Shim {
    oci: Oci,
    reaper: Reaper,
    containers: RefCell<HashMap<String, Rc<Container>>>,
    changes: broadcast::Sender<Report>,
    sockets: PathBuf,
    done: Notify,
}

/// Runs a shim until it is told to end. `argument` is its configuration.
pub fn main(argument: &str) -> ExitCode {
    let config: ShimConfig = match serde_json::from_str(argument) {
        Ok(config) => config,
        Err(error) => return fail(&format!("the shim's configuration: {error}")),
    };
    // Whoever made a container ends, and the container becomes a child of this process.
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        return fail(&format!("cannot become the parent of orphans: {error}"));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    match tokio::task::LocalSet::new().block_on(&runtime, serve(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("shim: {why}");
    ExitCode::FAILURE
}

async fn serve(config: ShimConfig) -> std::io::Result<()> {
    let signals = Reaper::signals()?;
    let _ = std::fs::remove_file(&config.socket);
    let listener = UnixListener::bind(&config.socket)?;
    let sockets = config.socket.parent().unwrap_or(Path::new("/")).to_owned();
    let shim = Rc::new(Shim {
        oci: Oci { program: config.program, root: config.root },
        reaper: Reaper::default(),
        containers: RefCell::default(),
        changes: broadcast::channel(256).0,
        sockets,
        done: Notify::new(),
    });
    let reaping = shim.clone();
    tokio::task::spawn_local(async move { reaping.reaper.run(signals).await });
    // Whoever started this process waits for the line.
    println!("ready");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let shim = shim.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = shim.answer(stream).await {
                        eprintln!("shim: a connection ended: {error}");
                    }
                });
            }
            () = shim.done.notified() => break,
        }
    }
    let _ = std::fs::remove_file(&config.socket);
    Ok(())
}

impl Shim {
    async fn answer(self: Rc<Self>, mut stream: UnixStream) -> std::io::Result<()> {
        let Some(request) = read_line::<Request>(&mut stream).await? else { return Ok(()) };
        let result = match request {
            Request::Create(create) => Container::create(&self, create).await,
            Request::Start { id } => self.start(&id).await,
            Request::Kill { id, signal } => self.kill(&id, signal).await,
            Request::Update { id, resources } => self.update(&id, &resources).await,
            Request::Reopen { id } => self
                .find(&id)
                .and_then(|container| container.log.reopen().map_err(|e| format!("cannot open the log: {e}"))),
            Request::Forget { id } => {
                let ended = self.containers.borrow().get(&id).is_none_or(|c| c.exit.get().is_some());
                if ended {
                    self.containers.borrow_mut().remove(&id);
                }
                Ok(())
            }
            Request::Exec(exec) => return exec::run(&self, exec, stream).await,
            Request::Attach { id, stdin } => {
                return match self.find(&id) {
                    Ok(container) => exec::attach(container, stdin, stream).await,
                    Err(error) => exec::refuse(stream, error).await,
                };
            }
            Request::Watch => return self.watch(stream).await,
            Request::Shutdown => {
                self.done.notify_one();
                Ok(())
            }
        };
        write_line(&mut stream, &Reply { error: result.err() }).await
    }

    fn find(&self, id: &str) -> Result<Rc<Container>, String> {
        self.containers.borrow().get(id).cloned().ok_or_else(|| format!("container {id} is not here"))
    }

    /// Runs the program that makes containers, and waits for it.
    async fn run(&self, mut command: Command, log: &Path) -> Result<(), String> {
        let child = command.spawn().map_err(|e| format!("cannot run {}: {e}", self.oci.program.display()))?;
        // The command holds the container's ends of the pipes.
        drop(command);
        let pid = child.id().cast_signed();
        self.reaper.expect(pid);
        match self.reaper.wait(pid).await {
            0 => Ok(()),
            code => Err(oci::failure(log, code)),
        }
    }

    async fn start(&self, id: &str) -> Result<(), String> {
        let container = self.find(id)?;
        let log = container.bundle.join("oci.log");
        container.started_at.set(Some(container::now()));
        if let Err(error) = self.run(self.oci.start(&log, id), &log).await {
            container.started_at.set(None);
            return Err(error);
        }
        let _ = self.changes.send(container.report());
        Ok(())
    }

    async fn kill(&self, id: &str, signal: i32) -> Result<(), String> {
        let container = self.find(id)?;
        if container.exit.get().is_some() {
            return Ok(());
        }
        let pid = rustix::process::Pid::from_raw(container.pid).ok_or("no process")?;
        let Some(signal) = rustix::process::Signal::from_named_raw(signal) else {
            // A real-time signal has no name.
            let log = container.bundle.join("oci.log");
            return self.run(self.oci.kill(&log, id, signal), &log).await;
        };
        // It is a child that has not been waited for, so its number is still its own.
        match rustix::process::kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn update(&self, id: &str, resources: &serde_json::Value) -> Result<(), String> {
        let container = self.find(id)?;
        let (file, log) = (container.bundle.join("resources.json"), container.bundle.join("oci.log"));
        std::fs::write(&file, resources.to_string()).map_err(|e| e.to_string())?;
        self.run(self.oci.update(&log, &file, id), &log).await
    }

    async fn watch(&self, mut stream: UnixStream) -> std::io::Result<()> {
        let mut changes = self.changes.subscribe();
        let known: Vec<Report> = self.containers.borrow().values().map(|c| c.report()).collect();
        for report in known {
            write_line(&mut stream, &report).await?;
        }
        write_line(&mut stream, &Report::default()).await?;
        loop {
            match changes.recv().await {
                Ok(report) => write_line(&mut stream, &report).await?,
                // Whoever is too slow asks again from the beginning.
                Err(_) => return Ok(()),
            }
        }
    }
}
