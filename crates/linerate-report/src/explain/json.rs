//! The diagnosis as a document of [`crate::schema::diagnosis`].

use std::time::Duration;

use linerate_explain::baseline::{Before, Change, Compared};
use linerate_explain::call::Call;
use linerate_explain::diagnosis::TlsSeen;
use linerate_explain::evidence::Trial;
use linerate_explain::handshake::Handshake;
use linerate_explain::outside_in;
use linerate_explain::packets::Packets;
use linerate_explain::process::{Doing, Jvm, KernelListener, ProcessView};
use linerate_explain::shown::Dose;
use linerate_explain::stats::Estimate;
use linerate_explain::times::CallTimes;
use linerate_explain::{Diagnosis, Verdict};

use super::Since;
use crate::Environment;
use crate::passive::json::segments;
use crate::schema::diagnosis as schema;

/// The document as indented JSON, with a line end.
pub fn to_json(diagnosis: &Diagnosis, since: Option<&Since>, environment: &Environment) -> String {
    let document = schema::Document { baseline: since.map(compared), ..document(diagnosis, environment) };
    // Only maps with keys that are no strings can fail here, and there are none.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The document.
pub fn document(diagnosis: &Diagnosis, environment: &Environment) -> schema::Document {
    schema::Document {
        schema: schema::SCHEMA.to_owned(),
        target: diagnosis.url.clone(),
        method: diagnosis.method.clone(),
        address: diagnosis.address.clone(),
        verdict: diagnosis.whole.name().to_owned(),
        call: Some(call(diagnosis)),
        times_ms: times(&diagnosis.times),
        first_call: diagnosis.first.map(|f| schema::FirstCall {
            first_ms: round(f.first_ms),
            later_ms: round(f.later_ms),
            after_pause_ms: f.after_pause_ms.map(round),
        }),
        segments: packets(diagnosis).and_then(|p| p.call.as_ref()).map_or_else(Vec::new, segments),
        causes: diagnosis.causes.iter().enumerate().map(|(i, c)| cause(diagnosis, i, c)).collect(),
        ruled_out: diagnosis
            .ruled_out
            .iter()
            .map(|r| schema::RuledOut { id: r.cause.id.to_owned(), why: r.why.clone() })
            .collect(),
        limits: diagnosis.limits.clone(),
        calls: diagnosis.calls,
        took_s: round(diagnosis.took_s),
        this_machine: schema::ThisMachine {
            waited_share: round(diagnosis.machine.waited_share),
            pressure: diagnosis.machine.pressure.map(round),
            load: diagnosis.machine.load.map(round),
            steal: diagnosis.machine.steal.map(round),
        },
        tls: diagnosis.tls.as_ref().map(tls),
        http2: diagnosis.streamed.map(|http2| schema::Http2 {
            window: http2.window,
            server_window: http2.their_window,
            max_concurrent_streams: http2.most_streams,
        }),
        outside_in: outside_in::of(diagnosis).into_iter().map(layer).collect(),
        concurrency: diagnosis.served_at_once.map(|served_at_once| schema::Concurrency { served_at_once }),
        process: diagnosis.shown.process.as_deref().map(process),
        baseline: None,
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
        tls_ms: ms(call.tls_took()),
        tls: call.tls.as_deref().map(handshake),
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

fn handshake(h: &Handshake) -> schema::Handshake {
    schema::Handshake {
        resumed: h.is_resumed(),
        round_trips: h.trips.len(),
        own_ms: ms(h.own),
        flights: h
            .trips
            .iter()
            .map(|t| schema::Flight {
                sent_ms: ms(t.sent),
                begun_ms: ms(t.begun),
                ended_ms: ms(t.ended),
                bytes: t.bytes,
            })
            .collect(),
    }
}

fn tls(tls: &TlsSeen) -> schema::Tls {
    let seen = tls.seen.clone().unwrap_or_default();
    schema::Tls {
        verified: !tls.insecure,
        version: seen.agreed.version,
        cipher: seen.agreed.cipher,
        alpn: seen.agreed.alpn,
        group: seen.group,
        key: seen.key.map(|key| key.to_string()),
        certificates: seen.certificates,
        chain_bytes: seen.chain_bytes,
        sessions_given: tls.gives,
        full: tls.full,
        resumed: tls.resumed,
        connect_ms: round(tls.connect_ms),
        full_ms: tls.full_ms.map(round),
        resumed_ms: tls.resumed_ms.map(round),
    }
}

fn all(times: &[f64]) -> Vec<f64> {
    times.iter().map(|t| round(*t)).collect()
}

fn times(times: &CallTimes) -> schema::Times {
    schema::Times {
        call: all(&times.call),
        new_connection: all(&times.new),
        full_handshake: all(&times.full),
        first_byte: all(&times.first_byte),
        with_lookup: all(&times.lookup),
    }
}

fn layer(layer: outside_in::Layer) -> schema::Layer {
    schema::Layer {
        place: layer.place.name().to_owned(),
        status: layer.status.name().to_owned(),
        words: layer.all_words(),
    }
}

fn compared(since: &Since) -> schema::Baseline {
    let cause = |(before, now): &(Before, Compared)| schema::Since {
        id: before.id.clone(),
        verdict: now.change.name().to_owned(),
        part: before.part.name().to_owned(),
        before_ms: round(now.before_ms),
        now_ms: round(now.now_ms),
        confidence: now.confidence.map(round),
        calls_to_tell: if let Change::Unclear(n) = now.change { Some(n) } else { None },
        predicted_ms: before.predicted.map(|p| round(p.value)),
        prediction_held: now.held,
    };
    schema::Baseline {
        file: since.file.clone(),
        causes: since.causes.iter().map(cause).collect(),
        calls: since.calls.map(|c| schema::CallsSince {
            verdict: c.pace.name().to_owned(),
            before_ms: round(c.before_ms),
            now_ms: round(c.now_ms),
            confidence: c.confidence.map(round),
        }),
    }
}

fn packets(diagnosis: &Diagnosis) -> Option<&Packets> {
    diagnosis.shown.packets.as_deref()
}

fn cause(diagnosis: &Diagnosis, i: usize, verdict: &Verdict) -> schema::Cause {
    // Only the first cause's lever is shown with its strengths.
    let doses = if i == 0 { diagnosis.shown.doses.as_slice() } else { &[] };
    let trials = verdict.trials().iter().enumerate();
    schema::Cause {
        id: verdict.id().to_owned(),
        title: verdict.title().to_owned(),
        cost_ms: round(verdict.cost_ms()),
        confidence: round(verdict.confidence()),
        proof: verdict.proof().name().to_owned(),
        part: verdict.cause().part.name().to_owned(),
        predicted: verdict.predicted().map(|p| schema::Predicted {
            before_ms: round(p.before_ms),
            after_ms: round(p.after.value),
            ci95_ms: [round(p.after.low), round(p.after.high)],
            measured: p.measured,
        }),
        experiments: trials.map(|(n, t)| experiment(t, verdict.dose().filter(|_| n == 0), doses)).collect(),
        evidence: verdict.evidence().to_vec(),
        seen: packets(diagnosis).and_then(|p| p.seen_of(verdict.cause())).map(str::to_owned),
        fixes: verdict
            .fixes()
            .iter()
            .map(|f| schema::Fix { software: f.software.to_owned(), change: f.change.to_owned() })
            .collect(),
        verify: super::words::verify(diagnosis),
        verify_notes: super::words::verify_notes(verdict, diagnosis),
    }
}

fn process(p: &ProcessView) -> schema::Process {
    let doing = |d: &Doing| schema::Threads {
        doing: d.what.clone(),
        mean: round(d.mean),
        most: d.most,
        names: d.names.clone(),
    };
    let jvm = |j: Jvm| schema::Jvm {
        collections: j.collections,
        collected_ms: ms(j.collected),
        safepoints: j.safepoints,
        stopped_ms: ms(j.stopped),
    };
    let listener = |l: &KernelListener| schema::Listener {
        address: l.address.to_string(),
        waiting: l.waiting,
        limit: l.limit,
    };
    schema::Process {
        pid: p.pid,
        name: p.name.clone(),
        found: p.found,
        looks: p.looks,
        threads: p.threads.iter().map(doing).collect(),
        open_files: p.files.map(|(open, _)| open),
        open_files_limit: p.files.map(|(_, limit)| limit).filter(|limit| *limit != u64::MAX),
        listeners: p.listeners.iter().map(listener).collect(),
        sockets: p.sockets.iter().map(|(state, n)| ((*state).to_owned(), *n)).collect(),
        unread_bytes: p.unread.0,
        unacknowledged_bytes: p.unsent.0,
        listen_overflows: p.turned_away.0,
        listen_drops: p.turned_away.1,
        jvm: p.jvm.map(jvm),
        notes: p.notes.clone(),
    }
}

fn experiment(trial: &Trial, dose: Option<Estimate>, doses: &[Dose]) -> schema::Experiment {
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
        dose: dose.map(|d| schema::Dose {
            slope: round(d.value),
            slope_ci95: [round(d.low), round(d.high)],
            points: doses
                .iter()
                .map(|p| schema::DosePoint { lever_ms: round(p.lever_ms), took_ms: all(&p.took_ms) })
                .collect(),
        }),
    }
}
