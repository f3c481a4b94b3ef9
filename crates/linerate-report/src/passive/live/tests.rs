use std::time::{Duration, UNIX_EPOCH};

use linerate_explain::passive::live::LiveObserver;
use linerate_explain::passive::{CaptureFile, CaptureLimits};

use super::*;

/// A server that stalled a call, as it is shown after a window of 5 s.
fn shown(each: impl FnOnce(&LiveView<'_>)) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/capture/call");
    let file = std::fs::File::open(file).expect("part of the repository");
    let mut capture = CaptureFile::open(file).expect("a capture");
    let mut observer = LiveObserver::new(CaptureLimits::default(), None);
    let mut now = 0;
    while let Some(packet) = capture.next_packet().expect("readable") {
        observer.packet(&packet);
        now = packet.time_ns;
    }
    for (client, server) in observer.unowned() {
        observer.owned(client, server, 4711);
    }
    observer.dropped(3);
    let window = observer.end_window(now);
    let server = window.servers[0].server.expect("it is known");
    each(&LiveView {
        window: &window,
        total: &observer.so_far(),
        window_s: 5.0,
        own_cpu: schema::LiveCpu { user_s: 0.02, kernel_s: 0.01, core_share: 0.006 },
        names: &BTreeMap::from([(4711, "wrk".to_owned()), (80, "nginx".to_owned())]),
        serving: &BTreeMap::from([(server, vec![80])]),
    });
}

fn picture(view: Option<&LiveView<'_>>, width: u16) -> String {
    let area = Rect::new(0, 0, width, 23);
    let mut buffer = Buffer::empty(area);
    let now = LiveProgress { watched_s: 65.2, next_s: 3.2, packets: 1_200, requests: 300 };
    draw("explain --capture --port 80", now, view, area, &mut buffer);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..23).map(|y| row(y).trim_end().to_owned() + "\n").collect::<String>().trim_end().to_owned()
}

#[test]
fn the_screen_names_the_cause_and_the_processes() {
    shown(|view| {
        insta::assert_snapshot!("narrow", picture(Some(view), 80));
        insta::assert_snapshot!("wide", picture(Some(view), 120));
    });
    insta::assert_snapshot!("before_the_first_window", picture(None, 80));
}

#[test]
fn a_window_is_one_line_of_json() {
    shown(|view| {
        let at = UNIX_EPOCH + Duration::from_millis(1_795_226_640_123);
        let line = to_json(view, "the packets of port 80 on all interfaces", 65.2, at);
        assert_eq!(line.matches('\n').count(), 1);
        let document: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&document).expect("JSON"));
    });
}

#[test]
fn a_share_that_is_not_all_is_not_shown_as_all() {
    assert_eq!((percent(1.0), percent(0.999_99)), ("100.0 %".to_owned(), "99.9 %".to_owned()));
}
