//! `--explain`: why the worst of the tail was slow.

use linerate_explain::driver::{Explained, Http, Request};
use linerate_explain::{Diagnosis, ProbeTls, Settings, Whole};
use linerate_http::client::RequestSpec;
use linerate_load::outcome::Sample;
use linerate_load::plan::http::{Http as Spoken, HttpOptions};
use linerate_load::plan::tls::{self, TlsVersion, Trust};
use linerate_load::{Outcome, Plan};
use linerate_report::explain as report;
use linerate_report::units;

use super::Interrupt;
use crate::explain::progress;
use crate::fault::CommandFault;
use crate::{environment, terminal};

/// Calls the slowest request again, alone, and prints the diagnosis; `None` if there was no such
/// request or it cannot be called.
pub(super) fn explain(
    plan: &Plan,
    outcome: &Outcome,
    to_stderr: bool,
    interrupt: &Interrupt,
) -> Result<Option<Diagnosis>, CommandFault> {
    if outcome.interrupted || outcome.unreachable.is_some() {
        return Ok(None);
    }
    let Some(worst) = worst(outcome) else {
        return say("nothing was answered, so there is no slow answer to explain", to_stderr).map(|()| None);
    };
    let Some((mut request, settings)) = request(plan, worst) else { return Ok(None) };
    let tls = plan.tls.as_ref().map(|tls| client(tls, request.http)).transpose();
    request.tls = tls.map_err(|why| CommandFault::input(format!("--explain: {why}")))?;
    let begin = format!(
        "\nWhy the slowest took {}: {} {} called again, alone, after the run\n",
        units::time_us(worst.latency_us.unwrap_or_default(), true),
        request.spec.method,
        request.spec.target
    );
    say(begin.trim_end(), to_stderr)?;
    let quiet = !terminal::can_redraw();
    let explained = linerate_explain::explain(&request, settings, |probe| {
        progress(probe, quiet);
        !interrupt.asked()
    });
    if !quiet {
        terminal::overwrite_line("");
    }
    match explained {
        Ok(Explained::Diagnosed(diagnosis, _)) => {
            let text = report::to_screen(&diagnosis, None, terminal::style_beside(to_stderr));
            say(text.trim_end(), to_stderr)?;
            if diagnosis.whole == Whole::Healthy {
                say(
                    "So it was slow in company only: it waited for others, here or at the server.",
                    to_stderr,
                )?;
            }
            Ok(Some(*diagnosis))
        }
        Ok(Explained::Unreachable(why)) => {
            say(&format!("It could not be called: {why}"), to_stderr).map(|()| None)
        }
        // Slots that take data from files have none outside a run.
        Err(e) => say(&format!("It cannot be called outside the run: {e}"), to_stderr).map(|()| None),
    }
}

/// The slowest of the responses that were kept.
fn worst(outcome: &Outcome) -> Option<&Sample> {
    let latency = |s: &Sample| s.latency_us.unwrap_or(-1.0);
    outcome.samples.iter().filter(|s| s.latency_us.is_some()).max_by(|a, b| latency(a).total_cmp(&latency(b)))
}

/// HTTP as the run spoke it.
fn http(plan: &Plan) -> Http {
    match plan.http.version {
        // The flags exclude HTTP/3 here.
        Spoken::Auto | Spoken::Three => Http::Auto,
        Spoken::One => Http::One,
        Spoken::Two => Http::Two,
    }
}

/// TLS as the run spoke it.
fn client(plan: &tls::TargetTls, http: Http) -> Result<ProbeTls, String> {
    let mut options = plan.options().map_err(|e| e.to_string())?;
    options.alpn = http.alpn();
    ProbeTls::of(&options, &plan.name).map_err(|e| e.to_string())
}

/// The slowest request, in clear text so far, and what may be done.
fn request(plan: &Plan, worst: &Sample) -> Option<(Request, Settings)> {
    let request = plan.requests.iter().find(|r| r.name == worst.request).or(plan.requests.first())?;
    let address = *plan.target.addresses.first()?;
    let mut fields = request.fields.clone();
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        fields.insert(0, ("Host".to_owned(), plan.target.authority.clone()));
    }
    let spec = RequestSpec {
        method: request.method.clone(),
        target: request.path.clone(),
        fields,
        body: request.body.clone().unwrap_or_default(),
    };
    let settings = Settings {
        url: format!("{}://{}{}", scheme(plan), plan.target.authority, request.path),
        addresses: plan.target.addresses.clone(),
        method: spec.method.clone(),
        command: command(&spec, plan),
        may_repeat: matches!(spec.method.as_str(), "GET" | "HEAD"),
        seed: u64::from(std::process::id()),
        window: plan.http.h2_window,
        ..Settings::default()
    };
    let http = http(plan).fitting(&spec);
    let host = address.ip().to_string();
    Some((Request { host, port: address.port(), tls: None, http, spec, origin: None }, settings))
}

fn scheme(plan: &Plan) -> &'static str {
    if plan.tls.is_some() { "https" } else { "http" }
}

/// The flags of TLS that differ from the usual ones.
fn tls_flags(plan: &tls::TargetTls) -> Vec<(&'static str, String)> {
    let usual = tls::TargetTls::towards(&plan.name);
    let version = |version| if version == TlsVersion::Tls12 { "1.2" } else { "1.3" }.to_owned();
    let mut flags = Vec::new();
    match &plan.trust {
        Trust::System => {}
        Trust::Pem(file) => flags.push(("--cacert", file.path.clone())),
        Trust::Anybody => flags.push(("--insecure", String::new())),
    }
    if let Some(own) = &plan.identity {
        flags.push(("--cert", own.chain.path.clone()));
        flags.push(("--key", own.key.path.clone()));
    }
    if plan.least != usual.least {
        flags.push(("--tls-min", version(plan.least)));
    }
    if plan.most != usual.most {
        flags.push(("--tls-max", version(plan.most)));
    }
    if !plan.ciphers.is_empty() {
        flags.push(("--ciphers", plan.ciphers.join(",")));
    }
    if !plan.resume {
        flags.push(("--tls-resume", "off".to_owned()));
    }
    flags
}

/// The command that explains that request again.
fn command(spec: &RequestSpec, plan: &Plan) -> String {
    let authority = plan.target.authority.as_str();
    let mut words = ["linerate", "explain"].map(str::to_owned).to_vec();
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    if spec.method != if spec.body.is_empty() { "GET" } else { "POST" } {
        add("-X", spec.method.clone());
    }
    let usual = ["host", "user-agent", "content-length"];
    for (name, value) in &spec.fields {
        let own = name.eq_ignore_ascii_case("host") && value != authority;
        if own
            || !usual.iter().any(|n| name.eq_ignore_ascii_case(n))
                && (name.as_str(), value.as_str()) != ("Accept", "*/*")
        {
            add("-H", format!("{name}: {value}"));
        }
    }
    if !spec.body.is_empty() {
        // A body that is not text comes from a file of the plan.
        let bytes: Vec<u8> = spec.body.parts().iter().flat_map(|p| p.bytes.iter().copied()).collect();
        add("--body", String::from_utf8(bytes).unwrap_or_else(|_| "@FILE".to_owned()));
    }
    match plan.http.version {
        // Calls are over TCP.
        Spoken::Auto | Spoken::Three => {}
        Spoken::One => add("--http", "1.1".to_owned()),
        Spoken::Two => add("--http", "2".to_owned()),
    }
    if plan.http.h2_window != HttpOptions::default().h2_window {
        add("--h2-window", plan.http.h2_window.to_string());
    }
    for (flag, value) in plan.tls.iter().flat_map(tls_flags) {
        words.push(flag.to_owned());
        words.extend((!value.is_empty()).then_some(value));
    }
    words.push(format!("{}://{authority}{}", scheme(plan), spec.target));
    environment::joined(&environment::shown(words))
}

fn say(text: &str, to_stderr: bool) -> Result<(), CommandFault> {
    terminal::print_beside(&format!("{text}\n"), to_stderr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::plan;

    fn sample(latency_us: Option<f64>, request: &str) -> Sample {
        let (why, head, body, sent) = Default::default();
        Sample { due_us: 0.0, latency_us, status: None, why, request: request.to_owned(), head, body, sent }
    }

    #[test]
    fn the_slowest_answer_is_the_worst() {
        let samples =
            vec![sample(Some(3.0), "a"), sample(None, "b"), sample(Some(9.0), "c"), sample(Some(4.0), "d")];
        let outcome = Outcome { samples, ..Outcome::default() };
        assert_eq!(worst(&outcome).map(|s| s.request.as_str()), Some("c"));
        assert!(worst(&Outcome::default()).is_none());
    }

    #[test]
    fn what_may_not_be_repeated_is_called_once() {
        let mut plan = plan("http://127.0.0.1:8080/x");
        let (request, settings) = request(&plan, &sample(Some(1.0), "")).expect("a request");
        assert_eq!((request.spec.target.as_str(), settings.may_repeat), ("/x", true));
        assert_eq!(request.spec.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case("host")).count(), 1);
        plan.requests[0].method = "POST".to_owned();
        plan.requests[0].body = Some("a b".into());
        plan.requests[0].fields.push(("Cookie".to_owned(), "secret".to_owned()));
        let (_, settings) = super::request(&plan, &sample(Some(1.0), "")).expect("a request");
        assert!(!settings.may_repeat);
        let again = "linerate explain -H 'Cookie: ***' --body 'a b' http://127.0.0.1:8080/x";
        assert_eq!((settings.method.as_str(), settings.command.as_str()), ("POST", again));
        let usual = tls::TargetTls::towards("127.0.0.1");
        plan.tls =
            Some(tls::TargetTls { trust: Trust::Anybody, most: TlsVersion::Tls12, resume: false, ..usual });
        let (_, settings) = super::request(&plan, &sample(Some(1.0), "")).expect("a request");
        let again = "linerate explain -H 'Cookie: ***' --body 'a b' --insecure --tls-max 1.2 --tls-resume off https://127.0.0.1:8080/x";
        assert_eq!((settings.url.as_str(), settings.command.as_str()), ("https://127.0.0.1:8080/x", again));
    }
}
