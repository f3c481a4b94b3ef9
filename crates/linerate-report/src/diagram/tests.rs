use super::*;
use crate::style::Style;

pub(crate) fn example() -> Diagram {
    let arrow = |at_ms, to_server, label: &str| {
        Row::Arrow(Arrow { at_ms, to_server, label: label.to_owned(), ..Arrow::default() })
    };
    Diagram {
        title: "GET /report: 41.2 ms".to_owned(),
        lanes: ["client 10.0.0.1:40000".to_owned(), "server 10.0.0.2:80".to_owned()],
        rows: vec![
            arrow(0.0, true, "PSH ACK 61 bytes"),
            arrow(0.12, false, "PSH ACK 120 bytes"),
            Row::Pause { ms: 40.9, why: "the server waits for the client's ACK".to_owned(), bad: true },
            arrow(41.0, true, "ACK"),
            Row::Arrow(Arrow {
                at_ms: 41.1,
                label: "PSH ACK 12 bytes <b>".to_owned(),
                notes: vec!["retransmission".to_owned()],
                bad: true,
                ..Arrow::default()
            }),
            Row::LeftOut(12),
        ],
    }
}

#[test]
fn for_a_terminal() {
    insta::assert_snapshot!(to_text(&example(), Style::default()));
    insta::assert_snapshot!(to_text(&example(), Style { unicode: false, width: 60, ..Style::default() }));
}

#[test]
fn as_svg() {
    let svg = to_svg(&example());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"), "what came from elsewhere is text");
    assert_eq!(svg.matches("<polygon").count(), 4);
}

#[test]
fn nothing_to_show_is_no_trouble() {
    assert_eq!(to_text(&Diagram::default(), Style::default()).lines().count(), 1);
    assert!(to_svg(&Diagram::default()).contains("</svg>"));
}

#[test]
fn a_long_diagram_keeps_its_ends_and_what_is_trouble() {
    let arrow = |bad| Row::Arrow(Arrow { bad, ..Arrow::default() });
    let rows = (0..100).map(|i| arrow(i == 50)).collect();
    let short = Diagram { rows, ..Diagram::default() }.shortened(9);
    assert_eq!(short.rows.len(), 3 + 1 + 1 + 1 + 3);
    assert_eq!(
        [&short.rows[3], &short.rows[4], &short.rows[5]],
        [&Row::LeftOut(47), &arrow(true), &Row::LeftOut(46)]
    );
}
