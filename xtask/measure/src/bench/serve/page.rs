//! The measurements of servers, one table per scenario.

use super::peer::PeerProcess;
use super::round::ClientRounds;
use super::scenario::ServeScenario;
use crate::bench::contender::Contender;
use crate::bench::figures::of_program;
use crate::bench::scenario::{Figure, LoadShape, Want};
use crate::bench::table::{TablePage, as_table, thousands};

/// Adds a scenario: its figures by every client; what is wanted binds with the first one.
pub(super) fn add(
    page: &mut TablePage,
    s: &ServeScenario,
    wants: &[Want],
    shape: &LoadShape,
    servers: &[PeerProcess],
    all: &[ClientRounds],
) {
    let per_client = |series: &ClientRounds| {
        let name = if series.client == Contender::Linerate { "linerate load" } else { series.client.name() };
        format!(" {name}: CPU us per request | requests/s | server busy |")
    };
    let head = format!("| {} |{} answer |", s.what, all.iter().map(per_client).collect::<String>());
    let rows: Vec<String> = servers.iter().map(|server| row(server, shape, all)).collect();
    page.add_block(as_table(&head, &rows));
    for (i, series) in all.iter().enumerate() {
        let (what, wants): (_, Vec<Want>) = match i {
            0 => (s.what.to_owned(), wants.to_vec()),
            _ => {
                let aims = wants.iter().map(|w| Want { binds: false, ..*w });
                (format!("{} ({})", s.what, series.client.name()), aims.collect())
            }
        };
        page.add_compared(s.name, &what, &wants, &series.runs);
    }
}

fn row(server: &PeerProcess, shape: &LoadShape, all: &[ClientRounds]) -> String {
    let name = server.peer.name();
    let mut row = format!("| {name} |");
    for series in all {
        match of_program(&series.runs, name, Figure::Rate) {
            None => row += " - | - | - |",
            Some(rate) => {
                let cpu = of_program(&series.runs, name, Figure::Cpu).unwrap_or(0.0);
                let busy = series.runs.iter().filter(|r| r.program == name && r.fault.is_none());
                let busy: Vec<f64> = busy.map(|r| r.server_busy * 100.0).collect();
                let busy = crate::bench::figures::median(&busy).unwrap_or(0.0);
                row += &format!(" {cpu:.3} | {} | {busy:.0} % |", thousands(rate));
            }
        }
    }
    let bytes = server.ask(server.peer.path(shape.path)).map_or_else(|_| "?".into(), |n| thousands(n as f64));
    format!("{row} {bytes} B |")
}
