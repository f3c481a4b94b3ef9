//! The Homebrew formula and the PKGBUILD of a release: templates of packaging/, with the version and
//! the checksums of both static archives.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use xtask::shell;

const TEMPLATES: [&str; 2] = ["homebrew/linerate.rb", "aur/PKGBUILD"];
/// The processor, and what stands for its archive's checksum in the templates.
const PROCESSORS: [(&str, &str); 2] = [("x86_64", "@SHA256_X86_64@"), ("aarch64", "@SHA256_AARCH64@")];

/// Writes both beside the archives in `folder`.
pub(super) fn fill(folder: &Path) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut values = vec![("@VERSION@", version.to_owned())];
    for (processor, mark) in PROCESSORS {
        let archive = folder.join(format!("linerate-{version}-{processor}-unknown-linux-musl.tar.gz"));
        ensure!(archive.exists(), "{} is missing: cargo xtask dist --target makes it", archive.display());
        let said = shell::output(shell::program("sha256sum").arg("--").arg(&archive))?;
        let sum = said.split_whitespace().next().context("sha256sum printed nothing")?;
        // A backslash leads the line of a name that sha256sum has quoted.
        values.push((mark, sum.trim_start_matches('\\').to_owned()));
    }
    for template in TEMPLATES {
        let from = shell::root().join("packaging").join(template);
        let mut text = std::fs::read_to_string(&from).with_context(|| from.display().to_string())?;
        for (mark, value) in &values {
            ensure!(text.contains(mark), "packaging/{template} lacks {mark}");
            text = text.replace(mark, value);
        }
        let to = folder.join(from.file_name().context("a template's name")?);
        std::fs::write(&to, text).with_context(|| to.display().to_string())?;
        println!("{}", to.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::dist;

    /// An archive's folder, as `dist` lays it out, with another command in it.
    fn archive(out: &Path, processor: &str) {
        let parent = tempfile::tempdir().expect("a folder");
        let name = format!("linerate-{}-{processor}-unknown-linux-musl", env!("CARGO_PKG_VERSION"));
        let own = ["linerate", dist::LIBRARY, "man/linerate.1", "completions/linerate.bash"];
        let shells = ["completions/_linerate", "completions/linerate.fish"];
        let more = dist::BESIDE.map(dist::in_archive);
        for file in own.into_iter().chain(shells).chain(more) {
            let path = parent.path().join(&name).join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, format!("{file} for {processor}\n")).expect("written");
        }
        let mut tar = shell::program("tar");
        tar.arg("-C").arg(parent.path()).arg("-czf").arg(out.join(format!("{name}.tar.gz"))).arg(&name);
        shell::run(&mut tar).expect("packed");
    }

    #[test]
    fn both_name_the_version_and_the_checksums_and_install_everything() {
        let out = tempfile::tempdir().expect("a folder");
        archive(out.path(), "x86_64");
        let lacks = fill(out.path()).expect_err("one archive is missing").to_string();
        assert!(lacks.contains("aarch64-unknown-linux-musl.tar.gz is missing"), "{lacks}");
        archive(out.path(), "aarch64");
        fill(out.path()).expect("filled in");
        let formula = fs::read_to_string(out.path().join("linerate.rb")).expect("a formula");
        assert!(!formula.contains("@VERSION") && !formula.contains("@SHA256"), "{formula}");
        // The package as makepkg makes it, of each processor.
        let script = r#"set -euo pipefail
            . ./PKGBUILD
            srcdir=$PWD/src pkgdir=$PWD/pkg
            for CARCH in "${arch[@]}"; do
                rm -rf "$srcdir" "$pkgdir"
                mkdir "$srcdir" "$pkgdir"
                declare -n source=source_$CARCH sums=sha256sums_$CARCH
                echo "$sums  ${source##*/}" | sha256sum --check --quiet -
                grep -q "\"$sums\"" linerate.rb
                grep -q "url \"$source\"" linerate.rb
                tar -C "$srcdir" -xzf "${source##*/}"
                (package)
                grep -q "$CARCH" pkg/usr/bin/linerate
                grep -q "$CARCH" pkg/usr/lib/linerate/liblinerate_bypass.so
                for file in "${backup[@]}"; do test -f "pkg/$file"; done
                find pkg -type f | wc -l
            done"#;
        let mut bash = shell::program("bash");
        let said = shell::output(bash.current_dir(out.path()).args(["-c", script])).expect("it installs");
        let files = (6 + dist::BESIDE.len()).to_string();
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), [&files, &files], "all of the archive");
    }
}
