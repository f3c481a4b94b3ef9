//! Command lines of wrk, ab and hey, translated to flags of `linerate load`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use linerate_report::Style;

use crate::args::LoadArgs;
use crate::compare::{first_line, flags_of_load};
use crate::fault::{CommandFault, Exit};
use crate::{load, terminal};

/// A tool whose command line is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Wrk,
    Ab,
    Hey,
}

/// What becomes of one of its flags.
#[derive(Clone, Copy)]
enum To {
    /// The value follows this flag of ours.
    Flag(&'static str),
    /// The value is a number of seconds.
    Seconds(&'static str),
    /// The value is a header field of this name.
    Field(&'static str),
    /// The value is a file with the body, sent by this method unless another is named.
    BodyFile(&'static str),
    /// A number of requests per second for each connection.
    RateEach,
    /// No value; these words of ours.
    Words(&'static [&'static str]),
    /// No value; each connection carries any number of requests.
    KeepAlive,
    /// No value, and nothing changes here.
    Nothing,
    /// A value, and nothing changes here.
    NothingWith,
    /// Not to be had; what to do instead.
    Refused(&'static str),
}

type Flags = &'static [(&'static [&'static str], To)];

const WRK: Flags = &[
    (&["c", "connections"], To::Flag("-c")),
    (&["d", "duration"], To::Flag("-d")),
    (&["t", "threads"], To::Flag("-t")),
    (&["H", "header"], To::Flag("-H")),
    (&["R", "rate"], To::Flag("--rate")),
    (&["timeout"], To::Flag("--timeout")),
    (&["L", "latency", "U", "u_latency", "B", "batch_latency"], To::Nothing),
    (
        &["s", "script"],
        To::Refused(
            "Lua scripts are not run; --plan FILE of linerate load has several requests, data and checks",
        ),
    ),
];

const AB: Flags = &[
    (&["n"], To::Flag("-n")),
    (&["c"], To::Flag("-c")),
    (&["t"], To::Seconds("-d")),
    (&["s"], To::Seconds("--timeout")),
    (&["k"], To::KeepAlive),
    (&["H"], To::Flag("-H")),
    (&["T"], To::Field("Content-Type")),
    (&["C"], To::Field("Cookie")),
    (&["p"], To::BodyFile("POST")),
    (&["u"], To::BodyFile("PUT")),
    (&["m"], To::Flag("-X")),
    (&["i"], To::Words(&["-X", "HEAD"])),
    (&["A"], To::Flag("-u")),
    (&["B"], To::Flag("--from")),
    (&["X"], To::Flag("--proxy")),
    (&["q"], To::Words(&["-q"])),
    (&["r", "l", "d", "S", "I"], To::Nothing),
    (&["v", "b", "f", "Z"], To::NothingWith),
    (&["e", "g"], To::Refused("use linerate load --csv FILE or --json FILE")),
    (&["w", "x", "y", "z"], To::Refused("use linerate load --html FILE")),
    (&["P"], To::Refused("write user and password into the URL of linerate load --proxy")),
];

const HEY: Flags = &[
    (&["n"], To::Flag("-n")),
    (&["c"], To::Flag("-c")),
    (&["z"], To::Flag("-d")),
    (&["q"], To::RateEach),
    (&["t"], To::Seconds("--timeout")),
    (&["m"], To::Flag("-X")),
    (&["H"], To::Flag("-H")),
    (&["A"], To::Field("Accept")),
    (&["T"], To::Field("Content-Type")),
    (&["U"], To::Field("User-Agent")),
    (&["host"], To::Field("Host")),
    (&["d"], To::Flag("--body")),
    (&["D"], To::BodyFile("GET")),
    (&["a"], To::Flag("-u")),
    (&["x"], To::Flag("--proxy")),
    (&["cpus"], To::Flag("-t")),
    (&["h2"], To::Words(&["--http", "2"])),
    (&["disable-keepalive"], To::Words(&["--per-connection", "1"])),
    (&["disable-compression", "disable-redirects"], To::Nothing),
    (&["o"], To::Refused("use linerate load --csv FILE or --json FILE")),
];

impl Tool {
    /// The tool of a program's name.
    pub(crate) fn named(program: &OsStr) -> Option<Tool> {
        [Tool::Wrk, Tool::Ab, Tool::Hey]
            .into_iter()
            .find(|tool| Path::new(program).file_name().is_some_and(|name| name == tool.name()))
    }

    fn name(self) -> &'static str {
        match self {
            Tool::Wrk => "wrk",
            Tool::Ab => "ab",
            Tool::Hey => "hey",
        }
    }

    fn flags(self) -> Flags {
        match self {
            Tool::Wrk => WRK,
            Tool::Ab => AB,
            Tool::Hey => HEY,
        }
    }

    /// What differs from the tool itself, in one line.
    fn differs(self) -> &'static str {
        match self {
            Tool::Wrk => {
                "as wrk does it, but every response is in the percentiles, and requests without one count as failed or unknown"
            }
            Tool::Ab => {
                "as ab does it, but by HTTP/1.1 instead of 1.0, and from all cores; without -k each connection carries one request"
            }
            Tool::Hey => {
                "as hey does it, but redirects are not followed, and -q is one exact rate with latency from when each request was due"
            }
        }
    }

    /// None of the three has a flag of this name with another meaning.
    fn asks_for_help(self, word: &str) -> bool {
        ["-h", "--help", "-help"].contains(&word)
    }

    fn wrong(self, what: &str) -> CommandFault {
        CommandFault::input(format!("linerate {}: {what}", self.name()))
    }
}

/// The words of this process. Where it was started by the name of such a tool, that is its
/// subcommand.
pub(crate) fn typed() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if let Some(tool) = words.first().and_then(|program| Tool::named(program)) {
        words.insert(1, tool.name().into());
    }
    words
}

/// Runs the command line of a tool.
pub(crate) fn run(tool: Tool, words: &[String]) -> Result<Exit, CommandFault> {
    if words.iter().any(|word| tool.asks_for_help(word)) {
        return terminal::print(&help(tool, terminal::style(&std::io::stdout()))).map(|()| Exit::Fine);
    }
    let args = translated(tool, words)?;
    terminal::print_beside(&format!("{}\n", tool.differs()), true)?;
    load::run(&args)
}

/// The page about a tool's command line: each of its flags, and what becomes of it.
fn help(tool: Tool, style: Style) -> String {
    const COLUMN: usize = 26;
    let name = tool.name();
    let mut text = format!(
        "Run a command line of {name} with linerate load\n\n{}.\n\nUsage: linerate {name} FLAGS URL\n\nFlags of {name}, and what they \
         become:\n",
        style.wrapped("", &capital(tool.differs()))
    );
    for (names, to) in tool.flags() {
        let dashed =
            |n: &&str| if n.len() > 1 && tool != Tool::Hey { format!("--{n}") } else { format!("-{n}") };
        let names = names.iter().map(dashed).collect::<Vec<_>>().join(", ");
        let becomes = style.wrapped(&" ".repeat(2 + COLUMN), &becomes(*to));
        // Names that are too long for their column have a line of their own.
        text += &if names.len() < COLUMN {
            format!("  {names:<COLUMN$}{}\n", becomes.trim_start())
        } else {
            format!("  {names}\n{becomes}\n")
        };
    }
    text + "\nlinerate load --help says what the flags of linerate load mean, and lists its exit codes.\n"
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

/// What becomes of a flag, in words.
fn becomes(to: To) -> String {
    match to {
        To::Flag(flag) => flag.to_owned(),
        To::Seconds(flag) => format!("{flag}, in seconds"),
        To::Field(field) => format!("-H '{field}: ...'"),
        To::BodyFile("GET") => "--body @FILE".to_owned(),
        To::BodyFile(method) => format!("--body @FILE, by {method}"),
        To::RateEach => "--rate, for each connection".to_owned(),
        To::Words(words) => words.join(" "),
        To::KeepAlive => "without it: --per-connection 1".to_owned(),
        To::Nothing | To::NothingWith => "taken, and changes nothing".to_owned(),
        To::Refused(hint) => format!("refused: {hint}"),
    }
}

/// The command line of the other tool, as far as it was read.
#[derive(Default)]
struct ToolArguments {
    ours: Vec<String>,
    urls: Vec<String>,
    keep_alive: bool,
    rate_each: Option<f64>,
    body_method: Option<&'static str>,
    has_method: bool,
    /// Names of flags that were there.
    given: Vec<String>,
}

/// The flags of `load` that a command line of the tool means.
fn translated(tool: Tool, words: &[String]) -> Result<LoadArgs, CommandFault> {
    let mut reading = ToolArguments::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let name = word.trim_start_matches('-');
        if !word.starts_with('-') || name.is_empty() {
            reading.urls.push(word.clone());
            continue;
        }
        let (name, to, glued) = flag(tool, word).ok_or_else(|| {
            tool.wrong(&format!("the flag {word} is not known"))
                .hint("write it as a flag of linerate load; linerate load --help names all")
        })?;
        let takes = !matches!(to, To::Words(_) | To::KeepAlive | To::Nothing);
        let value = match glued {
            Some(value) => value,
            None if takes => {
                rest.next().cloned().ok_or_else(|| tool.wrong(&format!("{word} lacks its value")))?
            }
            None => String::new(),
        };
        reading.take(tool, name, to, &value)?;
    }
    reading.finish(tool)
}

/// A word as one of the tool's flags, with a value that is glued to it: `-c10`, `--connections=10`.
fn flag(tool: Tool, word: &str) -> Option<(&'static str, To, Option<String>)> {
    let find = |name: &str| {
        tool.flags().iter().find_map(|(names, to)| Some((*names.iter().find(|n| **n == name)?, *to)))
    };
    let name = word.trim_start_matches('-');
    if let Some((name, to)) = find(name) {
        return Some((name, to, None));
    }
    if let Some((name, value)) = name.split_once('=')
        && let Some((name, to)) = find(name)
    {
        return Some((name, to, Some(value.to_owned())));
    }
    // As getopt has it; Go's flags are never glued.
    let first = name.chars().next().filter(|_| tool != Tool::Hey && !word.starts_with("--"))?;
    let (name_found, to) = find(&first.to_string())?;
    let takes = !matches!(to, To::Words(_) | To::KeepAlive | To::Nothing);
    takes.then(|| (name_found, to, Some(name[first.len_utf8()..].to_owned())))
}

impl ToolArguments {
    fn take(&mut self, tool: Tool, name: &str, to: To, value: &str) -> Result<(), CommandFault> {
        self.given.push(name.to_owned());
        match to {
            To::Flag(flag) => {
                self.has_method |= flag == "-X";
                // Forms of values that differ: a proxy without its scheme.
                let value = if flag == "--proxy" && !value.contains("://") {
                    format!("http://{value}")
                } else {
                    value.to_owned()
                };
                self.ours.push(format!("{flag}{}{value}", if flag.starts_with("--") { "=" } else { "" }));
            }
            To::Seconds(flag) => {
                let seconds: f64 = value
                    .parse()
                    .map_err(|_| tool.wrong(&format!("-{name} {value}: it is a number of seconds")))?;
                self.ours.extend([flag.to_owned(), format!("{seconds}s")]);
            }
            To::Field(field) => self.ours.extend(["-H".to_owned(), format!("{field}: {value}")]),
            To::BodyFile(method) => {
                self.body_method = Some(method).filter(|m| *m != "GET");
                self.ours.push(format!("--body=@{value}"));
            }
            To::RateEach => {
                let rate =
                    value.parse().map_err(|_| tool.wrong(&format!("-{name} {value}: it is a number")))?;
                self.rate_each = Some(rate).filter(|rate| *rate > 0.0);
            }
            To::Words(words) => {
                self.has_method |= words.contains(&"-X");
                self.ours.extend(words.iter().map(|w| (*w).to_owned()));
            }
            To::KeepAlive => self.keep_alive = true,
            To::Nothing | To::NothingWith => {}
            To::Refused(hint) => {
                return Err(tool.wrong(&format!("-{name} cannot be had here")).hint(hint));
            }
        }
        Ok(())
    }

    fn finish(mut self, tool: Tool) -> Result<LoadArgs, CommandFault> {
        let url = match self.urls.as_slice() {
            [url] => url.clone(),
            [] => return Err(tool.wrong("there is no URL")),
            [_, other, ..] => return Err(tool.wrong(&format!("{other} is one URL too many"))),
        };
        let has = |name: &str, given: &[String]| given.iter().any(|g| g == name);
        // The tools' own defaults.
        let defaults: &[(&str, &str)] = match tool {
            Tool::Wrk => &[("c", "-c10"), ("d", "-d10s"), ("t", "-t2")],
            Tool::Ab => &[("c", "-c1"), ("n", if has("t", &self.given) { "-n50000" } else { "-n1" })],
            Tool::Hey if has("z", &self.given) => &[("c", "-c50"), ("t", "--timeout=20s")],
            Tool::Hey => &[("c", "-c50"), ("n", "-n200"), ("t", "--timeout=20s")],
        };
        let long = |name: &str| match name {
            "c" => "connections",
            "d" => "duration",
            _ => "threads",
        };
        for (name, default) in defaults {
            let is_given = has(name, &self.given) || tool == Tool::Wrk && has(long(name), &self.given);
            if !is_given {
                self.ours.push((*default).to_owned());
            }
        }
        if tool == Tool::Ab && !self.keep_alive {
            self.ours.extend(["--per-connection".to_owned(), "1".to_owned()]);
        }
        if let Some(method) = self.body_method.filter(|_| !self.has_method) {
            self.ours.extend(["-X".to_owned(), method.to_owned()]);
        }
        let mut args = flags_of_load(&self.ours).map_err(|e| tool.wrong(&first_line(&e)))?;
        if tool == Tool::Hey && has("z", &self.given) {
            args.requests = None;
        }
        if let Some(each) = self.rate_each {
            let rate = each * f64::from(args.connections.unwrap_or(1));
            args.rate = Some(linerate_load::plan::Rate::constant(rate));
        }
        // Threads without a connection of their own do nothing.
        args.threads = args.threads.map(|threads| threads.min(args.connections.unwrap_or(threads)));
        args.url = Some(url);
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tool: Tool, line: &str) -> Result<LoadArgs, String> {
        let words = shell_words::split(line).map_err(|e| e.to_string())?;
        translated(tool, &words).map_err(|e| e.to_string())
    }

    #[test]
    fn each_tool_has_a_page_about_its_flags() {
        for tool in [Tool::Wrk, Tool::Ab, Tool::Hey] {
            let page = help(tool, Style::default());
            assert!(page.lines().all(|line| line.len() <= 100) && page.contains("refused: "), "{page}");
            let asks = |word: &str| tool.asks_for_help(word) && flag(tool, word).is_none();
            assert!(asks("--help") && asks("-h"), "{tool:?}");
        }
        assert!(help(Tool::Wrk, Style::default()).contains("  --timeout                 --timeout\n"));
        assert!(help(Tool::Hey, Style::default()).contains("  -h2                       --http 2\n"));
    }

    #[test]
    fn command_lines_mean_what_they_mean_there() {
        let wrk = of(Tool::Wrk, "-t4 -c100 -d30s --latency -H 'A: b' http://h/").unwrap();
        assert_eq!(
            (wrk.threads, wrk.connections, wrk.duration.map(|d| d.as_secs())),
            (Some(4), Some(100), Some(30))
        );
        assert_eq!(wrk.url.as_deref(), Some("http://h/"));
        let wrk = of(Tool::Wrk, "--connections=7 --duration 5 http://h/").unwrap();
        assert_eq!((wrk.connections, wrk.duration.map(|d| d.as_secs())), (Some(7), Some(5)));
        assert!(of(Tool::Wrk, "-R 500 http://h/").unwrap().rate.is_some());
        let ab = of(Tool::Ab, "-n 1000 -c10 http://h/").unwrap();
        assert_eq!((ab.requests, ab.connections, ab.per_connection), (Some(1000), Some(10), Some(1)));
        let ab = of(Tool::Ab, "-k -t 3 -p f -T text/plain http://h/").unwrap();
        assert_eq!(
            (ab.requests, ab.per_connection, ab.duration.map(|d| d.as_secs())),
            (Some(50_000), None, Some(3))
        );
        assert_eq!(ab.request.method.as_deref(), Some("POST"));
        let hey = of(Tool::Hey, "-z 5s -c 10 -q 20 -m POST -d hello http://h/").unwrap();
        assert_eq!((hey.requests, hey.duration.map(|d| d.as_secs())), (None, Some(5)));
        assert_eq!(hey.rate, Some(linerate_load::plan::Rate::constant(200.0)));
        assert_eq!(of(Tool::Hey, "-disable-keepalive http://h/").unwrap().per_connection, Some(1));
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        for (tool, line, said) in [
            (Tool::Wrk, "-s a.lua http://h/", "--plan"),
            (Tool::Wrk, "-c", "lacks its value"),
            (Tool::Ab, "-n 5", "no URL"),
            (Tool::Ab, "-n x http://h/", "not a whole number"),
            (Tool::Ab, "-t x http://h/", "number of seconds"),
            (Tool::Hey, "-c 1 http://h/ http://i/", "too many"),
            (Tool::Hey, "-nosuch http://h/", "-nosuch is not known"),
        ] {
            let fault = of(tool, line).expect_err(line);
            assert!(fault.contains(said), "{line}: {fault}");
        }
    }

    #[test]
    fn a_link_of_that_name_is_the_tool() {
        assert_eq!(Tool::named(OsStr::new("/usr/local/bin/wrk")), Some(Tool::Wrk));
        assert_eq!(Tool::named(OsStr::new("linerate")), None);
    }
}
