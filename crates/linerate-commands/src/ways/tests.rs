use proptest::prelude::*;

use super::denied::{RowFigures, denied};
use super::*;

/// A row with both sides' busiest threads.
fn row(name: &str, (connections, depth): (u32, u32), rate_rps: f64, busy: [f64; 2]) -> Seen {
    Seen {
        name: name.to_owned(),
        connections,
        depth,
        rate_rps,
        p50_us: f64::from(connections) * f64::from(depth) / rate_rps * 1e6,
        cpu_us: busy.map(|share| Some(share / rate_rps * 1e6)),
        cores: busy.map(Some),
        busiest: busy.map(Some),
        machine: Some(2.0),
        ..Seen::default()
    }
}

fn poll(rate_rps: f64) -> Seen {
    Seen { baseline: true, ..row("poll", (1, 1), rate_rps, [0.4, 0.4]) }
}

#[test]
fn a_quick_server_gains_by_the_pipeline() {
    let before = [poll(25_000.0), row("keep-alive", (100, 1), 140_000.0, [0.95, 0.7])];
    let pipe = row("pipelined", (8, 100), 2_500_000.0, [0.6, 0.97]);
    let said = words(&pipe, &before);
    assert!(
        said.starts_with("Many requests in a write, many responses in a read: 100 x the rate of poll"),
        "{said}"
    );
    assert!(said.contains("The limit was the server's core (97.0 % busy)."), "{said}");
    assert!(!said.contains("Better here") && !said.contains("one after another"), "{said}");
    let all = [&before[..], &[pipe]].concat();
    assert!(conclusion(&all).unwrap().starts_with("Fastest here: pipelined, 2,500,000/s; the server's core"));
}

/// HAProxy before a backend of 20 ms, as measured: 363/s pipelined, 3,248/s keep-alive.
#[test]
fn a_proxy_that_serves_one_after_another_is_seen() {
    let before = [poll(49.0), row("keep-alive", (100, 1), 3_248.0, [0.2, 0.1])];
    let pipe = row("pipelined", (8, 100), 363.0, [0.02, 0.02]);
    let said = words(&pipe, &before);
    assert!(
        said.contains("one after another, 22.0 ms apart; one request at a time has one each 20.4 ms"),
        "{said}"
    );
    assert!(
        said.contains("100 in flight gained nothing.") && !said.contains("Many requests in a write"),
        "{said}"
    );
    assert!(said.contains("Better here: keep-alive, 8.95 x its rate."), "{said}");
    let streams = Seen { streams: true, ..row("http/2", (8, 100), 3_300.0, [0.2, 0.2]) };
    let all = [&before[..], &[pipe]].concat();
    let said = words(&streams, &all);
    assert!(
        said.starts_with("The responses came side by side, each on its stream: 9.09 x the rate of pipelined"),
        "{said}"
    );
    let all = [&all[..], &[streams]].concat();
    let end = conclusion(&all).unwrap();
    assert!(end.contains("Do not pipeline here") && end.contains("HTTP/2 or more connections"), "{end}");
}

/// A short run on a busy machine may see no response of a way; nothing is reckoned from it.
#[test]
fn a_row_without_a_response_is_no_measure() {
    let nothing = |row: Seen| Seen { rate_rps: 0.0, p50_us: 0.0, cpu_us: [None; 2], ..row };
    let before = [nothing(poll(1.0)), nothing(row("keep-alive", (100, 1), 1.0, [0.1, 0.1]))];
    let pipe = row("pipelined", (8, 100), 106_000.0, [0.5, 0.5]);
    let said = words(&pipe, &before);
    assert!(said.contains("a read: 106,000/s, where poll had no response"), "{said}");
    let short = Seen { per_connection: Some(1), ..row("short", (100, 1), 2_000.0, [0.5, 0.5]) };
    let said = words(&short, &before);
    assert!(said.starts_with("A connection for each request, ") && !said.contains("cost nothing"), "{said}");
    assert_eq!(words(&before[1], &before[..1]), "No response came.");
}

#[test]
fn what_a_connection_costs_is_said_only_where_it_shows() {
    let before = [poll(25_000.0), row("keep-alive", (100, 1), 140_000.0, [0.9, 0.7])];
    let short = Seen { per_connection: Some(1), ..row("short", (100, 1), 24_000.0, [0.7, 0.95]) };
    let said = words(&short, &before);
    assert!(said.starts_with("A connection for each request: 0.17 x the rate of keep-alive"), "{said}");
    assert!(said.contains("the difference is what opening and closing costs"), "{said}");
    let before = [poll(50.0), row("keep-alive", (100, 1), 4_400.0, [0.2, 0.2])];
    let short = Seen { per_connection: Some(1), ..row("short", (100, 1), 4_193.0, [0.4, 0.4]) };
    let said = words(&short, &before);
    assert!(
        said.contains("hardly shows beside the rest") && said.contains("No core was the limit"),
        "{said}"
    );
    assert!(said.contains("responses took"), "{said}");
}

#[test]
fn other_programs_leave_nothing_to_be_said() {
    let before = [poll(25_000.0)];
    let busy = Seen { held_up: 0.4, ..row("keep-alive", (100, 1), 20_000.0, [0.5, 0.5]) };
    let said = words(&busy, &before);
    assert!(said.contains("Other programs kept client or server from its core for 40.0 %"), "{said}");
    assert!(!said.contains("The limit was") && !said.contains("Better here"), "{said}");
}

#[test]
fn each_limit_is_the_one_that_the_figures_name() {
    let limit = |client, server| row("a", (100, 1), 1e5, [client, server]).limit();
    assert_eq!(limit(0.97, 0.6), Limit::Client(0.97));
    assert_eq!(limit(0.3, 0.9), Limit::Server(0.9));
    assert_eq!(limit(0.3, 0.2), Limit::Waiting);
    assert_eq!(limit(0.97, 0.9), Limit::Machine);
    let one_core = Seen { machine: Some(1.0), ..row("a", (100, 1), 1e5, [0.5, 0.5]) };
    assert_eq!(one_core.limit(), Limit::Machine);
    let far =
        Seen { cpu_us: [Some(3.0), None], busiest: [Some(0.3), None], ..row("a", (100, 1), 1e5, [0.3, 0.3]) };
    let said = words(&far, &[poll(50.0)]);
    assert!(said.contains("on this side") && said.contains("This client's core was not the limit"), "{said}");
}

/// Whatever the figures are, no sentence denies them.
#[test]
fn no_sentence_denies_the_figures_of_its_row() {
    let rates = [40.0, 50.0, 400.0, 4_000.0, 25_000.0, 140_000.0, 2_500_000.0];
    let shares = [0.02, 0.5, 0.99];
    for alone in rates {
        for rate in rates {
            for (connections, depth) in [(100, 1), (8, 100), (1000, 1)] {
                for client in shares {
                    for server in shares {
                        let before = [poll(alone)];
                        let seen = row("it", (connections, depth), rate, [client, server]);
                        let said = words(&seen, &before);
                        let each = rate / f64::from(connections);
                        assert!(!said.contains("Many requests in a write") || each > alone, "{said}");
                        assert!(!said.contains("gained nothing") || each <= alone * ALIKE, "{said}");
                        assert!(!said.contains("this client's core (") || client >= BUSY, "{said}");
                        assert!(!said.contains("the server's core (") || server >= BUSY, "{said}");
                        assert!(!said.contains("Better here") || alone > rate * ALIKE, "{said}");
                        assert!(
                            !said.contains("No core was the limit") || client.max(server) < BUSY,
                            "{said}"
                        );
                    }
                }
            }
        }
    }
}

fn figures(seen: &Seen) -> RowFigures {
    RowFigures {
        name: seen.name.clone(),
        rate_rps: seen.rate_rps,
        p50_us: seen.p50_us,
        cpu_us: seen.cpu(),
        connections: f64::from(seen.connections),
        depth: f64::from(seen.depth),
    }
}

fn any_row(name: &'static str, at_once: (u32, u32)) -> impl Strategy<Value = Seen> {
    let share = || prop_oneof![0.0..0.4_f64, 0.8..1.0_f64];
    (1.0..6.5_f64, share(), share(), 0.3..2.0_f64, prop_oneof![Just(0.0), 0.0..0.9_f64]).prop_map(
        move |(rate, client, server, taken, held_up)| {
            let mut seen = row(name, at_once, 10_f64.powf(rate), [client, server]);
            seen.p50_us *= taken;
            Seen { held_up, ..seen }
        },
    )
}

proptest! {
    /// Ways as the demo and the scenarios have them, of any rates, shares and latencies, and a busy client.
    #[test]
    fn sentences_are_those_of_the_figures(
        alone in any_row("poll", (1, 1)),
        kept in any_row("keep-alive", (1000, 1)),
        short in any_row("short", (100, 1)),
        pipe in any_row("pipelined", (8, 100)),
        streams in any_row("http/2", (8, 100)),
    ) {
        let rows = [
            Seen { baseline: true, ..alone },
            kept,
            Seen { per_connection: Some(1), ..short },
            pipe,
            Seen { streams: true, ..streams },
        ];
        let all: Vec<RowFigures> = rows.iter().map(figures).collect();
        for (at, seen) in rows.iter().enumerate() {
            let said = words(seen, &rows[..at]);
            let wrong = denied(&said, &all[at], &all[..at]);
            prop_assert!(wrong.is_empty(), "{wrong:?} in {said}\n{seen:#?}");
            let mut beside = rows.to_vec();
            beside.remove(at);
            let others: Vec<RowFigures> = beside.iter().map(figures).collect();
            let said = in_a_group(seen, &beside);
            let wrong = denied(&said, &all[at], &others);
            prop_assert!(wrong.is_empty(), "{wrong:?} in {said}\n{seen:#?}");
        }
    }
}

/// The checker finds what is wrong: else it proves nothing.
#[test]
fn a_sentence_against_the_figures_is_found() {
    let before = [figures(&poll(50.0)), figures(&row("keep-alive", (100, 1), 3_248.0, [0.2, 0.1]))];
    let pipe = figures(&row("pipelined", (8, 100), 363.0, [0.02, 0.02]));
    for said in [
        "Many requests in a write, many responses in a read: 7.26 x the rate of poll.",
        "100 at once: 9.00 x the rate of poll.",
        "100 at once: about the rate of keep-alive.",
        "The limit was the server's core (12.0 % busy).",
        "No core was the limit (client 12.0 %, server 99.0 % busy).",
        "Better here: poll, 0.14 x its rate.",
        "Better here: keep-alive, 20.0 x its rate.",
        "the responses came one after another, 3.00 ms apart; one request at a time has one each 20 ms.",
        "No core was the limit (client 2.00 %, server 2.00 % busy): responses took 3.00 ms.",
        "100 at once: 7.26 x the rate of poll, 900 µs of CPU a request on both sides.",
    ] {
        assert!(!denied(said, &pipe, &before).is_empty(), "{said}");
    }
}

#[test]
fn nothing_measured_says_so() {
    assert_eq!(words(&Seen::default(), &[]), "No response came.");
    assert_eq!(conclusion(&[]), None);
}

#[test]
fn a_wait_is_the_limit_only_where_its_rate_was_reached() {
    let wait = Duration::from_millis(10);
    let said = waiting(&row("blocking", (100, 1), 96.0, [0.01, 0.01]), wait, 1);
    assert_eq!(said, "One request waits at a time: at most 100/s. It reached 96.0/s: the wait is the limit.");
    let said = waiting(&row("coroutines", (100, 1), 5_000.0, [0.3, 0.99]), wait, 100);
    assert!(
        said.starts_with("All 100 requests wait at once: at most 10,000/s. It reached 5,000/s."),
        "{said}"
    );
    assert!(said.contains("The limit was the server's core (99.0 % busy)"), "{said}");
}

#[test]
fn a_row_of_a_scenario_says_its_limit_and_the_better_row() {
    let alone = poll(50.0);
    let pipe = row("pipes", (8, 250), 390.0, [0.02, 0.02]);
    let said = in_a_group(&pipe, &[alone.clone(), row("threads", (100, 1), 4_900.0, [0.3, 0.2])]);
    assert!(
        said.contains("one after another") && said.contains("Better here: threads, 12.6 x its rate."),
        "{said}"
    );
    let said = in_a_group(&row("other", (64, 1), 9_000.0, [0.2, 0.97]), &[]);
    assert_eq!(said, "The limit was the server's core (97.0 % busy).");
    assert_eq!(in_a_group(&Seen::default(), &[alone]), "");
}
