//! Turns `proto/` into Rust. protox reads the files, so that no `protoc` is needed to build Ferry.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/service.proto", "proto/health.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // Registry passwords must not reach a log through `{:?}`.
        .skip_debug(["runtime.v1.AuthConfig"])
        // A runtime that offers only a part answers the rest with Unimplemented.
        .generate_default_stubs(true)
        .compile_fds(files)?;
    Ok(())
}
