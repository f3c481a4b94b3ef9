//! The files that a run's results go to, beside the summary.

use std::path::{Path, PathBuf};

use linerate_report::schema::outcome::Document;
use linerate_report::{formats, json, load_page};

use super::output::{Sink, can_be_written, rescued};
use crate::args::{Annotations, LoadArgs};
use crate::fault::Fault;
use crate::terminal;

/// A flag, its file, and what is written to that.
type Wanted<'a> = (&'static str, &'a Path, fn(&Document) -> String);

/// What `--html`, `--csv`, `--junit` and `--annotations` ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    html: Option<PathBuf>,
    csv: Option<PathBuf>,
    junit: Option<PathBuf>,
    annotations: Option<Annotations>,
}

impl Results {
    pub(crate) fn of(args: &LoadArgs) -> Results {
        Results {
            html: args.html.clone(),
            csv: args.csv.clone(),
            junit: args.junit.clone(),
            annotations: args.annotations,
        }
    }

    fn files(&self) -> impl Iterator<Item = Wanted<'_>> {
        let html =
            self.html.iter().map(|path| ("--html", path, load_page::to_string as fn(&Document) -> String));
        let csv = self.csv.iter().map(|path| ("--csv", path, formats::csv as fn(&Document) -> String));
        let junit =
            self.junit.iter().map(|path| ("--junit", path, formats::junit as fn(&Document) -> String));
        html.chain(csv).chain(junit).map(|(flag, path, text)| (flag, path.as_path(), text))
    }

    /// Whether all of them can be written to, before anything is run.
    pub(crate) fn probe(&self) -> Result<(), Fault> {
        self.files()
            .try_for_each(|(flag, path, _)| can_be_written(flag, path, "name a file in a folder that exists"))
    }

    /// Writes all of them, the document first. What cannot be written does not keep the others back.
    pub(crate) fn write(&self, document: &Document, sink: Option<&Sink>) -> Result<(), Fault> {
        let json = || json::text(document);
        let written = sink.map_or(Ok(()), |sink| sink.write(&json()));
        let kept = sink.is_some() && written.is_ok();
        let files = self.files().map(|(_, path, text)| Sink::File(path.to_owned()).write(&text(document)));
        let annotated = self.annotations.map_or(Ok(()), |Annotations::Github| {
            let to_stderr = sink == Some(&Sink::Stdout);
            terminal::print_beside(&formats::github(document), to_stderr)
        });
        let done = Fault::all([written].into_iter().chain(files).chain([annotated]));
        done.map_err(|fault| if kept { fault } else { rescued(fault, "outcome", &json()) })
    }
}
