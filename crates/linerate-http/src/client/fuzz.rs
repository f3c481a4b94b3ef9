//! The code of the fuzz targets, and of the tests that replay their corpus.

use super::{
    ALT_SERVICES, ALT_SVC_BYTES, AltService, AltServices, CompleteResponse, Expect, HeadCache, Pipeline,
    RequestSpec, ResponseError, ResponseLimits, ResponsePart, ResponseReader, Run, TagMatch, Template,
    Values, alt_services,
};

/// A name and its value.
pub type Field = (Vec<u8>, Vec<u8>);

/// An event read from a stream. Content is joined, because its pieces depend on the cuts of the
/// input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEvent {
    /// The head of an interim response.
    Interim(Vec<u8>),
    /// The status, head and fields of a final response.
    Head(u16, Vec<u8>, Vec<Field>),
    /// Trailer fields.
    Trailers(Vec<Field>),
    /// The end of a response, and its content.
    End(CompleteResponse, Vec<u8>),
}

/// Everything read from a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The events in order.
    pub events: Vec<ReadEvent>,
    /// Content of a response that did not end.
    pub rest: Vec<u8>,
    /// The error that ended the reading, if not the stream's end.
    pub error: Option<ResponseError>,
}

impl Transcript {
    /// Status and content of the complete final responses.
    pub fn answers(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.events.iter().filter_map(|e| match e {
            ReadEvent::End(end, body) => Some((end.status, &body[..])),
            _ => None,
        })
    }
}

/// Reads a stream that arrives in `pieces`, then ends. The responses are to requests with
/// `expects`, in turn. With `same`, `take_same_with` takes complete responses where that is
/// allowed.
pub fn read<'p>(
    cache: &mut HeadCache,
    pieces: impl IntoIterator<Item = &'p [u8]>,
    limits: ResponseLimits,
    expects: &[Expect],
    same: bool,
) -> Transcript {
    let mut reader = ResponseReader::new(limits);
    let mut read = Transcript::default();
    let mut answers = 0;
    for piece in pieces {
        let mut input = piece;
        loop {
            let expect = expects.get(answers % expects.len().max(1)).copied().unwrap_or_default();
            if same && expects.iter().all(|e| *e == Expect::Usual) {
                answers += take_same(&mut reader, cache, &mut input, &mut read);
            }
            let before = (input.len(), reader.at_boundary());
            match reader.next(cache, &mut input, expect) {
                Ok(Some(part)) => answers += usize::from(note(part, &mut read)),
                Ok(None) => {
                    assert!(input.is_empty(), "None, but not all input is read");
                    break;
                }
                Err(error) => {
                    assert_eq!(reader.next(cache, &mut input, expect), Err(error), "errors last");
                    assert_eq!(reader.finish(), Err(error), "errors last");
                    assert_eq!(reader.take_same(cache, &mut input, 9), 0, "errors last");
                    read.error = Some(error);
                    return read;
                }
            }
            assert!(before.0 > 0 || !before.1, "something was read from nothing");
        }
    }
    assert_eq!(reader.at_boundary(), !reader.in_answer());
    match reader.finish() {
        Ok(Some(end)) => _ = note(ResponsePart::End(end), &mut read),
        Ok(None) => {}
        Err(error) => read.error = Some(error),
    }
    read
}

fn take_same(
    reader: &mut ResponseReader,
    cache: &mut HeadCache,
    input: &mut &[u8],
    read: &mut Transcript,
) -> usize {
    let mut taken = Vec::new();
    let (mut counted, most) = (*input, 1 + input.len() as u32 % 5);
    let ready = reader.at_boundary() && !reader.is_closed();
    let n =
        reader.take_same_with(cache, input, most, |head, body| taken.push((head.to_vec(), body.to_vec())));
    assert_eq!(n as usize, taken.len());
    let other =
        ResponseReader::new(reader.limits()).take_same(cache, &mut counted, if ready { most } else { 0 });
    assert_eq!(other, n, "counted and handed out");
    assert!(n == 0 || counted == *input);
    for (raw, body) in taken {
        assert_eq!(cache.body_len(), Some(body.len() as u64));
        assert!(cache.reusable() && reader.at_boundary());
        let mut reader = ResponseReader::new(ResponseLimits::default());
        match reader.next(&mut HeadCache::new(), &mut &raw[..], Expect::Usual) {
            Ok(Some(ResponsePart::Head(head))) => _ = note(ResponsePart::Head(head), read),
            other => panic!("taken, but {other:?}"),
        }
        let end = CompleteResponse {
            status: cache.status(),
            reusable: true,
            head_bytes: raw.len() as u32,
            body_bytes: body.len() as u64,
        };
        read.rest = body;
        note(ResponsePart::End(end), read);
    }
    n as usize
}

/// Records a part; true at the end of a response.
fn note(part: ResponsePart<'_>, read: &mut Transcript) -> bool {
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    match part {
        ResponsePart::Interim(head) => read.events.push(ReadEvent::Interim(head.raw().to_vec())),
        ResponsePart::Head(head) => {
            let fields: Vec<Field> = head.fields().map(owned).collect();
            for (name, _) in &fields {
                assert!(head.get(name).is_some());
            }
            let _ = head.reason();
            read.events.push(ReadEvent::Head(head.status(), head.raw().to_vec(), fields));
        }
        ResponsePart::Body(bytes) => {
            assert!(!bytes.is_empty(), "an empty part");
            read.rest.extend_from_slice(bytes);
        }
        ResponsePart::Trailers(fields) => read.events.push(ReadEvent::Trailers(fields.map(owned).collect())),
        ResponsePart::End(end) => {
            let body = std::mem::take(&mut read.rest);
            assert_eq!(end.body_bytes, body.len() as u64);
            read.events.push(ReadEvent::End(end, body));
            return true;
        }
    }
    false
}

/// Cuts `stream` at `cuts`, which ascend.
pub fn cut<'s>(stream: &'s [u8], cuts: &[usize]) -> Vec<&'s [u8]> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for at in cuts.iter().copied().chain([stream.len()]) {
        let at = at.clamp(from, stream.len());
        pieces.push(&stream[from..at]);
        from = at;
    }
    pieces
}

/// Target `response`: a stream of responses reads the same as a whole, byte by byte, cut anywhere,
/// and with a cache that has seen it before. The first four bytes choose expectations, limits, cuts
/// and the tag.
pub fn response(data: &[u8]) {
    let Some((&[expect, limit, seed, tag], stream)) = data.split_first_chunk::<4>() else { return };
    let expects = [Expect::Usual, Expect::Head, Expect::Connect];
    let expects: Vec<Expect> = (0..3).map(|i| expects[usize::from(expect >> (2 * i) & 3) % 3]).collect();
    let expects = if expect & 0xc0 == 0 { vec![Expect::Usual] } else { expects };
    let limits = match limit % 3 {
        0 => ResponseLimits::default(),
        _ => ResponseLimits { head_bytes: 64, fields: 3, interim: 2, chunk_line_bytes: 4, trailer_bytes: 24 },
    };
    let cache = || if tag % 2 == 0 { HeadCache::new() } else { HeadCache::with_tag("x-tag") };
    let whole = read(&mut cache(), [stream], limits, &expects, false);
    let bytewise = stream.chunks(1);
    assert_eq!(whole, read(&mut cache(), bytewise.clone(), limits, &expects, false), "byte by byte");
    let mut warm = cache();
    for turn in 0..2 {
        assert_eq!(whole, read(&mut warm, [stream], limits, &expects, true), "same heads, turn {turn}");
        assert_eq!(
            whole,
            read(&mut warm, bytewise.clone(), limits, &expects, turn == 0),
            "warm, byte by byte"
        );
        let cuts = [usize::from(seed), usize::from(seed) + usize::from(limit)];
        assert_eq!(whole, read(&mut warm, cut(stream, &cuts), limits, &expects, true), "cuts {cuts:?}");
        let size = usize::from(seed % 61) + 1;
        assert_eq!(whole, read(&mut warm, stream.chunks(size), limits, &expects, true), "pieces of {size}");
    }
}

/// Target `template`: a template that compiles renders one request that parses back to its source.
/// Lines: method, target, fields as `name:value` up to an empty line; then the body.
pub fn template(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.split('\n');
    let spec = RequestSpec {
        method: lines.next().unwrap_or_default().to_owned(),
        target: lines.next().unwrap_or_default().to_owned(),
        fields: lines
            .map(|l| l.split_once(':').unwrap_or((l, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: body.into(),
    };
    let columns = ["a.b".to_owned(), "a.c".to_owned()];
    let Ok(template) = Template::compile(&spec, &columns) else { return };
    let cells = [&b"/one"[..], b"two three", b"\r\n", b"", b"#"];
    for seq in [0, 9, u64::MAX] {
        let row: Vec<Box<[u8]>> =
            (0..2).map(|i| cells[(seq as usize % 7 + i) % cells.len()].into()).collect();
        let values = Values { seq, now_ms: seq / 3, seed: 7, row: &row };
        if template.check_row(&row).is_ok() {
            check_request(&spec, &template, &values);
        }
    }
}

fn check_request(spec: &RequestSpec, template: &Template, values: &Values<'_>) {
    let (mut out, mut again) = (b"before".to_vec(), Vec::new());
    template.render(values, &mut out);
    template.render(values, &mut again);
    assert_eq!(out[6..], again, "the same request again");
    if let Some(fixed) = template.fixed() {
        assert_eq!(fixed, again);
    }
    let text = String::from_utf8_lossy(&again);
    let (head, _) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let mut lines = head.split("\r\n");
    let start: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    assert!(matches!(start[..], [method, _, "HTTP/1.1"] if method == spec.method), "{text:?}");
    let fields: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").unwrap_or((line, ""))).collect();
    let body = again.windows(4).position(|w| w == b"\r\n\r\n").map_or(0, |at| again.len() - at - 4);
    let lengths: Vec<&str> = fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, v)| *v)
        .collect();
    match lengths[..] {
        [] => assert_eq!(body, 0),
        [length] => assert_eq!(length, body.to_string()),
        _ => panic!("more than one Content-Length: {text:?}"),
    }
    assert_eq!(fields.len(), spec.fields.len() + lengths.len(), "{text:?}");
    for ((name, value), (written, meant)) in fields.iter().zip(&spec.fields) {
        assert_eq!(name, written);
        if !meant.contains("{{") {
            assert_eq!(*value, meant.trim_matches([' ', '\t']));
        }
    }
}

/// Target `pipeline`: compares it with a list of single requests.
pub fn pipeline(data: &[u8]) {
    let mut pipeline: Pipeline<u8> = Pipeline::new();
    let mut model: Vec<Run<u8>> = Vec::new();
    let mut next = 0u64;
    for op in data.chunks_exact(3) {
        let [op, a, b] = [op[0], op[1], op[2]];
        match op % 6 {
            0 | 1 => {
                next += u64::from(op & 8 != 0);
                let expect = if b & 64 == 0 { Expect::Usual } else { Expect::Head };
                let run = Run {
                    stamp: b % 3,
                    first: next,
                    count: u32::from(a % 9),
                    kind: u16::from(b >> 3 & 1),
                    expect,
                    idempotent: b & 32 == 0,
                };
                next = run.end();
                pipeline.push(run);
                model.extend((run.first..run.end()).map(|first| Run { first, count: 1, ..run }));
            }
            2 | 3 => {
                let mut seen = Vec::new();
                let n = pipeline.answered(u32::from(a), &mut |run| seen.push(run));
                assert_eq!(n as usize, usize::from(a).min(model.len()));
                assert_eq!(singles(seen), model.drain(..n as usize).collect::<Vec<_>>());
            }
            4 => {
                let seq = next.saturating_sub(u64::from(a));
                let expected = match model.iter().position(|r| r.first == seq) {
                    None => TagMatch::Unknown,
                    Some(0) => TagMatch::InOrder(model.remove(0)),
                    Some(at) => TagMatch::OutOfOrder(model.remove(at)),
                };
                assert_eq!(pipeline.answered_tag(seq), expected);
            }
            _ if a % 5 == 0 => {
                let drained: Vec<_> = pipeline.drain().collect();
                assert_eq!(singles(drained), std::mem::take(&mut model));
            }
            _ => {
                pipeline.restamp(|s| *s = s.wrapping_add(b));
                model.iter_mut().for_each(|r| r.stamp = r.stamp.wrapping_add(b));
            }
        }
        assert_eq!((pipeline.len(), pipeline.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(pipeline.front().map(|r| r.first), model.first().map(|r| r.first));
        assert_eq!(singles(pipeline.runs().copied().collect()), model);
    }
}

fn singles(runs: Vec<Run<u8>>) -> Vec<Run<u8>> {
    let single = |run: Run<u8>| (run.first..run.end()).map(move |first| Run { first, count: 1, ..run });
    runs.into_iter().flat_map(single).collect()
}

/// Any value of `Alt-Svc`. What was read from it can be used, and means the same once it is written again.
pub fn alt_svc(data: &[u8]) {
    let Some(AltServices::Listed(found)) = alt_services(data) else { return };
    assert!(data.len() <= ALT_SVC_BYTES && found.len() <= ALT_SERVICES);
    let written: Vec<String> = found.iter().map(written).collect();
    let again = alt_services(written.join(",").as_bytes());
    // A byte of the protocol's name may need three.
    assert!(again == Some(AltServices::Listed(found)) || written.join(",").len() > ALT_SVC_BYTES);
}

/// As a server writes it.
fn written(service: &AltService) -> String {
    assert!(service.port > 0 && service.host.len() <= 253, "{service:?}");
    let protocol: String = service.protocol.iter().map(|byte| format!("%{byte:02x}")).collect();
    let host = match service.host.contains(':') {
        true => format!("[{}]", service.host),
        false => service.host.clone(),
    };
    let (port, age) = (service.port, service.max_age);
    format!("{protocol}=\"{host}:{port}\"; ma={age}; persist={}", u8::from(service.is_persistent))
}
