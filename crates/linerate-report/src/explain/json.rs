//! The diagnosis as a document of [`crate::schema::diagnosis`].

use std::time::Duration;

use linerate_explain::call::Call;
use linerate_explain::evidence::Trial;
use linerate_explain::stats::Estimate;
use linerate_explain::{Diagnosis, Verdict};

use crate::Environment;
use crate::schema::diagnosis as schema;

/// The document as indented JSON, with a line end.
pub fn to_json(diagnosis: &Diagnosis, environment: &Environment) -> String {
    // Only maps with keys that are no strings can fail here, and there are none.
    let mut text = serde_json::to_string_pretty(&document(diagnosis, environment)).unwrap_or_default();
    text.push('\n');
    text
}

/// The document.
pub fn document(diagnosis: &Diagnosis, environment: &Environment) -> schema::Document {
    schema::Document {
        schema: schema::SCHEMA.to_owned(),
        target: diagnosis.url.clone(),
        address: diagnosis.address.clone(),
        verdict: diagnosis.whole.name().to_owned(),
        call: Some(call(diagnosis)),
        causes: diagnosis.causes.iter().map(|c| cause(c, &diagnosis.url)).collect(),
        ruled_out: diagnosis
            .ruled_out
            .iter()
            .map(|r| schema::RuledOut { id: r.id.to_owned(), why: r.why.clone() })
            .collect(),
        limits: diagnosis.limits.clone(),
        calls: diagnosis.calls,
        took_s: round(diagnosis.took_s),
        environment: schema::Environment {
            command: environment.command.clone(),
            version: environment.version.clone(),
            kernel: environment.kernel.clone(),
            host: environment.host.clone(),
        },
    }
}

/// To the microsecond.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn ms(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1e3)
}

fn call(diagnosis: &Diagnosis) -> schema::Call {
    let call: &Call = &diagnosis.call;
    schema::Call {
        dns_ms: round(diagnosis.dns_ms),
        connect_ms: if call.fresh { ms(call.connect) } else { 0.0 },
        tls_ms: 0.0,
        send_ms: ms(call.send),
        wait_ms: ms(call.wait),
        receive_ms: ms(call.receive),
        unexplained_ms: ms(call.unexplained()),
        total_ms: round(diagnosis.dns_ms + call.total.as_secs_f64() * 1e3),
        rtt_ms: round(diagnosis.rtt_ms),
        reused: !call.fresh,
        status: call.answer().map(|a| a.status),
        body_bytes: call.answer().map_or(0, |a| a.body_bytes),
        error: call.failure().map(|f| f.words.clone()),
        receives: call
            .receives
            .iter()
            .take(crate::limits::RECEIVES)
            .map(|r| schema::Received { at_ms: ms(r.at), bytes: r.bytes })
            .collect(),
    }
}

fn cause(verdict: &Verdict, url: &str) -> schema::Cause {
    schema::Cause {
        id: verdict.id().to_owned(),
        title: verdict.title().to_owned(),
        cost_ms: round(verdict.cost_ms()),
        confidence: round(verdict.confidence()),
        proof: verdict.proof().name().to_owned(),
        experiments: verdict
            .trials()
            .iter()
            .enumerate()
            .map(|(i, t)| experiment(t, verdict.dose().filter(|_| i == 0)))
            .collect(),
        evidence: verdict.evidence().to_vec(),
        fixes: verdict
            .fixes()
            .iter()
            .map(|f| schema::Fix { software: f.software.to_owned(), change: f.change.to_owned() })
            .collect(),
        verify: verdict.verify().replace("{url}", url),
    }
}

fn experiment(trial: &Trial, dose: Option<Estimate>) -> schema::Experiment {
    let all = |times: &[f64]| times.iter().map(|t| round(*t)).collect();
    schema::Experiment {
        name: trial.name.clone(),
        changed: trial.changed.clone(),
        before_ms: round(trial.before_ms()),
        after_ms: round(trial.after_ms()),
        effect_ms: round(trial.effect.value),
        effect_ci95_ms: [round(trial.effect.low), round(trial.effect.high)],
        p_value: (trial.p_value * 1e6).round() / 1e6,
        without_ms: all(&trial.without),
        with_ms: all(&trial.with),
        dose: dose.map(|d| schema::Dose { slope: round(d.value), slope_ci95: [round(d.low), round(d.high)] }),
    }
}
