//! Turns `proto/` into Rust. protox reads the file, so that no `protoc` is needed to build Ferry.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/kms.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        // For tests: a service of their own.
        .build_server(true)
        // Keys must not reach a log through `{:?}`.
        .skip_debug(["v2.DecryptResponse", "v2.EncryptRequest"])
        .compile_fds(files)?;
    Ok(())
}
