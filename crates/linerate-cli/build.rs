//! Has the linker keep functions that came out alike once: it takes about 3 % off the released command. GNU's linker
//! cannot, so that is asked only of the one that Rust brings with it, which is the default here.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if is_released() && is_linked_by_rusts_own() {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}

fn said(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn is_released() -> bool {
    said("PROFILE") == "release"
}

/// On x86-64 with glibc, unless somebody chose another one, or whoever built this Rust left it out.
fn is_linked_by_rusts_own() -> bool {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let flags = said("CARGO_ENCODED_RUSTFLAGS");
    let is_chosen =
        ["link", "fuse-ld"].iter().any(|word| flags.contains(word)) || !said("RUSTC_LINKER").is_empty();
    if said("TARGET") != TARGET || is_chosen {
        return false;
    }
    let Ok(found) = Command::new(said("RUSTC")).args(["--print", "sysroot"]).output() else { return false };
    let sysroot = String::from_utf8_lossy(&found.stdout);
    Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("bin/gcc-ld/ld.lld").exists()
}
