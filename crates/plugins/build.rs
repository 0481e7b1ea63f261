//! Turns `proto/` into Rust. protox reads the files, so that no `protoc` is needed to build Ferry.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let interfaces =
        ["registration", "csi", "deviceplugin", "podresources", "dra"].map(|name| format!("proto/{name}.proto"));
    let files = protox::compile(interfaces, ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // They carry secrets, which must not reach a log through `{:?}`.
        .skip_debug([
            "csi.v1.NodeStageVolumeRequest",
            "csi.v1.NodePublishVolumeRequest",
            "csi.v1.NodeExpandVolumeRequest",
        ])
        // A driver that offers only a part answers the rest with Unimplemented.
        .generate_default_stubs(true)
        .compile_fds(files)?;
    Ok(())
}
