//! The flags of `linerate explain` about packets.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

const PACKETS: &str = "Packets";

/// What is looked at instead of, or beside, calls of our own.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PassiveArgs {
    /// Say what is seen in a capture (pcap or pcapng, also packed by gzip; - for standard input); nothing is sent
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "capture"], help_heading = PACKETS)]
    pub(crate) pcap: Option<PathBuf>,

    /// Look at the packets of this machine; with --port and no URL: at the calls of other programs, until --budget or Ctrl-C.
    /// Needs the capability CAP_NET_RAW
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        help_heading = PACKETS
    )]
    pub(crate) capture: Option<CaptureWhen>,

    /// Look only at connections with this port at one end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = PACKETS)]
    pub(crate) port: Option<u16>,

    /// Capture on this network interface [default: all]
    #[arg(long, value_name = "IF", help_heading = PACKETS)]
    pub(crate) interface: Option<String>,

    /// Write what was seen as a page to FILE, with the calls as diagrams
    #[arg(long, value_name = "FILE", help_heading = PACKETS)]
    pub(crate) html: Option<PathBuf>,
}

impl PassiveArgs {
    /// What makes sense for packets alone.
    pub(crate) fn refuse_beside_url(&self) -> Result<(), &'static str> {
        if self.capture == Some(CaptureWhen::Auto) {
            Err("--capture watches the calls of other programs: it goes with --port, not with a URL")
        } else if self.port.is_some() || self.interface.is_some() || self.html.is_some() {
            Err("--port, --interface and --html go with --pcap or --capture, not with a URL")
        } else {
            Ok(())
        }
    }

    /// Packets are all there is to look at.
    pub(crate) fn is_asked(&self, url: Option<&str>) -> bool {
        let captures = self.capture.is_some_and(|when| when == CaptureWhen::Auto);
        self.pcap.is_some() || (captures && url.is_none())
    }
}

/// `--capture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureWhen {
    /// Capture
    Auto,
    /// Don't
    Off,
}
