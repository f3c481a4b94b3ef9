//! The library to preload.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fault::{CommandFault, said};

const NAME: &str = "liblinerate_bypass.so";
/// Names another file.
const VARIABLE: &str = "LINERATE_BYPASS_LIBRARY";
/// What stands in the file before its version.
const MARK: &[u8] = b"linerate-bypass version ";
/// The longest version.
const VERSION: usize = 64;

/// The library beside this program, or where a package puts it, if it is of this version.
pub(super) fn found() -> Result<PathBuf, CommandFault> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let program = std::env::current_exe().map_err(|e| CommandFault::ours(said(&e)))?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = match named {
        Some(named) => vec![named],
        None => vec![folder.join(NAME), folder.join("../lib/linerate").join(NAME)],
    };
    let file = places.iter().find(|file| file.is_file()).ok_or_else(|| {
        let looked: Vec<_> = places.iter().map(|file| file.display().to_string()).collect();
        CommandFault::ours(format!("there is no {NAME}; looked for {}", looked.join(" and "))).hint(
            "cargo build --release -p linerate-bypass makes it; it needs glibc, and stands beside linerate",
        )
    })?;
    let file = file.canonicalize().map_err(|e| CommandFault::ours(said(&e)))?;
    check_version(&file)?;
    if file.to_str().is_none_or(|path| path.contains([' ', ':'])) {
        return Err(CommandFault::ours(format!("{} cannot be preloaded", file.display()))
            .hint("LD_PRELOAD takes no path with spaces or colons: move it"));
    }
    Ok(file)
}

fn check_version(file: &Path) -> Result<(), CommandFault> {
    let bytes =
        std::fs::read(file).map_err(|e| CommandFault::ours(format!("{}: {}", file.display(), said(&e))))?;
    let ours = env!("CARGO_PKG_VERSION");
    match version(&bytes) {
        Some(version) if version == ours.as_bytes() => Ok(()),
        version => {
            let version = version.map_or("unknown".into(), String::from_utf8_lossy);
            Err(CommandFault::ours(format!(
                "{} is of version {version}, and this is linerate {ours}",
                file.display()
            ))
            .hint("install both from one build"))
        }
    }
}

/// Asks the dynamic linker whether it can preload the library into a program, which is not run (as `ldd`
/// does it). Otherwise it would say so and run the program without: with an older glibc, say.
pub(super) fn check_loads(library: &Path, program: &Path) -> Result<(), CommandFault> {
    let told = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env("LD_PRELOAD", library)
        .output()
        .map_err(|e| CommandFault::input(format!("{} does not start: {}", program.display(), said(&e))))?;
    let (loaded, refused) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    match not_loaded(&library.to_string_lossy(), &loaded, &refused) {
        None => Ok(()),
        Some(why) => Err(CommandFault::ours(format!("{} cannot be loaded: {why}", library.display())).hint(
            "it needs the glibc that it was built with, or a newer one: cargo build --release -p \
                 linerate-bypass makes one for this machine",
        )),
    }
}

/// Why the dynamic linker has not loaded a library, by its list of what it has and its messages.
fn not_loaded(library: &str, loaded: &str, refused: &str) -> Option<String> {
    let about = refused.lines().find(|line| line.contains(library));
    let missing = || (!loaded.contains(library)).then_some("the dynamic linker does not name it");
    about.or_else(missing).map(str::to_owned)
}

/// The version in a library's bytes.
fn version(bytes: &[u8]) -> Option<&[u8]> {
    let at = bytes.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let rest = &bytes[at..bytes.len().min(at + VERSION)];
    Some(&rest[..rest.iter().position(|byte| *byte == b';')?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dynamic_linker_says_decides() {
        let loaded = "\tlinux-vdso.so.1 (0x1)\n\t/l/x.so (0x2)\n\tlibc.so.6 => /lib/libc.so.6 (0x3)\n";
        assert_eq!(not_loaded("/l/x.so", loaded, ""), None);
        assert_eq!(not_loaded("/l/x.so", loaded, "other words\n"), None);
        let old = "p: /lib/libc.so.6: version `GLIBC_2.39' not found (required by /l/x.so)\n";
        assert_eq!(not_loaded("/l/x.so", loaded, old).as_deref(), Some(old.trim_end()));
        assert!(not_loaded("/l/x.so", "", "").is_some());
    }

    #[test]
    fn a_version_stands_between_its_mark_and_a_semicolon() {
        assert_eq!(version(b"\x7fELF..linerate-bypass version 1.2.3;.."), Some(&b"1.2.3"[..]));
        assert_eq!(version(b"linerate-bypass version 1.2.3"), None);
        assert_eq!(version(b"\x7fELF"), None);
    }
}
