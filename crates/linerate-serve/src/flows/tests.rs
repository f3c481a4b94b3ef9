use std::net::{Ipv4Addr, SocketAddr};

use linerate_net::link::sim::{Sim, SimOptions};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::{AgreedOptions, ConnectOptions, Event, ListenOptions, TcpInfo, Transport};

use super::*;

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn flow(port: u16, state: FlowState) -> FlowInfo {
    FlowInfo {
        local: SocketAddr::from(([10, 0, 0, 5], 8080)),
        remote: SocketAddr::from(([10, 0, 0, 9], port)),
        state,
        unread_bytes: 1,
        unsent_bytes: 20,
        unacked_bytes: 300,
        cwnd_bytes: 14_480,
        ssthresh_bytes: None,
        peer_window_bytes: 65_535,
        mss_bytes: 1448,
        agreed: AgreedOptions::default(),
        rtt_variation_us: 75,
        rto_us: 200_000,
        idle_ms: 7,
        tcp: TcpInfo { retransmits: 2, rtt_us: 150, ..TcpInfo::default() },
    }
}

fn wanted(query: &str) -> Wanted {
    Wanted::of(Some(query), None).expect("it is right")
}

#[test]
fn what_is_wanted_is_read_and_bounded() {
    assert_eq!(Wanted::of(None, None), Ok(Wanted { skip: 0, max: 100, text: false }));
    assert_eq!(wanted("skip=7&max=1000&text"), Wanted { skip: 7, max: 1000, text: true });
    assert!(Wanted::of(None, Some("text/plain;q=0.9")).expect("right").text);
    assert!(!Wanted::of(None, Some("*/*")).expect("right").text);
    for wrong in
        ["max=1001", "max=0", "max=", "skip=-1", "skip=+1", "most=3", "skip=99999999999999999999", "text=1"]
    {
        assert!(Wanted::of(Some(wrong), None).is_err(), "{wrong}");
    }
}

#[test]
fn the_document_is_json_and_the_table_has_a_line_each() {
    let mut seen = FlowScan { handshakes: 3, time_wait: 4, ..FlowScan::default() };
    for port in 1..=5 {
        let state = if port == 5 { FlowState::CloseWait } else { FlowState::Established };
        seen.see(flow(port, state), 1, 3);
    }
    let wanted = wanted("skip=1&max=3");
    let document: serde_json::Value = serde_json::from_str(&json(&seen, &wanted)).expect("JSON");
    assert_eq!(document["total"], 5);
    assert_eq!(
        (&document["by_state"]["established"], &document["by_state"]["close_wait"]),
        (&4.into(), &1.into())
    );
    assert_eq!((&document["handshakes"], &document["time_wait"]), (&3.into(), &4.into()));
    let ports: Vec<_> =
        document["flows"].as_array().expect("rows").iter().map(|row| row["remote"].clone()).collect();
    assert_eq!(ports, ["10.0.0.9:2", "10.0.0.9:3", "10.0.0.9:4"]);
    let row = &document["flows"][0];
    assert!(row["ssthresh_bytes"].is_null() && row["min_rtt_us"].is_null(), "{row}");
    assert_eq!(
        (&row["srtt_us"], &row["unacked_bytes"], &row["resent"]),
        (&150.into(), &300.into(), &2.into())
    );

    let table = text(&seen, &wanted);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 6, "{table}");
    assert_eq!(lines[0], "connections 5, ESTABLISHED 4, CLOSE-WAIT 1; handshakes 3, TIME-WAIT 4");
    assert!(
        lines[2].split_whitespace().take(5).eq(["ESTABLISHED", "1", "320", "10.0.0.5:8080", "10.0.0.9:2"]),
        "{table}"
    );
    assert_eq!(lines[5], "... 1 more: ?text&skip=4");
}

/// A stack with this many connections to itself.
fn crowd(connections: usize) -> Stack<linerate_net::link::sim::SimEnd> {
    let options = StackOptions { addresses: vec![HOST.into()], seed: Some(1), ..StackOptions::default() };
    let mut net = Stack::new(Sim::alone(SimOptions::default()).expect("a descriptor"), options);
    net.listen((HOST, 80).into(), &ListenOptions::default()).expect("can listen");
    for _ in 0..connections {
        net.connect((HOST, 80).into(), &ConnectOptions::default()).expect("a port");
    }
    let (mut accepted, mut connected) = (0, 0);
    let mut events = Vec::new();
    while (accepted, connected) != (connections, connections) {
        net.turn(None, &mut events).expect("a turn");
        for event in events.drain(..) {
            match event {
                Event::Accepted { .. } => accepted += 1,
                Event::Connected { .. } => connected += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    net
}

#[test]
fn a_large_table_is_looked_through_in_turns_and_askers_are_bounded() {
    let net = crowd(limits::FLOW_PLACES);
    let mut scans = Scans::default();
    let mut asked: Vec<oneshot::Receiver<FlowScan>> = Vec::new();
    for number in 0..=limits::FLOW_ASKERS {
        let (tell, told) = oneshot::channel();
        scans.add(Ask { skip: 10 * number, most: 5, tell });
        asked.push(told);
    }
    assert!(asked.pop().expect("the last").try_recv().is_err(), "one too many is told at once");
    assert_eq!(scans.0.len(), limits::FLOW_ASKERS);
    // Both ends are in the table, so each request takes two turns.
    scans.go_on(&net);
    assert!(asked[0].try_recv().is_err(), "half of it");
    scans.go_on(&net);
    let first = asked[0].try_recv().expect("all of it");
    assert_eq!(first.total, 2 * limits::FLOW_PLACES);
    assert_eq!(first.by_state[FlowState::Established as usize], first.total);
    assert_eq!(first.shown.len(), 5);
    // A requester that has gone costs nothing.
    asked.truncate(3);
    asked.remove(1);
    for _ in 0..1 + 2 + limits::FLOW_ASKERS - 3 {
        scans.go_on(&net);
    }
    assert!(scans.is_empty());
    let third = asked[1].try_recv().expect("answered");
    let mut all: Vec<FlowInfo> = Vec::new();
    assert_eq!(net.flows(0, usize::MAX, |flow| all.push(flow)), None);
    assert_eq!(third.shown, all[20..25]);
}
