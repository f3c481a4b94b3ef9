//! Certificates that are read again when their files change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::events::say;
use super::tls::SiteTls;
use crate::fault::CommandFault;

/// How often files are looked at. A change is read once two looks agree: a certificate and its key
/// are written one after the other.
const LOOK: Duration = Duration::from_secs(1);

/// What tells one content of a file from the next: where it is, how long, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// `None`: there is no such file, or it is none that can be read twice.
    seen: Option<(u64, u64, u64, i64, i64)>,
}

fn stamps(paths: Vec<PathBuf>) -> Vec<Stamp> {
    let seen = |meta: Metadata| (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
    let stamp = |path: PathBuf| {
        let meta = path.metadata().ok().filter(Metadata::is_file);
        Stamp { seen: meta.map(seen), path }
    };
    paths.into_iter().map(stamp).collect()
}

/// The certificates of a server that runs, and their files as they were when they were read.
#[derive(Debug)]
pub(super) struct ServedCertificates {
    tls: SiteTls,
    read: Vec<Stamp>,
    /// A change that the next look has to confirm.
    changed: Option<Vec<Stamp>>,
}

/// What a look at the files came to.
#[derive(Debug)]
enum Look {
    Same,
    Renewed,
    Failed(CommandFault),
}

impl ServedCertificates {
    pub(super) fn new(tls: SiteTls) -> ServedCertificates {
        let shown = ServedCertificates { read: stamps(tls.paths()), changed: None, tls };
        shown.warn();
        shown
    }

    pub(super) fn tls(&self) -> &SiteTls {
        &self.tls
    }

    fn warn(&self) {
        self.tls.warnings().iter().for_each(|warning| say(warning));
    }

    /// Reads them again. With an error, all stay as they were.
    pub(super) fn renew(&mut self) -> Result<(), CommandFault> {
        // Before they are read: what changes meanwhile is found by the next look.
        self.read = stamps(self.tls.paths());
        self.changed = None;
        self.tls.renew()?;
        self.warn();
        Ok(())
    }

    /// Others take their place.
    pub(super) fn succeed(&mut self, mut tls: SiteTls) -> Result<(), CommandFault> {
        tls.succeed(&mut self.tls)?;
        *self = ServedCertificates::new(tls);
        Ok(())
    }

    fn look(&mut self) -> Look {
        let now = stamps(self.tls.paths());
        if now == self.read {
            self.changed = None;
            return Look::Same;
        }
        if self.changed.as_ref() != Some(&now) {
            self.changed = Some(now);
            return Look::Same;
        }
        match self.renew() {
            Ok(()) => Look::Renewed,
            Err(fault) => Look::Failed(fault),
        }
    }
}

/// Looks at the files until the server is gone, on a thread of its own.
pub(super) fn watch(shown: &Arc<Mutex<ServedCertificates>>) -> Result<(), CommandFault> {
    let shown = Arc::downgrade(shown);
    let thread = std::thread::Builder::new().name("serve-certs".to_owned());
    let thread = thread.spawn(move || while look(&shown) {});
    thread.map(drop).map_err(|e| CommandFault::ours(format!("a thread could not be started: {e}")))
}

/// Whether the server is still there.
fn look(shown: &Weak<Mutex<ServedCertificates>>) -> bool {
    std::thread::sleep(LOOK);
    let Some(shown) = shown.upgrade() else { return false };
    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    match shown.look() {
        Look::Same => {}
        Look::Renewed => say("the certificate's files have changed and were read again"),
        Look::Failed(fault) => say(&format!("the certificate stays as it was: {fault}")),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{ServeArgs, args};

    fn write(folder: &std::path::Path, name: &str, bytes: &[u8]) {
        // As tools do it: beside it, then in its place. A new inode is seen however coarse the
        // file's time is.
        std::fs::write(folder.join("new"), bytes).expect("written");
        std::fs::rename(folder.join("new"), folder.join(name)).expect("renamed");
    }

    /// Writes a certificate; its key is returned.
    fn issue(folder: &std::path::Path) -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        write(folder, "cert.pem", params.self_signed(&key).expect("a certificate").pem().as_bytes());
        key.serialize_pem()
    }

    #[test]
    fn a_change_is_read_once_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let key = issue(folder);
        write(folder, "key.pem", key.as_bytes());
        let args = ServeArgs {
            tls_cert: Some(folder.join("cert.pem")),
            tls_key: Some(folder.join("key.pem")),
            listen: vec![args::listen("127.0.0.1:0").expect("an address")],
            ..ServeArgs::default()
        };
        let mut shown = ServedCertificates::new(SiteTls::of(&args, None).expect("sound"));
        assert!(matches!(shown.look(), Look::Same));
        let key = issue(folder);
        assert!(matches!(shown.look(), Look::Same), "the key is still to come");
        write(folder, "key.pem", key.as_bytes());
        assert!(matches!(shown.look(), Look::Same), "it has changed since");
        assert!(matches!(shown.look(), Look::Renewed));
        assert!(matches!(shown.look(), Look::Same));
        write(folder, "cert.pem", b"nothing");
        assert!(matches!(shown.look(), Look::Same));
        assert!(matches!(shown.look(), Look::Failed(_)));
        assert!(matches!(shown.look(), Look::Same), "it is said once");
    }
}
