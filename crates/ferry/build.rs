//! How the program is linked.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|actual| actual == value);
    // Here Rust brings a linker that can do this (LLD), unless somebody chose another.
    let own_linker = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if own_linker || !is("TARGET", "x86_64-unknown-linux-gnu") || is("OPT_LEVEL", "0") {
        return;
    }
    for argument in [
        // Functions with the same code are in the file once, and so are constants with the same bytes: nothing compares their addresses.
        "-Wl,--icf=all",
        "-Wl,--ignore-data-address-equality",
        // At a fixed address, as Go's programs are: otherwise each process, also a pod's shim, begins with a copy of its own of all
        // constants that hold addresses (docs/decisions/0294-linked-at-a-fixed-address.md).
        "-no-pie",
    ] {
        println!("cargo::rustc-link-arg-bin=ferry={argument}");
    }
}
