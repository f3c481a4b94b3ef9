//! A shell command as words: what POSIX quoting and bash's `$'...'` mean, and a clear no to what
//! only a shell can fill in.

use linerate_load::plan::units::quoted;

/// The words of one command; what follows a pipe or a redirection is returned as the second part.
pub(super) fn words(command: &str) -> Result<(Vec<String>, Option<String>), String> {
    let (plain, rest) = plain(command)?;
    let words = shell_words::split(&plain).map_err(|_| "a quote is opened and not closed".to_owned())?;
    Ok((words, rest))
}

/// The command with `$'...'` and `$"..."` in quotes that POSIX knows, up to the first operator, and
/// what begins there.
fn plain(command: &str) -> Result<(String, Option<String>), String> {
    let mut out = String::with_capacity(command.len());
    let mut chars = command.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        match c {
            '\\' => {
                // A line continued in a file with Windows line ends.
                if next == Some('\r') && command[at + 1..].starts_with("\r\n") {
                    chars.next();
                }
                out.push('\\');
                out.extend(chars.next().map(|(_, c)| c));
            }
            '\'' => {
                let end = command[at + 1..].find('\'').ok_or("a single quote is opened and not closed")?;
                out.push_str(&command[at..at + end + 2]);
                while chars.next_if(|(i, _)| *i < at + end + 2).is_some() {}
            }
            '$' if next == Some('\'') => {
                chars.next();
                let text = ansi_c(&mut chars)?;
                out.push_str(&shell_words::quote(&text));
            }
            '$' if next == Some('"') => {}
            '"' => double_quoted(command, &mut chars, &mut out)?,
            '$' | '`' => filled_in_by_shell(command, at)?.map_or((), |c| out.push(c)),
            '|' | '>' | '<' => return Ok(cut(command, out, at)),
            ';' | '&' if next.is_none_or(|n| n.is_whitespace() || n == '&') => {
                return Ok(cut(command, out, at));
            }
            '\r' if next == Some('\n') => {}
            c => out.push(c),
        }
    }
    Ok((out, None))
}

type Chars<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// The word before an operator. A file descriptor's number directly before a redirection belongs to
/// it.
fn cut(command: &str, mut out: String, at: usize) -> (String, Option<String>) {
    let redirects = command[at..].starts_with(['<', '>']);
    let digits = out.bytes().rev().take_while(u8::is_ascii_digit).count();
    let before = out[..out.len() - digits].chars().next_back();
    if redirects && digits > 0 && before.is_none_or(char::is_whitespace) {
        out.truncate(out.len() - digits);
    }
    (out, Some(command[at..].trim().to_owned()))
}

/// Reads literally up to the closing quote.
fn double_quoted(command: &str, chars: &mut Chars<'_>, out: &mut String) -> Result<(), String> {
    out.push('"');
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                out.push('"');
                return Ok(());
            }
            '\\' => {
                out.push('\\');
                out.extend(chars.next().map(|(_, c)| c));
            }
            '$' | '`' => filled_in_by_shell(command, at)?.map_or((), |c| out.push(c)),
            c => out.push(c),
        }
    }
    Err("a double quote is opened and not closed".to_owned())
}

/// A `$` that only a shell can fill in is an error; any other stands for itself.
fn filled_in_by_shell(command: &str, at: usize) -> Result<Option<char>, String> {
    let text = &command[at..];
    let mut after = text.chars().skip(1);
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let shown = match after.next() {
        _ if text.starts_with('`') => {
            text.split('`').nth(1).and_then(|inner| text.get(..inner.len() + 2)).unwrap_or(text)
        }
        Some('(' | '{') => text.split_inclusive([')', '}']).next().unwrap_or(text),
        Some(c) if name(c) => &text[..1 + text[1..].find(|c| !name(c)).unwrap_or(text.len() - 1)],
        _ => return Ok(Some('$')),
    };
    Err(format!(
        "a shell would fill in {}; write what it stands for, or have your shell do it",
        quoted(shown)
    ))
}

/// The text of `$'...'`, after the opening quote (bash's ANSI-C quoting).
fn ansi_c(chars: &mut Chars<'_>) -> Result<String, String> {
    let mut bytes = Vec::new();
    loop {
        let (_, c) = chars.next().ok_or("the quote $' is opened and not closed")?;
        match c {
            '\'' => break,
            '\\' => escape(chars, &mut bytes)?,
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    String::from_utf8(bytes)
        .map_err(|_| "a quoted text is not UTF-8; put such bytes in a file, with @FILE".to_owned())
}

fn escape(chars: &mut Chars<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
    let (_, c) = chars.next().ok_or("the quote $' is opened and not closed")?;
    let byte = match c {
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'a' => 7,
        'b' => 8,
        'e' | 'E' => 27,
        'f' => 12,
        'v' => 11,
        'x' => match number(chars, 16, 2) {
            Some(n) => n as u8,
            None => return Err("\\x in $'...' needs two hexadecimal digits".to_owned()),
        },
        'u' | 'U' => {
            let code = number(chars, 16, if c == 'u' { 4 } else { 8 });
            let code = code.map(|high| low_half(chars, high).unwrap_or(high));
            let c = code.and_then(char::from_u32).ok_or("\\u in $'...' names no character")?;
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(());
        }
        c @ '0'..='7' => {
            let first = c.to_digit(8).unwrap_or(0);
            let more =
                std::iter::from_fn(|| chars.next_if(|(_, c)| c.is_digit(8)).and_then(|(_, c)| c.to_digit(8)));
            more.take(2).fold(first, |n, digit| n * 8 + digit) as u8
        }
        '\\' | '\'' | '"' | '?' => c as u8,
        other => {
            bytes.push(b'\\');
            bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(());
        }
    };
    bytes.push(byte);
    Ok(())
}

/// Browsers write characters beyond 16 bits as two halves, `\ud83d\ude00`.
fn low_half(chars: &mut Chars<'_>, high: u32) -> Option<u32> {
    if !(0xd800..0xdc00).contains(&high) {
        return None;
    }
    let mut ahead = chars.clone();
    let follows = ahead.next()?.1 == '\\' && ahead.next()?.1 == 'u';
    let low = number(&mut ahead, 16, 4).filter(|low| follows && (0xdc00..0xe000).contains(low))?;
    *chars = ahead;
    Some(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
}

fn number(chars: &mut Chars<'_>, radix: u32, most: usize) -> Option<u32> {
    let digits =
        std::iter::from_fn(|| chars.next_if(|(_, c)| c.is_digit(radix)).and_then(|(_, c)| c.to_digit(radix)));
    digits.take(most).fold(None, |n, digit| Some(n.unwrap_or(0) * radix + digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(command: &str) -> Vec<String> {
        words(command).unwrap().0
    }

    #[test]
    fn quotes() {
        assert_eq!(split(r#"a 'b c' "d e" f\ g"#), ["a", "b c", "d e", "f g"]);
        assert_eq!(split(r#"'it'\''s' "say \"x\"" "\n""#), ["it's", "say \"x\"", "\\n"]);
        assert_eq!(split("a \\\n  b \\\r\n c\r\nd"), ["a", "b", "c", "d"]);
        assert_eq!(split("'a\r\nb'"), ["a\r\nb"]);
        assert_eq!(split(r#"$"x" "cost 5$" $"#), ["x", "cost 5$", "$"]);
    }

    #[test]
    fn ansi_c_quotes() {
        assert_eq!(split(r"$'a\nb' x$'\t'y"), ["a\nb", "x\ty"]);
        assert_eq!(split(r"$'it\'s \\ \x21 \u0021 \u00e9 \041 \q'"), ["it's \\ ! ! \u{e9} ! \\q"]);
        assert_eq!(split(r"$'\ud83d\ude00 \U0001F600'"), ["\u{1F600} \u{1F600}"]);
        assert_eq!(split(r"$'\xc3\xa9'"), ["\u{e9}"]);
        assert_eq!(split("$'' $'a b'"), ["", "a b"]);
        assert_eq!(split("'$HOME' $'$HOME'"), ["$HOME", "$HOME"]);
    }

    #[test]
    fn stops_at_operators() {
        let cases = [
            ("curl x | jq .", "| jq ."),
            ("curl x 2>/dev/null", ">/dev/null"),
            ("curl x > out.txt", "> out.txt"),
            ("curl x; ls", "; ls"),
            ("curl x && ls", "&& ls"),
            ("curl x &", "&"),
        ];
        for (command, rest) in cases {
            assert_eq!(words(command), Ok((vec!["curl".into(), "x".into()], Some(rest.into()))), "{command}");
        }
        assert_eq!(split("curl http://h/?a=1&b=2;c"), ["curl", "http://h/?a=1&b=2;c"]);
        assert_eq!(split("curl 'a | b' \"c > d\""), ["curl", "a | b", "c > d"]);
    }

    #[test]
    fn errors() {
        let wrong = [
            "curl 'a",
            "curl \"a",
            "curl $'a",
            r"curl $'\x'",
            r"curl $'\ud83d'",
            r"curl $'\xff'",
            "curl -H \"Authorization: Bearer $TOKEN\"",
            "curl ${URL}",
            "curl $(cat url)",
            "curl `cat url`",
            "curl `cat",
        ];
        let said: String = wrong.iter().map(|c| format!("{c:42} -> {}\n", words(c).unwrap_err())).collect();
        insta::assert_snapshot!(said);
    }
}
