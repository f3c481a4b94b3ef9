//! Scenarios: which servers are started and which loads go to them in turns. Built in, or from TOML.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use linerate_load::plan::file::PlanFile;
use linerate_netbox::LineShape;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::invalid::InvalidLab;
use crate::limits::{MOST_ROUNDS, SCENARIO_ROWS};

/// A scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabScenario {
    /// Its name.
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// Rounds: each runs every row of a group once, the next one in reverse order.
    #[serde(default = "rounds")]
    pub rounds: u32,
    /// Measured time of each run, as a text: "1s".
    #[serde(default = "run")]
    pub duration: String,
    /// Time before it that does not count.
    #[serde(default = "warm_up")]
    pub warm_up: String,
    /// Servers that rows name.
    #[serde(default, rename = "server")]
    pub servers: Vec<ServerPart>,
    /// Rows that are compared with each other.
    #[serde(rename = "group")]
    pub groups: Vec<RowGroup>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPart {
    /// The name that rows know it by.
    pub name: String,
    /// Program and arguments; `{port}` is a free port, `{dir}` a folder with `files`, `{address}` and
    /// `{interface}` where it listens.
    pub command: Option<String>,
    /// A server that runs already.
    pub url: Option<String>,
    /// Programs, or files by their path, that must be installed beside the command's own program.
    #[serde(default)]
    pub needs: Vec<String>,
    /// A command that succeeds where everything is installed.
    pub check: Option<String>,
    /// A command that builds the program from `files`, in a folder that is kept. It runs only if the
    /// user asks for it.
    pub build: Option<String>,
    /// How to install what is missing.
    #[serde(default)]
    pub install: String,
    /// Files that it needs, by name; the places of `command` are filled in.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Cores that it has, of those that servers are given. Where there are fewer, its rows are left out.
    pub cores: Option<usize>,
    /// A server with a command that speaks HTTPS.
    #[serde(default)]
    pub https: bool,
    /// The user's own URL stands for it, where one is given.
    #[serde(default)]
    pub replaceable: bool,
}

/// Rows that are compared with the first one of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowGroup {
    /// Its name.
    pub name: String,
    /// What differs from other groups.
    #[serde(default)]
    pub about: String,
    /// Time that a relay adds to each round trip, as a text: "20ms".
    pub round_trip: Option<String>,
    /// Packets pass a shaped line, as a text: "20ms,loss=1%".
    #[serde(default, deserialize_with = "line")]
    pub line: Option<LineShape>,
    /// Servers and client have network namespaces of their own, with a veth pair between them.
    #[serde(default)]
    pub veth: bool,
    /// Path to ask servers for.
    pub path: Option<String>,
    /// A plan's text for all rows: its requests, with names and weights.
    pub plan: Option<String>,
    /// The name of quick requests among slow ones, whose latencies are shown alone; where no request
    /// has a name, all are meant.
    pub quick: Option<String>,
    /// Flags of load for all rows.
    #[serde(default)]
    pub load: String,
    /// The rows.
    #[serde(rename = "row")]
    pub rows: Vec<ScenarioRow>,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioRow {
    /// Its name.
    pub name: String,
    /// The server's name.
    pub server: String,
    /// Flags of load for this row.
    #[serde(default)]
    pub load: String,
    /// Path to ask for instead of the group's.
    pub path: Option<String>,
    /// What one sees in it, in a sentence.
    #[serde(default)]
    pub about: String,
    /// The curve that it is a point of, over the cores of servers.
    pub curve: Option<String>,
}

fn line<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LineShape>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

fn rounds() -> u32 {
    5
}

fn run() -> String {
    "1s".to_owned()
}

fn warm_up() -> String {
    "300ms".to_owned()
}

/// Scenarios that are built in, in the order of their list.
const BUILT_IN: [&str; 6] = [
    include_str!("../scenarios/pipelining.toml"),
    include_str!("../scenarios/cure.toml"),
    include_str!("../scenarios/nagle.toml"),
    include_str!("../scenarios/connections.toml"),
    include_str!("../scenarios/charts.toml"),
    include_str!("../scenarios/concurrency.toml"),
];

/// All that are built in.
pub fn built_in() -> Vec<LabScenario> {
    // A test parses them.
    BUILT_IN.iter().filter_map(|text| parse(text).ok()).collect()
}

/// The built-in scenario's text, as a file of one's own begins.
pub fn text_of(name: &str) -> Option<&'static str> {
    BUILT_IN.into_iter().find(|text| parse(text).is_ok_and(|s| s.name == name))
}

/// Reads a scenario.
///
/// # Errors
/// It is none: what is wrong, and where.
pub fn parse(text: &str) -> Result<LabScenario, InvalidLab> {
    let scenario: LabScenario = toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let message = e.message().lines().next().unwrap_or_default().to_owned();
        InvalidLab(line.map_or(message.clone(), |line| format!("line {line}: {message}")))
    })?;
    scenario.check().map_err(InvalidLab).map(|()| scenario)
}

impl LabScenario {
    /// The server of a name.
    pub fn server(&self, name: &str) -> Option<&ServerPart> {
        self.servers.iter().find(|s| s.name == name)
    }

    /// Measured time of each run, and the time before it.
    ///
    /// # Errors
    /// One of them is no time.
    pub fn times(&self) -> Result<(Duration, Duration), InvalidLab> {
        let time = |key: &str, text: &str| {
            let time = linerate_load::plan::units::parse_duration(text);
            time.map_err(|e| InvalidLab(format!("{key} = {text:?}: {e}")))
        };
        Ok((time("duration", &self.duration)?, time("warm_up", &self.warm_up)?))
    }

    /// How long all runs take together, as planned.
    ///
    /// # Errors
    /// As [`times`](Self::times).
    pub fn planned(&self) -> Result<Duration, InvalidLab> {
        let (run, warm_up) = self.times()?;
        let rows: usize = self.groups.iter().map(|g| g.rows.len()).sum();
        Ok((run + warm_up) * self.rounds * rows as u32)
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=MOST_ROUNDS).contains(&self.rounds) {
            return Err(format!("rounds = {}: it is a number from 1 to {MOST_ROUNDS}", self.rounds));
        }
        let (run, _) = self.times().map_err(|e| e.0)?;
        if run.is_zero() {
            return Err("duration: it must be more than nothing".to_owned());
        }
        if self.groups.is_empty() {
            return Err("there is no [[group]]".to_owned());
        }
        for (i, server) in self.servers.iter().enumerate() {
            server.check()?;
            if self.servers[..i].iter().any(|s| s.name == server.name) {
                return Err(format!("two servers have the name {:?}", server.name));
            }
        }
        let rows: usize = self.groups.iter().map(|g| g.rows.len()).sum();
        if rows > SCENARIO_ROWS {
            return Err(format!("it has {rows} rows; at most {SCENARIO_ROWS} are run"));
        }
        self.groups.iter().try_for_each(|group| self.check_group(group))
    }

    fn check_group(&self, group: &RowGroup) -> Result<(), String> {
        let at = |what: String| format!("group {:?}: {what}", group.name);
        if group.rows.is_empty() {
            return Err(at("it has no [[group.row]]".to_owned()));
        }
        if group.delay().map_err(|e| at(e.0))?.is_some() && group.veth {
            return Err(at("it has round_trip and veth; a relay reaches no other namespace".to_owned()));
        }
        group.requests().map_err(|e| at(e.0))?;
        if group.line.is_some() && (group.veth || group.round_trip.is_some()) {
            return Err(at(
                "it has line beside round_trip or veth; a line has a round trip itself".to_owned()
            ));
        }
        for (i, row) in group.rows.iter().enumerate() {
            if self.server(&row.server).is_none() {
                let known: Vec<&str> = self.servers.iter().map(|s| s.name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(at(format!(
                    "row {:?} names the server {:?}, and there are {known}",
                    row.name, row.server
                )));
            }
            if group.veth && self.server(&row.server).is_some_and(|s| s.command.is_none()) {
                let server = &row.server;
                return Err(at(format!("the server {server:?} has a url, which veth does not lead to")));
            }
            if group.rows[..i].iter().any(|r| r.name == row.name) {
                return Err(at(format!("two rows have the name {:?}", row.name)));
            }
            for flags in [&group.load, &row.load] {
                shell_words::split(flags)
                    .map_err(|_| at(format!("load = {flags:?}: a quote is not closed")))?;
            }
            if let Some(path) = row.path.as_ref().or(group.path.as_ref()).filter(|p| !p.starts_with('/')) {
                return Err(at(format!("path = {path:?}: it begins with /")));
            }
        }
        Ok(())
    }
}

impl RowGroup {
    /// Its requests, if it has a plan.
    ///
    /// # Errors
    /// The plan is none.
    pub fn requests(&self) -> Result<Option<PlanFile>, InvalidLab> {
        let parse = |text: &String| PlanFile::parse(text, Path::new("plan"));
        self.plan.as_ref().map(parse).transpose().map_err(|e| InvalidLab(e.to_string()))
    }

    /// Time that a relay adds to each round trip.
    ///
    /// # Errors
    /// It is no time, or too long.
    pub fn delay(&self) -> Result<Option<Duration>, InvalidLab> {
        const MOST: Duration = Duration::from_secs(10);
        let Some(text) = &self.round_trip else { return Ok(None) };
        let time = linerate_load::plan::units::parse_duration(text)
            .map_err(|e| InvalidLab(format!("round_trip = {text:?}: {e}")))?;
        if time > MOST {
            return Err(InvalidLab(format!("round_trip = {text:?}: at most 10s")));
        }
        Ok(Some(time).filter(|t| !t.is_zero()))
    }
}

impl ServerPart {
    /// Of the URL where it answers once its command runs.
    pub fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    fn check(&self) -> Result<(), String> {
        let at = |what: &str| Err(format!("server {:?}: {what}", self.name));
        if self.cores == Some(0) || (self.cores.is_some() && self.command.is_none()) {
            return at("cores are a number from 1, of a server with a command");
        }
        if self.https && self.command.is_none() {
            return at("https is for a server with a command; a url says it by itself");
        }
        for extra in [&self.check, &self.build].into_iter().flatten() {
            if self.url.is_some() {
                return at("check and build are for a server with a command");
            }
            if !shell_words::split(extra).is_ok_and(|words| !words.is_empty()) {
                return at("its check or build is no command");
            }
        }
        match (&self.command, &self.url) {
            (Some(_), Some(_)) => at("it has a command and a url; one of them says what it is"),
            (None, None) => at("it has neither a command nor a url"),
            (Some(command), None) => match shell_words::split(command) {
                Ok(words) if words.is_empty() => at("its command is empty"),
                Ok(_) => self.check_files(),
                Err(_) => at("a quote in its command is not closed"),
            },
            (None, Some(url)) if !url.starts_with("http://") && !url.starts_with("https://") => {
                at("its url does not begin with http:// or https://")
            }
            (None, Some(_)) => Ok(()),
        }
    }

    fn check_files(&self) -> Result<(), String> {
        let wrong = |name: &&String| name.is_empty() || name.contains('/') || name.starts_with('.');
        match self.files.keys().find(wrong) {
            Some(name) => Err(format!("server {:?}: the file {name:?} is no plain name", self.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "name = 'a'\nabout = 'b'\n[[server]]\nname = 's'\nurl = 'http://127.0.0.1:1/'\n\
                         [[group]]\nname = 'g'\n[[group.row]]\nname = 'r'\nserver = 's'\n";

    #[test]
    fn what_is_built_in_is_sound() {
        for text in BUILT_IN {
            let scenario = parse(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let parts = |s: &&ServerPart| !s.needs.is_empty() || s.check.is_some() || s.build.is_some();
            for server in scenario.servers.iter().filter(parts) {
                assert!(!server.install.is_empty(), "{}", server.name);
            }
        }
        assert_eq!(built_in().len(), BUILT_IN.len());
        assert!(text_of("nagle").unwrap().contains("HttpServer") && text_of("no such").is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse(LEAST).unwrap().rounds, 5);
        for (from, to, said) in [
            ("about = 'b'", "", "missing field `about`"),
            ("name = 'a'", "name = 'a'\nrunds = 3", "line 2: unknown field `runds`"),
            ("server = 's'\n", "server = 't'\n", "row \"r\" names the server \"t\", and there are s"),
            ("about = 'b'", "about = 'b'\nrounds = 0", "rounds = 0"),
            ("about = 'b'", "about = 'b'\nduration = '1 parsec'", "duration = \"1 parsec\""),
            ("url = 'http://127.0.0.1:1/'", "", "neither a command nor a url"),
            ("url = 'http://127.0.0.1:1/'", "command = \"a 'b\"", "not closed"),
            ("url = 'http://127.0.0.1:1/'", "command = 'a'\ncheck = ''", "no command"),
            ("url = 'http://127.0.0.1:1/'", "url = 'http://127.0.0.1:1/'\nbuild = 'b'", "with a command"),
            ("url = 'http://127.0.0.1:1/'", "command = 'a'\nfiles = { '../x' = 'y' }", "no plain name"),
            ("name = 'g'", "name = 'g'\nround_trip = '1h'", "at most 10s"),
            ("name = 'g'", "name = 'g'\nround_trip = '1ms'\nveth = true", "reaches no other namespace"),
            ("name = 'g'", "name = 'g'\nplan = '[[reqest]]'", "reqest"),
            ("name = 'g'", "name = 'g'\nline = '26'", "a line is a rate, a round trip"),
            ("name = 'g'", "name = 'g'\nline = 'lan'\nround_trip = '1ms'", "beside round_trip"),
            ("name = 'g'", "name = 'g'\nveth = true", "veth does not lead to"),
            ("name = 'g'", "name = 'g'\npath = 'x'", "begins with /"),
            ("[[group]]", "[[grup]]", "expected a sequence"),
        ] {
            assert!(LEAST.contains(from), "{from}");
            let found = parse(&LEAST.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(found.contains(said), "{to}: {found}");
        }
    }
}
