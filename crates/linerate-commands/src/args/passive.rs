//! The flags of `linerate explain` about packets.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

const PACKETS: &str = "Packets";
/// Why keys without a capture are refused.
pub(crate) const KEYS_ALONE: &str =
    "--keylog has the keys of TLS connections in a capture: it goes with --pcap FILE";

/// What is looked at instead of, or beside, calls of our own.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PassiveArgs {
    /// Say what is seen in a capture (pcap or pcapng, also packed by gzip; - for standard input); nothing is sent
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "capture"], help_heading = PACKETS)]
    pub(crate) pcap: Option<PathBuf>,

    /// The keys of the TLS connections in --pcap, as clients write them where SSLKEYLOGFILE is set (curl, browsers, linerate load):
    /// calls inside TLS 1.2 and 1.3 are then read. Without it they are timed by the sizes of their records
    #[arg(long, value_name = "KEYS", help_heading = PACKETS)]
    pub(crate) keylog: Option<PathBuf>,

    /// Record packets: beside a URL those of its own calls, where that is allowed (auto, the default) or not at all (off); with
    /// --port and no URL the calls of other programs. Needs the capability CAP_NET_RAW
    ///
    /// Without a URL it goes on until q or Ctrl-C: a screen (or a JSON line) with a verdict for each --interval, server and client
    /// process, and at the end the report on all of it. With --budget it watches for that time and reports once.
    #[arg(
        long,
        value_name = "auto|off",
        num_args = 0..=1,
        default_missing_value = "auto",
        value_parser = capture,
        help_heading = PACKETS
    )]
    pub(crate) capture: Option<CaptureWhen>,

    /// Look only at connections with this port at one end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = PACKETS)]
    pub(crate) port: Option<u16>,

    /// Time between two verdicts of --capture without end [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = values::top_interval, help_heading = PACKETS)]
    pub(crate) interval: Option<Duration>,

    /// Capture on this network interface [default: all]
    #[arg(long, value_name = "IF", help_heading = PACKETS)]
    pub(crate) interface: Option<String>,
}

impl PassiveArgs {
    /// Refuses flags that only make sense for packets.
    pub(crate) fn refuse_beside_url(&self) -> Result<(), &'static str> {
        if self.keylog.is_some() {
            return Err(KEYS_ALONE);
        }
        if self.port.is_some() || self.interface.is_some() {
            return Err(
                "--port and --interface choose the packets of other programs' calls: they go with --pcap or --capture, not with a URL",
            );
        }
        if self.interval.is_some() {
            return Err(
                "--interval is the time between two verdicts of --capture --port N, which goes on without a URL",
            );
        }
        Ok(())
    }

    /// The URL that followed a `--capture` without a value.
    pub(crate) fn take_url(&mut self) -> Option<String> {
        let url = match self.capture.take() {
            Some(CaptureWhen::Then(url)) => url,
            other => {
                self.capture = other;
                return None;
            }
        };
        self.capture = Some(CaptureWhen::Auto);
        Some(url)
    }

    /// Packets of calls of our own are not wanted.
    pub(crate) fn is_off(&self) -> bool {
        self.capture == Some(CaptureWhen::Off)
    }

    /// Packets are all there is to look at.
    pub(crate) fn is_asked(&self, url: Option<&str>) -> bool {
        let captures = self.capture == Some(CaptureWhen::Auto);
        self.pcap.is_some() || (captures && url.is_none())
    }
}

/// `--capture`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaptureWhen {
    /// Capture
    Auto,
    /// Don't
    Off,
    /// Capture; and the next word was a URL
    Then(String),
}

fn capture(text: &str) -> Result<CaptureWhen, String> {
    match text {
        "auto" => Ok(CaptureWhen::Auto),
        "off" => Ok(CaptureWhen::Off),
        url if url.contains("://") || url.starts_with("localhost") => Ok(CaptureWhen::Then(url.to_owned())),
        _ => Err("it is auto or off".to_owned()),
    }
}
