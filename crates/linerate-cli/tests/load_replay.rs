//! `load --replay` of the log that `serve` writes.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::io::Write;

use common::{measured, number};
use flate2::{Compression, write::GzEncoder};
use serving::serve;

/// What a server was asked for, in order; its log as JSON.
fn recorded() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log").display().to_string();
    let server = serve(&["--threads", "1", "--access-log", &path, "--log-format", "json"]);
    for path in ["/bytes/10", "/status/404", "/bytes/20?x=%20y"] {
        let url = format!("http://{}{path}", server.address);
        let (document, said) = measured(&["-c", "1", "-n", "2", &url]);
        assert_eq!(number(&document, "/requests/answered"), 2, "{}", said.err);
    }
    assert_eq!(server.stop().0, Some(0));
    let log = std::fs::read_to_string(&path).expect("written");
    assert_eq!(log.lines().count(), 6, "{log}");
    log
}

#[test]
fn the_log_of_serve_is_replayed_plain_and_packed() {
    let log = recorded();
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, packed) = (folder.path().join("log.json"), folder.path().join("log.json.gz"));
    std::fs::write(&plain, &log).expect("written");
    let mut encoder = GzEncoder::new(std::fs::File::create(&packed).expect("a file"), Compression::fast());
    encoder.write_all(log.as_bytes()).and_then(|()| encoder.finish()).expect("written");
    for file in [plain, packed] {
        let file = file.display().to_string();
        let again = folder.path().join("again").display().to_string();
        let _ = std::fs::remove_file(&again);
        let server = serve(&["--threads", "1", "--access-log", &again, "--log-format", "json"]);
        let url = format!("http://{}", server.address);
        let (document, said) = measured(&["-c", "1", "--speed", "100", "--replay", &file, &url]);
        assert_eq!(number(&document, "/requests/answered"), 6, "{file}: {}", said.err);
        assert_eq!(number(&document, "/status/404"), 2, "{file}: {}", said.err);
        assert_eq!(server.stop().0, Some(0));
        let seen = std::fs::read_to_string(&again).expect("written");
        let target = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line.as_object()
                .expect("an object")
                .values()
                .find_map(|value| value.as_str().filter(|text| text.starts_with('/')).map(str::to_owned))
        };
        let (before, after): (Vec<_>, Vec<_>) =
            (log.lines().map(target).collect(), seen.lines().map(target).collect());
        assert_eq!(before, after, "{file}");
        assert!(before.iter().all(Option::is_some), "{log}");
    }
}
