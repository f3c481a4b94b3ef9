//! `--baseline`: the document of an earlier diagnosis.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use linerate_explain::Settings;
use linerate_report::explain::Baseline;
use linerate_report::explain::baseline::Unfit;

use crate::fault::{Fault, said};

/// Bytes of a document. Reason: one with all its segments and receives has some hundred kB.
const MOST: u64 = 16 << 20;

/// Reads the baseline, and compares it with the call that is to be explained.
pub(crate) fn read(path: &Path, settings: &Settings) -> Result<Baseline, Fault> {
    let shown = path.display();
    let cannot = |e: &std::io::Error| {
        Fault::input(format!("--baseline: {shown} cannot be read: {}", said(e)))
            .hint("name a file that was written by: linerate explain --json FILE URL")
    };
    let about = fs::metadata(path).map_err(|e| cannot(&e))?;
    if about.is_dir() {
        return Err(Fault::input(format!("--baseline: {shown} is a folder")).hint("name a document in it"));
    }
    if !about.is_file() {
        // To read a pipe may take for ever.
        return Err(Fault::input(format!("--baseline: {shown} is no ordinary file"))
            .hint("keep the document in a file: linerate explain --json FILE URL"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| cannot(&e))?;
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|e| cannot(&e))?;
    if bytes.len() as u64 > MOST {
        return Err(Fault::input(format!("--baseline: {shown} is larger than {} MiB", MOST >> 20))
            .hint("no diagnosis is: it is written by linerate explain --json FILE URL"));
    }
    let unfit = |u: Unfit| Fault::input(format!("--baseline: {}", u.message)).hint(u.hint);
    let before = Baseline::parse(&shown.to_string(), &String::from_utf8_lossy(&bytes)).map_err(unfit)?;
    before.is_of(&settings.url, &settings.method).map_err(unfit)?;
    Ok(before)
}
