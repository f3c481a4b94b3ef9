use super::*;
use crate::style::Style;

pub(crate) fn example() -> Diagram {
    let arrow = |at_ms, to_server, label: &str| {
        DiagramRow::Arrow(Arrow { at_ms, to_server, label: label.to_owned(), ..Arrow::default() })
    };
    Diagram {
        title: "GET /report: 41.2 ms".to_owned(),
        lanes: ["client 10.0.0.1:40000".to_owned(), "server 10.0.0.2:80".to_owned()],
        rows: vec![
            arrow(0.0, true, "PSH ACK 61 bytes"),
            arrow(0.12, false, "PSH ACK 120 bytes"),
            DiagramRow::Pause {
                ms: 40.9,
                why: "the server waits for the client's ACK".to_owned(),
                bad: true,
            },
            arrow(41.0, true, "ACK"),
            DiagramRow::Arrow(Arrow {
                at_ms: 41.1,
                label: "PSH ACK 12 bytes <b>".to_owned(),
                notes: vec!["retransmission".to_owned()],
                bad: true,
                ..Arrow::default()
            }),
            DiagramRow::LeftOut(12),
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
    let arrow = |bad| DiagramRow::Arrow(Arrow { bad, ..Arrow::default() });
    let rows = (0..100).map(|i| arrow(i == 50)).collect();
    let short = Diagram { rows, ..Diagram::default() }.shortened(9);
    assert_eq!(short.rows.len(), 3 + 1 + 1 + 1 + 3);
    assert_eq!(
        [&short.rows[3], &short.rows[4], &short.rows[5]],
        [&DiagramRow::LeftOut(47), &arrow(true), &DiagramRow::LeftOut(46)]
    );
}

#[test]
fn diagrams_that_are_compared_have_one_scale() {
    let long = example();
    let mut short = example();
    short.rows[2] = DiagramRow::Pause { ms: 4.09, why: String::new(), bad: false };
    let height = |svg: &str| -> f64 {
        let (_, rest) = svg.split_once("<rect").expect("a pause");
        let (_, rest) = rest.split_once("height=\"").expect("its height");
        rest.split('"').next().and_then(|h| h.parse().ok()).expect("a number")
    };
    let both = to_svgs(&[long, short.clone()]);
    assert!(height(&both[0]) > 2.0 * height(&both[1]), "{both:?}");
    assert!(height(&to_svg(&short)) > 2.0 * height(&both[1]), "alone it has all the room");
}

#[test]
fn two_stand_next_to_each_other_where_there_is_room() {
    let both = [example(), example()];
    let lines = |width, colour| {
        let text = beside(&both, Style { width, colour, ..Style::default() });
        (text.lines().count(), text.lines().filter(|l| l.matches("41.2 ms").count() == 2).count())
    };
    let one = to_text(&both[0], Style::default()).lines().count();
    assert_eq!(lines(80, false), (2 * one + 1, 0));
    assert_eq!((lines(120, false), lines(120, true)), ((one, 1), (one, 1)));
}
