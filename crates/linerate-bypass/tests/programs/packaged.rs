//! Servers as they are packaged, as values: how each is started, reloaded and spoken to.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;

/// What HAProxy passes requests to, on the kernel.
const BEHIND: &str = "127.0.0.1:18091";
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// A master that is root, and workers that are not.
pub(super) struct PackagedServer {
    /// Its files are in this folder. It has so many workers.
    command: fn(&Path, SocketAddr, usize) -> Option<Command>,
    /// What it passes requests to, on the kernel.
    behind: Option<fn(&Path) -> Option<Command>>,
    /// The signal that makes the master start new workers.
    pub(super) reload: &'static str,
    is_secure: bool,
}

pub(super) const NGINX: PackagedServer =
    PackagedServer { command: plain_nginx, behind: None, reload: "-HUP", is_secure: false };
/// nginx with TLS, HTTP/1.1 and HTTP/2.
pub(super) const SECURE_NGINX: PackagedServer =
    PackagedServer { command: secure_nginx, behind: None, reload: "-HUP", is_secure: true };
/// HAProxy with two threads, in front of nginx.
pub(super) const HAPROXY: PackagedServer =
    PackagedServer { command: haproxy, behind: Some(nginx_behind), reload: "-USR2", is_secure: false };

impl PackagedServer {
    /// What it takes to run in this folder: what it passes requests to, and itself. `None`: a program is missing.
    pub(super) fn commands(
        &self,
        folder: &Path,
        at: SocketAddr,
        workers: usize,
    ) -> Option<(Option<Command>, Command)> {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("set");
        let behind = match self.behind {
            Some(behind) => Some(behind(folder)?),
            None => None,
        };
        Some((behind, (self.command)(folder, at, workers)?))
    }

    /// Its clients.
    pub(super) fn client(&self, folder: &Path, at: SocketAddr) -> ServerClient {
        let tls = self.is_secure.then(|| {
            let mut roots = RootCertStore::empty();
            let certificate = CertificateDer::from_pem_file(folder.join(CERTIFICATE)).expect("it is there");
            roots.add(certificate).expect("a root");
            Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
        });
        ServerClient { at, tls }
    }
}

/// Opens connections to a server, with TLS if it has it.
#[derive(Clone)]
pub(super) struct ServerClient {
    at: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

impl ServerClient {
    pub(super) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects as soon as somebody listens.
    pub(super) fn connected(&self) -> ServerWire {
        let stream = connected_to(self.at);
        let Some(config) = &self.tls else { return ServerWire::Plain(stream) };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a session");
        ServerWire::Secure(Box::new(StreamOwned::new(connection, stream)))
    }

    pub(super) fn get(&self, path: &str) -> Vec<u8> {
        let mut client = BufReader::new(self.connected());
        write!(client.get_mut(), "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("sent");
        body(&mut client)
    }

    /// By curl over HTTP/2, at most this many bytes a second.
    pub(super) fn get_by_curl(&self, curl: &Path, path: &str, rate: usize) -> Vec<u8> {
        let mut command = Command::new(curl);
        let (url, rate) = (format!("https://{}{path}", self.at), rate.to_string());
        command.args(["-q", "-sS", "-k", "-f", "--http2", "--max-time", "60", "--limit-rate", &rate, &url]);
        command.args(["-w", "%{stderr}%{http_version}"]);
        let out = command.stdin(Stdio::null()).output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said == "2", "{} {said}", out.status);
        out.stdout
    }
}

/// A connection, with TLS or without.
pub(super) enum ServerWire {
    Plain(TcpStream),
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl ServerWire {
    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            ServerWire::Plain(stream) => stream,
            ServerWire::Secure(stream) => stream.get_ref(),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.stream().local_addr().expect("an address").port()
    }
}

impl Read for ServerWire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            ServerWire::Plain(stream) => stream.read(into),
            ServerWire::Secure(stream) => stream.read(into),
        }
    }
}

impl Write for ServerWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ServerWire::Plain(stream) => stream.write(bytes),
            ServerWire::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            ServerWire::Plain(stream) => stream.flush(),
            ServerWire::Secure(stream) => stream.flush(),
        }
    }
}

fn unprivileged(workers: usize) -> String {
    format!("user www-data; worker_processes {workers};")
}

fn plain_nginx(folder: &Path, at: SocketAddr, workers: usize) -> Option<Command> {
    nginx_at(folder, &unprivileged(workers), &format!("{at} backlog=4096"))
}

fn secure_nginx(folder: &Path, at: SocketAddr, workers: usize) -> Option<Command> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("signed");
    fs::write(folder.join(CERTIFICATE), certificate.pem()).expect("a file");
    fs::write(folder.join(KEY), key.serialize_pem()).expect("a file");
    let folder_name = folder.display();
    let listen = format!(
        "{at} backlog=4096 ssl http2; ssl_certificate {folder_name}/{CERTIFICATE};
        ssl_certificate_key {folder_name}/{KEY}"
    );
    nginx_at(folder, &unprivileged(workers), &listen)
}

fn nginx_behind(folder: &Path) -> Option<Command> {
    let folder = folder.join("behind");
    fs::create_dir(&folder).expect("a folder");
    nginx_at(&folder, &unprivileged(1), &format!("{BEHIND} backlog=4096"))
}

fn haproxy(folder: &Path, at: SocketAddr, _workers: usize) -> Option<Command> {
    let haproxy = program("haproxy")?;
    let empty = folder.join("empty");
    fs::create_dir(&empty).expect("a folder");
    let config = format!(
        "global
    nbthread 2
    maxconn 4000
    user www-data
    group www-data
    chroot {}
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
frontend all
    bind {at}
    default_backend nginx
backend nginx
    server nginx {BEHIND}
",
        empty.display()
    );
    fs::write(folder.join("haproxy.cfg"), config).expect("a file");
    let mut command = Command::new(haproxy);
    command.args(["-W", "-f"]).arg(folder.join("haproxy.cfg"));
    Some(command)
}
