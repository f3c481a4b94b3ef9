//! Requests with bodies, as a server gets them under each way of sending.

#[macro_use]
mod common;
mod uploads;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{measured, number, run};

/// Ways of sending that must send the same.
const WAYS: [&[&str]; 4] =
    [&["--io", "epoll"], &["--io", "uring"], &["--way", "threads"], &["--way", "async"]];

/// `n` bytes, among them those that slots begin with.
fn noise(n: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes: Vec<u8> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    bytes[n / 2..n / 2 + 8].copy_from_slice(b"{{none{{");
    bytes
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file
}

/// The most memory that `load` had, bytes.
fn peak(args: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it runs");
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        if let Ok(text) = fs::read_to_string(&status)
            && let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))
        {
            most = most.max(line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10);
        }
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{args:?}: {status}");
            return most;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_large_body_is_in_memory_once() {
    const BODY: usize = 48 << 20;
    // A debug build, whose own pages are most of it, with two threads and their connections. It is
    // less than a second body.
    const REST: u64 = 46 << 20;
    let (address, uploads) = uploads::server(0);
    let body = file(&noise(BODY));
    let (body, url) = (format!("@{}", body.path().display()), format!("http://{address}/"));
    for way in WAYS {
        let mut args = vec!["load", "-q", "-c", "10", "-n", "20", "--body", &body];
        args.extend_from_slice(way);
        if way[0] == "--io" {
            args.extend(["-t", "2"]);
        }
        args.push(&url);
        let most = peak(&args);
        println!("{way:?}: {} MB", most >> 20);
        assert!(most < BODY as u64 + REST, "{way:?}: {} MB", most >> 20);
        let length = BODY.to_string();
        let mut uploads = uploads.lock().expect("sound");
        assert_eq!(uploads.len(), 20);
        assert!(uploads.drain(..).all(|upload| upload.field("content-length") == Some(&length)));
    }
}

#[test]
fn large_and_small_bodies_arrive_as_they_are() {
    let (address, uploads) = uploads::server(usize::MAX);
    let url = format!("http://{address}/{{{{seq}}}}");
    for bytes in [100, 65_535, 65_536, 3_000_000] {
        let bytes = noise(bytes);
        let body = file(&bytes);
        let body = format!("@{}", body.path().display());
        for way in WAYS {
            let mut args = vec!["-c", "2", "-n", "6", "--body", &body, "--per-connection", "2"];
            args.extend_from_slice(way);
            args.push(&url);
            let (document, said) = measured(&args);
            assert_eq!(
                (said.code, number(&document, "/requests/answered")),
                (Some(0), 6),
                "{way:?} {said:?}"
            );
            let heads: usize = uploads.lock().expect("sound").iter().map(|u| u.head.len()).sum();
            assert_eq!(number(&document, "/bytes/sent"), (6 * bytes.len() + heads) as u64, "{way:?}");
            let uploads: Vec<_> = uploads.lock().expect("sound").drain(..).collect();
            assert!(uploads.len() == 6 && uploads.iter().all(|u| u.body == bytes), "{way:?}");
            let closing = uploads.iter().filter(|u| u.field("connection") == Some("close")).count();
            assert!(closing >= 1, "{way:?}");
        }
    }
}

/// A pipeline of large bodies may wait in full: what waits has no copy.
#[test]
fn large_bodies_are_pipelined() {
    let (address, uploads) = uploads::server(0);
    let body = file(&noise(9 << 20));
    let (body, url) = (format!("@{}", body.path().display()), format!("http://{address}/"));
    for io in ["epoll", "uring"] {
        let args = ["-c", "1", "-p", "16", "-n", "16", "--io", io, "-X", "PUT", "--body", &body, &url];
        let (document, said) = measured(&args);
        assert_eq!((said.code, number(&document, "/requests/answered")), (Some(0), 16), "{io} {said:?}");
        assert_eq!(uploads.lock().expect("sound").drain(..).count(), 16);
    }
}

/// Between the slots of a template, large stretches are sent from where they are.
#[test]
fn slots_are_filled_in_large_templates() {
    let (address, uploads) = uploads::server(usize::MAX);
    let filler = "x".repeat(100_000);
    let template = file(format!("<{{{{seq}}}}{filler}{{{{{{{{{filler}{{{{seq}}}}>").as_bytes());
    let (body, url) = (format!("@{}", template.path().display()), format!("http://{address}/"));
    for way in WAYS {
        let mut args = vec!["-c", "1", "-n", "3", "--body-template", &body];
        args.extend_from_slice(way);
        args.push(&url);
        let (_, said) = measured(&args);
        assert_eq!(said.code, Some(0), "{way:?} {said:?}");
        for (n, upload) in uploads.lock().expect("sound").drain(..).enumerate() {
            assert!(upload.body == format!("<{n}{filler}{{{{{filler}{n}>").as_bytes(), "{way:?} {n}");
        }
    }
}

/// A form as Python's mail parser reads it: name, file name, type and value of each part.
fn parsed_by_python(upload: &uploads::Upload) -> String {
    const PROGRAM: &str = "import sys, email.policy, email.parser
message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(sys.stdin.buffer.read())
assert message.is_multipart() and not message.defects, message.defects
for part in message.iter_parts():
    name = part.get_param('name', header='content-disposition')
    typed = part.get_content_type() if part['content-type'] else None
    print(name, part.get_filename(), typed, part.get_payload(decode=True))";
    let mut python = Command::new("python3")
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut input = python.stdin.take().expect("a pipe");
    write!(input, "Content-Type: {}\r\n\r\n", upload.field("content-type").expect("a type"))
        .expect("written");
    input.write_all(&upload.body).expect("written");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn forms_are_what_another_parser_reads() {
    let (address, uploads) = uploads::server(usize::MAX);
    let url = format!("http://{address}/");
    let photo = file(b"\x89PNG\r\n--{{none");
    let large = file(&noise(200_000));
    let name = |file: &tempfile::NamedTempFile| {
        file.path().file_name().expect("a name").to_string_lossy().into_owned()
    };
    let fields = [
        "user=a;type=text/x-name".to_owned(),
        "n={{seq}}".to_owned(),
        format!("photo=@{};type=image/png;filename=\"my photo.png\"", photo.path().display()),
        format!("large=@{}", large.path().display()),
    ];
    let mut bodies = Vec::new();
    for way in WAYS {
        let mut args = vec!["-c", "1", "-n", "2", "--seed", "3"];
        args.extend(fields.iter().flat_map(|field| ["--form", field.as_str()]));
        args.extend_from_slice(way);
        args.push(&url);
        let (_, said) = measured(&args);
        assert_eq!(said.code, Some(0), "{way:?} {said:?}");
        let sent: Vec<_> = uploads.lock().expect("sound").drain(..).collect();
        assert_eq!(sent.len(), 2);
        for (n, upload) in sent.iter().enumerate() {
            assert!(upload.head.starts_with("POST / "), "{}", upload.head);
            let parsed = parsed_by_python(upload);
            let (small, rest) = parsed.split_once("\nlarge ").expect("four parts");
            let expected = format!(
                "user None text/x-name b'a'\nn None None b'{n}'\n\
                 photo my photo.png image/png b'\\x89PNG\\r\\n--{{{{none'"
            );
            assert_eq!(small, expected, "{way:?}");
            assert!(rest.starts_with(&format!("{} application/octet-stream b", name(&large))), "{way:?}");
            assert!(upload.body.windows(200_000).any(|w| w == noise(200_000)), "{way:?}");
        }
        bodies.push(sent[0].body.clone());
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "the same seed makes the same boundary");
}

#[test]
fn forms_that_are_wrong_are_bad_input() {
    for (args, words) in [
        (
            &["--form", "file=@/no/such/file"][..],
            "--form: file: /no/such/file cannot be read: there is no such file",
        ),
        (&["--form", "nothing"], "\"nothing\" has no name"),
        (&["--form", "a=b;charset=x"], "\"charset\" is not known here"),
        (&["--form", "a=b", "-H", "Content-Type: x/y"], "--form brings its own Content-Type"),
        (&["--form", "a=b", "--body", "c"], "cannot be used with"),
    ] {
        let mut all = vec!["load"];
        all.extend_from_slice(args);
        all.push("http://127.0.0.1:1/");
        let said = run(&all);
        assert!(said.code == Some(2) && said.err.contains(words), "{args:?}: {said:?}");
    }
}

#[test]
fn variables_of_the_environment_are_filled_in() {
    let (address, uploads) = uploads::server(usize::MAX);
    let url = format!("http://{address}/{{{{env.LOAD_PATH}}}}");
    for way in WAYS {
        let json = tempfile::NamedTempFile::new().expect("a file");
        let json_path = json.path().display().to_string();
        let mut args = vec![
            "load",
            "-q",
            "-c",
            "1",
            "-n",
            "2",
            "-H",
            "X-Token: {{env.LOAD_TOKEN|base64}}",
            "--json",
            &json_path,
        ];
        args.extend(["--body", "{{env.LOAD_TOKEN}}{{seq}}", "--expect-status", "204"]);
        args.extend_from_slice(way);
        args.push(&url);
        let mut command = common::linerate(&args);
        let output =
            command.env("LOAD_PATH", "a/b").env("LOAD_TOKEN", "top secret").output().expect("it runs");
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let document = fs::read_to_string(json.path()).expect("results");
        for text in [&*out, &document] {
            assert!(!text.contains("top secret") && !text.contains("dG9wIHNlY3JldA"), "{text}");
        }
        assert!(document.contains("POST /*** HTTP/1.1"), "{document}");
        let sent: Vec<_> = uploads.lock().expect("sound").drain(..).collect();
        assert_eq!(sent.len(), 2, "{way:?}");
        assert!(sent[0].head.starts_with("POST /a/b HTTP/1.1"), "{}", sent[0].head);
        assert_eq!(sent[1].field("x-token"), Some("dG9wIHNlY3JldA=="));
        assert_eq!(sent[1].body, b"top secret1");
    }
}

#[test]
fn a_variable_that_is_not_set_is_bad_input() {
    let said = run(&["load", "-H", "X-A: b{{env.LOAD_NONE}}", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let words = "request \"GET /\": field \"X-A\", byte 1: {{env.LOAD_NONE}}: the environment variable LOAD_NONE is not set";
    assert!(said.err.contains(words) && said.err.contains("hint: "), "{said:?}");
    let plan = file(b"url = \"http://127.0.0.1:1/\"\n[[request]]\npath = \"/{{env.LOAD_NONE}}\"\n");
    let name = plan.path().display().to_string();
    let said = run(&["load", "--plan", &name]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains(&format!("{name}:3:")) && said.err.contains("LOAD_NONE is not set"),
        "{said:?}"
    );
}

#[test]
fn a_plan_file_has_forms() {
    let (address, uploads) = uploads::server(usize::MAX);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.txt"), "text").expect("written");
    let text = format!("url = \"http://{address}/\"\nrequests = 1\nform = [\"a=1\", \"b=@a.txt\"]\n");
    let plan = folder.path().join("plan.toml");
    fs::write(&plan, text).expect("written");
    let said = run(&["load", "-q", "--plan", &plan.display().to_string()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let sent = uploads.lock().expect("sound")[0].clone();
    assert_eq!(parsed_by_python(&sent), "a None None b'1'\nb a.txt text/plain b'text'\n");
    let command = format!("curl -F a=1 --form-string b=@x http://{address}/");
    let said = run(&["load", "-q", "-n", "1", "--curl", &command]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let sent = uploads.lock().expect("sound")[1].clone();
    assert_eq!(parsed_by_python(&sent), "a None None b'1'\nb None None b'@x'\n");
}

#[test]
fn a_body_that_cannot_be_read_is_bad_input() {
    for (flag, value, words) in [
        ("--body", "@/no/such/file", "--body: /no/such/file cannot be read: there is no such file"),
        ("--body", "@/", "--body: / cannot be read: it is a directory"),
        ("--body-template", "@/no/such/file", "--body-template: /no/such/file cannot be read"),
    ] {
        let said = run(&["load", flag, value, "http://127.0.0.1:1/"]);
        assert!(said.code == Some(2) && said.err.contains(words), "{value}: {said:?}");
    }
}
