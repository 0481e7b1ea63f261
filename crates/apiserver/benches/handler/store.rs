//! What 100,000 ConfigMaps of 1 KB take in memory.

use std::sync::Arc;
use std::time::Duration;

use crate::kit::{Kit, config_map, memory};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const COUNT: usize = 100_000;

pub async fn run() {
    let kit = Arc::new(Kit::new().await);
    let empty = memory("VmRSS:");
    kit.measure("ConfigMaps to be kept", COUNT, |n| {
        ("POST", MAPS.into(), "application/json", config_map(&format!("kept-{n}")))
    })
    .await;
    let full = memory("VmRSS:");
    println!(r#"{{"what":"handler: 100,000 ConfigMaps of 1 KB","empty_mb":{empty:.1},"rss_mb":{full:.1}}}"#);
    // What the log keeps for watches that come back goes after a while.
    tokio::time::sleep(Duration::from_secs(20)).await;
    println!(r#"{{"what":"handler: 100,000 ConfigMaps of 1 KB, at rest","rss_mb":{:.1}}}"#, memory("VmRSS:"));
}
