//! `linerate bypass`: what it refuses, and the program as its child. What programs do over user-space
//! TCP is tested in `linerate-bypass`.

mod common;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Said, run};
use linerate_skips::{find, program, skip};

use namespaces::{Cable, OURS};

const ADDRESS: &str = "127.0.0.1:18080";
const AT: &str = "10.77.0.1:8080";

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

fn command(interface: &str, at: &str, library: &Path, command: &[&str]) -> Command {
    command_with(interface, at, library, &[], command)
}

fn command_with(interface: &str, at: &str, library: &Path, options: &[&str], command: &[&str]) -> Command {
    let mut all = Command::new(env!("CARGO_BIN_EXE_linerate"));
    all.args(["bypass", "--interface", interface, "--listen", at]);
    all.args(options).arg("--").args(command).env("LINERATE_BYPASS_LIBRARY", library);
    all
}

fn said(output: Output) -> Said {
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn bypass(library: &Path, program: &[&str]) -> Said {
    said(command("lo", ADDRESS, library, program).output().expect("it runs"))
}

/// The same with our end of a cable.
fn bypass_on(cable: &Cable, library: &Path, program: &[&str]) -> Said {
    let mut command = command(OURS, AT, library, program);
    said(cable.ours.run(|| command.output().expect("it runs")))
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
    // The dynamic linker would run the program without it.
    fs::write(&file, format!("\x7fELF linerate-bypass version {};", env!("CARGO_PKG_VERSION")))
        .expect("a file");
    let said = bypass(&file, &["true"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("liblinerate_bypass.so cannot be loaded: ERROR: ld.so"), "{said:?}");
    let said = bypass(&folder.path().join("none"), &["true"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("hint: cargo build"), "{said:?}");
}

#[test]
fn the_exit_code_and_the_environment_are_the_programs() {
    let Some(library) = library() else { return };
    let Some(cable) = Cable::new(1) else { return };
    let mut unwritable = command_with(OURS, AT, &library, &["--pcap-out", "/no/such/run.pcap"], &["true"]);
    let unwritable = said(cable.ours.run(|| unwritable.output().expect("it runs")));
    assert_eq!(unwritable.code, Some(2), "{unwritable:?}");
    assert!(unwritable.err.contains("/no/such/run.pcap cannot be written"), "{unwritable:?}");
    let said = bypass_on(&cable, &library, &["sh", "-c", "echo $LINERATE_BYPASS; exit 7"]);
    assert_eq!((said.code, said.out.as_str()), (Some(7), "here;500;10.77.0.1:8080\n"), "{said:?}");
    let said = bypass_on(&cable, &library, &["sh", "-c", "kill -KILL $$"]);
    assert_eq!(said.code, Some(137), "{said:?}");
    let said = bypass(&library, &["sh", "-c", "echo started"]);
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{said:?}");
    assert!(said.err.contains("lo is not an Ethernet interface"), "{said:?}");
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
    let Some(cable) = Cable::new(1) else { return };
    let said = bypass_on(&cable, &library, &["sh", "-c", script]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), "reloaded\n"), "{said:?}");
}

/// nginx with Debian's settings: in the background, with a worker of www-data for each processor.
struct PackagedNginx {
    launcher: Child,
    folder: tempfile::TempDir,
}

impl PackagedNginx {
    fn start(cable: &Cable, library: &Path) -> Option<PackagedNginx> {
        PackagedNginx::start_at(cable, library, AT, AT)
    }

    /// `listen`: what stands in its settings, `at`: the address that is ours.
    fn start_at(cable: &Cable, library: &Path, listen: &str, at: &str) -> Option<PackagedNginx> {
        PackagedNginx::start_with(cable, library, [listen, at], &[])
    }

    /// `options`: more of the command's.
    fn start_with(
        cable: &Cable,
        library: &Path,
        [listen, at]: [&str; 2],
        options: &[&str],
    ) -> Option<PackagedNginx> {
        let nginx = program("nginx")?;
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("set");
        let config = format!(
            "user www-data; worker_processes 2; pid {0}/pid; error_log {0}/error.log;
            events {{ worker_connections 768; }}
            http {{ sendfile on; tcp_nopush on; types_hash_max_size 2048; access_log {0}/access.log; gzip on;
                default_type application/octet-stream;
                server {{ listen {listen}; location / {{ return 200 hello; }} }} }}",
            folder.path().display()
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config).expect("a file");
        let said = fs::File::create(folder.path().join("said")).expect("a file");
        let program = [nginx.to_str().expect("a name"), "-c", file.to_str().expect("a name")];
        let mut command = command_with(OURS, at, library, options, &program);
        command.stdin(Stdio::null()).stderr(said);
        let launcher = cable.ours.run(|| command.spawn().expect("it starts"));
        Some(PackagedNginx { launcher, folder })
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// What it wrote. Once its log is open, its standard error is that.
    fn said(&self) -> String {
        self.text("said") + &self.text("error.log")
    }

    /// Workers that have said that they serve in user space: waits until there are so many.
    fn owners(&self, count: usize) -> Vec<String> {
        let owners = || -> Vec<String> {
            let said = self.said();
            let lines = said.lines().filter(|line| line.contains("is served by TCP in user space"));
            lines.filter_map(|line| Some(line.rsplit(' ').next()?.to_owned())).collect()
        };
        self.wait(|| owners().len() >= count);
        owners()
    }

    fn wait(&self, until: impl Fn() -> bool) {
        let begin = Instant::now();
        while !until() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", self.said());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for PackagedNginx {
    fn drop(&mut self) {
        // A master that was not stopped by its launcher.
        if let Ok(master) = self.text("pid").trim().parse() {
            signal("-TERM", master);
        }
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().expect("kill").success());
}

/// Sends a request and returns the response, or the error.
fn ask(client: &mut TcpStream) -> std::io::Result<String> {
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut bytes = [0; 4096];
    let len = client.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

fn connected() -> TcpStream {
    let client = TcpStream::connect(AT).expect("a connection");
    client.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    client
}

/// Connections to the port in the kernel's table.
fn of_the_kernel(cable: &Cable) -> usize {
    let table = cable.ours.must("cat /proc/net/tcp");
    table.lines().filter(|line| line.contains(":1F90 ") && line.contains(" 01 ")).count()
}

/// What `--status` says in our namespace.
fn status(cable: &Cable, arguments: &[&str]) -> Said {
    cable.ours.run(|| run(&[&["bypass", "--status"], arguments].concat()))
}

#[test]
fn a_status_without_a_running_command_is_refused() {
    let Some(cable) = Cable::new(1) else { return };
    let said = status(&cable, &["--interface", OURS]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{said:?}");
    assert!(said.err.contains("no linerate bypass runs on here in this network namespace"), "{said:?}");
    let said = run(&["bypass", "--status", "--listen", AT]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let said = run(&["bypass", "--pid", "1", "--interface", "lo", "--listen", AT, "--", "true"]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn nginx_as_packaged_goes_to_the_background_reloads_and_quits() {
    let Some(library) = library() else { return };
    let Some(cable) = Cable::new(2) else { return };
    let Some(mut nginx) = PackagedNginx::start(&cable, &library) else { return };
    let old = nginx.owners(2);
    let works = || {
        cable.theirs.run(|| {
            let mut clients: Vec<TcpStream> = (0..20).map(|_| connected()).collect();
            clients.iter_mut().for_each(|client| assert!(ask(client).expect("served").ends_with("hello")));
            assert_eq!(of_the_kernel(&cable), 0);
        });
    };
    works();
    let status = status(&cable, &["--json", "-"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let document: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    assert_eq!(document["schema"], "linerate.bypass/1");
    assert_eq!((&document["pid"], &document["queues"]), (&nginx.launcher.id().into(), &2.into()));
    assert_eq!(document["in_user_space"], 1.0, "{document:#}");
    let workers = document["workers"].as_array().expect("workers");
    let sum = |name: &str| workers.iter().map(|worker| worker[name].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((workers.len(), sum("accepted"), sum("accepted_of_kernel")), (2, 20, 0), "{document:#}");
    assert!(sum("bytes_in") == 20 * 27 && sum("bytes_out") > 20 * 100, "{document:#}");
    assert!(workers.iter().all(|worker| old.contains(&worker["pid"].to_string())), "{document:#}");
    thread::sleep(Duration::from_millis(1100));
    signal("-HUP", nginx.launcher.id());
    let all = nginx.owners(4);
    assert!(all[2..].iter().all(|new| !old.contains(new)), "{all:?}");
    works();
    // What the ended workers have accepted still counts.
    let status = self::status(&cable, &["--interface", OURS]);
    assert!(status.out.contains("100 % of all connections in user space"), "{status:?}");
    assert!(status.out.contains("2 ended") && status.out.contains(&all[2]), "{status:?}");
    signal("-QUIT", nginx.launcher.id());
    assert_eq!(nginx.launcher.wait().expect("it ends").code(), Some(0));
    assert!(!nginx.said().contains("[alert]"), "{}", nginx.said());
}

/// The workers are www-data's, and the file is root's.
#[test]
fn all_workers_and_generations_record_their_packets_in_one_file() {
    let Some(library) = library() else { return };
    let Some(cable) = Cable::new(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.pcap");
    let path = file.to_str().expect("a name");
    let Some(mut nginx) = PackagedNginx::start_with(&cable, &library, [AT, AT], &["--pcap-out", path]) else {
        return;
    };
    let old = nginx.owners(2);
    let mut ports = Vec::new();
    let mut works = || {
        cable.theirs.run(|| {
            let mut clients: Vec<TcpStream> = (0..20).map(|_| connected()).collect();
            clients.iter_mut().for_each(|client| assert!(ask(client).expect("served").ends_with("hello")));
            ports.extend(clients.iter().map(|client| client.local_addr().expect("an address").port()));
        });
    };
    works();
    // The requests are in the file while the workers wait.
    let asked = || String::from_utf8_lossy(&fs::read(&file).expect("there")).matches("GET / HTTP").count();
    nginx.wait(|| asked() == 20);
    signal("-HUP", nginx.launcher.id());
    let all = nginx.owners(4);
    assert!(all[2..].iter().all(|new| !old.contains(new)), "{all:?}");
    works();
    signal("-QUIT", nginx.launcher.id());
    assert_eq!(nginx.launcher.wait().expect("it ends").code(), Some(0));
    assert_eq!(asked(), 40);
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let said = run(&["explain", "--pcap", path, "--json", "-"]);
    let document: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let counts = &document["counts"];
    assert_eq!(
        (counts["answered"].as_u64(), counts["connections"].as_u64()),
        (Some(40), Some(40)),
        "{counts:#}"
    );
    let Some(tshark) = program("tshark") else { return };
    let streams = |filter: &str| {
        let mut tshark = Command::new(&tshark);
        let out = tshark.args(["-r", path, "-Y", filter, "-T", "fields", "-e", "tcp.dstport"]);
        let out = out.output().expect("it runs");
        assert!(out.status.success(), "{out:?}");
        let mut ports: Vec<u16> =
            String::from_utf8_lossy(&out.stdout).lines().map(|port| port.parse().expect("a port")).collect();
        ports.sort_unstable();
        ports
    };
    ports.sort_unstable();
    assert_eq!(streams("http.response.code == 200"), ports);
    assert_eq!(streams("tcp.flags == 0x12").len(), 40, "one SYN-ACK each");
    assert_eq!(streams("_ws.malformed || tcp.analysis.lost_segment"), [0; 0]);
}

#[test]
fn connections_over_ipv6_are_in_user_space_and_those_of_this_machine_do_not_count() {
    const AT_V6: &str = "[fd77::1]:8080";
    let Some(library) = library() else { return };
    let Some(cable) = Cable::new(1) else { return };
    let listen = "[::]:8080 ipv6only=off";
    let Some(nginx) = PackagedNginx::start_at(&cable, &library, listen, AT_V6) else { return };
    nginx.owners(1);
    let ask_all = |count: usize| {
        for _ in 0..count {
            let mut client = TcpStream::connect(AT_V6).expect("a connection");
            client.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
            assert!(ask(&mut client).expect("served").ends_with("hello"));
        }
    };
    cable.theirs.run(|| ask_all(20));
    cable.ours.run(|| ask_all(3));
    let status = status(&cable, &["--json", "-"]);
    let document: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    assert_eq!(document["in_user_space"], 1.0, "{document:#}");
    let workers = document["workers"].as_array().expect("workers");
    let sum = |name: &str| workers.iter().map(|worker| worker[name].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((sum("accepted"), sum("accepted_here")), (20, 3), "{document:#}");
}

#[test]
fn the_program_goes_on_over_the_kernel_when_the_launcher_is_killed() {
    let Some(library) = library() else { return };
    let Some(cable) = Cable::new(2) else { return };
    let Some(mut nginx) = PackagedNginx::start(&cable, &library) else { return };
    nginx.owners(2);
    let mut kept = cable.theirs.run(connected);
    assert!(ask(&mut kept).expect("served").ends_with("hello"));
    assert!(cable.ours.must("ip link show here").contains("xdp"));
    nginx.launcher.kill().expect("killed");
    nginx.launcher.wait().expect("it ends");
    assert!(!cable.ours.must("ip link show here").contains("xdp"));
    assert!(ask(&mut kept).is_err(), "its connection was in user space");
    nginx.wait(|| nginx.said().matches("which steered packets here, has ended").count() == 2);
    cable.theirs.run(|| {
        let mut clients: Vec<TcpStream> = (0..20).map(|_| connected()).collect();
        clients.iter_mut().for_each(|client| assert!(ask(client).expect("served").ends_with("hello")));
        assert_eq!(of_the_kernel(&cable), 20);
    });
}
