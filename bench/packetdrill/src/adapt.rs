//! Adapts FreeBSD's scripts to other stacks: removes what concerns FreeBSD's switches, buffers and
//! order of options, and keeps what concerns TCP. All stacks get the same rules.

/// Our window scale, which is also Linux's with 6 MiB of receive buffer.
const SHIFT: &str = "wscale 7";

/// FreeBSD's windows: 64 KiB, rounded up to segments of 1460 and of 1440 bytes.
const WINDOWS: [u32; 2] = [65_700, 66_240];

/// Tolerance of times.
const TOLERANCE_US: u32 = 100_000;

/// Adapts a script to stacks other than FreeBSD.
///
/// * `sysctl`, `tcpdrop` and Python over FreeBSD's `tcp_info` are left out. The expected segments
///   show what a switch changed. Asking for ECN becomes Linux's switch for it.
/// * `sockstat | grep` becomes `sockstat STATE COUNT`. CLOSED is left out: Linux does not list such
///   sockets.
/// * The size of FreeBSD's receive buffer is not checked.
/// * Expected segments may have any window except a closed one.
/// * Segments at the edge of FreeBSD's window, which is a whole number of segments, move to the
///   edge of the announced 65,535 bytes.
/// * The options of expected SYNs have Linux's order and shift; offered options stay.
/// * If FINs cross, an ACK is expected (RFC 9293 section 3.6), where FreeBSD sends its FIN again. So
///   the scripts go on to the state CLOSING.
/// * Accepted sockets have TCP_QUICKACK off (Linux acknowledges the first segments at once), and
///   times may differ by 100 ms: stacks delay ACKs differently.
pub fn adapt(script: &str) -> String {
    let mut out = String::with_capacity(script.len());
    let mut fins = Fins::default();
    for line in script.lines() {
        let code = line.split("//").next().unwrap_or("").trim_end();
        if let Some(line) = adapt_line(code) {
            out.push_str(&fins.pass(line));
        } else {
            // Times are relative to the previous event.
            out.push_str(&code[..code.find(['`', 'g', '%']).unwrap_or(0)]);
            out.push_str("`true`");
        }
        out.push('\n');
    }
    out
}

/// The FINs of a script so far.
#[derive(Default)]
struct Fins {
    /// The numbers of the last that was expected.
    expected: Option<String>,
    /// The last segment was the peer's FIN.
    peers: bool,
}

impl Fins {
    /// Replaces a FIN that is expected again because the peer's has crossed it.
    fn pass(&mut self, line: String) -> String {
        let Some((time, segment)) = line.split_once(['<', '>']) else { return line };
        let mut words = segment.split_whitespace();
        let (Some(flags), Some(numbers), true) = (words.next(), words.next(), is_time(time)) else {
            return line;
        };
        let has_fin = flags.starts_with('F');
        if line[time.len()..].starts_with('<') {
            self.peers = has_fin;
            return line;
        }
        let crossed = std::mem::take(&mut self.peers) && has_fin;
        if crossed && self.expected.as_deref() == Some(numbers) && !segment.contains('<') {
            let next = numbers.split_once(':').and_then(|(from, _)| from.parse::<u32>().ok());
            if let Some(next) = next.filter(|next| numbers == format!("{next}:{next}(0)")) {
                let rest = words.collect::<Vec<_>>().join(" ");
                return format!("{time}> . {0}:{0}(0) {rest}", next + 1);
            }
        }
        if has_fin {
            self.expected = Some(numbers.to_owned());
        }
        line
    }
}

fn is_time(time: &str) -> bool {
    time.chars().all(|c| c.is_ascii_digit() || "+.~* ".contains(c))
}

/// `None`: only its time matters.
fn adapt_line(code: &str) -> Option<String> {
    if let Some(us) = code.strip_prefix("--tolerance_usecs=") {
        return Some(format!("--tolerance_usecs={}", us.parse().unwrap_or(0).max(TOLERANCE_US)));
    }
    if code.contains("accept(")
        && let Some((_, fd)) = code.split_once(") = ")
        && fd.trim().parse::<u32>().is_ok()
    {
        return Some(format!(
            "{code}\n+0.00 setsockopt({}, IPPROTO_TCP, TCP_QUICKACK, [0], 4) = 0",
            fd.trim()
        ));
    }
    if let Some((time, rest)) = code.split_once('`') {
        let whole = rest.ends_with('`');
        return if whole { adapt_command(time, rest.trim_end_matches('`')) } else { Some(code.to_owned()) };
    }
    let rcvbuf = code.contains("getsockopt(") && code.contains("SO_RCVBUF");
    if rcvbuf || (code.contains("%{") && code.ends_with("}%")) {
        return None;
    }
    if code.contains("/udp(") {
        return Some(code.to_owned());
    }
    match (code.split_once("> "), code.split_once("< ")) {
        (Some((time, segment)), _) if is_time(time) => Some(format!("{time}> {}", adapt_expected(segment))),
        (_, Some((time, segment))) if is_time(time) => Some(format!("{time}< {}", adapt_sent(segment))),
        _ => Some(code.to_owned()),
    }
}

/// A segment that the peer sends.
fn adapt_sent(segment: &str) -> String {
    let Some(numbers) = segment.split_whitespace().find(|word| word.contains(':')) else {
        return segment.to_owned();
    };
    let bounds = numbers.split_once('(').and_then(|(range, _)| range.split_once(':'));
    let parsed = bounds.and_then(|(from, to)| Some((from.parse::<u32>().ok()?, to.parse::<u32>().ok()?)));
    let edge =
        WINDOWS.into_iter().find(|edge| parsed.is_some_and(|(from, _)| (*edge..edge + 3).contains(&from)));
    match (parsed, edge) {
        (Some((from, to)), Some(edge)) => {
            let beyond = edge - 0xffff;
            let len = to - from;
            segment.replace(numbers, &format!("{}:{}({len})", from - beyond, to - beyond))
        }
        _ => segment.to_owned(),
    }
}

fn adapt_command(time: &str, command: &str) -> Option<String> {
    if !["sysctl", "sockstat", "tcpdrop"].iter().any(|program| command.starts_with(program)) {
        return Some(format!("{time}`{command}`"));
    }
    if command.ends_with("net.inet.tcp.ecn.enable=1") {
        return Some(format!("{time}`sysctl -qw net.ipv4.tcp_ecn=1`"));
    }
    let state = ["TIME_WAIT", "SYN_RCVD"].into_iter().find(|state| command.contains(state))?;
    let count = command.rsplit("grep ").next()?.trim();
    Some(format!("{time}`sockstat {state} {count}`"))
}

/// A segment that is expected.
fn adapt_expected(segment: &str) -> String {
    let (head, options) = segment.split_once('<').map_or((segment, None), |(head, rest)| (head, Some(rest)));
    let mut words = head.split_whitespace().peekable();
    let mut kept: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        // The next word may follow a count without a space. `win 0` means a closed window, or a
        // reset.
        if word == "win" && words.peek().is_some_and(|size| *size != "0") {
            words.next();
        } else {
            kept.push(word);
        }
    }
    let head = kept.join(" ");
    match options.and_then(|options| options.split_once('>')) {
        None => segment_with(&head, options.map(|options| format!("<{options}"))),
        Some((options, rest)) => {
            let syn = kept.first().is_some_and(|flags| flags.contains('S'));
            let options = if syn { adapt_offer(options) } else { options.to_owned() };
            segment_with(&head, Some(format!("<{options}>{rest}")))
        }
    }
}

fn segment_with(head: &str, options: Option<String>) -> String {
    options.map_or_else(|| head.to_owned(), |options| format!("{head} {options}"))
}

/// The options of a SYN, in Linux's order. Unknown options are left as they are.
fn adapt_offer(options: &str) -> String {
    let all: Vec<&str> = options.split(',').map(str::trim).collect();
    let known = ["mss ", "wscale ", "sackOK", "TS ", "nop", "eol"];
    if !all.iter().all(|option| known.iter().any(|known| option.starts_with(known))) {
        return options.to_owned();
    }
    let find = |start: &str| all.iter().copied().find(|option| option.starts_with(start));
    let mut offer: Vec<&str> = find("mss ").into_iter().collect();
    match (find("sackOK"), find("TS ")) {
        (Some(sack), Some(timestamps)) => offer.extend([sack, timestamps]),
        (Some(sack), None) => offer.extend(["nop", "nop", sack]),
        (None, Some(timestamps)) => offer.extend(["nop", "nop", timestamps]),
        (None, None) => {}
    }
    if find("wscale ").is_some() {
        offer.extend(["nop", SHIFT]);
    }
    offer.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, adapted: &str) {
        assert_eq!(adapt(line), format!("{adapted}\n"));
    }

    #[test]
    fn what_is_freebsds_is_taken_out() {
        check("+0.10 `sysctl -w net.inet.tcp.rfc1323=1`", "+0.10 `true`");
        check("+0.10 `sysctl -w net.inet.tcp.ecn.enable=1`", "+0.10 `sysctl -qw net.ipv4.tcp_ecn=1`");
        check("+0.00 getsockopt(3, SOL_SOCKET, SO_RCVBUF, [65536], [4]) = 0", "+0.00 `true`");
        let sockstat = "+0.10 `sockstat -4 -P tcp -s | grep packetdril | grep -c TIME_WAIT | grep 1`";
        check(sockstat, "+0.10 `sockstat TIME_WAIT 1`");
    }

    #[test]
    fn a_crossed_fin_is_acknowledged() {
        let first = "+0.00 > F. 1:1(0) ack 1 win 65535\n";
        let script = format!("{first}+0.10 < F. 1:1(0) ack 1 win 32767\n+0.00 > F. 1:1(0) ack 2 win 65535");
        let ours = "+0.00 > F. 1:1(0) ack 1\n+0.10 < F. 1:1(0) ack 1 win 32767\n+0.00 > . 2:2(0) ack 2\n";
        assert_eq!(adapt(&script), ours);
        // Nothing has crossed it.
        let again = "+0.00 > F. 1:1(0) ack 1\n";
        assert_eq!(adapt(&format!("{first}{first}")), format!("{again}{again}"));
    }

    #[test]
    fn what_is_tcps_stays() {
        check(
            "+0.00 <  .   1:100(99)  ack   1 win 65535 // data",
            "+0.00 <  .   1:100(99)  ack   1 win 65535",
        );
        check("+0.00 > R  34:34(0)        win     0", "+0.00 > R 34:34(0) win 0");
        check(
            "+0.00 >  .   1:1(0)     ack 100 win 65535 <nop,nop,sack 400:500 200:300>",
            "+0.00 > . 1:1(0) ack 100 <nop,nop,sack 400:500 200:300>",
        );
        check("--ip_version=ipv4", "--ip_version=ipv4");
        check("--tolerance_usecs=10000", "--tolerance_usecs=100000");
        let quick = "+0.00 setsockopt(4, IPPROTO_TCP, TCP_QUICKACK, [0], 4) = 0";
        check("+0.00 accept(3, ..., ...) = 4", &format!("+0.00 accept(3, ..., ...) = 4\n{quick}"));
    }

    #[test]
    fn edges_are_those_of_the_window_that_is_told() {
        check("+0.10 < R. 65700:65700(0) ack 0 win 32767", "+0.10 < R. 65535:65535(0) ack 0 win 32767");
        check("+0.10 <  S  66241:66241(0)       win 32767", "+0.10 <  S  65536:65536(0)       win 32767");
        check("+0.10 < F. 65535:65535(0) ack 2", "+0.10 < F. 65535:65535(0) ack 2");
    }

    #[test]
    fn offers_have_one_order() {
        check(
            "+0.00 > S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,eol,eol>",
            "+0.00 > S. 0:0(0) ack 1 <mss 1460,nop,nop,sackOK>",
        );
        check(
            "+0.00 > S 0:0(0) win 65535 <mss 1460,nop,wscale 6,sackOK,TS val 100 ecr 0>",
            "+0.00 > S 0:0(0) <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 7>",
        );
    }
}
