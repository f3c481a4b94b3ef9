//! `--baseline`: the document of an earlier diagnosis.

use std::path::Path;

use linerate_explain::Settings;
use linerate_report::explain::Baseline;
use linerate_report::explain::baseline::Unfit;

use crate::documents::{Advice, read_bytes};
use crate::fault::CommandFault;

/// Bytes of a document. Reason: one with all its segments and receives has some hundred kB.
const MOST: u64 = 16 << 20;

/// Reads the baseline, and compares it with the call that is to be explained.
pub(crate) fn read(path: &Path, settings: &Settings) -> Result<Baseline, CommandFault> {
    let shown = path.display();
    let advice = Advice {
        unreadable: "name a file that was written by: linerate explain --json FILE URL",
        folder: "name a document in it",
        no_file: "keep the document in a file: linerate explain --json FILE URL",
        large: "no diagnosis is: it is written by linerate explain --json FILE URL",
    };
    let bytes = read_bytes("--baseline", path, MOST, advice)?;
    let unfit = |u: Unfit| CommandFault::input(format!("--baseline: {}", u.message)).hint(u.hint);
    let before = Baseline::parse(&shown.to_string(), &String::from_utf8_lossy(&bytes)).map_err(unfit)?;
    before.is_of(&settings.url, &settings.method).map_err(unfit)?;
    Ok(before)
}
