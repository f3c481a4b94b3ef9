use super::*;

fn way(name: PipelineWayName, rate: f64) -> PipelineWay {
    PipelineWay {
        name,
        connections: if name == PipelineWayName::Connections { 10 } else { 1 },
        in_flight: if matches!(name, PipelineWayName::Pipelined | PipelineWayName::Http2) { 10 } else { 1 },
        rate_rps: Some(rate),
        not_measured: None,
        failed_share: 0.0,
        closes_after: None,
    }
}

/// A proxy before a server that takes 20 ms.
fn behind_a_proxy() -> PipeliningFigures {
    PipeliningFigures {
        target: "http://a/".to_owned(),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        proxy: Some("Via: 1.1 <x>".to_owned()),
        in_order: None,
        ways: vec![
            way(PipelineWayName::Alone, 48.0),
            way(PipelineWayName::Pipelined, 49.0),
            way(PipelineWayName::Connections, 470.0),
            way(PipelineWayName::Http2, 323.0),
        ],
        environment: crate::json::environment(&crate::testing::environment(), ""),
    }
}

#[test]
fn what_pays_is_said_with_its_figures() {
    let mut figures = behind_a_proxy();
    let proxied = document(figures.clone());
    let words = proxied.summary.join(" ");
    assert!(
        words.starts_with("Pipelining does not pay here") && words.contains("one after another"),
        "{words}"
    );
    assert!(words.contains("What pays: 10 connections, 470/s."), "{words}");
    assert_eq!(proxied.cure, Some(PipelineWayName::Connections));
    assert!(!proxied.pays && proxied.works && proxied.one_after_another);
    figures.ways[1].rate_rps = Some(384.0);
    let paying = document(figures.clone());
    let words = paying.summary.join(" ");
    assert!(words.starts_with("Pipelining pays here") && words.contains("8.0 times"), "{words}");
    assert_eq!((paying.cure, paying.one_after_another), (None, false));
    figures.ways[1].failed_share = 0.5;
    let broken = document(figures);
    assert!(!broken.pays && !broken.works && broken.summary[0].contains("does not work"), "{broken:?}");
}

#[test]
fn answers_in_another_order_are_no_pipelining() {
    let mut figures = behind_a_proxy();
    figures.ways[1].rate_rps = Some(384.0);
    figures.in_order = Some(true);
    let ordered = document(figures.clone());
    assert!(
        ordered.pays && ordered.summary.join(" ").contains("in the order of the requests"),
        "{ordered:?}"
    );
    figures.in_order = Some(false);
    let mixed = document(figures);
    assert!(!mixed.works && !mixed.pays && mixed.in_order == Some(false), "{mixed:?}");
    assert!(mixed.summary[0].contains("does not work here: answers come in another order"), "{mixed:?}");
    assert_eq!(mixed.cure, Some(PipelineWayName::Connections));
}

#[test]
fn http_2_that_is_not_spoken_has_no_rate() {
    let mut figures = behind_a_proxy();
    figures.ways[3].rate_rps = None;
    figures.ways[3].not_measured = Some("the server does not speak it here".to_owned());
    figures.ways[1].closes_after = Some(3.0);
    let document = document(figures);
    let words = document.summary.join(" ");
    assert!(words.contains("does not speak it") && words.contains("closes a connection after 3"), "{words}");
    let read: serde_json::Value = serde_json::from_str(&json(&document)).expect("JSON");
    assert!(read["ways"][3]["rate_rps"].is_null() && read["cure"] == "connections", "{read:#}");
}

#[test]
fn the_page_has_each_way_and_escapes_what_the_server_said() {
    let page = page(&document(behind_a_proxy()));
    for words in ["10 connections <span class=\"good\">what pays", "HTTP/2, 10 streams", "470", "&lt;x&gt;"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("<x>"), "{page}");
}
