//! nginx with HTTP/3, from the crate `nginx-src`: distributions' often has none.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;
use xtask::shell;

/// The crate, whose version is nginx's.
const SOURCE: &str = "nginx-src";
const VERSION: &str = "=1.28.5";

fn folder() -> PathBuf {
    shell::target_dir().join("bench/nginx-h3")
}

/// The program.
pub(crate) fn program() -> PathBuf {
    folder().join("nginx/objs/nginx")
}

/// Builds it once, against the OpenSSL of this machine.
pub(super) fn build() -> Result<()> {
    if program().is_file() {
        return Ok(());
    }
    let folder = folder();
    std::fs::create_dir_all(folder.join("src"))?;
    std::fs::write(folder.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"sources\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{SOURCE} = \"{VERSION}\"\n"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest)?;
    let mut metadata = shell::cargo();
    metadata.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    let all: Value = serde_json::from_str(&shell::output(&mut metadata)?)?;
    let packages = all["packages"].as_array().context("cargo metadata names no packages")?;
    let crate_of_it = packages.iter().find(|package| package["name"] == SOURCE);
    let manifest = crate_of_it.and_then(|package| package["manifest_path"].as_str()).context("no sources")?;
    let sources = PathBuf::from(manifest).with_file_name("nginx");
    let here = folder.join("nginx");
    shell::run(shell::program("cp").arg("-rT").arg(sources).arg(&here))?;
    let mut configure = shell::program("auto/configure");
    configure.current_dir(&here).args([
        "--with-http_ssl_module",
        "--with-http_v2_module",
        "--with-http_v3_module",
        "--with-http_stub_status_module",
        "--without-http_rewrite_module",
        "--without-http_gzip_module",
    ]);
    shell::output(&mut configure)?;
    shell::output(shell::program("make").current_dir(&here).arg("-j2")).map(drop)
}
