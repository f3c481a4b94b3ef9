//! Captures that tests make of calls, and what tshark says of them.
#![allow(dead_code)] // each test program uses a part

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linerate_net::capture::{Capture, CaptureOptions};
use linerate_skips::{need, skip};
use serde_json::Value;

use crate::common::run;
use crate::real;

/// Packets of a port, as a capture file. `None`: capturing is not permitted here.
pub(crate) fn captured(port: u16, what: impl FnOnce()) -> Option<Vec<u8>> {
    let options = CaptureOptions { port: Some(port), ..CaptureOptions::default() };
    let mut capture = match Capture::open(&options) {
        Ok(capture) => capture,
        Err(e) => {
            skip(need::CAPTURE, e);
            return None;
        }
    };
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let thread = thread::spawn(move || {
        // pcap with nanoseconds, packets from their IP header on (LINKTYPE_RAW).
        let mut file = Vec::new();
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 1 << 18, 101] {
            file.extend(word.to_le_bytes());
        }
        let mut quiet = 0;
        while quiet < 3 {
            let before = file.len();
            capture
                .next(Duration::from_millis(50), |p| {
                    let (s, ns) = (p.time_ns / 1_000_000_000, p.time_ns % 1_000_000_000);
                    for word in [s as u32, ns as u32, p.data.len() as u32, p.wire_len] {
                        file.extend(word.to_le_bytes());
                    }
                    file.extend(p.data);
                })
                .unwrap();
            quiet = if told.load(Ordering::Acquire) && file.len() == before { quiet + 1 } else { 0 };
        }
        assert_eq!(capture.dropped(), 0, "packets that the capture lacks");
        file
    });
    what();
    over.store(true, Ordering::Release);
    Some(thread.join().unwrap())
}

/// A folder with a capture and the keys of what is in it.
pub(crate) struct Files {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
}

impl Files {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn explain(&self, more: &[&str]) -> (Value, String) {
        let capture = self.path("calls.pcap").display().to_string();
        let said = run(&[&["explain", "--json", "-", "--pcap", &capture], more].concat());
        let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        (document, said.err.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    pub(crate) fn with_keys(&self) -> (Value, String) {
        self.explain(&["--keylog", &self.path("keys").display().to_string()])
    }

    /// Lines that tshark writes, its answer to a filter; `protocol`: what the port carries. `None`: it
    /// is not installed.
    pub(crate) fn tshark(&self, protocol: &str, filter: &str, fields: &[&str]) -> Option<Vec<String>> {
        let mut command = Command::new(real::find("tshark")?);
        command.args(["-r", self.path("calls.pcap").to_str()?, "-o"]);
        command.arg(format!("tls.keylog_file:{}", self.path("keys").display()));
        command.args(["-d", &format!("tcp.port=={},{protocol}", self.port), "-Y", filter, "-T", "fields"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let output = command.output().ok()?;
        // Shown where the test fails.
        eprintln!("tshark: {}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }
}
