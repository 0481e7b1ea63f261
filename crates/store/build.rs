//! Turns `proto/` into Rust. protox reads the files, so that no `protoc` is needed to build Ferry.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let kms = protox::compile(["kms.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        // For tests: a service of their own.
        .build_server(true)
        // Keys must not reach a log through `{:?}`.
        .skip_debug(["v2.DecryptResponse", "v2.EncryptRequest"])
        .compile_fds(kms)?;
    let etcd =
        ["etcd/kv.proto", "etcd/watch.proto", "etcd/lease.proto", "etcd/cluster.proto", "etcd/maintenance.proto"];
    tonic_prost_build::configure()
        .build_server(false)
        // What is sent is not copied again for each member that is tried. What is received is copied: a piece of a
        // message would keep all of it in memory, a value as long as the value is cached.
        .bytes(".etcdserverpb.PutRequest.value")
        .bytes(".etcdserverpb.SnapshotResponse.blob")
        .compile_fds(protox::compile(etcd, ["proto"])?)?;
    Ok(())
}
