//! Sets up a case (network, server and other activity), and calls `explain` in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use linerate_netbox::NetBox;
use serde_json::Value;

use super::beside::Ongoing;
use super::case::Case;
use super::dns::{Dns, NAME, resolv_conf};
use super::nginx::{BEHIND, PORT};
use super::results::{self, DiagnosisRun};
use super::servers::{self, Programs, StartedServer};
use crate::net::NetImpairments;

/// The longest a diagnosis may take: three times its budget.
const LIMIT: Duration = Duration::from_secs(45);
/// How long the calls of others are watched.
const WATCHED: &str = "5s";
/// The body of uploads, bytes.
const UPLOAD: usize = 100_000;
/// The interface of either side.
const INTERFACE: &str = "net0";
/// Time for the other activity to settle.
const SETTLE: Duration = Duration::from_secs(1);

/// A running case. The fields are dropped in order: callers before the server, the network last.
#[derive(Debug)]
pub(crate) struct CaseStage {
    case: Case,
    rtt_ms: u64,
    _ongoing: Vec<Ongoing>,
    server: StartedServer,
    /// The certificate of a server that speaks TLS.
    certificate: Option<PathBuf>,
    _dns: Option<Dns>,
    net: Arc<NetBox>,
    dir: tempfile::TempDir,
}

impl CaseStage {
    pub(crate) fn new(case: &Case, rtt_ms: u64, programs: &Programs) -> Result<CaseStage> {
        let mut options = NetImpairments::parse(case.net)?;
        options.delay_both(Duration::from_micros(rtt_ms * 500));
        let mut builder = options.builder();
        if let Some(how) = case.name_server {
            let conf = resolv_conf(how, linerate_netbox::SERVER_IP);
            builder = builder.client_file("/etc/resolv.conf", &conf).server_file("/etc/resolv.conf", conf);
        }
        let net = Arc::new(builder.start()?);
        for (name, value) in case.client_sysctls {
            net.client().sysctl(name, value)?;
        }
        if !case.client_qdisc.is_empty() {
            let mut tc = net.client().command("tc");
            tc.args(["qdisc", "replace", "dev", INTERFACE, "root"]).args(case.client_qdisc.split(' '));
            net.client().output(tc).context("tc")?;
        }
        for rule in case.server_rules {
            let mut nft = net.server().command("nft");
            nft.arg(rule);
            net.server().output(nft).context("nft")?;
        }
        for (name, value) in case.server_sysctls {
            net.server().sysctl(name, value)?;
        }
        let dns = case.name_server.map(|how| Dns::start(&net, how)).transpose()?;
        let server = servers::start(&net, programs, case.server, case.share)?;
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("body"), vec![b'x'; UPLOAD])?;
        let to = SocketAddr::from((net.server().ip(), PORT));
        let certificate = programs.certificate();
        let _ongoing = Vec::new();
        let mut stage = CaseStage { case: *case, rtt_ms, _ongoing, server, certificate, _dns: dns, net, dir };
        if !case.cold {
            stage.warm_up()?;
        }
        for beside in case.beside {
            stage._ongoing.push(Ongoing::start(*beside, &stage.net, programs, to)?);
        }
        if !case.beside.is_empty() {
            std::thread::sleep(SETTLE);
        }
        Ok(stage)
    }

    /// The slow first calls of a runtime (a JVM compiles for seconds) are not a server's fault.
    /// Makes them from the server's side, where the network has no faults.
    fn warm_up(&self) -> Result<()> {
        let mut c = self.net.server().command("curl");
        let url = format!("{}://127.0.0.1:{PORT}/?[1-40]", self.scheme());
        c.args(["-s", "-k", "-m", "10", "-o", "/dev/null", &url]);
        c.stdin(Stdio::null()).stdout(Stdio::null());
        self.net.server().spawn(c)?.wait()?;
        Ok(())
    }

    fn url(&self) -> String {
        let host = match self.case.name_server {
            // The server's own lookups are the fault there, not the client's.
            Some(_) if self.case.truth != "reverse-dns" => NAME.to_owned(),
            _ => self.net.server().ip().to_string(),
        };
        format!("{}://{host}:{PORT}{}", self.scheme(), self.case.path)
    }

    fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https" } else { "http" }
    }

    /// The flags of the case; `@BODY` is the file that is uploaded, `@BEHIND` the server behind the
    /// proxy.
    fn flags(&self) -> Vec<String> {
        let body = format!("@{}", self.dir.path().join("body").display());
        let behind = format!("http://{}:{BEHIND}{}", self.net.server().ip(), self.case.path);
        let flag = |flag: &&str| match *flag {
            "@BODY" => body.clone(),
            "@BEHIND" => behind.clone(),
            other => other.to_owned(),
        };
        self.case.flags.iter().map(flag).collect()
    }

    /// Asks `explain` once.
    pub(crate) fn explain(&self, programs: &Programs) -> Result<DiagnosisRun> {
        Ok(self.explained(programs)?.0)
    }

    /// The times of the call's parts, as `explain` measures them.
    pub(crate) fn takes(&self, programs: &Programs) -> Result<BTreeMap<String, f64>> {
        Ok(results::middles(&self.explained(programs)?.1))
    }

    /// The output of `explain`, and its document.
    fn explained(&self, programs: &Programs) -> Result<(DiagnosisRun, Value)> {
        let (out, errors) = (self.dir.path().join("out"), self.dir.path().join("errors"));
        let mut c = self.net.client().command(&programs.explain);
        c.args(["explain", "--json", "-"]).args(self.flags());
        match self.case.watched {
            true => c.args(["--capture", "--port", &PORT.to_string(), "--budget", WATCHED]),
            false => c.arg(self.url()),
        };
        if let Some(certificate) = &self.certificate {
            c.arg("--cacert").arg(certificate);
        }
        if self.case.pid {
            c.args(["--pid", &self.server.pid().to_string()]);
        }
        c.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&errors)?);
        let begin = Instant::now();
        let mut child = self.net.client().spawn(c).context("linerate explain")?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > LIMIT {
                let mut run =
                    DiagnosisRun::of(&self.case, self.rtt_ms, begin.elapsed().as_secs_f64(), &Value::Null);
                run.error = Some(format!("explain did not end within {LIMIT:?}"));
                return Ok((run, Value::Null));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let took = begin.elapsed().as_secs_f64();
        let text = std::fs::read_to_string(&out)?;
        let json: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let mut run = DiagnosisRun::of(&self.case, self.rtt_ms, took, &json);
        if json.is_null() {
            let words = std::fs::read_to_string(&errors)?;
            run.error = Some(format!("{status}: {}", words.trim()));
        }
        Ok((run, json))
    }

    /// A plain client's view, a line per call: the fault by its symptom.
    pub(crate) fn symptoms(&self) -> Result<String> {
        const FORMAT: &str = "%{http_code} new %{num_connects} name %{time_namelookup} connect %{time_connect} first %{time_starttransfer} all %{time_total}\\n";
        let mut c = self.net.client().command("curl");
        c.args(["-s", "-k", "-m", "8", "-o", "/dev/null", "-w", FORMAT]);
        let mut flags = self.flags().into_iter();
        while let Some(flag) = flags.next() {
            match flag.as_str() {
                "--body" => c.arg("--data-binary").arg(flags.next().unwrap_or_default()),
                "--repeat-unsafe" => &mut c,
                "--writes" | "--origin" => {
                    flags.next();
                    &mut c
                }
                _ => c.arg(flag),
            };
        }
        c.arg(format!("{}?[1-4]", self.url()));
        let file = self.dir.path().join("curl");
        c.stdin(Stdio::null()).stdout(File::create(&file)?);
        self.net.client().spawn(c)?.wait()?;
        Ok(std::fs::read_to_string(file)?)
    }

    /// Whether the network did what it should.
    pub(crate) fn doubts(&self) -> Vec<String> {
        crate::net::doubts(&self.net.report())
    }
}

/// A server that cannot run on this machine, or not as it is wanted, prints why.
pub(crate) fn lacks(case: &Case, programs: &Programs) -> Option<String> {
    if let Some(why) = programs.plain_alone(case) {
        return Some(why.to_owned());
    }
    programs.lacking(case).map(|p| format!("{p} is not installed"))
}

/// Whether the command can explain at all.
pub(crate) fn explain_exists(programs: &Programs) -> bool {
    let out = Command::new(&programs.explain).args(["explain", "--help"]).stdin(Stdio::null()).output();
    out.is_ok_and(|o| o.status.success())
}
