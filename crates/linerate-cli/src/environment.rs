//! Where a run happens, for its report.

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
fn command(mut words: Vec<String>) -> String {
    if let Some(first) = words.first_mut() {
        let name = Path::new(first.as_str()).file_name().map(|n| n.to_string_lossy().into_owned());
        *first = name.unwrap_or_else(|| "linerate".to_owned());
    }
    let mut before = String::new();
    for word in &mut words {
        let shown = masked(&before, word);
        before = std::mem::replace(word, shown);
    }
    shell_words::join(words)
}

/// A word without what is secret in it, given the word before.
fn masked(before: &str, word: &str) -> String {
    let pair =
        |text: &str| text.split_once(':').map_or_else(|| "***".to_owned(), |(name, _)| format!("{name}:***"));
    let field = |text: &str| {
        let secret = |name: &str| linerate_report::json::is_secret(name.trim());
        text.split_once(':').filter(|(name, _)| secret(name)).map(|(name, _)| format!("{name}: ***"))
    };
    match (before, word) {
        ("-u" | "--user", _) => pair(word),
        ("-H" | "--header", _) => field(word).unwrap_or_else(|| word.to_owned()),
        ("--curl", _) => "***".to_owned(),
        _ => {
            for (prefix, secret) in
                [("--user=", true), ("--header=", false), ("-H", false), ("--curl=", true)]
            {
                let Some(rest) = word.strip_prefix(prefix) else { continue };
                let shown = if secret { Some(pair(rest)) } else { field(rest) };
                return shown.map_or_else(|| word.to_owned(), |shown| format!("{prefix}{shown}"));
            }
            if let Some(rest) =
                word.strip_prefix("-u").filter(|rest| !rest.is_empty() && !word.starts_with("--"))
            {
                return format!("-u{}", pair(rest));
            }
            without_user(word)
        }
    }
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
        ] {
            assert_eq!(shown(typed), kept);
            assert!(!shown(typed).contains("secret"));
        }
    }
}
