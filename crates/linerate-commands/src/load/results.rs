//! The places that a run's results go to, beside the summary.

use std::path::{Path, PathBuf};

use linerate_report::schema::outcome::Document;
use linerate_report::{formats, json, load_page};

use super::output::{OutputSink, apart, can_be_written, rescued};
use crate::args::{Annotations, LoadArgs};
use crate::fault::CommandFault;
use crate::terminal;

/// A flag, where its results go, and what they are.
#[derive(Clone, Debug)]
struct WantedResult {
    flag: &'static str,
    sink: OutputSink,
    text: AsText,
}

/// A document as the text of a file.
type AsText = fn(&Document) -> String;

/// What `--json`, `--html`, `--csv`, `--junit` and `--annotations` ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    wanted: Vec<WantedResult>,
    annotations: Option<Annotations>,
}

impl Results {
    pub(crate) fn of(args: &LoadArgs) -> Results {
        let all: [(_, &Option<PathBuf>, AsText); 5] = [
            ("--json", &args.json, json::text),
            ("--html", &args.html, load_page::to_string),
            ("--csv", &args.csv, formats::csv),
            ("--csv-fine", &args.csv_fine, formats::csv_fine),
            ("--junit", &args.junit, formats::junit),
        ];
        let wanted = |(flag, path, text): (_, &Option<PathBuf>, _)| {
            path.as_deref().map(|path| WantedResult { flag, sink: OutputSink::new(path), text })
        };
        Results { wanted: all.into_iter().filter_map(wanted).collect(), annotations: args.annotations }
    }

    /// Whether all of them can be written to, and each beside all other outputs of a run, before anything is run.
    pub(crate) fn probe(&self, args: &LoadArgs, packets: Option<&Path>) -> Result<(), CommandFault> {
        apart(&[
            ("--json", args.json.as_deref()),
            ("--html", args.html.as_deref()),
            ("--csv", args.csv.as_deref()),
            ("--csv-fine", args.csv_fine.as_deref()),
            ("--junit", args.junit.as_deref()),
            ("--log-requests", args.log_requests.as_deref()),
            ("--save-responses", args.save_responses.as_deref()),
            ("--pcap-out", packets),
        ])?;
        self.wanted.iter().try_for_each(|wanted| wanted.sink.probe(wanted.flag))?;
        for (flag, file) in [("--log-requests", args.log_requests.as_deref()), ("--pcap-out", packets)] {
            let right = "name a file in a folder that exists";
            file.map_or(Ok(()), |file| can_be_written(flag, file, right))?;
        }
        Ok(())
    }

    /// Whether what people read goes to standard error, because standard output has one of them.
    pub(crate) fn to_stderr(&self) -> bool {
        self.wanted.iter().any(|wanted| wanted.sink == OutputSink::Stdout)
    }

    /// Writes all of them, the document first. What cannot be written does not keep the others back.
    pub(crate) fn write(&self, document: &Document) -> Result<(), CommandFault> {
        CommandFault::all([self.put(document, |_| true), self.annotate(document)])
    }

    /// Writes what goes to files: the rest follows by [`Results::write_rest`].
    pub(crate) fn write_files(&self, document: &Document) -> Result<(), CommandFault> {
        CommandFault::all([
            self.put(document, |wanted| wanted.sink != OutputSink::Stdout),
            self.annotate(document),
        ])
    }

    /// Writes what goes to standard output, which is written once, and the document again, which says more now.
    pub(crate) fn write_rest(&self, document: &Document) -> Result<(), CommandFault> {
        self.put(document, |wanted| wanted.sink == OutputSink::Stdout || wanted.flag == "--json")
    }

    fn put(&self, document: &Document, which: impl Fn(&WantedResult) -> bool) -> Result<(), CommandFault> {
        let mut kept = false;
        let written = self.wanted.iter().filter(|wanted| which(wanted)).map(|wanted| {
            let written = wanted.sink.write(&(wanted.text)(document));
            kept |= wanted.flag == "--json" && written.is_ok();
            written
        });
        let done = CommandFault::all(written.collect::<Vec<_>>());
        done.map_err(|fault| if kept { fault } else { rescued(fault, "outcome", &json::text(document)) })
    }

    fn annotate(&self, document: &Document) -> Result<(), CommandFault> {
        self.annotations.map_or(Ok(()), |Annotations::Github| {
            terminal::print_beside(&formats::github(document), self.to_stderr())
        })
    }
}
