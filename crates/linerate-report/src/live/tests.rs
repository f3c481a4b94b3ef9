use super::*;
use crate::testing;
use linerate_load::Plan;
use linerate_load::plan::Io;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn drawn(scene: &Scene, snapshot: &Snapshot, stopping: bool, width: u16) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, scene.height())).expect("memory");
    terminal
        .draw(|frame| {
            let area = frame.area();
            draw(scene, snapshot, stopping, area, frame.buffer_mut());
        })
        .expect("memory");
    terminal.backend().clone()
}

#[test]
fn in_the_middle_of_a_run() {
    let scene = Scene::of(&testing::plan_closed());
    insta::assert_snapshot!(drawn(&scene, &testing::snapshot(), false, 80));
}

#[test]
fn over_a_tcp_of_our_own() {
    let plan = Plan { io: Io::Xdp, ..testing::plan_closed() };
    let mut snapshot = Snapshot { stack: Some(Default::default()), ..testing::snapshot() };
    if let Some(stack) = &mut snapshot.stack {
        (stack.segments_in, stack.segments_out) = (420_000, 210_000);
        (stack.retransmits, stack.overrun) = (21, 3);
        (stack.connections, stack.time_wait) = (70, 12_345);
    }
    let scene = Scene::of(&plan);
    insta::assert_snapshot!(drawn(&scene, &snapshot, false, 80));
    assert!(format!("{}", drawn(&scene, &snapshot, false, 100)).contains("70 open, 12,345 in TIME-WAIT"));
    let line = plain_line(&scene, &snapshot);
    assert!(line.ends_with(", 21 bad, 0.01 % of segments resent, 3 overrun"), "{line}");
}

#[test]
fn what_tcp_goes_through() {
    let scene = Scene::of(&testing::plan_closed());
    let row = |snapshot: &Snapshot, width| {
        let view = format!("{}", drawn(&scene, snapshot, false, width));
        let row = view.lines().find(|line| line.starts_with("\"tcp ")).expect("a row").to_owned();
        row.trim_matches('"').trim_end().to_owned()
    };
    let quiet = Snapshot { tcp: Default::default(), ..testing::snapshot() };
    assert_eq!(row(&quiet, 80), "tcp        nothing lost or held back (64 connections looked at)");
    assert_eq!(row(&Snapshot { looked_at: 0, ..quiet }, 80), "tcp        not looked at");
    let mut counted = Snapshot { segments: Some(testing::segments()), ..testing::snapshot() };
    assert_eq!(row(&counted, 80), "tcp        3 retransmissions out, 1 duplicate ACK in, 33 zero windows in");
    assert!(plain_line(&scene, &counted).ends_with(", 33 zero windows in"));
    counted.series[3].segments = counted.segments;
    assert_eq!(row(&counted, 60), "tcp        3 retransmissions out (+3) …");
}

#[test]
fn before_the_first_answer() {
    let scene = Scene::of(&testing::plan_open());
    insta::assert_snapshot!(drawn(&scene, &Snapshot::default(), false, 80));
}

#[test]
fn ending_a_counted_run() {
    let mut plan = testing::plan_closed();
    plan.stop = Stop { requests: Some(50_000), duration: None };
    insta::assert_snapshot!(drawn(&Scene::of(&plan), &testing::snapshot(), true, 60));
}

/// The view never cuts a word. It leaves out what does not fit and shows an ellipsis.
#[test]
fn in_sixty_columns_nothing_is_cut() {
    let scene = Scene::of(&testing::plan_closed());
    let mut snapshot = testing::snapshot();
    snapshot.status = [(200, 41_980), (404, 1_000), (429, 10_000), (500, 20_000)].into();
    insta::assert_snapshot!(drawn(&scene, &snapshot, false, 60));
}

#[test]
fn a_lower_area_has_a_lower_chart() {
    let scene = Scene::of(&testing::plan_closed());
    let text = |height| {
        let area = Rect::new(0, 0, 80, height);
        let mut buf = Buffer::empty(area);
        draw(&scene, &testing::snapshot(), false, area, &mut buf);
        format!("{buf:?}")
    };
    for height in 8..=scene.height() {
        let text = text(height);
        for part in
            ["GET http", "4.2s of 10s", "10,500 req/s", "p99 160", "200: 41,980", "timeout: 3", "Ctrl-C"]
        {
            assert!(text.contains(part), "{height}: {part}: {text}");
        }
    }
    assert!(text(9).contains("closed loop") && !text(8).contains("closed loop"));
}

#[test]
fn warming_up() {
    let mut plan = testing::plan_closed();
    plan.warm_up = Duration::from_secs(2);
    let snapshot = Snapshot { elapsed: Duration::from_millis(500), ..Snapshot::default() };
    let (share, words) = Scene::of(&plan).progress(&snapshot);
    assert_eq!((share, words.as_str()), (Some(0.25), "warming up: 0.5s of 2s"));
}

#[test]
fn an_area_too_small_is_cut_and_nothing_panics() {
    let scene = Scene::of(&testing::plan_closed());
    for (width, height) in [(0, 0), (1, 1), (11, 3), (30, 5), (500, 60)] {
        let area = Rect::new(0, 0, width, height);
        draw(&scene, &testing::snapshot(), false, area, &mut Buffer::empty(area));
    }
}

#[test]
fn plain_lines() {
    let scene = Scene::of(&testing::plan_closed());
    assert_eq!(
        plain_line(&scene, &testing::snapshot()),
        "4.2s of 10s: 10,500/s, p50 100 µs, p99 160 µs, 42,000 answered, 10 failed, 21 bad, 3 segments resent"
    );
    assert_eq!(plain_line(&scene, &Snapshot::default()), "0.0s of 10s: 0/s, 0 answered, 0 failed");
    let old = Snapshot { old: Some(Duration::from_millis(7_300)), ..Snapshot::default() };
    let said = "0.0s of 10s (figures are 7 s old): 0/s, 0 answered, 0 failed";
    assert_eq!(plain_line(&scene, &old), said);
    let view = format!("{}", drawn(&scene, &old, false, 80));
    assert!(view.contains("these figures are 7 s old: no agent can report"), "{view}");
    let machine = |name: &str, answered, ended| linerate_load::outcome::MachineNow {
        name: name.to_owned(),
        answered,
        ended,
        ..Default::default()
    };
    let machines = vec![machine("eu", 200, false), machine("us", 1200, false), machine("as", 0, true)];
    let many = Snapshot { machines, ..Snapshot::default() };
    let line = plain_line(&scene, &many);
    assert!(line.ends_with("; eu 200/s, us 1,200/s, as has ended"), "{line}");
    let late = Snapshot { elapsed: Duration::from_millis(10_900), in_flight: 1, ..Snapshot::default() };
    assert_eq!(plain_line(&scene, &late), "10.0s of 10s: waits for 1 response, 0 answered, 0 failed");
}

#[test]
fn progress_follows_what_ends_first() {
    let mut plan = testing::plan_closed();
    plan.stop.requests = Some(50_000);
    let (share, words) = Scene::of(&plan).progress(&testing::snapshot());
    assert_eq!(words, "42,064 of 50,000 requests");
    assert!(share.is_some_and(|s| (s - 0.841_28).abs() < 1e-9));
    plan.stop.requests = Some(1_000_000);
    assert_eq!(Scene::of(&plan).progress(&testing::snapshot()).1, "4.2s of 10s");
}
