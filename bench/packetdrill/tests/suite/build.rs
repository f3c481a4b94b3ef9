//! Builds packetdrill once into the target folder, from an archive beside the project. None of it
//! is our code, and none of it is in the project.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use linerate_packetdrill::abi::WRAPPED;
use linerate_skips::need;

/// Names the folder with both archives; by default it is beside the project.
const SUITES: &str = "LINERATE_TCP_SUITES";

/// What the suite needs, and why it cannot run.
pub(crate) struct Lack(pub(crate) &'static str, pub(crate) String);

/// Replacements for headers and functions of two libraries: SCTP is not tested, and MD5 is absent.
const SCTP_H: &str = "#include <sys/socket.h>\n#include <linux/sctp.h>\n";
const MD5_H: &str = "#define MD5_DIGEST_LENGTH 16
typedef struct { char state[128]; } MD5_CTX;
int MD5_Init(MD5_CTX *);
int MD5_Update(MD5_CTX *, const void *, unsigned long);
int MD5_Final(unsigned char *, MD5_CTX *);
";
const ABSENT: [&str; 13] = [
    "MD5_Final",
    "MD5_Init",
    "MD5_Update",
    "sctp_bindx",
    "sctp_connectx",
    "sctp_freeladdrs",
    "sctp_freepaddrs",
    "sctp_getladdrs",
    "sctp_getpaddrs",
    "sctp_peeloff",
    "sctp_recvmsg",
    "sctp_send",
    "sctp_sendmsg",
];

/// Linux has no `sockstat`; `ss` gives the same information.
const SOCKSTAT: &str = "#!/bin/sh
case $1 in TIME_WAIT) state=time-wait ;; *) state=syn-recv ;; esac
[ \"$(ss -Htan state $state | wc -l)\" = \"$2\" ]
";

/// The suite and both packetdrills.
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Builds what does not exist yet.
    pub(crate) fn provide() -> Result<Tools, Lack> {
        let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/suites");
        let suites = env::var_os(SUITES).map_or_else(beside, PathBuf::from);
        let archives = ["packetdrill.tar.xz", "tcp-testsuite.tar.xz"].map(|name| suites.join(name));
        if archives.iter().any(|archive| !archive.exists()) {
            let lack = format!("{SUITES} names no folder with packetdrill.tar.xz and tcp-testsuite.tar.xz");
            return Err(Lack(need::SUITES, lack));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        for program in ["tar", "xz", "make", "cc", "flex", "bison"] {
            if !env::split_paths(&path).any(|folder| folder.join(program).exists()) {
                return Err(Lack(program, format!("packetdrill cannot be built: there is no {program}")));
            }
        }
        let tools = Tools { folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join("packetdrill-suite") };
        let stamp = tools.stamp(&archives);
        if fs::read_to_string(tools.folder.join("stamp")).ok().as_ref() != Some(&stamp) {
            tools.build(&archives);
            fs::write(tools.folder.join("stamp"), stamp).expect("a file");
        }
        Ok(tools)
    }

    /// Identifies the inputs of a build.
    fn stamp(&self, archives: &[PathBuf]) -> String {
        let sizes = archives.iter().map(|archive| fs::metadata(archive).map_or(0, |meta| meta.len()));
        format!("{:?} {WRAPPED:?} {ABSENT:?} {}", sizes.collect::<Vec<_>>(), library().display())
    }

    fn build(&self, archives: &[PathBuf]) {
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder).expect("a folder");
        for archive in archives {
            run(Command::new("tar").arg("-C").arg(&self.folder).arg("-xf").arg(archive));
        }
        let sources = self.sources();
        let put = |name: &str, text: &str| {
            let path = sources.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        let declare = |name: &&str| format!("int {name}();\n");
        let declared: String = ABSENT.iter().filter(|name| name.starts_with("sctp")).map(declare).collect();
        put("absent/netinet/sctp.h", &(SCTP_H.to_owned() + &declared));
        put("absent/openssl/md5.h", MD5_H);
        put("absent/absent.c", &ABSENT.map(|name| format!("int {name}(void) {{ return -1; }}\n")).concat());
        run(Command::new("cc").current_dir(&sources).args(["-c", "absent/absent.c", "-o", "absent.o"]));
        let libraries = "absent.o -lpthread -lrt -ldl";
        self.link("packetdrill-linux", libraries);
        let wraps = WRAPPED.map(|name| format!("-Wl,--wrap={name}")).join(" ");
        let (library, folder) = (library(), deps());
        let ours = format!("{wraps} {} -Wl,-rpath,{} {libraries}", library.display(), folder.display());
        self.link("packetdrill-ours", &ours);
        put("stand-ins/sockstat", SOCKSTAT);
        run(Command::new("chmod").arg("+x").arg(sources.join("stand-ins/sockstat")));
    }

    fn link(&self, name: &str, libraries: &str) {
        let sources = self.sources();
        let mut make = Command::new("make");
        make.current_dir(&sources).args(["-j2", "-f", "Makefile.Linux", "packetdrill"]);
        make.arg(format!("packetdrill-ext-libs={libraries}")).env("CFLAGS", "-w -Iabsent");
        run(&mut make);
        fs::rename(sources.join("packetdrill"), sources.join(name)).expect("it was made");
    }

    fn sources(&self) -> PathBuf {
        self.folder.join("packetdrill/gtests/net/packetdrill")
    }

    pub(crate) fn ours(&self) -> PathBuf {
        self.sources().join("packetdrill-ours")
    }

    pub(crate) fn linux(&self) -> PathBuf {
        self.sources().join("packetdrill-linux")
    }

    /// Replacements of programs that scripts call.
    pub(crate) fn stand_ins(&self) -> PathBuf {
        self.sources().join("stand-ins")
    }

    pub(crate) fn script(&self, name: &str) -> PathBuf {
        self.folder.join("tcp-testsuite").join(name)
    }

    /// Path of a script that was adapted to stacks other than FreeBSD.
    pub(crate) fn adapted(&self, whose: &str, name: &str) -> PathBuf {
        self.folder.join("adapted").join(whose).join(name)
    }

    /// Paths of the scripts in the suite.
    pub(crate) fn scripts(&self) -> Vec<String> {
        let root = self.folder.join("tcp-testsuite");
        let (mut folders, mut names) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension() == Some(OsStr::new("pkt")) {
                    names.push(path.strip_prefix(&root).expect("below it").to_string_lossy().into_owned());
                }
            }
        }
        names.sort();
        names
    }
}

/// Where cargo puts the libraries of tests, and this program.
fn deps() -> PathBuf {
    let program = env::current_exe().expect("a program");
    program.parent().expect("a folder").to_owned()
}

fn library() -> PathBuf {
    deps().join("liblinerate_packetdrill.so")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
