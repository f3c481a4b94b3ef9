//! The verdict in plain words: at most five lines, the same for the terminal and the page.

use linerate_explain::causes::RATE_LIMIT;
use linerate_explain::evidence::Proof;
use linerate_explain::outside_in::{Layer, Status};
use linerate_explain::software::Software;
use linerate_explain::verdict::Verdict;
use linerate_explain::{Diagnosis, Whole};

use crate::units;

/// Milliseconds as people read them.
pub(super) fn time(ms: f64, unicode: bool) -> String {
    if ms == 0.0 { "0 ms".to_owned() } else { units::time_us(ms * 1e3, unicode) }
}

/// As the beginning of a line.
pub(super) fn capital(words: &str) -> String {
    let mut rest = words.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// What the call takes, the name's lookup included.
pub(super) fn total_ms(d: &Diagnosis) -> f64 {
    d.dns_ms + d.call.total.as_secs_f64() * 1e3
}

/// The verdict, what it stands on, what to do: at most five lines.
pub(super) fn headline(d: &Diagnosis, unicode: bool) -> Vec<String> {
    match (d.whole, d.causes.first()) {
        (Whole::Caused, Some(first)) => caused(d, first, unicode),
        (Whole::Healthy, _) => healthy(d, unicode),
        _ => inconclusive(d, unicode),
    }
}

fn healthy(d: &Diagnosis, unicode: bool) -> Vec<String> {
    let t = |ms| time(ms, unicode);
    let total = total_ms(d);
    // A new connection takes a round trip more.
    let network = (d.rtt_ms * if d.call.fresh { 2.0 } else { 1.0 }).min(total);
    let took = format!("{}, of which {} is the network.", t(total), t(network));
    let unclear = d.limits.iter().any(|l| l.starts_with("server-think: unclear"));
    let told = |l: &String| l.contains(" calls at random times waited ") || l.contains(" calls took ");
    let slow = d.is_busy() && d.limits.iter().any(|l| told(l) && !l.starts_with("1 of "));
    let mut lines = match d.calls {
        // What happens to later calls on a connection was not seen.
        1 => vec![
            format!("Nothing is wrong with the one call that was made: it took {took}"),
            "Whether later ones stall takes more calls: --repeat-unsafe says that they do no harm."
                .to_owned(),
        ],
        _ if unclear || slow => {
            vec![format!("No fault can be told on this busy machine: your call takes {took}")]
        }
        _ => vec![format!("Nothing is wrong: your call takes {took}")],
    };
    if unclear {
        lines.push("How much of it the server takes is unclear: see server-think under Limits.".to_owned());
    }
    lines.extend(ruled_out(d));
    lines
}

fn inconclusive(d: &Diagnosis, unicode: bool) -> Vec<String> {
    let why = d.limits.first().map_or("something is wrong", String::as_str);
    // That it fails is the finding: no cause of slowness is looked for behind it.
    let mut lines = match d.call.answer().filter(|a| a.status >= 400) {
        Some(answer) if why.starts_with("the call fails") => {
            vec![format!("The call fails: the server answers {}.", answer.status)]
        }
        _ => vec![format!("No cause can be named: {why}{}.", busy(d))],
    };
    if d.call.answer().is_some() {
        lines.push(format!("The call took {} in the middle of those looked at.", time(total_ms(d), unicode)));
    }
    lines.extend(ruled_out(d));
    lines
}

/// Where times are less certain: a word at the end of the first line.
fn busy(d: &Diagnosis) -> &'static str {
    if d.is_busy() { " (busy machine)" } else { "" }
}

fn ruled_out(d: &Diagnosis) -> Option<String> {
    let ids: Vec<&str> = d.ruled_out.iter().map(|r| r.cause.id).collect();
    let calls = units::several(d.calls as u64, "call", "calls");
    (!ids.is_empty()).then(|| format!("Ruled out in {calls}: {}.", ids.join(", ")))
}

fn caused(d: &Diagnosis, first: &Verdict, unicode: bool) -> Vec<String> {
    let t = |ms| time(ms, unicode);
    let total = total_ms(d);
    // A call that is refused takes no time: that it is refused is what it costs.
    let refused = first.names(&RATE_LIMIT) && first.trials().is_empty();
    let cost = t(first.cost_ms());
    let mut lines = vec![if refused {
        format!("Calls are refused: {}.", first.title())
    } else if first.fails() {
        format!("The call fails: {}.", first.title())
    } else if first.cost_ms() > 1.05 * total {
        // The call that is drawn and listed did not meet this cause.
        format!("{cost} in the calls that meet it (the one below took {}): {}.", t(total), first.title())
    } else {
        let busy = if first.proof() == Proof::Proved { "" } else { busy(d) };
        format!("{} of {}: {}{busy}.", t(first.cost_ms().min(total)), t(total), first.title())
    }];
    let by = if first.trials().is_empty() { "" } else { " by experiment" };
    let mut why = format!("{}{by} ({})", sure(first.proof()), first.id());
    match (first.trials().first(), first.evidence().first()) {
        (Some(trial), _) => {
            why.push_str(&format!(
                ": {} ({}), and that part takes {} instead of {}",
                trial.name,
                trial.changed,
                t(trial.after_ms()),
                t(trial.before_ms())
            ));
            if let Some(dose) = first.dose() {
                why.push_str(&format!(
                    "; each ms of delay makes it {:.2} ms longer ({:.2} to {:.2})",
                    dose.value, dose.low, dose.high
                ));
            }
        }
        (None, Some(evidence)) => why.push_str(&format!(": {evidence}")),
        (None, None) => {}
    }
    lines.push(format!("{why}."));
    if let [_, more @ ..] = d.causes.as_slice()
        && !more.is_empty()
    {
        let more: Vec<String> =
            more.iter().map(|c| format!("{} ({}, {})", c.id(), t(c.cost_ms()), c.proof().name())).collect();
        lines.push(format!("Besides: {}.", more.join(", ")));
    }
    let software = software(d);
    let then = predicted(first, unicode).map_or(String::new(), |p| format!(" Then: {p}."));
    match (software.proxy(), software.advice(first.cause(), first.fixes()).first()) {
        (Some(shown), _) => lines.push(format!("Behind a proxy ({shown}): {FROM_THERE}{then}")),
        (None, Some(fix)) => {
            lines.push(format!("Change ({}): {}.{then}", fix.software, fix.change.trim_end_matches('.')));
        }
        _ => {}
    }
    lines.push(format!("Then see whether it is gone: {}", verify(d)));
    lines
}

/// What the call will take without a cause: `median 45.0 ms -> 1.98 ms (1.95 ms to 2.10 ms)`.
pub(super) fn predicted(cause: &Verdict, unicode: bool) -> Option<String> {
    let p = cause.predicted()?;
    let t = |ms| time(ms, unicode);
    let arrow = if unicode { "→" } else { "->" };
    let part = p.part.words().map_or(String::new(), |w| format!(" {w}"));
    Some(format!(
        "median {} {arrow} {} ({} to {}){part}",
        t(p.before_ms),
        t(p.after.value),
        t(p.after.low),
        t(p.after.high)
    ))
}

/// The command that verifies a fix: the one that was run, where that is known.
pub(super) fn verify(d: &Diagnosis) -> String {
    if d.command.is_empty() { format!("linerate explain {}", d.url) } else { d.command.clone() }
}

/// What to mind when that command is run, in words.
pub(super) fn verify_notes(cause: &Verdict, d: &Diagnosis) -> Option<String> {
    let masked = d.command.contains("***").then_some("with what stands here as *** put back");
    let notes: Vec<&str> =
        masked.into_iter().chain([cause.verify()].into_iter().filter(|n| !n.is_empty())).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// Where to look behind a proxy.
const FROM_THERE: &str = "run it from the proxy against its backend: linerate explain http://BACKEND/";

/// The server software that responded.
fn software(d: &Diagnosis) -> Software {
    let process = d.shown.process.as_deref().map(|p| p.name.as_str());
    Software::of(d.call.answer(), process)
}

/// What to change, each with where: in what answered, else in any server; behind a proxy first of all where to look.
pub(super) fn advice(d: &Diagnosis, cause: &Verdict) -> Vec<(String, String)> {
    let software = software(d);
    let proxy = match (software.proxy(), software.perhaps_proxy(cause.cause())) {
        (Some(shown), _) => Some((format!("behind a proxy ({shown})"), FROM_THERE.to_owned())),
        (None, Some(name)) => Some((
            format!("where {name} passes the call on"),
            FROM_THERE.replacen("from the proxy", "there", 1),
        )),
        _ => None,
    };
    let fixes = software.advice(cause.cause(), cause.fixes());
    proxy.into_iter().chain(fixes.iter().map(|f| (f.software.to_owned(), f.change.to_owned()))).collect()
}

/// Where all advice is, where not all of it was given.
pub(super) fn more_advice(d: &Diagnosis, cause: &Verdict) -> Option<String> {
    let given = software(d).advice(cause.cause(), cause.fixes()).len();
    (given < cause.fixes().len()).then(|| format!("linerate explain --why {}", cause.id()))
}

/// The finding at one place, as a sentence.
pub(super) fn layer(layer: &Layer) -> String {
    match layer.status {
        // A cause says itself what it is.
        Status::Cause => layer.words.clone(),
        status => format!("{}: {}", status.name(), layer.all_words()),
    }
}

/// The finding at one place without what was ruled out there.
pub(super) fn layer_alone(layer: &Layer) -> String {
    match (layer.status, layer.words.as_str()) {
        // A cause says itself what it is.
        (Status::Cause, words) => words.to_owned(),
        (_, "") => layer.status.name().to_owned(),
        (_, words) => format!("{}: {words}", layer.status.name()),
    }
}

/// The same in one line of so many columns: of what is fine or only seen, without the clauses that do not fit.
pub(super) fn layer_in_a_line(layer: &Layer, columns: usize) -> String {
    let whole = layer_alone(layer);
    let cut = matches!(layer.status, Status::Fine | Status::Seen);
    if !cut || whole.chars().count() <= columns {
        return whole;
    }
    let mut ends = whole.match_indices([',', ';']).map(|(at, _)| at);
    let fits = |at: &usize| whole[..*at].chars().count() <= columns;
    ends.rfind(fits).map_or_else(|| whole.clone(), |at| whole[..at].to_owned())
}

/// What this machine was doing, where that matters to the times: in a sentence.
pub(super) fn this_machine(d: &Diagnosis) -> Option<String> {
    const SHOWN: f64 = 0.02;
    let m = &d.machine;
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let waited = m.waited_share >= SHOWN;
    let others = [
        m.pressure.filter(|p| *p >= 0.1).map(|p| format!("something here waited {} of the time", percent(p))),
        m.load.filter(|l| *l >= 1.0).map(|l| format!("load {l:.1} for each processor")),
        m.steal.filter(|s| *s >= SHOWN).map(|s| format!("the host took {}", percent(s))),
    ];
    let others: Vec<String> = others.into_iter().flatten().collect();
    if !waited && others.is_empty() {
        return None;
    }
    let mut words = format!("This machine: waited {} of the calls' time for a core", percent(m.waited_share));
    if !others.is_empty() {
        words.push_str(&format!(" ({})", others.join(", ")));
    }
    Some(format!("{words}."))
}

/// A diagnosis for which no certificate was checked says so.
pub(super) const INSECURE: &str = "--insecure: the server's certificate was not checked.";

/// No certificate was checked.
pub(super) fn is_insecure(d: &Diagnosis) -> bool {
    d.tls.as_ref().is_some_and(|tls| tls.insecure)
}

/// What TLS was spoken, and what a new connection takes: in sentences.
pub(super) fn tls(d: &Diagnosis, unicode: bool) -> Option<String> {
    let tls = d.tls.as_ref()?;
    let seen = tls.seen.as_ref()?;
    let t = |ms| time(ms, unicode);
    let key = seen.key.map_or(String::new(), |key| format!(", {key}"));
    let chain = match seen.certificates {
        0 => String::new(),
        n => format!(
            " ({}, {} bytes)",
            units::several(n as u64, "certificate", "certificates"),
            seen.chain_bytes
        ),
    };
    let kind = |n: usize, one: &str, took: Option<f64>| {
        took.map(|ms| format!("{} {}", units::several(n as u64, one, &format!("{one}s")), t(ms)))
    };
    let kinds =
        [kind(tls.full, "full handshake", tls.full_ms), kind(tls.resumed, "resumed session", tls.resumed_ms)];
    let kinds: Vec<String> = kinds.into_iter().flatten().collect();
    let (agreed, connect) = (&seen.agreed, t(tls.connect_ms));
    Some(format!(
        "{} {}{key}{chain}. A new connection: TCP {connect}, then TLS ({}).",
        agreed.version,
        agreed.cipher,
        kinds.join("; ")
    ))
}

/// One sentence about the HTTP/2 settings of both sides.
pub(super) fn http2(d: &Diagnosis) -> Option<String> {
    let http2 = d.streamed?;
    let streams = match http2.most_streams {
        Some(limit) => format!("admits {} at once", units::several(u64::from(limit), "stream", "streams")),
        None => "names no limit of streams".to_owned(),
    };
    Some(format!(
        "HTTP/2: our windows have {} bytes, the server's {}; it {streams}.",
        units::count(u64::from(http2.window)),
        units::count(u64::from(http2.their_window))
    ))
}

/// The first call beside later ones, in a sentence.
pub(super) fn first_call(d: &Diagnosis, unicode: bool) -> Option<String> {
    let f = d.first?;
    let t = |ms| time(ms, unicode);
    let paused = f.after_pause_ms.map_or_else(|| "not tried".to_owned(), t);
    Some(format!("First call {}, later ones {}; after a pause: {paused}.", t(f.first_ms), t(f.later_ms)))
}

/// What several calls at once showed, in a sentence.
pub(super) fn at_once(d: &Diagnosis, unicode: bool) -> Option<String> {
    let served = d.served_at_once?;
    let alone = time(total_ms(d), unicode);
    Some(format!(
        "The server serves {served} at once: a call alone takes {alone}, and call {} waits.",
        served + 1
    ))
}

/// How sure, as a word that begins a sentence.
fn sure(proof: Proof) -> &'static str {
    match proof {
        Proof::Proved => "Proved",
        Proof::Likely => "Likely",
        Proof::Possible => "Possible",
    }
}

/// What the word for how sure it is means.
pub(super) fn meaning(proof: Proof) -> &'static str {
    match proof {
        Proof::Proved => "proved by experiment or by the kernel's own counters",
        Proof::Likely => "likely: what else could be was ruled out as far as it can be from here",
        Proof::Possible => "possible: others are as well possible",
    }
}
