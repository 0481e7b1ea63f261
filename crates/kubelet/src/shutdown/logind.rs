//! systemd's logind: it tells when the machine is about to go down, and waits while somebody holds a lock.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use ferry_systemd::bus::Bus;
use ferry_systemd::{Message, Value};

use super::LogindPlaces;

const LOGIND: &str = "org.freedesktop.login1";
const OBJECT: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
/// Whoever does not answer within this does not work.
const PATIENCE: Duration = Duration::from_secs(10);
/// logind reads its configuration behind the answer to the request.
const LOOKS: u32 = 5;

pub(super) struct Logind {
    bus: Bus,
}

impl Logind {
    /// A connection, and a lock that holds a shutdown back for so long.
    pub(super) async fn hold(places: &LogindPlaces, wanted: Duration) -> Result<(Self, OwnedFd), String> {
        let mut logind = Self::connect(&places.bus).await?;
        logind.allow(wanted, &places.conf).await?;
        // First the ear, then the lock: logind may tell of a shutdown as soon as somebody holds it back.
        logind.listen().await?;
        let lock = logind.inhibit().await?;
        Ok((logind, lock))
    }

    async fn connect(socket: &Path) -> Result<Self, String> {
        let connected = patiently(Bus::connect(socket)).await;
        Ok(Self { bus: connected.map_err(|why| format!("{}: {why}", socket.display()))? })
    }

    async fn call(&mut self, name: &str, path: &str, member: &str, values: &[Value]) -> Result<Message, String> {
        patiently(self.bus.call(name, path, member, values)).await
    }

    /// How long a lock holds a shutdown back at most.
    async fn longest_delay(&mut self) -> Result<Duration, String> {
        let asked = [Value::Text(MANAGER.to_owned()), Value::Text("InhibitDelayMaxUSec".to_owned())];
        let answer = self.call(LOGIND, OBJECT, "org.freedesktop.DBus.Properties.Get", &asked).await?;
        match answer.values.first() {
            Some(Value::Long(micros)) => Ok(Duration::from_micros(*micros)),
            _ => Err("InhibitDelayMaxUSec from logind is not a uint64 as expected".to_owned()),
        }
    }

    /// Sees to it that a lock holds for `wanted`: where logind allows less, its configuration is written.
    async fn allow(&mut self, wanted: Duration, conf: &Path) -> Result<(), String> {
        if self.longest_delay().await? >= wanted {
            return Ok(());
        }
        let text = format!("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n", wanted.as_secs());
        let file = conf.to_owned();
        let written = move || {
            file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(&file, text)
        };
        let written = tokio::task::spawn_blocking(written).await.map_err(io::Error::other).flatten();
        written.map_err(|error| {
            format!("failed writing logind shutdown inhibit override file {}: {error}", conf.display())
        })?;
        let (unit, who, hangup) = ("systemd-logind.service", "all", 1);
        let asked = [Value::Text(unit.to_owned()), Value::Text(who.to_owned()), Value::Signed(hangup)];
        let (name, path) = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1");
        let reloaded = self.call(name, path, "org.freedesktop.systemd1.Manager.KillUnit", &asked).await;
        reloaded.map_err(|why| format!("unable to reload logind conf: {why}"))?;
        let mut allowed = Duration::ZERO;
        for look in 0..LOOKS {
            allowed = self.longest_delay().await?;
            if allowed >= wanted {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100 << look)).await;
        }
        let (wanted, allowed) = (wanted.as_secs(), allowed.as_secs());
        Err(format!(
            "node shutdown manager was timed out after {LOOKS} attempts waiting for logind InhibitDelayMaxSec to update to {wanted}s (ShutdownGracePeriod), current value is {allowed}s"
        ))
    }

    /// A lock; the shutdown goes on when it is dropped.
    pub(super) async fn inhibit(&mut self) -> Result<OwnedFd, String> {
        let words = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
        let words = words.map(|word| Value::Text(word.to_owned()));
        let mut answer = self.call(LOGIND, OBJECT, "org.freedesktop.login1.Manager.Inhibit", &words).await?;
        answer.descriptors.pop().ok_or_else(|| "logind gave no inhibitor lock".to_owned())
    }

    async fn listen(&mut self) -> Result<(), String> {
        let rule = format!(
            "type='signal',sender='{LOGIND}',path='{OBJECT}',interface='{MANAGER}',member='PrepareForShutdown'"
        );
        self.ask_bus("AddMatch", &rule).await.map(drop)
    }

    async fn ask_bus(&mut self, member: &str, text: &str) -> Result<Message, String> {
        let asked = [Value::Text(text.to_owned())];
        self.call("org.freedesktop.DBus", "/org/freedesktop/DBus", member, &asked).await
    }

    /// Waits until the machine is about to go down (true), or a shutdown was called off (false).
    pub(super) async fn next(&mut self) -> Result<bool, String> {
        loop {
            let signal = self.bus.signal().await.map_err(|error| error.to_string())?;
            if (signal.interface.as_str(), signal.member.as_str()) != (MANAGER, "PrepareForShutdown") {
                continue;
            }
            // Anybody on the bus can send us a signal of this name.
            let owner = self.ask_bus("GetNameOwner", LOGIND).await?;
            if owner.values.first() != Some(&Value::Text(signal.sender.clone())) {
                tracing::warn!(sender = signal.sender, "a signal of a shutdown that is not logind's");
                continue;
            }
            if let Some(Value::Flag(on)) = signal.values.first() {
                return Ok(*on);
            }
        }
    }
}

async fn patiently<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;
    use ferry_systemd::ANSWER;

    /// A shutdown that began between the two was not heard of: pods went down with the machine.
    #[tokio::test]
    async fn shutdowns_are_listened_for_before_they_are_held_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = LogindPlaces { bus: folder.path().join("bus"), conf: folder.path().join("conf") };
        let listener = UnixListener::bind(&places.bus).expect("a socket");
        let bus = async move {
            let mut bus = Bus::of(listener.accept().await.expect("a kubelet").0);
            for answer in ["OK 1234\r\n", "AGREE_UNIX_FD\r\n", ""] {
                bus.line().await.expect("a line");
                bus.write(answer.as_bytes()).await.expect("written");
            }
            let mut asked = Vec::new();
            while let Ok(message) = bus.read().await {
                let values = if message.member == "Get" { vec![Value::Long(60_000_000)] } else { Vec::new() };
                let answer = Message { kind: ANSWER, answers: message.serial, values, ..Message::default() };
                bus.send(answer).await.expect("sent");
                asked.push(message.member);
            }
            asked
        };
        // The lock itself is not sent here.
        let held = async { Logind::hold(&places, Duration::from_secs(30)).await.map(drop) };
        let (asked, held) = tokio::join!(bus, held);
        assert_eq!(held, Err("logind gave no inhibitor lock".to_owned()));
        assert_eq!(asked, ["Hello", "Get", "AddMatch", "Inhibit"]);
    }
}
