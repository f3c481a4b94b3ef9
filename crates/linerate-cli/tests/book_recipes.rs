//! The book's recipes and chapters do what they say. Blocks of `sh` run: all of a page as one script, in a folder
//! of its own, with the page's ports replaced by free ones. Runs are shortened unless
//! `LINERATE_BOOK=all`. What cannot run here (YAML for Actions and Kubernetes, Docker, units) is read
//! by a parser, by its schema where one is installed, and linerate accepts its command lines.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_serve::{Request, Response, ServerOptions, spawn_with, tower};
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[path = "../../linerate-serve/examples/grpc/helloworld.rs"]
mod helloworld;
#[path = "../../linerate-serve/examples/grpc/service.rs"]
mod service;

/// In front of each script: `explain` and checks may find something on a loaded machine, and runs
/// without an end of their own are short.
const PREAMBLE: &str = r#"set -e
linerate() {
  case "$1" in
    serve) exec env linerate "$@" ;;
    load) case " $* " in
      *" --find "*) [ -n "$ALL" ] || set -- "$@" --dry-run ;;
      *" -d "*|*" -n "*|*" --plan "*|*" --rate "*|*" --replay "*) ;;
      *) set -- "$@" -d 1s ;;
    esac ;;
    compare) [ -n "$ALL" ] || set -- "$@" -d 200ms --warm-up 100ms ;;
  esac
  code=0
  env linerate "$@" || code=$?
  case "$code $*" in
    "1 explain"*|"1 "*--check*|"1 "*--plan*|"1 "*--find*) return 0 ;;
  esac
  return $code
}
"#;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/recipes")
}

fn all() -> bool {
    std::env::var("LINERATE_BOOK").is_ok_and(|v| v == "all")
}

/// The pages by name.
fn pages() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder()).expect("book/recipes").map(|e| e.expect("listed").path());
    let named = entries.map(|p| (p.file_name().expect("a name").to_string_lossy().into_owned(), p));
    named.map(|(name, path)| (name, std::fs::read_to_string(path).expect("text"))).collect()
}

/// The blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside: Option<String> = None;
    for line in page.lines() {
        match &mut inside {
            Some(_) if line == "```" => found.extend(inside.take()),
            Some(block) => writeln!(block, "{line}").expect("a string"),
            None if line == format!("```{language}") => inside = Some(String::new()),
            None => {}
        }
    }
    found
}

/// Ports of servers that the pages start.
const PORTS: [std::ops::Range<u16>; 2] = [8081..8095, 8443..8450];

/// A free port for each that the script names, but for those given here.
fn with_free_ports(script: &str, known: &[(&str, u16)]) -> String {
    let mut script = script.to_owned();
    for (written, port) in known {
        script = script.replace(written, &format!("127.0.0.1:{port}"));
    }
    for written in PORTS.into_iter().flatten() {
        if !script.contains(&format!(":{written}")) {
            continue;
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a port");
        for host in ["127.0.0.1:", "localhost:"] {
            let from = format!("{host}{written}");
            script = script.replace(&from, &format!("{host}{}", free.port()));
        }
    }
    script
}

/// Times of runs and of steps, shortened.
fn shortened(script: &str) -> String {
    let words = script.split_inclusive([' ', '\n']).collect::<Vec<_>>();
    let mut out = String::new();
    let mut before = "";
    for word in words {
        let bare = word.trim_end();
        if before == "-d" && !all() {
            out += &word.replace(bare, "1s");
        } else if before == "--rate" && bare.contains('@') && !all() {
            let steps = bare.split(',').map(|s| format!("{}@500ms", s.split('@').next().unwrap_or(s)));
            out += &word.replace(bare, &steps.collect::<Vec<_>>().join(","));
        } else {
            out += word;
        }
        before = bare;
    }
    out
}

/// The paths of examples/axum-sqlite, without its database.
async fn notes(request: Request) -> Response {
    static ADDED: AtomicU64 = AtomicU64::new(0);
    let path = request.path().to_owned();
    if request.method() == "POST" && path == "/notes" {
        let id = ADDED.fetch_add(1, Ordering::Relaxed) + 1;
        return Response::text(format!("{{\"id\":{id},\"text\":\"kept\"}}")).with_status(201);
    }
    match path.strip_prefix("/notes/").and_then(|id| id.parse::<u64>().ok()) {
        Some(id) if (1..=ADDED.load(Ordering::Relaxed)).contains(&id) => Response::text(format!("{id}")),
        _ => Response::status(404),
    }
}

/// Runs all of a page's blocks as one script; what it started ends with it.
fn page_runs(name: &str) {
    let folders = [folder(), folder().with_file_name("chapters")];
    let path = folders.iter().map(|f| f.join(name)).find(|p| p.is_file()).expect("a page");
    let page = std::fs::read_to_string(path).expect("text");
    let script = blocks(&page, "sh").concat();
    assert!(!script.is_empty(), "{name} has no commands");
    let server = linerate_serve::spawn(ServerOptions::default()).expect("it starts");
    let greeter = helloworld::greeter_server::GreeterServer::new(service::MyGreeter);
    let grpc = spawn_with(ServerOptions::default(), move || tower(greeter.clone())).expect("it starts");
    let notes = spawn_with(ServerOptions::default(), || notes).expect("it starts");
    let known = [
        ("127.0.0.1:8080", server.addr().port()),
        ("127.0.0.1:50051", grpc.addr().port()),
        ("127.0.0.1:8095", notes.addr().port()),
    ];
    let script = format!("{PREAMBLE}{}", with_free_ports(&shortened(&script), &known));
    let ours = Path::new(env!("CARGO_BIN_EXE_linerate")).parent().expect("a folder");
    let path = format!("{}:{}:/usr/sbin", ours.display(), std::env::var("PATH").unwrap_or_default());
    let dir = tempfile::tempdir().expect("a folder");
    let said = std::fs::File::create(dir.path().join("said.txt")).expect("a file");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .current_dir(dir.path())
        .env("PATH", path)
        .env("ALL", if all() { "1" } else { "" });
    shell.env("NO_COLOR", "1").stdin(Stdio::null());
    shell.stdout(said.try_clone().expect("a file")).stderr(said).process_group(0);
    let mut child = shell.spawn().expect("a shell");
    let group = child.id();
    let status = child.wait().expect("it ends");
    // What it started in the background.
    let _ = Command::new("kill").args(["-TERM", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
    let said = std::fs::read_to_string(dir.path().join("said.txt")).unwrap_or_default();
    assert_eq!(status.code(), Some(0), "{name}:\n{script}\n{said}");
}

macro_rules! recipes {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            page_runs($name);
        })*

        const RUN: &[&str] = &[$($name),*];
    };
}

recipes! {
    before_after "before-after.md"
    capacity "capacity.md"
    compare_builds "compare-builds.md"
    folder_https "folder-https.md"
    from_curl "from-curl.md"
    from_har "from-har.md"
    from_logs "from-logs.md"
    from_openapi "from-openapi.md"
    from_other_tools "from-other-tools.md"
    grpc "grpc.md"
    json_post "json-post.md"
    k6_scripts "k6-scripts.md"
    log_in "log-in.md"
    per_endpoint "per-endpoint.md"
    ramp "ramp.md"
    rest_database "rest-database.md"
    self_signed "self-signed.md"
    share_report "share-report.md"
    stop_at_first_error "stop-at-first-error.md"
    unclear "unclear.md"
    upload "upload.md"
    weights "weights.md"
}

/// A reader of two pages still has the first one's server. Port 8080 is that of them all.
#[test]
fn no_two_pages_start_servers_on_the_same_port() {
    let mut taken = BTreeMap::new();
    for folder in [folder(), folder().with_file_name("chapters")] {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("listed").path();
            let script = blocks(&std::fs::read_to_string(&path).expect("text"), "sh").concat();
            for port in PORTS.into_iter().flatten() {
                if script.contains(&format!(":{port}")) {
                    let other = taken.insert(port, path.clone());
                    assert_eq!(other, None, "{} has {port}, too", path.display());
                }
            }
        }
    }
    assert!(taken.len() > 6, "{taken:?}");
}

/// As `recipes`, of the other folder.
const CHAPTERS: [&str; 7] = [
    "connection-cost.md",
    "cure.md",
    "nagle.md",
    "past-kernel.md",
    "ports.md",
    "slow-start.md",
    "waiting.md",
];

#[test]
fn chapters() {
    for name in CHAPTERS {
        page_runs(name);
    }
}

#[test]
fn pipelining() {
    if linerate_skips::program("nginx").is_some() {
        page_runs("pipelining.md");
    }
}

#[test]
fn every_chapter_runs() {
    for entry in std::fs::read_dir(folder().with_file_name("chapters")).expect("book/chapters") {
        let name = entry.expect("listed").file_name().to_string_lossy().into_owned();
        assert!(CHAPTERS.contains(&name.as_str()) || name == "pipelining.md", "{name}");
    }
}

#[test]
fn behind_nginx() {
    if linerate_skips::program("nginx").is_some() {
        page_runs("behind-nginx.md");
    }
}

#[test]
fn many_machines() {
    if linerate_skips::program("nats-server").is_some() {
        page_runs("many-machines.md");
    }
}

/// Pages without `sh` are in the list of those that only a parser reads.
const READ: [&str; 5] =
    ["capture-production.md", "docker.md", "github-actions.md", "kubernetes.md", "systemd.md"];

#[test]
fn every_recipe_is_short_and_runs_or_is_read() {
    let pages = pages();
    assert!(pages.len() >= 20, "only {} recipes", pages.len());
    let more = ["behind-nginx.md", "many-machines.md"];
    for (name, page) in &pages {
        let runs = RUN.contains(&name.as_str()) || more.contains(&name.as_str());
        assert_eq!(runs, !blocks(page, "sh").is_empty(), "{name}");
        assert!(runs || READ.contains(&name.as_str()), "{name} is neither run nor read");
        assert!(page.lines().count() <= 45, "{name} has {} lines", page.lines().count());
    }
}

/// Words of command lines as a shell has them, of those that begin with `linerate`.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter_map(|l| {
        let line = l.split(" #").next().unwrap_or_default().trim().trim_start_matches("sudo ");
        let line = match line.split_once(" linerate ").filter(|(before, _)| before.starts_with("docker run"))
        {
            Some((_, rest)) => format!("linerate {rest}"),
            None => line.to_owned(),
        };
        line.strip_prefix("linerate ").map(str::to_owned)
    });
    lines.map(|l| shell_words(&l)).collect()
}

fn shell_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().expect("one").push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

/// `linerate` knows the flags: with an impossible one behind them it complains of that one alone.
fn is_accepted(words: &[String]) {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.push("--no-such-flag-at-all");
    let said = common::run(&words);
    assert!(said.code == Some(2) && said.err.contains("--no-such-flag-at-all"), "{words:?}: {said:?}");
}

/// The first YAML block of a page, as what it must be: a key that is not known is an error.
fn document<T: DeserializeOwned>(name: &str) -> T {
    let page = std::fs::read_to_string(folder().join(name)).expect("a page");
    yaml_serde::from_str(&blocks(&page, "yaml")[0]).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A workflow of GitHub Actions, as far as the page uses one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workflow {
    #[serde(rename = "name")]
    _name: String,
    on: Vec<String>,
    jobs: BTreeMap<String, WorkflowJob>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WorkflowJob {
    runs_on: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    uses: Option<String>,
    run: Option<String>,
    id: Option<String>,
    r#if: Option<String>,
    with: Option<BTreeMap<String, String>>,
}

#[test]
fn the_workflow_is_one_and_its_commands_are_accepted() {
    let workflow: Workflow = document("github-actions.md");
    assert_eq!(workflow.on, ["pull_request"]);
    let job = &workflow.jobs["load"];
    assert_eq!(job.runs_on, "ubuntu-latest");
    let mut seen = 0;
    for step in &job.steps {
        assert!(step.uses.is_some() != step.run.is_some(), "a step has either uses or run");
        assert!(step.with.is_none() || step.uses.is_some(), "with belongs to uses");
        if let Some((id, _)) = step.r#if.as_deref().and_then(|i| i.strip_prefix("steps.")?.split_once('.')) {
            assert!(job.steps.iter().any(|s| s.id.as_deref() == Some(id)), "no step has the id {id}");
        }
        for words in command_lines(step.run.as_deref().unwrap_or_default()) {
            is_accepted(&words);
            seen += 1;
        }
    }
    assert_eq!(seen, 1);
}

/// What action.yml takes, of what the test reads.
#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, yaml_serde::Value>,
}

#[test]
fn the_action_takes_what_the_page_gives_it() {
    let root = folder().join("../..");
    let action = std::fs::read_to_string(root.join("action.yml")).expect("action.yml");
    let action: Action = yaml_serde::from_str(&action).expect("an action");
    let page = std::fs::read_to_string(folder().join("github-actions.md")).expect("a page");
    let steps: Vec<Step> = yaml_serde::from_str(&blocks(&page, "yaml")[1]).expect("steps");
    let with = steps[0].with.as_ref().expect("inputs");
    assert!(with.keys().all(|key| action.inputs.contains_key(key)), "{with:?}");
    is_accepted(&[vec!["load".to_owned()], shell_words(&with["load"])].concat());
}

/// A Job of Kubernetes, as far as the page uses one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Job {
    api_version: String,
    kind: String,
    #[serde(rename = "metadata")]
    _metadata: Named,
    spec: JobSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(rename = "name")]
    _name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct JobSpec {
    backoff_limit: u32,
    template: Template,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    spec: PodSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodSpec {
    restart_policy: String,
    containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Container {
    #[serde(rename = "name")]
    _name: String,
    image: String,
    args: Vec<String>,
    resources: BTreeMap<String, BTreeMap<String, String>>,
}

#[test]
fn the_job_of_kubernetes_is_one_and_its_arguments_are_accepted() {
    let job: Job = document("kubernetes.md");
    assert_eq!((job.api_version.as_str(), job.kind.as_str()), ("batch/v1", "Job"));
    let pod = &job.spec.template.spec;
    // A Job's pods must not restart for ever, and a failed check must not be tried again.
    assert_eq!((job.spec.backoff_limit, pod.restart_policy.as_str()), (0, "Never"));
    let [container] = pod.containers.as_slice() else { panic!("one container") };
    assert!(container.image.contains("linerate") && container.resources.contains_key("requests"));
    is_accepted(&container.args);
}

#[test]
fn commands_of_pages_that_are_read_are_accepted() {
    let mut seen = 0;
    for name in READ.iter().chain(&["many-machines.md"]) {
        let page = std::fs::read_to_string(folder().join(name)).expect("a page");
        for words in command_lines(&blocks(&page, "text").concat()) {
            is_accepted(&words);
            seen += 1;
        }
    }
    assert!(seen >= 7, "only {seen}");
}

#[test]
fn the_unit_is_sound() {
    let page = std::fs::read_to_string(folder().join("systemd.md")).expect("a page");
    let ours = env!("CARGO_BIN_EXE_linerate");
    let unit = blocks(&page, "ini").concat().replace("/usr/bin/linerate", ours);
    let exec = unit.lines().find_map(|l| l.strip_prefix("ExecStart=")).expect("ExecStart");
    is_accepted(&shell_words(exec.split_once(' ').expect("arguments").1));
    let Some(analyze) = linerate_skips::program("systemd-analyze") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("site.service");
    std::fs::write(&file, unit).expect("written");
    let output = Command::new(analyze).args(["verify", "--man=no"]).arg(&file).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("site.service"), "{said}");
}

/// The rows of book/tasks.md: task, command, page, words.
fn tasks() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(folder().with_file_name("tasks.md")).expect("a page");
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(2);
    let cells = |row: &str| row.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect();
    rows.map(cells).collect()
}

/// Each task has a command that is accepted and a page, and help finds it by the words beside it.
#[test]
fn the_twenty_four_tasks_are_found() {
    let readme = std::fs::read_to_string(folder().join("../../README.md")).expect("README.md");
    assert!(readme.contains("(book/tasks.md)"));
    let tasks = tasks();
    assert_eq!(tasks.len(), 24);
    for task in &tasks {
        let [what, command, page, words] = task.as_slice() else { panic!("{task:?}") };
        let line = shell_words(command.trim_matches('`'));
        assert_eq!(line[0], "linerate", "{what}");
        is_accepted(&line[1..]);
        let link = page.split_once("](").map(|(_, rest)| rest.trim_end_matches(')')).expect("a link");
        let file = folder().with_file_name(link);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{what}: {link}: {e}"));
        let topic = file.file_stem().expect("a name").to_string_lossy().to_lowercase();
        let said = common::run(&["help", words]);
        let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let is_page = said.out.starts_with(title) || said.out.contains(&format!("Usage: linerate {words}"));
        assert_eq!(said.code, Some(0), "{what}: {said:?}");
        assert!(is_page || said.out.contains(&format!("linerate help {topic} ")), "{what}: {said:?}");
    }
}
