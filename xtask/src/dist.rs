//! `dist`: what users install: the release binary, stripped, with manual pages, completions, the
//! services and their configuration, as an archive and, if asked for, as Debian and RPM packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use xtask::shell;

/// The flags of `dist`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DistOptions {
    /// Build for this target (x86_64-unknown-linux-musl is static) instead of this machine's
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// Pack the binary that the target folder holds, without building it
    #[arg(long)]
    pub(crate) no_build: bool,
    /// Make a Debian package too (needs cargo-deb)
    #[arg(long)]
    pub(crate) deb: bool,
    /// Make an RPM package too (needs cargo-generate-rpm)
    #[arg(long)]
    pub(crate) rpm: bool,
}

/// Completion scripts: the shell and the file's name.
const SHELLS: [(&str, &str); 3] =
    [("bash", "linerate.bash"), ("zsh", "_linerate"), ("fish", "linerate.fish")];

/// Files of the archive beside the binary, manual pages and completions. Their paths in it do not
/// begin with packaging/.
pub(crate) const BESIDE: [&str; 9] = [
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "packaging/linerate.service",
    "packaging/linerate-agent.service",
    "packaging/serve.toml",
    "packaging/agent.env",
    "packaging/sysusers.d/linerate.conf",
    "packaging/www/index.html",
];

/// The library of `linerate bypass`: beside the command in the archive, in /usr/lib/linerate in packages.
pub(crate) const LIBRARY: &str = "liblinerate_bypass.so";

/// The folder that packages are made from. It does not follow CARGO_TARGET_DIR, because the
/// packages' metadata and packaging/Containerfile name it.
pub(crate) fn folder() -> PathBuf {
    shell::root().join("target/dist")
}

/// The path in the archive of a file of [`BESIDE`].
pub(crate) fn in_archive(file: &str) -> &str {
    file.strip_prefix("packaging/").unwrap_or(file)
}

/// Builds everything into target/dist.
pub(crate) fn run(options: &DistOptions) -> Result<bool> {
    let binary = build(options.target.as_deref(), options.no_build)?;
    let out = folder().join("out");
    std::fs::create_dir_all(&out)?;
    generate(&binary, options.target.as_deref())?;
    let stripped = strip(&binary, options.target.as_deref())?;
    let is_static = options.target.as_deref().is_some_and(|target| target.contains("-musl"));
    if is_static {
        check_static(&stripped)?;
    }
    let library = bypass_library(options)?;
    if options.deb || options.rpm {
        ensure!(
            library.is_some(),
            "packages have {LIBRARY}: make them on a machine of their own kind, from both builds"
        );
    }
    archive(&stripped, library.as_deref(), options.target.as_deref(), &out)?;
    certificates()?;
    packages(options, is_static, &out)?;
    for entry in std::fs::read_dir(&out)? {
        let entry = entry?;
        println!(
            "target/dist/out/{}  {} bytes",
            entry.file_name().to_string_lossy(),
            entry.metadata()?.len()
        );
    }
    Ok(true)
}

/// Makes the packages that are asked for, of what lies in target/dist.
fn packages(options: &DistOptions, is_static: bool, out: &Path) -> Result<()> {
    let target: Vec<&str> = options.target.as_deref().map_or(Vec::new(), |t| vec!["--target", t]);
    if options.deb {
        let mut c = shell::cargo();
        c.args(["deb", "--no-build", "-p", "linerate-cli", "--output"]).arg(out).args(&target);
        if is_static {
            c.arg("--variant=static");
        }
        shell::run(&mut c).context("cargo install --locked cargo-deb installs cargo-deb")?;
    }
    if options.rpm {
        rpm_tool()?;
        let mut c = shell::cargo();
        c.args(["generate-rpm", "--package", "crates/linerate-cli", "--output"]).arg(out).args(&target);
        if is_static {
            c.arg("--auto-req=no");
        }
        shell::run(&mut c)?;
    }
    Ok(())
}

/// The certificates of the usual authorities, for the image, which has no others.
fn certificates() -> Result<()> {
    const OURS: &str = "/etc/ssl/certs/ca-certificates.crt";
    let to = folder().join("ca-certificates.crt");
    std::fs::copy(OURS, to).with_context(|| format!("{OURS} cannot be copied: install ca-certificates"))?;
    Ok(())
}

/// The version of cargo-generate-rpm that packs directories. Reason: 0.21 makes files of them, and the
/// package cannot be installed.
const RPM_TOOL: &str = "0.16";

/// Whether the tool that makes RPM packages is there.
pub(crate) fn rpm_tool() -> Result<()> {
    let how = format!("cargo install --locked cargo-generate-rpm@^{RPM_TOOL}");
    let version = shell::output(shell::cargo().args(["generate-rpm", "--version"]))
        .with_context(|| format!("cargo-generate-rpm is missing: {how}"))?;
    ensure!(
        version.split_whitespace().any(|word| word.starts_with(&format!("{RPM_TOOL}."))),
        "{} is there, which packs directories as files: {how}",
        version.trim()
    );
    Ok(())
}

fn build(target: Option<&str>, no_build: bool) -> Result<PathBuf> {
    let mut c = shell::cargo();
    c.args(["build", "--release", "--locked", "-p", "linerate-cli"]);
    let mut folder = shell::target_dir();
    if let Some(target) = target {
        c.args(["--target", target]);
        folder.push(target);
    }
    if !no_build {
        shell::run(&mut c)?;
    }
    Ok(folder.join("release/linerate"))
}

/// The library of `linerate bypass`, stripped. It is always linked with this machine's glibc, also beside
/// a static binary: programs that it is preloaded into have glibc. None for another processor.
fn bypass_library(options: &DistOptions) -> Result<Option<PathBuf>> {
    if foreign(options.target.as_deref()).is_some() {
        println!("{LIBRARY} is left out: it is built on a machine of its own kind");
        return Ok(None);
    }
    if !options.no_build {
        shell::run(shell::cargo().args(["build", "--release", "--locked", "-p", "linerate-bypass"]))?;
    }
    let (built, packed) =
        (shell::target_dir().join("release").join(LIBRARY), folder().join("bin").join(LIBRARY));
    if options.no_build && !built.exists() {
        println!("{LIBRARY} is left out: --no-build, and {} is missing", built.display());
        return Ok(None);
    }
    std::fs::copy(&built, &packed).with_context(|| built.display().to_string())?;
    if let Some(strip) = shell::find("strip") {
        shell::run(shell::program(strip).arg("--strip-unneeded").arg(&packed))?;
    }
    Ok(Some(packed))
}

/// The processor of a target, if it is another one than this machine's.
fn foreign(target: Option<&str>) -> Option<&str> {
    target?.split('-').next().filter(|processor| *processor != std::env::consts::ARCH)
}

/// The program that strips binaries for this target: binutils' knows one processor, LLVM's all.
fn stripper(target: Option<&str>) -> Option<PathBuf> {
    match foreign(target) {
        None => shell::find("strip"),
        Some(processor) => {
            shell::find(&format!("{processor}-linux-gnu-strip")).or_else(|| shell::find("llvm-strip"))
        }
    }
}

/// Runs a binary that was built for `target`: one for another processor by QEMU.
fn runner(binary: &Path, target: Option<&str>) -> Result<Command> {
    let Some(processor) = foreign(target) else { return Ok(shell::program(binary)) };
    let names = [format!("qemu-{processor}-static"), format!("qemu-{processor}")];
    let emulator = names.iter().find_map(|name| shell::find(name));
    let emulator = emulator.with_context(|| {
        format!("{} is missing (package qemu-user-static): it runs the {processor} binary", names[0])
    })?;
    let mut c = shell::program(emulator);
    c.arg(binary);
    Ok(c)
}

/// Manual pages and completions, from the command's own definitions.
fn generate(binary: &Path, target: Option<&str>) -> Result<()> {
    let (man, completions) = (folder().join("man"), folder().join("completions"));
    for folder in [&man, &completions] {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
    }
    shell::run(runner(binary, target)?.args(["man", "--dir"]).arg(&man))?;
    for (shell, file) in SHELLS {
        let script = shell::output(runner(binary, target)?.args(["completions", shell]))?;
        std::fs::write(completions.join(file), script)?;
    }
    Ok(())
}

/// Copies the binary without its debug information to where the archive and the packages take it:
/// compressing all of it would take them minutes.
fn strip(binary: &Path, target: Option<&str>) -> Result<PathBuf> {
    let stripped = folder().join("bin/linerate");
    std::fs::create_dir_all(folder().join("bin"))?;
    std::fs::copy(binary, &stripped)?;
    match stripper(target) {
        Some(strip) => shell::run(shell::program(strip).arg(&stripped))?,
        None if target.is_some() => bail!("strip is missing (package binutils)"),
        None => println!("strip is missing (package binutils): archive and packages are larger"),
    }
    Ok(stripped)
}

/// Fails here, and not on a user's machine, if a binary for musl is linked dynamically after all.
fn check_static(binary: &Path) -> Result<()> {
    let mut c = shell::program("readelf");
    c.args(["--wide", "--program-headers", "--section-headers"]).arg(binary);
    let headers = shell::output(&mut c).context("readelf (package binutils)")?;
    ensure!(headers.contains(".text"), "readelf found no code in {}", binary.display());
    let wrong = not_for_release(&headers);
    ensure!(wrong.is_empty(), "{} is not static or not stripped: {}", binary.display(), wrong.join(" "));
    Ok(())
}

/// What a static binary without debug information does not have, of readelf's headers.
/// `.debug_gdb_scripts` stays: the program loads it.
fn not_for_release(headers: &str) -> Vec<&str> {
    let wrong = |w: &&str| *w == "INTERP" || w.starts_with(".debug_") && *w != ".debug_gdb_scripts";
    headers.split_whitespace().filter(wrong).collect()
}

/// `linerate-VERSION-TARGET.tar.gz`, with everything in one folder.
fn archive(binary: &Path, library: Option<&Path>, target: Option<&str>, out: &Path) -> Result<()> {
    let triple = target.map_or_else(|| format!("{}-linux-gnu", std::env::consts::ARCH), str::to_owned);
    let name = format!("linerate-{}-{triple}", env!("CARGO_PKG_VERSION"));
    let parent = tempfile::tempdir()?;
    let inside = parent.path().join(&name);
    std::fs::create_dir_all(&inside)?;
    std::fs::copy(binary, inside.join("linerate"))?;
    if let Some(library) = library {
        std::fs::copy(library, inside.join(library.file_name().context("a file's name")?))?;
    }
    for part in ["man", "completions"] {
        shell::run(shell::program("cp").arg("-r").arg(folder().join(part)).arg(&inside))?;
    }
    for file in BESIDE {
        let to = inside.join(in_archive(file));
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(shell::root().join(file), to)?;
    }
    let mut tar = shell::program("tar");
    tar.arg("-C").arg(parent.path()).args(["--owner=0", "--group=0", "-czf"]);
    shell::run(tar.arg(out.join(format!("{name}.tar.gz"))).arg(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_for_this_processor_run_as_they_are() {
        let here = std::env::consts::ARCH;
        assert_eq!(foreign(None), None);
        assert_eq!(foreign(Some(&format!("{here}-unknown-linux-musl"))), None);
        assert_eq!(foreign(Some("riscv64gc-unknown-linux-musl")), Some("riscv64gc"));
        let run = runner(Path::new("linerate"), None).expect("it runs here");
        assert_eq!(run.get_program(), "linerate");
    }

    /// Package metadata, the archive and the workflow name files that are there.
    #[test]
    fn packages_name_files_that_exist() {
        let manifest =
            std::fs::read_to_string(shell::root().join("crates/linerate-cli/Cargo.toml")).expect("read");
        let manifest: toml::Value = toml::from_str(&manifest).expect("TOML");
        let metadata = &manifest["package"]["metadata"];
        let deb = metadata["deb"]["assets"].as_array().expect("a list");
        let rpm = metadata["generate-rpm"]["assets"].as_array().expect("a list");
        let sources: Vec<&str> = deb
            .iter()
            .filter_map(|a| a[0].as_str())
            .chain(rpm.iter().filter_map(|a| a["source"].as_str()))
            .collect();
        assert!(sources.len() > 10);
        // Where `linerate bypass` looks: in ../lib/linerate.
        let library = format!("../../target/dist/bin/{LIBRARY}");
        let place =
            |dest: &str| dest.trim_end_matches(LIBRARY).trim_start_matches('/') == "usr/lib/linerate/";
        let in_deb = |a: &&toml::Value| a[0].as_str() == Some(&library) && a[1].as_str().is_some_and(place);
        let in_rpm = |a: &&toml::Value| {
            a["source"].as_str() == Some(&library) && a["dest"].as_str().is_some_and(place)
        };
        assert_eq!((deb.iter().filter(in_deb).count(), rpm.iter().filter(in_rpm).count()), (1, 1));
        let stripped = |s: &&str| s.ends_with("target/dist/bin/linerate");
        assert_eq!(sources.iter().copied().filter(stripped).count(), 2, "a package with debug information");
        for source in sources.iter().filter_map(|s| s.strip_prefix("../../")) {
            let made = source.starts_with("target/dist/");
            assert!(made || shell::root().join(source).exists(), "{source}");
            let completion = source.strip_prefix("target/dist/completions/");
            assert!(completion.is_none_or(|file| SHELLS.iter().any(|(_, f)| *f == file)), "{source}");
        }
        for file in BESIDE.into_iter().chain(["packaging/deb/postinst", "packaging/Containerfile"]) {
            assert!(shell::root().join(file).exists(), "{file}");
        }
        // A script whose path is wrong would be packed as the script itself.
        for script in ["post_install_script", "pre_uninstall_script", "post_uninstall_script"] {
            let path = metadata["generate-rpm"][script].as_str().and_then(|s| s.strip_prefix("../../"));
            assert!(path.is_some_and(|path| shell::root().join(path).exists()), "{script}");
        }
        // Each package has what the archive has of packaging/.
        for file in BESIDE.into_iter().filter(|file| file.starts_with("packaging/")) {
            let named = sources.iter().filter(|s| s.strip_prefix("../../") == Some(file)).count();
            assert_eq!(named, 2, "{file}");
        }
    }

    #[test]
    fn a_release_has_no_interpreter_and_no_debug_information() {
        let linked = "  INTERP  0x000318 0x318\n  [28] .debug_line  PROGBITS  0  0\n  [29] .text";
        assert_eq!(not_for_release(linked), ["INTERP", ".debug_line"]);
        let good = "  LOAD  0x000000 0x0\n  [12] .text  PROGBITS\n  [17] .debug_gdb_scripts PROGBITS";
        assert_eq!(not_for_release(good), [""; 0]);
    }

    /// systemd 252 ignores `Type=notify-reload`: the service would be reloaded by no command.
    #[test]
    fn the_service_reloads_on_older_systemd_too() {
        let unit = std::fs::read_to_string(shell::root().join("packaging/linerate.service")).expect("read");
        let keys: Vec<&str> = unit.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(keys.contains(&"Type=notify"), "{unit}");
        assert!(keys.contains(&"ExecReload=/bin/kill -HUP $MAINPID"), "{unit}");
    }
}
