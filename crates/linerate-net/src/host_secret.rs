//! A secret of this machine that outlives processes. Peers remember our sequence numbers and
//! timestamps for a minute or more. With this secret, the next process continues them instead of
//! starting from random values.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::clock::monotonic;
use crate::keyed::Key;
use crate::sys::thread;

/// Where the secret is kept until the next boot. Only root can read or write there. The boot id is
/// unsuitable, because everybody can read it.
const FOLDER: &str = "/run/linerate";
const FILE: &str = "/run/linerate/tcp-secret";

/// The key of all processes on this machine for sequence numbers and timestamps (RFC 6528, RFC 7323
/// section 5.4).
#[derive(Clone, Copy)]
pub struct HostSecret {
    pub(crate) key: [u64; 2],
    /// How far CLOCK_BOOTTIME is ahead of the links' clock, which stands still while the machine
    /// sleeps.
    pub(crate) ahead_ns: u64,
}

impl std::fmt::Debug for HostSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostSecret").field("ahead_ns", &self.ahead_ns).finish_non_exhaustive()
    }
}

impl HostSecret {
    /// This machine's secret. The first process that asks creates it. `None` if it cannot be stored
    /// (this process is not root, or /run is read-only): the process then needs a secret of its
    /// own.
    pub fn of_this_machine() -> Option<HostSecret> {
        let key = kept(Path::new(FOLDER), Path::new(FILE)).ok()?;
        let ahead_ns = thread::boot_time_ns().saturating_sub(monotonic().as_nanos());
        Some(HostSecret { key, ahead_ns })
    }

    /// A secret for processes with fewer rights than this one: it is as lasting, and does not give this
    /// one away.
    pub(crate) fn for_others(&self) -> HostSecret {
        let of = |n| Key::new(self.key).hash([0x6c65_6e74, n]);
        HostSecret { key: [of(0), of(1)], ahead_ns: self.ahead_ns }
    }

    /// A secret for tests.
    #[cfg(test)]
    pub(crate) fn for_tests(key: [u64; 2], ahead_ns: u64) -> HostSecret {
        HostSecret { key, ahead_ns }
    }
}

fn kept(folder: &Path, file: &Path) -> io::Result<[u64; 2]> {
    if let Ok(key) = read(file) {
        return Ok(key);
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // The file must be complete or absent: other processes may ask at the same time.
    let draft = folder.join(format!("tcp-secret.{}-{:?}", std::process::id(), std::thread::current().id()));
    let _ = fs::remove_file(&draft);
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    let linked =
        written.and_then(|mut draft| draft.write_all(&bytes)).and_then(|()| fs::hard_link(&draft, file));
    let _ = fs::remove_file(&draft);
    match linked {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => read(file),
    }
}

/// Reads it, if only its owner could have read or written it.
fn read(file: &Path) -> io::Result<[u64; 2]> {
    let mut opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(file)?;
    let about = opened.metadata()?;
    if !about.is_file() || about.uid() != 0 || about.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = [0; 16];
    opened.read_exact(&mut bytes)?;
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |c| u64::from_ne_bytes(*c));
    Ok([word(0), word(8)])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;

    #[test]
    fn all_processes_have_the_same_and_only_root_may_know_it() {
        let folder = std::env::temp_dir().join(format!("linerate-secret-{}", std::process::id()));
        let file = folder.join("tcp-secret");
        let first = kept(&folder, &file);
        if fs::metadata(&folder).is_ok_and(|about| about.uid() != 0) {
            assert!(first.is_err(), "another's file is not believed");
            return fs::remove_dir_all(&folder).expect("removed");
        }
        let first = first.expect("root may");
        let again: Vec<_> = thread::scope(|scope| {
            let asking: Vec<_> =
                (0..8).map(|_| scope.spawn(|| kept(&folder, &file).expect("kept"))).collect();
            asking.into_iter().map(|asks| asks.join().expect("no panic")).collect()
        });
        assert!(first != [0, 0] && again.iter().all(|key| *key == first));
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "no draft stays");
        assert_eq!(fs::metadata(&folder).expect("it is there").mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600);
        fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("set");
        assert!(kept(&folder, &file).is_err(), "others may have read it");
        fs::remove_dir_all(&folder).expect("removed");
    }

    /// Many threads ask at once, and none finds the file.
    #[test]
    fn who_asks_first_decides() {
        let folder = std::env::temp_dir().join(format!("linerate-secret-race-{}", std::process::id()));
        let file = folder.join("tcp-secret");
        let keys: Vec<_> = thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| kept(&folder, &file).ok())).collect();
            asking.into_iter().map(|asks| asks.join().expect("no panic")).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
