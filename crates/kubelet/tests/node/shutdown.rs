//! The machine goes down, as far as a bus and a logind of the test's own say so.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferry_kubelet::{LogindPlaces, ShutdownPeriod};
use ferry_tasks::Tasks;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};

use crate::api::Api;
use crate::containerd::Containerd;
use crate::{NODE, Node, condition, is_ready, shell};
use ferry_systemd::bus::Bus;
use ferry_systemd::{Message, Value as Word};

const LOGIND: &str = ":1.1";
/// The bus hangs up.
const NOBODY: &str = "";

/// Who says that the machine goes down, and whether it does.
type Said = (&'static str, bool);

struct Machine {
    tasks: Tasks,
    says: mpsc::UnboundedSender<Said>,
    /// How many locks are held.
    locks: watch::Receiver<u32>,
}

impl Machine {
    fn start(socket: &Path, conf: &Path) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket");
        let (says, mut hears) = mpsc::unbounded_channel();
        let (count, locks) = watch::channel(0);
        let tasks = Tasks::new("logind");
        let logind = Logind { conf: conf.to_owned(), count, tasks: tasks.clone() };
        tasks.spawn_until_stopped("logind", async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a kubelet");
                logind.talk(stream, &mut hears).await;
            }
        });
        Self { tasks, says, locks }
    }

    async fn locked(&self, count: u32) {
        let mut wait = self.locks.clone();
        let seen = tokio::time::timeout(Duration::from_secs(60), wait.wait_for(|held| *held == count)).await;
        seen.expect("in time").expect("a logind");
    }
}

struct Logind {
    conf: PathBuf,
    count: watch::Sender<u32>,
    tasks: Tasks,
}

impl Logind {
    async fn talk(&self, stream: UnixStream, hears: &mut mpsc::UnboundedReceiver<Said>) {
        let mut bus = Bus::of(stream);
        for (word, answer) in
            [("\0AUTH EXTERNAL ", "OK 1234\r\n"), ("NEGOTIATE_UNIX_FD", "AGREE_UNIX_FD\r\n"), ("BEGIN", "")]
        {
            let line = bus.line().await.expect("a line");
            assert!(line.starts_with(word), "{line:?}");
            bus.write(answer.as_bytes()).await.expect("written");
        }
        loop {
            tokio::select! {
                message = bus.read() => match message {
                    Ok(message) => self.answer(&mut bus, message).await,
                    Err(_) => return,
                },
                Some((sender, on)) = hears.recv() => {
                    if sender == NOBODY {
                        return;
                    }
                    let signal = Message {
                        kind: ferry_systemd::SIGNAL,
                        path: "/org/freedesktop/login1".into(),
                        interface: "org.freedesktop.login1.Manager".into(),
                        member: "PrepareForShutdown".into(),
                        sender: sender.into(),
                        values: vec![Word::Flag(on)],
                        ..Message::default()
                    };
                    bus.send(signal).await.expect("sent");
                }
            }
        }
    }

    /// The configured delay; five seconds, as it comes, until somebody writes another.
    fn delay(&self) -> u64 {
        let text = std::fs::read_to_string(&self.conf).unwrap_or_default();
        let seconds = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec=")?.parse::<u64>().ok());
        seconds.unwrap_or(5) * 1_000_000
    }

    async fn answer(&self, bus: &mut Bus, asked: Message) {
        let mut answer = Message { kind: ferry_systemd::ANSWER, answers: asked.serial, ..Message::default() };
        match asked.member.as_str() {
            "Hello" => answer.values = vec![Word::Text(":1.7".into())],
            "GetNameOwner" => answer.values = vec![Word::Text(LOGIND.into())],
            "Get" => {
                assert_eq!(asked.values[1], Word::Text("InhibitDelayMaxUSec".into()));
                answer.values = vec![Word::Long(self.delay())];
            }
            "KillUnit" => assert_eq!(asked.values[0], Word::Text("systemd-logind.service".into())),
            "AddMatch" => assert!(matches!(&asked.values[0], Word::Text(rule) if rule.contains("PrepareForShutdown"))),
            "Inhibit" => {
                let words = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
                assert_eq!(asked.values, words.map(|word| Word::Text(word.into())));
                return self.give_lock(bus, answer);
            }
            other => panic!("{other} is not logind's"),
        }
        bus.send(answer).await.expect("sent");
    }

    fn give_lock(&self, bus: &Bus, mut answer: Message) {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        answer.values = vec![Word::Descriptor(0)];
        answer.descriptors = vec![OwnedFd::from(theirs)];
        answer.serial = 1000;
        let bytes = ferry_systemd::encode(&answer);
        let given = [answer.descriptors[0].as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&given)));
        let sent = rustix::net::sendmsg(bus, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty());
        assert_eq!(sent.expect("sent"), bytes.len());
        self.count.send_modify(|count| *count += 1);
        let count = self.count.clone();
        self.tasks.spawn_until_stopped("lock", async move {
            let gone = tokio::task::spawn_blocking(move || std::io::Read::read(&mut ours, &mut [0; 1])).await;
            assert_eq!(gone.expect("a thread").expect("the end"), 0);
            count.send_modify(|count| *count -= 1);
        });
    }
}

fn words(pod: &Value) -> (&str, &str) {
    (pod["status"]["reason"].as_str().unwrap_or_default(), pod["status"]["message"].as_str().unwrap_or_default())
}

fn spec(priority: i32, name: &str, folder: &Path) -> Value {
    let script = format!(
        "grep Seccomp: /proc/self/status; trap 'echo {name} ends >> /order/lines; exit 0' TERM; sleep 1000 & wait"
    );
    let hook = json!({"exec": {"command": shell(&format!("echo {name} is told >> /order/lines"))}});
    json!({"priority": priority, "terminationGracePeriodSeconds": 15,
        "containers": [{"name": "main", "command": shell(&script), "lifecycle": {"preStop": hook},
            "volumeMounts": [{"name": "order", "mountPath": "/order"}]}],
        "volumes": [{"name": "order", "hostPath": {"path": folder}}]})
}

pub(crate) async fn pods_end_before_the_machine(api: &Api, containerd: &Containerd) {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, conf) = (folder.path().join("bus"), folder.path().join("logind.conf.d/99-kubelet.conf"));
    let machine = Machine::start(&socket, &conf);
    let (bus, own_conf) = (socket.clone(), conf.clone());
    let node = Node::start_with(api, containerd, |config| {
        let period = |priority, seconds| ShutdownPeriod { priority, seconds };
        config.settings.shutdown = vec![period(0, 30), period(1000, 30)];
        config.settings.logind = LogindPlaces { bus, conf: own_conf };
        config.settings.seccomp_default = true;
    })
    .await;
    machine.locked(1).await;
    let written = std::fs::read_to_string(&conf).expect("written");
    assert_eq!(written, "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=60\n");
    let least = node.create("least", spec(0, "least", folder.path())).await;
    let most = node.create("most", spec(1500, "most", folder.path())).await;
    for key in [&least, &most] {
        let pod = api.until(key, "ready", is_ready).await;
        // `seccompDefault`: the runtime's profile, for nobody named one.
        assert!(node.log_with(&pod, "main", "Seccomp:").await.contains("Seccomp:\t2"));
    }

    // What others say is no shutdown; logind's own word is.
    machine.says.send((":1.66", true)).expect("heard");
    machine.says.send((LOGIND, true)).expect("heard");
    machine.locked(0).await;
    let lines = std::fs::read_to_string(folder.path().join("lines")).expect("lines");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines, ["least is told", "least ends", "most is told", "most ends"]);
    for key in [&least, &most] {
        let pod = api.until(key, "failed", |pod| pod["status"]["phase"] == "Failed").await;
        assert_eq!(words(&pod), ("Terminated", "Pod was terminated in response to imminent node shutdown."));
        assert_eq!(condition(&pod, "DisruptionTarget"), "True");
    }
    let down = |object: &Value| {
        let ready = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
        ready.is_some_and(|c| {
            c["status"] == "False" && c["reason"] == "KubeletNotReady" && c["message"] == "node is shutting down"
        })
    };
    api.until("api/v1/nodes||test-node", "going down", down).await;
    let late = node.create("late", json!({"containers": [{"name": "main", "command": shell("sleep 1000")}]})).await;
    let pod = api.until(&late, "refused", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(words(&pod), ("NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down."));
    let told = async {
        while !node.events_of(NODE).contains(&"NodeShutdown".to_owned()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("an event");

    // Called off: the node holds the next one back, and takes pods again.
    machine.says.send((LOGIND, false)).expect("heard");
    machine.locked(1).await;
    api.until("api/v1/nodes||test-node", "ready again", is_ready).await;
    let again = node.create("again", json!({"containers": [{"name": "main", "command": shell("sleep 1000")}]})).await;
    api.until(&again, "ready", is_ready).await;

    // The next one is called off while the bus is away: whoever gets a lock again does not go down.
    machine.says.send((LOGIND, true)).expect("heard");
    machine.locked(0).await;
    api.until("api/v1/nodes||test-node", "going down", down).await;
    machine.says.send((NOBODY, false)).expect("heard");
    machine.locked(1).await;
    api.until("api/v1/nodes||test-node", "ready again", is_ready).await;
    for key in [least, most, late, again] {
        node.delete(&key).await;
    }
    node.stop().await;
    machine.locked(0).await;
    assert!(machine.tasks.stop(Duration::from_secs(10)).await);
}
