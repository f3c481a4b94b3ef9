use super::*;

fn recipe(command: &str) -> Recipe {
    Recipe { patience: Duration::from_secs(20), ..Recipe::parse(command).unwrap() }
}

fn never() -> bool {
    false
}

/// A server of two processes, both of which listen to nothing but live until they are ended.
const TWO: &str = "python3 -c \"
import http.server, subprocess, sys
child = subprocess.Popen(['sleep', '1000'])
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
print('up at http://127.0.0.1:%d' % server.server_port)
server.serve_forever()\"";

#[test]
fn a_server_is_found_by_its_words_watched_and_ended_with_its_children() {
    let mut server = recipe(TWO).start(&never).unwrap();
    assert!(server.url().starts_with("http://127.0.0.1:"), "{}", server.url());
    assert_eq!(server.ended(), None);
    let members = server.members();
    assert_eq!(members.len(), 2, "{members:?}");
    let before = server.usage();
    assert!(before.rss > 1_000_000);
    let address = address_of(server.url()).unwrap();
    drop(TcpStream::connect(address).unwrap());
    drop(server);
    assert!(members.iter().all(|m| !m.is_alive()), "{members:?}");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_server_that_prints_nothing_gets_a_port() {
    let text = "python3 -c \"import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), \
                http.server.SimpleHTTPRequestHandler).serve_forever()\" {port}";
    let server = recipe(text).start(&never).unwrap();
    assert!(accepts(server.url()));
}

#[test]
fn trouble_is_named_with_the_last_words() {
    let why = |command: &str, patience: u64| {
        let recipe = Recipe { patience: Duration::from_millis(patience), ..recipe(command) };
        recipe.start(&never).unwrap_err()
    };
    let ended = why("sh -c 'echo no config >&2; exit 3'", 20_000).to_string();
    assert!(ended.contains("exit status: 3") && ended.contains("| no config"), "{ended}");
    assert!(matches!(why("sleep 1000", 100), ServerTrouble::NoUrl { .. }));
    let silent = why("sh -c 'echo at http://127.0.0.1:1/; sleep 1000'", 100).to_string();
    assert!(silent.contains("http://127.0.0.1:1/ accepts no connections"), "{silent}");
    let missing = why("/no/such/program", 100);
    assert!(matches!(&missing, ServerTrouble::Start { program, .. } if program == "/no/such/program"));
    let interrupted = recipe("sleep 1000").start(&|| true).unwrap_err();
    assert_eq!(interrupted, ServerTrouble::Interrupted);
}

#[test]
fn a_server_that_ignores_sigterm_is_ended_all_the_same() {
    let server = recipe("sh -c 'trap \"\" TERM; echo http://127.0.0.1:1; while :; do sleep 0.1; done'");
    let server = Recipe { patience: Duration::from_millis(300), ..server };
    // It never becomes ready, so the attempt ends it.
    assert!(matches!(server.start(&never), Err(ServerTrouble::NotReady { .. })));
}

#[test]
fn commands_are_split_as_a_shell_would() {
    assert_eq!(Recipe::parse("a 'b c' d").unwrap().words, ["a", "b c", "d"]);
    assert!(Recipe::parse(" ").is_err() && Recipe::parse("a 'b").is_err());
}

#[test]
fn addresses_of_urls() {
    assert_eq!(address_of("http://127.0.0.1/x").unwrap().port(), 80);
    assert_eq!(address_of("https://127.0.0.1").unwrap().port(), 443);
    assert_eq!(address_of("http://[::1]:81/").unwrap().port(), 81);
    assert_eq!(address_of("nothing"), None);
}
