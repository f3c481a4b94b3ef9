//! packaging/Containerfile gives an image that starts and responds. It needs no registry: the image
//! begins with nothing. `LINERATE_CONTAINER` names the static binary of a release; without it the
//! command of this build is used, and its libraries are a second layer.

#![allow(clippy::unwrap_used)]

mod issued;
mod serving;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use issued::Issued;
use linerate_skips::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const CONTAINERFILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/Containerfile");
const COMPOSE: &str = include_str!("../../../packaging/compose.yaml");
const IMAGE: &str = "localhost/linerate-test";

/// buildah with storage of its own, which needs neither a daemon nor a file system of the kernel's.
struct Buildah {
    storage: tempfile::TempDir,
}

impl Buildah {
    /// `None`, reported, where no image can be built.
    fn new() -> Option<Buildah> {
        let buildah = Buildah { storage: tempfile::tempdir().unwrap() };
        let probe = buildah.storage.path().join("probe");
        std::fs::create_dir(&probe).unwrap();
        std::fs::write(probe.join("Containerfile"), "FROM scratch\nCOPY Containerfile /\n").unwrap();
        match buildah.output(&[OsStr::new("build"), OsStr::new("--isolation=chroot"), probe.as_ref()]) {
            Ok(_) => Some(buildah),
            Err(why) => {
                assert!(release().is_none(), "buildah builds nothing here: {why}");
                skip("buildah", format_args!("buildah builds nothing here: {why}"));
                None
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["120", "buildah", "--storage-driver", "vfs", "--root"]);
        command.arg(self.storage.path().join("images"));
        command.arg("--runroot").arg(self.storage.path().join("run")).stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&OsStr]) -> Result<String, String> {
        let output = self.command().args(words).output().map_err(|e| e.to_string())?;
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(error.into())
        }
    }

    fn good(&self, words: &[&str]) -> String {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        self.output(&words).unwrap_or_else(|why| panic!("buildah {words:?}: {why}"))
    }
}

fn release() -> Option<PathBuf> {
    std::env::var_os("LINERATE_CONTAINER").map(PathBuf::from)
}

/// The binary in `folder`, without debug information, and the libraries that it loads.
fn copied(folder: &Path) -> Vec<PathBuf> {
    let binary = folder.join("linerate");
    std::fs::copy(release().unwrap_or_else(|| env!("CARGO_BIN_EXE_linerate").into()), &binary).unwrap();
    let _ = Command::new("strip").arg(&binary).status();
    if release().is_some() {
        return Vec::new();
    }
    let listed = Command::new("ldd").arg(&binary).output().expect("ldd");
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

#[test]
fn the_containerfile_gives_a_server_that_responds() {
    let Some(buildah) = Buildah::new() else { return };
    let context = tempfile::tempdir().unwrap();
    let folder = context.path().to_str().unwrap();
    let libraries = copied(context.path());
    // A list of authorities with one on it, which has signed the certificate of the test's server.
    let issued = Issued::to("127.0.0.1");
    std::fs::copy(issued.file("cert.pem"), context.path().join("authorities.crt")).unwrap();
    let build = ["build", "--isolation=chroot", "--tag", IMAGE, "--file"];
    let (binary, authorities) = ("BINARY=linerate", "CERTIFICATES=authorities.crt");
    let arguments = [CONTAINERFILE, "--build-arg", binary, "--build-arg", authorities, folder];
    buildah.good(&[&build[..], &arguments].concat());
    if !libraries.is_empty() {
        for library in &libraries {
            let to = context.path().join("root").join(library.strip_prefix("/").unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(library, to).unwrap();
        }
        let layer = context.path().join("Layer");
        std::fs::write(&layer, format!("FROM {IMAGE}\nCOPY root /\n")).unwrap();
        buildah.good(&[&build[..], &[layer.to_str().unwrap(), folder]].concat());
    }
    let image: Value = serde_json::from_str(&buildah.good(&["inspect", "--type=image", IMAGE])).unwrap();
    let config = &image["OCIv1"]["config"];
    assert_eq!((&config["User"], &config["Entrypoint"][0]), (&"65534:65534".into(), &"/linerate".into()));

    let container = buildah.good(&["from", IMAGE]);
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let secure = serving::serve(&["--tls-cert", &cert, "--tls-key", &key]);
    let url = format!("https://{}/", secure.address);
    let load = ["/linerate", "load", "-q", "-c", "1", "-n", "1", &url];
    buildah.good(&[&["run", "--isolation=chroot", container.trim(), "--"][..], &load].concat());
    let mut command = buildah.command();
    command.args(["run", "--isolation=chroot", container.trim(), "--", "/linerate", "serve"]);
    let mut server =
        command.args(["--listen", "127.0.0.1:0", "--threads", "1"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let ready = said.find_map(|line| Some(line.split_once("listening on http://")?.1.to_owned()));
    let address = ready.expect("it listens");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    kill(Pid::from_raw(server.id().cast_signed()), Signal::SIGTERM).unwrap();
    server.wait().unwrap();
}

/// Words of a service's command that begin with `prefix`.
fn words<'a>(service: &'a Value, key: &str, prefix: &str) -> Vec<&'a str> {
    let all = service[key].as_array().unwrap().iter().flat_map(|w| w.as_str().unwrap().split_whitespace());
    all.filter(|word| word.starts_with(prefix)).collect()
}

#[test]
fn the_compose_file_names_what_exists() {
    let compose: Value = yaml_serde::from_str(COMPOSE).unwrap();
    let services = compose["services"].as_object().unwrap();
    let table = &services["table"];
    for server in table["depends_on"].as_array().unwrap() {
        assert!(services.contains_key(server.as_str().unwrap()), "{server}");
    }
    let packaging = Path::new(CONTAINERFILE).parent().unwrap();
    for (name, service) in services {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let here = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(packaging.join(here).exists(), "{name}: {here}");
        }
    }
    // Each server has rows for a short response and for the wait.
    let rows = words(table, "entrypoint", "http://");
    for port in [8081, 8082, 8083] {
        for path in ["/", "/delay/10"] {
            assert!(
                rows.contains(&format!("http://127.0.0.1:{port}{path}").as_str()),
                "{port}{path}: {rows:?}"
            );
        }
    }
    // linerate's part starts as written, with a port of the test's.
    let listen = services["linerate"]["command"].as_array().unwrap();
    let here = listen.iter().map(|w| w.as_str().unwrap().replace(":8081", ":0")).collect::<Vec<_>>();
    let checked =
        Command::new(env!("CARGO_BIN_EXE_linerate")).args(&here).arg("--check-config").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
