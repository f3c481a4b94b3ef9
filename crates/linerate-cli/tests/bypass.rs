//! `linerate bypass`: what it refuses, and the program as its child. What programs do over user-space
//! TCP is tested in `linerate-bypass`.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::{Said, linerate, run};
use linerate_skips::{find, skip};

const ADDRESS: &str = "127.0.0.1:18080";

/// The library, if it was built: nothing here is linked to it.
fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().expect("a program");
    let file = program.parent().expect("a folder").join("liblinerate_bypass.so");
    if !file.exists() {
        skip("liblinerate_bypass.so", "cargo build -p linerate-bypass has not made it");
        return None;
    }
    Some(file)
}

fn bypass(library: &Path, command: &[&str]) -> Said {
    let mut all = linerate(&["bypass", "--interface", "lo", "--listen", ADDRESS, "--"]);
    let output = all.args(command).env("LINERATE_BYPASS_LIBRARY", library).output().expect("it runs");
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

#[test]
fn addresses_and_interfaces_that_make_no_sense() {
    let refused = |arguments: &[&str], why: &str| {
        let said = run(&[&["bypass"], arguments, &["--", "true"]].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(why), "{said:?}");
    };
    refused(&["--interface", "lo", "--listen", "0.0.0.0:80"], "names no single address");
    refused(&["--interface", "lo", "--listen", "10.0.0.5:0"], "names no single address");
    refused(&["--interface", "lo", "--listen", "10.0.0.5:80", "--listen", "10.0.0.6:80"], "port 80 twice");
    refused(&["--interface", "none-such", "--listen", ADDRESS], "there is no interface none-such");
    refused(&["--interface", "lo"], "--listen");
}

#[test]
fn programs_that_cannot_be_preloaded_are_refused_before_they_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |program: &str, why: &str| {
        let said = run(&["bypass", "--interface", "lo", "--listen", ADDRESS, "--", program]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(why), "{said:?}");
    };
    refused("no-such-program", "there is no program no-such-program");
    let text = folder.path().join("text");
    fs::write(&text, "words").expect("a file");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).expect("set");
    refused(text.to_str().expect("a name"), "nor a script");
    // A script is judged by its interpreter.
    fs::write(&text, "#!/no/such/interpreter\n").expect("a file");
    refused(text.to_str().expect("a name"), "there is no program /no/such/interpreter");
    if let Some(go) =
        find("go").or_else(|| Some(PathBuf::from("/usr/local/go/bin/go")).filter(|go| go.exists()))
    {
        refused(go.to_str().expect("a name"), "written in Go");
    }
}

#[test]
fn a_library_of_another_version_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("liblinerate_bypass.so");
    fs::write(&file, b"\x7fELF linerate-bypass version 0.0.1;").expect("a file");
    let said = bypass(&file, &["true"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("is of version 0.0.1, and this is linerate"), "{said:?}");
    let said = bypass(&folder.path().join("none"), &["true"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("hint: cargo build"), "{said:?}");
}

#[test]
fn the_exit_code_and_the_environment_are_the_programs() {
    let Some(library) = library() else { return };
    let said = bypass(&library, &["sh", "-c", "echo $LINERATE_BYPASS; exit 7"]);
    assert_eq!((said.code, said.out.as_str()), (Some(7), "lo;127.0.0.1:18080\n"), "{said:?}");
    let said = bypass(&library, &["sh", "-c", "kill -KILL $$"]);
    assert_eq!(said.code, Some(137), "{said:?}");
}

#[test]
fn it_stays_until_what_went_to_the_background_ends_and_passes_signals_on() {
    let Some(library) = library() else { return };
    // The first process ends with 3. The one it leaves behind waits to become ours, and gets the signal
    // that it sends us.
    let script = "(trap 'echo reloaded; exit' HUP; \
                  me=$(sh -c 'echo $PPID'); first=$$; \
                  while [ $(cut -d' ' -f4 /proc/$me/stat) = $first ]; do sleep 0.02; done; \
                  kill -HUP $(cut -d' ' -f4 /proc/$me/stat); \
                  for i in $(seq 500); do sleep 0.05; done) & exit 3";
    let said = bypass(&library, &["sh", "-c", script]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), "reloaded\n"), "{said:?}");
}
