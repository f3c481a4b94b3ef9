//! Cells of the second measurement: each real server with each application, near and far, on a
//! quiet machine and beside four busy loops.

use std::sync::OnceLock;

use super::case::{Case, CaseServer, PLAIN, ServerCpus};
use super::wild::{Wild, WildServerKind, WildServerMode};

/// Loops that never sleep beside a cell.
const LOOPS: usize = 4;

/// All of them; each is tried at both round-trip times.
pub(crate) fn all() -> &'static [Case] {
    static ALL: OnceLock<Vec<Case>> = OnceLock::new();
    ALL.get_or_init(|| {
        let with = |kind: WildServerKind| {
            kind.tried_with().iter().map(move |(mode, workers)| (kind, *mode, *workers))
        };
        let each = WildServerKind::ALL.into_iter().flat_map(with);
        each.flat_map(|(kind, mode, workers)| [false, true].map(|busy| cell(kind, mode, workers, busy)))
            .collect()
    })
}

/// What a server with its application is called: `gunicorn-sync-4 think`.
pub(crate) fn name(wild: Wild) -> String {
    let workers = if wild.workers == 0 { String::new() } else { format!("-{}", wild.workers) };
    format!("{}{workers} {}", wild.kind.name(), wild.mode.name())
}

fn cell(kind: WildServerKind, mode: WildServerMode, workers: u8, busy: bool) -> Case {
    let wild = Wild { kind, mode, workers };
    let truth = match mode {
        WildServerMode::Healthy => "",
        WildServerMode::Think | WildServerMode::Varied => "server-think",
        WildServerMode::Stalls => "periodic-stall",
        WildServerMode::Cold => "cold-start",
        WildServerMode::Limited => "rate-limit",
        WildServerMode::Nagle => "server-nagle-delayed-ack",
    };
    let name = format!("{}{}", name(wild), if busy { " busy" } else { "" });
    Case {
        // Made once for each run of the program.
        name: Box::leak(name.into_boxed_str()),
        truth,
        alike: true,
        also: kind.also(),
        server: CaseServer::Wild(wild),
        share: if busy { ServerCpus::Beside(LOOPS) } else { ServerCpus::Whole },
        alone: busy,
        cold: mode == WildServerMode::Cold,
        ..PLAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        let names: Vec<_> = all().iter().map(|c| c.name).collect();
        assert!(names.len() > 80 && names.contains(&"gunicorn-sync-4 think busy"), "{names:?}");
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} twice");
        }
    }
}
