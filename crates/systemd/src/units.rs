//! Units that systemd makes when it is asked to, and that are gone with what is in them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::bus::{Bus, Refused};
use crate::wire::{Property, PropertyValue, Value};

const NAME: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";
const BUS: &str = "/run/dbus/system_bus_socket";
/// Where systemd itself listens, for root alone.
const PRIVATE: &str = "/run/systemd/private";
/// What systemd's own tools look at.
const RUNS: &str = "/run/systemd/system";
const PATIENCE: Duration = Duration::from_secs(30);
/// The bus bounds the connections of a user.
const MOST_CONNECTIONS: usize = 8;
/// Signals of other jobs that come before our own.
const MOST_SIGNALS: usize = 10_000;

/// Why systemd did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    #[error("systemd cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    #[error("{unit}: {source}")]
    Refused { unit: String, source: io::Error },
    #[error("{unit}: systemd's job ended with {result:?}")]
    Job { unit: String, result: String },
    #[error("{unit}: systemd gave no answer within {} seconds", PATIENCE.as_secs())]
    Silent { unit: String },
}

impl From<SystemdError> for io::Error {
    fn from(error: SystemdError) -> Self {
        Self::other(error)
    }
}

pub struct Systemd {
    bus: PathBuf,
    private: PathBuf,
    connections: Semaphore,
}

impl Default for Systemd {
    fn default() -> Self {
        Self::at(BUS, PRIVATE)
    }
}

impl Systemd {
    pub fn at(bus: impl Into<PathBuf>, private: impl Into<PathBuf>) -> Self {
        Self { bus: bus.into(), private: private.into(), connections: Semaphore::new(MOST_CONNECTIONS) }
    }

    /// Whether this machine was started by systemd.
    pub fn is_running() -> bool {
        std::fs::symlink_metadata(RUNS).is_ok_and(|about| about.is_dir())
    }

    /// Its version as it says it; an error where it does not answer.
    pub async fn version(&self) -> Result<String, SystemdError> {
        self.patiently("version", async {
            let asked = [Value::Text(format!("{NAME}.Manager")), Value::Text("Version".to_owned())];
            let mut connection = self.connect().await?;
            let answer = connection.bus.call(NAME, OBJECT, "org.freedesktop.DBus.Properties.Get", &asked).await;
            match answer.map_err(refused("version"))?.values.into_iter().next() {
                Some(Value::Text(version)) => Ok(version),
                _ => Ok(String::new()),
            }
        })
        .await
    }

    /// Makes a slice that processes are not in themselves. One that is there already, or that a file describes, gets the
    /// properties that can be changed, and is started if it is not.
    pub async fn start_slice(
        &self,
        unit: &str,
        fixed: Vec<Property>,
        changeable: Vec<Property>,
    ) -> Result<(), SystemdError> {
        self.patiently(unit, async {
            let mut connection = self.connect_for_jobs().await?;
            let properties = fixed.into_iter().chain(changeable.iter().cloned()).collect();
            match connection.start_transient(unit, properties).await {
                Err(error) if is_exists(&error) => {
                    if !changeable.is_empty() {
                        connection.set(unit, changeable).await.map_err(refused(unit))?;
                    }
                    let words = ["replace"].map(|word| Value::Text(word.to_owned()));
                    connection.job(unit, "StartUnit", &words).await
                }
                Err(error) => Err(refused(unit)(error)),
                Ok(job) => connection.wait(unit, &job).await,
            }
        })
        .await
    }

    /// Makes a scope around processes that run already.
    pub async fn start_scope(&self, unit: &str, properties: Vec<Property>) -> Result<(), SystemdError> {
        self.patiently(unit, async {
            let mut connection = self.connect_for_jobs().await?;
            let job = match connection.start_transient(unit, properties.clone()).await {
                // One that failed and that nobody has looked at since.
                Err(error) if is_exists(&error) => {
                    connection.forget(unit).await;
                    connection.start_transient(unit, properties).await
                }
                other => other,
            };
            connection.wait(unit, &job.map_err(refused(unit))?).await
        })
        .await
    }

    /// Changes properties of a unit until the machine is started again.
    pub async fn set(&self, unit: &str, properties: Vec<Property>) -> Result<(), SystemdError> {
        if properties.is_empty() {
            return Ok(());
        }
        self.patiently(unit, async { self.connect().await?.set(unit, properties).await.map_err(refused(unit)) }).await
    }

    /// Ends whatever is in a unit, and the unit. One that is not there is no error.
    pub async fn stop(&self, unit: &str) -> Result<(), SystemdError> {
        self.patiently(unit, async {
            let mut connection = self.connect_for_jobs().await?;
            let words = ["replace"].map(|word| Value::Text(word.to_owned()));
            let stopped = connection.job(unit, "StopUnit", &words).await;
            connection.forget(unit).await;
            match stopped {
                Err(SystemdError::Refused { source, .. }) if is_gone(&source) => Ok(()),
                other => other,
            }
        })
        .await
    }

    async fn patiently<T>(
        &self,
        unit: &str,
        work: impl Future<Output = Result<T, SystemdError>>,
    ) -> Result<T, SystemdError> {
        let silent = || SystemdError::Silent { unit: unit.to_owned() };
        let permitted = async {
            let _permit = self.connections.acquire().await.map_err(|_| silent())?;
            work.await
        };
        tokio::time::timeout(PATIENCE, permitted).await.unwrap_or_else(|_| Err(silent()))
    }

    /// By the bus; by systemd's own socket where there is no bus.
    async fn connect(&self) -> Result<Connection, SystemdError> {
        match Bus::connect(&self.bus).await {
            Ok(bus) => Ok(Connection { bus, direct: false, sender: String::new() }),
            Err(error) => match Bus::connect_directly(&self.private).await {
                Ok(bus) => Ok(Connection { bus, direct: true, sender: String::new() }),
                Err(_) => Err(SystemdError::Unreachable(error)),
            },
        }
    }

    /// The same, told when jobs end.
    async fn connect_for_jobs(&self) -> Result<Connection, SystemdError> {
        let mut connection = self.connect().await?;
        if !connection.direct {
            let rule =
                format!("type='signal',sender='{NAME}',path='{OBJECT}',interface='{NAME}.Manager',member='JobRemoved'");
            let asked = [Value::Text(rule)];
            let called = connection.bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "AddMatch", &asked).await;
            called.map_err(SystemdError::Unreachable)?;
        }
        Ok(connection)
    }
}

struct Connection {
    bus: Bus,
    direct: bool,
    /// Who answers: anybody on the bus can send signals.
    sender: String,
}

impl Connection {
    async fn call(&mut self, member: &str, values: &[Value]) -> io::Result<Option<Value>> {
        let answer = self.bus.call(NAME, OBJECT, &format!("{NAME}.Manager.{member}"), values).await?;
        self.sender = answer.sender;
        Ok(answer.values.into_iter().next())
    }

    async fn start_transient(&mut self, unit: &str, properties: Vec<Property>) -> io::Result<String> {
        let (unit, mode) = (Value::Text(unit.to_owned()), Value::Text("replace".to_owned()));
        let answer =
            self.call("StartTransientUnit", &[unit, mode, Value::Properties(properties), Value::NoUnits]).await?;
        job_of(answer)
    }

    /// A call that is answered with a job, to the end of that.
    async fn job(&mut self, unit: &str, member: &str, words: &[Value]) -> Result<(), SystemdError> {
        let values: Vec<Value> = std::iter::once(Value::Text(unit.to_owned())).chain(words.iter().cloned()).collect();
        let job = self.call(member, &values).await.and_then(job_of).map_err(refused(unit))?;
        self.wait(unit, &job).await
    }

    async fn wait(&mut self, unit: &str, job: &str) -> Result<(), SystemdError> {
        for _ in 0..MOST_SIGNALS {
            let signal = self.bus.signal().await.map_err(refused(unit))?;
            // Number, object, unit, result.
            let [_, Value::Text(object), _, Value::Text(result)] = &signal.values[..] else { continue };
            if signal.member != "JobRemoved" || object != job || signal.sender != self.sender {
                continue;
            }
            if result == "done" {
                return Ok(());
            }
            let result = result.clone();
            self.forget(unit).await;
            return Err(SystemdError::Job { unit: unit.to_owned(), result });
        }
        Err(SystemdError::Silent { unit: unit.to_owned() })
    }

    async fn set(&mut self, unit: &str, properties: Vec<Property>) -> io::Result<()> {
        let asked = [Value::Text(unit.to_owned()), Value::Flag(true), Value::Properties(properties)];
        self.call("SetUnitProperties", &asked).await.map(drop)
    }

    /// A unit that failed stays until somebody has seen it.
    async fn forget(&mut self, unit: &str) {
        let _ = self.call("ResetFailedUnit", &[Value::Text(unit.to_owned())]).await;
    }
}

fn job_of(answer: Option<Value>) -> io::Result<String> {
    match answer {
        Some(Value::Text(job)) => Ok(job),
        _ => Err(io::Error::other("systemd named no job")),
    }
}

fn refused(unit: &str) -> impl Fn(io::Error) -> SystemdError {
    move |source| SystemdError::Refused { unit: unit.to_owned(), source }
}

fn is_refusal(error: &io::Error, name: &str) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()).is_some_and(|refused| refused.name == name)
}

fn is_exists(error: &io::Error) -> bool {
    is_refusal(error, "org.freedesktop.systemd1.UnitExists")
}

fn is_gone(error: &io::Error) -> bool {
    is_refusal(error, "org.freedesktop.systemd1.NoSuchUnit")
}

/// What every unit of ours begins with, beside its place: it is counted from the beginning, and is not waited for when the
/// machine goes down.
pub fn usual(description: String) -> Vec<Property> {
    let counted = ["CPUAccounting", "MemoryAccounting", "IOAccounting", "TasksAccounting"];
    let counted = counted.into_iter().map(|name| Property::flag(name, true));
    let own = [
        Property::text("Description", description),
        Property::flag("DefaultDependencies", false),
        // Gone when nobody is in it, also where it failed.
        Property::text("CollectMode", "inactive-or-failed"),
    ];
    own.into_iter().chain(counted).collect()
}

/// A slice, which is within another by its name.
pub fn slice(unit: &str, description: String) -> Vec<Property> {
    let mut properties = usual(description);
    if let Some((above, _)) = unit.rsplit_once('-') {
        let above = PropertyValue::Texts(vec![format!("{above}.slice")]);
        properties.push(Property { name: "Wants", value: above });
    }
    properties
}

/// A scope in a slice, around a process; what is below it is whose it is.
pub fn scope(slice: &str, description: String, process: u32) -> Vec<Property> {
    let mut properties = usual(description);
    properties.extend([
        Property::text("Slice", slice),
        Property::flag("Delegate", true),
        Property { name: "PIDs", value: PropertyValue::Numbers(vec![process]) },
    ]);
    properties
}

#[cfg(test)]
mod tests;
