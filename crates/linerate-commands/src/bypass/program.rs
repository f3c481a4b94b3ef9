//! Whether a program can be run with a preloaded library: it must be linked dynamically, with glibc, make its
//! system calls through it, and gain no rights when it starts.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid};

use crate::fault::{CommandFault, said};

/// Scripts whose interpreter is a script, at most. Reason: the kernel's limit is about this.
const NESTED: usize = 4;
/// Bytes of a program that are read. Reason: its headers and notes stand at the beginning.
const BEGINNING: u64 = 1 << 20;

const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;

/// The program's file, by PATH unless the name is a path.
pub(super) fn found(name: &OsStr) -> Result<PathBuf, CommandFault> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = match name.as_bytes().contains(&b'/') {
        true => vec![PathBuf::from(name)],
        false => std::env::split_paths(&path).map(|folder| folder.join(name)).collect(),
    };
    let runs = |file: &&PathBuf| {
        file.metadata().is_ok_and(|facts| facts.is_file() && facts.mode() & mode_bits::RUNS != 0)
    };
    places
        .iter()
        .find(runs)
        .cloned()
        .ok_or_else(|| CommandFault::input(format!("there is no program {}", name.to_string_lossy())))
}

/// Checks a program, or the interpreter of a script. Returns the file that the kernel runs.
pub(super) fn check(file: &Path) -> Result<PathBuf, CommandFault> {
    let mut file = file.to_owned();
    for _ in 0..NESTED {
        check_rights(&file)?;
        let cannot = |e: std::io::Error| CommandFault::input(format!("{}: {}", file.display(), said(&e)));
        let mut bytes = Vec::new();
        File::open(&file).and_then(|f| f.take(BEGINNING).read_to_end(&mut bytes)).map_err(cannot)?;
        let Some(script) = bytes.strip_prefix(b"#!") else {
            return obstacle(&bytes).map_or(Ok(file.clone()), |why| {
                let fault = CommandFault::input(format!("{} cannot be bypassed: {why}", file.display()));
                Err(fault.hint("linerate bypass takes programs that call the kernel through glibc"))
            });
        };
        file = interpreter(script)
            .map_or_else(|| found(OsStr::new("")), |name| found(OsStr::from_bytes(name)))?;
    }
    Err(CommandFault::input(format!("{}: scripts of scripts of scripts", file.display())))
}

/// The interpreter of a script: the first word, or the second behind `env`.
fn interpreter(script: &[u8]) -> Option<&[u8]> {
    let line = script.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    if !first.ends_with(b"/env") {
        return Some(first);
    }
    words.find(|word| !word.starts_with(b"-"))
}

/// Programs that gain rights lose LD_PRELOAD (AT_SECURE).
fn check_rights(file: &Path) -> Result<(), CommandFault> {
    let facts =
        file.metadata().map_err(|e| CommandFault::input(format!("{}: {}", file.display(), said(&e))))?;
    let user = facts.mode() & mode_bits::SETUID != 0 && facts.uid() != geteuid().as_raw();
    let group = facts.mode() & mode_bits::SETGID != 0 && facts.gid() != getegid().as_raw();
    if user || group {
        let fault = CommandFault::input(format!("{} runs with the rights of another user", file.display()));
        return Err(
            fault.hint("the dynamic linker preloads nothing into such programs: start it as that user")
        );
    }
    Ok(())
}

/// Bits of a file's mode (inode(7)).
mod mode_bits {
    pub(super) const RUNS: u32 = 0o111;
    pub(super) const SETUID: u32 = 0o4000;
    pub(super) const SETGID: u32 = 0o2000;
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    number(bytes, at).map(|n| usize::from(u16::from_le_bytes(n)))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    number(bytes, at).and_then(|n| usize::try_from(u64::from_le_bytes(n)).ok())
}

/// Why a library cannot be preloaded into this ELF file (elf(5)); `None`: it can.
fn obstacle(bytes: &[u8]) -> Option<&'static str> {
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Some("it is no program of this kind of processor, nor a script");
    }
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if u16_at(bytes, 18) != Some(machine) {
        return Some("it is for another kind of processor");
    }
    let (Some(table), Some(size), Some(count)) = (u64_at(bytes, 32), u16_at(bytes, 54), u16_at(bytes, 56))
    else {
        return Some("its headers are cut off");
    };
    let mut linker: Option<&[u8]> = None;
    for at in 0..count {
        let header = table.saturating_add(at * size);
        let Some(kind) = number(bytes, header).map(u32::from_le_bytes) else { break };
        let (Some(offset), Some(len)) =
            (u64_at(bytes, header.saturating_add(8)), u64_at(bytes, header.saturating_add(32)))
        else {
            break;
        };
        let content = bytes.get(offset..offset.saturating_add(len)).unwrap_or_default();
        match kind {
            NOTE if content.get(12..16) == Some(b"Go\0\0") => {
                return Some("it is written in Go, which makes system calls itself");
            }
            INTERPRETER => linker = Some(content),
            _ => {}
        }
    }
    match linker {
        None => Some("it is linked statically"),
        Some(linker) if linker.windows(4).any(|window| window == b"musl") => Some("its C library is musl"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with these program headers: a type and its content each.
    fn elf(headers: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64, 0);
        bytes[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = headers.len() as u8;
        let mut contents = Vec::new();
        for (kind, content) in headers {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            let offset = 64 + 56 * headers.len() + contents.len();
            header[8..16].copy_from_slice(&(offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            bytes.extend(header);
            contents.extend_from_slice(content);
        }
        bytes.extend(contents);
        bytes
    }

    #[test]
    fn programs_that_cannot_be_preloaded_are_known() {
        let glibc: (u32, &[u8]) = (INTERPRETER, b"/lib64/ld-linux-x86-64.so.2\0");
        assert_eq!(obstacle(&elf(&[glibc])), None);
        assert_eq!(obstacle(&elf(&[])), Some("it is linked statically"));
        assert_eq!(
            obstacle(&elf(&[(INTERPRETER, b"/lib/ld-musl-x86_64.so.1\0")])),
            Some("its C library is musl")
        );
        let go: (u32, &[u8]) = (NOTE, b"\x04\0\0\0\x10\0\0\0\x04\0\0\0Go\0\0id");
        assert!(obstacle(&elf(&[glibc, go])).expect("refused").contains("Go"));
        for len in 0..elf(&[glibc, go]).len() {
            let _ = obstacle(&elf(&[glibc, go])[..len]);
        }
    }

    #[test]
    fn interpreters_of_scripts() {
        assert_eq!(interpreter(b"/bin/sh -e\necho"), Some(&b"/bin/sh"[..]));
        assert_eq!(interpreter(b" /usr/bin/env -S python3 -u\n"), Some(&b"python3"[..]));
        assert_eq!(interpreter(b"\n"), None);
    }
}
