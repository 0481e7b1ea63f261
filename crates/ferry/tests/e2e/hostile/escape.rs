//! Containers that reach for the runtime that makes them, and for the memory of whoever reads what they say.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, kubectl_path, until};
use crate::{Alone, Scenario};

pub const SCENARIOS: &[Scenario] = &[
    ("hostile::escape::a_working_directory_leads_nowhere_else", a_working_directory_leads_nowhere_else),
    ("hostile::escape::the_program_of_the_runtime_stays_as_it_is", the_program_of_the_runtime_stays_as_it_is),
    ("hostile::escape::slow_readers_of_logs_hold_nobody_up", slow_readers_of_logs_hold_nobody_up),
];

pub const ALONE: &[Alone] =
    &[("hostile::escape::nothing_leads_out_of_the_embedded_runtime", nothing_leads_out_of_the_embedded_runtime)];

const IMAGE: &str = "busybox:1.36";

fn pod(name: &str, containers: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
        "containers": containers, "volumes": [{"name": "v", "emptyDir": {}}]}})
    .to_string()
}

fn remove(cluster: &Cluster, name: &str) {
    cluster.kubectl(&["delete", "pod", name, "--wait=true"]);
}

/// A runtime that holds a folder of the node open when it enters the container's working directory gives it away.
fn a_working_directory_leads_nowhere_else(cluster: &mut Cluster) {
    let mark = cluster.data_dir().join("of-the-node");
    std::fs::write(&mark, "secret").unwrap();
    let look = format!(
        "p=.; for i in 1 2 3 4 5 6 7 8; do [ -e \"$p{}\" ] && echo ESCAPED; p=$p/..; done; echo looked",
        mark.display()
    );
    let numbers = 3..20;
    let containers: Vec<Value> = numbers
        .clone()
        .map(|number| {
            json!({"name": format!("fd-{number}"), "image": IMAGE, "command": ["/bin/sh", "-c", look],
                "workingDir": format!("/proc/self/fd/{number}")})
        })
        .collect();
    cluster.apply(&pod("workdirs", &json!(containers)));
    until("every container was tried", || {
        let pod = cluster.json(&["get", "pod", "workdirs"]);
        let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        let tried = |status: &Value| {
            let waiting = status["state"]["waiting"]["reason"].as_str().unwrap_or_default();
            !status["state"]["terminated"].is_null() || waiting.contains("Error") || waiting.contains("BackOff")
        };
        (statuses.len() == containers.len() && statuses.iter().all(tried)).then_some(())
    });
    for number in numbers {
        let container = format!("fd-{number}");
        let output = cluster.try_kubectl(&["logs", "workdirs", "-c", &container], "");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!told.contains("ESCAPED"), "{container}: {told}");
    }
    remove(cluster, "workdirs");
    std::fs::remove_file(&mark).unwrap();
}

/// Of a file: whether it is still the same one, with the same content.
fn identity(path: &Path) -> (u64, u64, i64, i64) {
    let about = std::fs::metadata(path).unwrap();
    (about.ino(), about.size(), about.mtime(), about.ctime())
}

/// Who enters a container can be made to run itself once more, and be written to once it has ended.
fn the_program_of_the_runtime_stays_as_it_is(cluster: &mut Cluster) {
    let ferry = std::fs::read_link(format!("/proc/{}/exe", cluster.pid())).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let of_path = path.split(':').flat_map(|folder| {
        ["runc", "containerd", "containerd-shim-runc-v2"].map(|name| PathBuf::from(folder).join(name))
    });
    let programs: Vec<PathBuf> = of_path.chain([ferry]).filter(|program| program.exists()).collect();
    let before: Vec<_> = programs.iter().map(|program| identity(program)).collect();
    // Whatever else than its own program runs in its sight is held open, and written to until that works.
    let catch = "printf '#!/proc/self/exe\\n' >/v/self; chmod 755 /v/self; touch /v/ready;
        while :; do for p in /proc/[0-9]*; do
          case \"$(readlink $p/exe)\" in ''|*/busybox|/bin/*) ;; *)
            ( exec 3<$p/exe || exit; for i in 1 2 3 4 5 6 7 8 9; do echo x >/proc/self/fd/3; usleep 50000; done ) 2>&- & ;;
          esac; done; done 2>&-";
    let container = json!([{"name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", catch],
        "resources": {"limits": {"cpu": "500m"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]);
    cluster.apply(&pod("catcher", &container));
    until("it lies in wait", || {
        cluster.try_kubectl(&["exec", "catcher", "--", "ls", "/v/ready"], "").status.success().then_some(())
    });
    for _ in 0..20 {
        cluster.try_kubectl(&["exec", "catcher", "--", "/v/self"], "");
    }
    assert_eq!(cluster.kubectl(&["exec", "catcher", "--", "echo", "fine"]).trim(), "fine");
    for (program, before) in programs.iter().zip(before) {
        assert_eq!(identity(program), before, "{} was changed", program.display());
    }
    remove(cluster, "catcher");
}

/// The same on Ferry's own runtime, whose program is Ferry itself.
fn nothing_leads_out_of_the_embedded_runtime() {
    let mut cluster = Cluster::start_with(vec!["--container-runtime-endpoint=embedded".to_owned()]);
    for (name, scenario) in SCENARIOS {
        println!("  {name}");
        scenario(&mut cluster);
    }
}

fn resident_megabytes(cluster: &Cluster) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Those who follow a log and do not read it: nothing is kept for them.
fn slow_readers_of_logs_hold_nobody_up(cluster: &mut Cluster) {
    let talk = "yes \"$(printf %0200d 7)\" | head -c 60000000; sleep 3600";
    let container = json!([{"name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", talk]}]);
    cluster.apply(&pod("talker", &container));
    until("it talks", || {
        let output = cluster.try_kubectl(&["logs", "talker", "--tail=1"], "");
        (output.status.success() && !output.stdout.is_empty()).then_some(())
    });
    let (pid, before) = (cluster.pid(), resident_megabytes(cluster));
    let config = cluster.data_dir().join("kubeconfig");
    let readers: Vec<Reader> = (0..10)
        .map(|_| {
            let mut command = Command::new(kubectl_path());
            command.arg("--kubeconfig").arg(&config).args(["logs", "-f", "talker"]);
            Reader(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
        })
        .collect();
    for reader in &readers {
        until("the reader has as much as its pipe holds", || {
            let waiting = rustix::io::ioctl_fionread(reader.0.stdout.as_ref().unwrap()).unwrap();
            (waiting >= 60_000).then_some(())
        });
    }
    let mut delays: Vec<Duration> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            cluster.kubectl(&["get", "namespace", "default"]);
            begin.elapsed()
        })
        .collect();
    delays.sort_unstable();
    assert!(delays[18] < Duration::from_secs(5), "{delays:?}");
    assert!(cluster.kubectl(&["logs", "talker", "--tail=1"]).contains('7'));
    let grown = resident_megabytes(cluster).saturating_sub(before);
    assert!(grown < 150, "it grew by {grown} MB");
    // Who begins to read gets all of it, in order.
    let mut readers = readers;
    let mut first = vec![0; 200_000];
    readers[0].0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(first.split(|byte| *byte == b'\n').skip(1).take(900).all(|line| line.len() == 200 && line.ends_with(b"7")));
    drop(readers);
    assert_eq!(cluster.pid(), pid);
    remove(cluster, "talker");
}
