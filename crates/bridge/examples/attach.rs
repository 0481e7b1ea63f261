//! For `make bench`: how long the network of a pod takes, in the network namespace that this is run in. A line of JSON.
//!
//! `attach FOLDER [PODS]`: addresses are kept in the folder.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ferry_bridge::{Request, Settings, call, prepare};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let state = arguments.next().ok_or("the first argument is a folder")?;
    let pods: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let settings = Settings {
        bridge: "pods0".into(),
        mtu: 0,
        ranges: vec!["10.244.0.0/20".into()],
        state: state.into(),
        nft: "nft".into(),
    };
    prepare(settings.clone()).await?;
    let mut configuration = serde_json::to_value(&settings)?;
    configuration["cniVersion"] = json!("1.1.0");
    let mut added = Vec::new();
    for number in 0..pods {
        let pod = format!("ferry-attach-{number}");
        ip(&["netns", "add", &pod])?;
        let request = Request {
            command: "ADD".into(),
            container_id: pod.clone(),
            namespace: Path::new("/run/netns").join(&pod),
            interface: "eth0".into(),
            arguments: format!("K8S_POD_NAMESPACE=a;K8S_POD_NAME={pod}"),
            configuration: configuration.clone(),
        };
        let begin = Instant::now();
        call(request).await?;
        added.push(begin.elapsed());
    }
    for number in 0..pods {
        ip(&["netns", "delete", &format!("ferry-attach-{number}")])?;
    }
    added.sort();
    let at = |share: usize| added[(added.len() - 1) * share / 100];
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        r#"{{"what":"network of a pod, in the process","pods":{pods},"p50_ms":{:.2},"p99_ms":{:.2}}}"#,
        milliseconds(at(50)),
        milliseconds(at(99))
    );
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let status = Command::new("ip").args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {arguments:?} failed").into()) }
}
