//! Describes the machine of a run, for its report.

use std::path::Path;

use linerate_report::Environment;

/// Of this process.
pub(crate) fn here() -> Environment {
    let read = |path: &str| std::fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
    Environment {
        command: command(std::env::args().collect()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: format!("{} {}", read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease"))
            .trim()
            .to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        host: read("/proc/sys/kernel/hostname"),
    }
}

/// The command as it could be typed again, passwords left out: results are kept and passed around.
fn command(words: Vec<String>) -> String {
    joined(&shown(words))
}

/// The command that makes a diagnosis again: `words` as they were typed, and where they wrote a
/// document to a file, compared with that.
pub(crate) fn again(words: Vec<String>, document: Option<&Path>) -> String {
    let mut kept = Vec::new();
    let mut rest = shown(words).into_iter().peekable();
    while let Some(word) = rest.next() {
        let (flag, value) = word.split_once('=').map_or((word.as_str(), None), |(f, v)| (f, Some(v)));
        match (flag, document) {
            ("--json" | "--baseline", Some(file)) => {
                if value.is_none() {
                    rest.next();
                }
                if flag == "--json" {
                    kept.extend(["--baseline".to_owned(), file.display().to_string()]);
                }
            }
            _ => kept.push(word),
        }
    }
    joined(&kept)
}

/// Words as they were typed, without what is secret in them.
pub(crate) fn shown(mut words: Vec<String>) -> Vec<String> {
    if let Some(first) = words.first_mut() {
        let name = Path::new(first.as_str()).file_name().map(|n| n.to_string_lossy().into_owned());
        *first = name.unwrap_or_else(|| "linerate".to_owned());
    }
    let mut before = String::new();
    for word in &mut words {
        let shown = masked(&before, word);
        before = std::mem::replace(word, shown);
    }
    words
}

/// Words as a shell takes them.
pub(crate) fn joined(words: &[String]) -> String {
    words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it. Control characters would steer the terminal that it is printed on,
/// or break its line.
fn quoted(word: &str) -> String {
    if !word.chars().any(char::is_control) {
        return shell_words::quote(word).into_owned();
    }
    let mut out = String::from("$'");
    for c in word.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\'' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("\\x{byte:02x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Short flags that take no value: others may stand behind them in the same word.
const BARE: &str = "q46";

/// A word of short flags whose last one is `flag`, and what stands behind that.
fn short(word: &str, flag: char) -> Option<(&str, &str)> {
    let letters = word.strip_prefix('-')?.trim_start_matches(|c| BARE.contains(c));
    let value = letters.strip_prefix(flag)?;
    Some((&word[..word.len() - value.len()], value))
}

/// A word without what is secret in it, given the word before.
fn masked(before: &str, word: &str) -> String {
    let pair =
        |text: &str| text.split_once(':').map_or_else(|| "***".to_owned(), |(name, _)| format!("{name}:***"));
    let field = |text: &str| {
        let secret = |name: &str| linerate_report::json::is_secret(name.trim());
        let shown =
            text.split_once(':').filter(|(name, _)| secret(name)).map(|(name, _)| format!("{name}: ***"));
        shown.unwrap_or_else(|| text.to_owned())
    };
    let is =
        |long: &str, letter: char| before == long || short(before, letter).is_some_and(|(_, v)| v.is_empty());
    if is("--user", 'u') {
        return pair(word);
    }
    if is("--header", 'H') {
        return field(word);
    }
    if before == "--curl" {
        return "***".to_owned();
    }
    for (prefix, secret) in [("--user=", true), ("--header=", false), ("--curl=", true)] {
        if let Some(rest) = word.strip_prefix(prefix) {
            return format!("{prefix}{}", if secret { pair(rest) } else { field(rest) });
        }
    }
    if let Some((flags, value)) = short(word, 'u').filter(|(_, v)| !v.is_empty()) {
        return format!("{flags}{}", pair(value));
    }
    if let Some((flags, value)) = short(word, 'H').filter(|(_, v)| !v.is_empty()) {
        return format!("{flags}{}", field(value));
    }
    without_user(word)
}

/// A URL without its password.
fn without_user(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((user, _)) => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{name}:***{}", &rest[user.len()..])
        }
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_of_the_command() {
        let shown = |line: &str| command(shell_words::split(line).expect("words"));
        for (typed, kept) in [
            ("/usr/bin/linerate load -c 5 http://h/?a=b", "linerate load -c 5 'http://h/?a=b'"),
            ("linerate load -u ada:secret h", "linerate load -u 'ada:***' h"),
            ("linerate load --user=ada:secret h", "linerate load '--user=ada:***' h"),
            ("linerate load -uada:secret h", "linerate load '-uada:***' h"),
            ("linerate load -H 'Cookie: secret' h", "linerate load -H 'Cookie: ***' h"),
            ("linerate load -H'authorization:secret' h", "linerate load '-Hauthorization: ***' h"),
            ("linerate load -H 'Accept: a' h", "linerate load -H 'Accept: a' h"),
            ("linerate load http://ada:secret@h:80/x@y", "linerate load 'http://ada:***@h:80/x@y'"),
            ("linerate load --curl 'curl -u a:secret h'", "linerate load --curl '***'"),
            ("linerate explain -qu ada:secret h", "linerate explain -qu 'ada:***' h"),
            ("linerate explain -4uada:secret h", "linerate explain '-4uada:***' h"),
            ("linerate explain -qH 'X-Auth-Token: secret' h", "linerate explain -qH 'X-Auth-Token: ***' h"),
        ] {
            assert_eq!(shown(typed), kept);
            assert!(!shown(typed).contains("secret"));
        }
    }

    #[test]
    fn a_command_can_be_pasted_whatever_is_in_it() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let typed = words(&["/bin/linerate", "explain", "--body", "a\n\x1b[2J'b\\", "h"]);
        assert_eq!(command(typed), r"linerate explain --body $'a\n\x1b[2J\'b\\' h");
    }

    #[test]
    fn the_same_again_is_compared_with_the_document() {
        let again = |line: &str, document: Option<&str>| {
            super::again(shell_words::split(line).expect("words"), document.map(Path::new))
        };
        let plain = "linerate explain -X PUT --body 'a  b' --repeat-unsafe http://h/?a=b";
        assert_eq!(
            again(plain, None),
            "linerate explain -X PUT --body 'a  b' --repeat-unsafe 'http://h/?a=b'"
        );
        for typed in
            ["--json why.json -q h", "--json=why.json -q h", "--baseline old.json --json why.json -q h"]
        {
            let typed = format!("linerate explain {typed}");
            assert_eq!(again(&typed, Some("why.json")), "linerate explain --baseline why.json -q h");
        }
        assert_eq!(again("linerate explain --json - h", None), "linerate explain --json - h");
    }
}
