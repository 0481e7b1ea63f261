//! The shim: one small process per pod that holds its containers' pipes and terminals, writes their logs and learns of
//! their end, so that they go on while Ferry is away.
//!
//! It is this binary executed again, with one thread: containers begin as copies of it (`crate::container`).

mod container;
mod exec;
mod log;
mod memory;
mod reaper;
mod terminal;

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, broadcast};

use crate::protocol::{Reply, Report, Request, ShimConfig, read_line, write_line};
use container::Container;
use memory::MemoryKills;
use reaper::Reaper;

const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What one shim knows.
pub(crate) struct Shim {
    reaper: Reaper,
    containers: RefCell<HashMap<String, Rc<Container>>>,
    changes: broadcast::Sender<Report>,
    kills: MemoryKills,
    done: Notify,
}

/// Runs a shim until it is told to end. `argument` is its configuration.
pub fn main(argument: &str) -> ExitCode {
    let config: ShimConfig = match serde_json::from_str(argument) {
        Ok(config) => config,
        Err(error) => return fail(&format!("the shim's configuration: {error}")),
    };
    // What a command leaves behind in a container that shares its processes with the machine becomes a child of this process.
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
    let shim = Rc::new(Shim {
        reaper: Reaper::default(),
        containers: RefCell::default(),
        changes: broadcast::channel(256).0,
        kills: MemoryKills::default(),
        done: Notify::new(),
    });
    let reaping = shim.clone();
    tokio::task::spawn_local(async move { reaping.reaper.run(signals).await });
    // Whoever started this process waits for the line.
    println!("ready");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let stream = match accepted {
                    Ok((stream, _)) => stream,
                    // The pod goes on without whoever it was. When descriptors are short, others may end meanwhile.
                    Err(error) => {
                        eprintln!("shim: nobody can connect: {error}");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                        continue;
                    }
                };
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
            Request::Kill { id, signal } => self.kill(&id, signal),
            Request::Update { id, resources } => match self.find(&id) {
                Ok(container) => container.plan.limit(&resources).await,
                Err(why) => Err(why),
            },
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

    async fn start(&self, id: &str) -> Result<(), String> {
        let container = self.find(id)?;
        let begun = container.begun.borrow_mut().take().ok_or_else(|| format!("container {id} was started already"))?;
        container.started_at.set(Some(container::now()));
        if let Err(error) = begun.execute().await {
            container.started_at.set(None);
            return Err(error);
        }
        let _ = self.changes.send(container.report());
        container.run_hooks(self, container.plan.hooks_after_start(), "running").await
    }

    fn kill(&self, id: &str, signal: i32) -> Result<(), String> {
        let container = self.find(id)?;
        if container.exit.get().is_some() {
            return Ok(());
        }
        // It may have been waited for, and its number be another's, while its end is still being seen to.
        match crate::container::signal(container.handle.as_fd(), signal) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                Err(error.to_string())
            }
            _ => Ok(()),
        }
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
