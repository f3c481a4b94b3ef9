//! `pictures`: the README's pictures, recorded from real runs in a terminal of known size. The
//! commands run in a network namespace of their own, so that addresses are the same everywhere.

mod svg;
mod terminal;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use terminal::{PictureTerminal, Screen};
use xtask::shell;

/// The flags of `pictures`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PicturesOptions {
    /// The linerate to record; a release build is made if left out
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// A picture: its file, what runs beside it, what is typed, and the size of the terminal.
struct PictureScene {
    file: &'static str,
    beside: &'static str,
    typed: &'static str,
    columns: usize,
    rows: usize,
    /// Shows the run as it went; else only what it printed.
    moving: bool,
}

const SCENES: [PictureScene; 2] = [
    PictureScene {
        file: "load.svg",
        beside: "serve",
        typed: "linerate load --rate 20k -d 8s http://127.0.0.1:8080/",
        columns: 92,
        rows: 28,
        moving: true,
    },
    PictureScene {
        file: "explain.svg",
        beside: "serve --misbehave nagle-split",
        typed: "linerate explain http://127.0.0.1:8080/",
        columns: 100,
        rows: 25,
        moving: false,
    },
];

/// Between two pictures of a moving one.
const STEP: Duration = Duration::from_millis(600);

const FOLDER: &str = "docs/pictures";

/// Longest recording.
const LIMIT: Duration = Duration::from_secs(60);

/// Records all of them.
pub(crate) fn run(options: &PicturesOptions) -> Result<bool> {
    for program in ["script", "unshare", "ip"] {
        ensure!(
            shell::find(program).is_some(),
            "{program} is missing (Debian: bsdutils, util-linux, iproute2)"
        );
    }
    ensure!(shell::is_root(), "a network namespace takes root");
    let binary = match &options.binary {
        Some(file) => file.clone(),
        None => {
            shell::run(shell::cargo().args(["build", "--release", "--locked", "-p", "linerate-cli"]))?;
            shell::target_dir().join("release/linerate")
        }
    };
    let folder = shell::root().join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    for scene in &SCENES {
        println!("recording {}: {}", scene.file, scene.typed);
        let frames = record(scene, &binary)?;
        let picture = svg::picture(scene.typed, &frames, scene.columns, scene.rows);
        clean(&picture)?;
        std::fs::write(folder.join(scene.file), picture)?;
    }
    Ok(true)
}

/// Runs the scene and returns its frames.
fn record(scene: &PictureScene, binary: &Path) -> Result<Vec<Screen>> {
    let script = format!(
        "ip link set lo up && {{ linerate {} 2>/dev/null & }} && sleep 1 && script --quiet --return --command \
         'stty cols {} rows {}; exec {}' /dev/null; kill $!",
        scene.beside, scene.columns, scene.rows, scene.typed
    );
    let folder = binary.parent().context("a folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = shell::program("unshare");
    command.args(["--net", "sh", "-c", &script]).env("PATH", path).stdout(Stdio::piped());
    command
        .env("TERM", "xterm-256color")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS");
    let mut child = command.spawn().context("cannot start unshare")?;
    let mut out = child.stdout.take().context("no pipe")?;
    let mut terminal = PictureTerminal::new(scene.columns);
    let mut frames: Vec<Screen> = Vec::new();
    let (begin, mut last) = (Instant::now(), Instant::now());
    let mut buffer = [0; 1 << 16];
    loop {
        let n = out.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        ensure!(begin.elapsed() < LIMIT, "{} did not end within {LIMIT:?}", scene.typed);
        terminal.take(&buffer[..n]);
        if scene.moving && terminal.whole() && last.elapsed() >= STEP {
            frames.push(terminal.screen(scene.rows));
            last = Instant::now();
        }
    }
    child.wait()?;
    // The beginning of what stays: the report, or the verdict.
    frames.push(terminal.screen(usize::MAX));
    ensure!(frames.len() > 5 || !scene.moving, "only {} frames of {}", frames.len(), scene.typed);
    Ok(frames)
}

/// A picture must not name this machine.
fn clean(picture: &str) -> Result<()> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let named = host.len() > 3 && picture.contains(host);
    let folder = shell::root().display().to_string();
    ensure!(!named && !picture.contains(&folder), "the picture names this machine or a folder of it");
    Ok(())
}
