//! Properties: written messages are read unchanged, however they are cut; rendered templates parse
//! back.

use linerate_http::client::fuzz::{self, Transcript, cut, read};
use linerate_http::client::{Expect, HeadCache, ResponseLimits, ResponsePart, ResponseReader};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A response as a server would write it.
#[derive(Clone, Debug)]
struct Answer {
    interim: Vec<u16>,
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    /// Sizes of the chunks, or none for Content-Length.
    chunks: Option<Vec<usize>>,
    extension: &'static str,
    trailers: Vec<(String, String)>,
    line_end: &'static str,
}

impl Answer {
    fn write(&self, expect: Expect, out: &mut Vec<u8>) {
        let end = self.line_end;
        for status in &self.interim {
            out.extend_from_slice(format!("HTTP/1.1 {status} Wait{end}A: b{end}{end}").as_bytes());
        }
        let mut head = format!("HTTP/1.1 {} OK{end}", self.status);
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}{end}");
        }
        head += &match &self.chunks {
            Some(_) => format!("Transfer-Encoding: chunked{end}{end}"),
            None => format!("Content-Length: {}{end}{end}", self.body.len()),
        };
        out.extend_from_slice(head.as_bytes());
        if !self.has_body(expect) {
            return;
        }
        let Some(chunks) = &self.chunks else { return out.extend_from_slice(&self.body) };
        let mut rest = &self.body[..];
        for size in chunks {
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            if !chunk.is_empty() {
                out.extend_from_slice(format!("{:x}{}\r\n", chunk.len(), self.extension).as_bytes());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            rest = after;
        }
        if !rest.is_empty() {
            out.extend_from_slice(format!("{:X}\r\n", rest.len()).as_bytes());
            out.extend_from_slice(rest);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n");
        for (name, value) in &self.trailers {
            out.extend_from_slice(format!("{name}:{value}{end}").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }

    fn has_body(&self, expect: Expect) -> bool {
        expect == Expect::Usual && !matches!(self.status, 204 | 304)
    }
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    vec(("[A-Za-z][a-z0-9_-]{0,9}x", "([!-~]([ -~]{0,12}[!-~])?)?"), 0..5)
}

prop_compose! {
    fn answer()(
        interim in vec(select(vec![100u16, 102, 103, 199]), 0..3),
        status in select(vec![200u16, 201, 204, 304, 404, 503, 999]),
        fields in fields(),
        body in vec(any::<u8>(), 0..200),
        chunks in proptest::option::of(vec(1usize..40, 0..6)),
        extension in select(vec!["", ";a", ";a=\"b c\"", " ; a=b", "  "]),
        trailers in fields(),
        line_end in select(vec!["\r\n", "\r\n", "\n"]),
    ) -> Answer {
        Answer { interim, status, fields, body, chunks, extension, trailers, line_end }
    }
}

/// What reading the responses must give.
fn expected(answers: &[Answer], expects: &[Expect]) -> Vec<(u16, Vec<u8>)> {
    let body = |(i, a): (usize, &Answer)| match a.has_body(expects[i % expects.len()]) {
        true => (a.status, a.body.clone()),
        false => (a.status, Vec::new()),
    };
    answers.iter().enumerate().map(body).collect()
}

fn owned(transcript: &Transcript) -> Vec<(u16, Vec<u8>)> {
    transcript.answers().map(|(status, body)| (status, body.to_vec())).collect()
}

proptest! {
    #[test]
    fn any_cut_gives_the_answers_that_were_written(
        answers in vec(answer(), 1..6),
        repeated in 0usize..5,
        heads in any::<bool>(),
        cuts in vec(any::<proptest::sample::Index>(), 0..8),
    ) {
        let expects = if heads { vec![Expect::Usual, Expect::Head] } else { vec![Expect::Usual] };
        let mut answers = answers;
        answers.extend(vec![answers[0].clone(); repeated]);
        let mut stream = Vec::new();
        for (i, answer) in answers.iter().enumerate() {
            answer.write(expects[i % expects.len()], &mut stream);
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(stream.len())).collect();
        cuts.sort_unstable();
        let expected = expected(&answers, &expects);
        let whole = read(&mut HeadCache::new(), [&stream[..]], ResponseLimits::default(), &expects, false);
        prop_assert_eq!(&whole.error, &None);
        prop_assert_eq!(owned(&whole), expected);
        let mut warm = HeadCache::new();
        for same in [false, true, true] {
            let pieces = cut(&stream, &cuts);
            prop_assert_eq!(&whole, &read(&mut warm, pieces, ResponseLimits::default(), &expects, same));
        }
    }

    #[test]
    fn any_bytes_read_the_same_however_cut(data in vec(select(ALPHABET.to_vec()), 0..40)) {
        fuzz::response(&data.concat());
    }

    #[test]
    fn heads_are_judged_as_httparse_does(data in vec(select(ALPHABET.to_vec()), 0..12)) {
        let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
        head.extend(data.concat());
        head.extend_from_slice(b"\r\n\r\n");
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut theirs = httparse::Response::new(&mut fields);
        let parsed = httparse::ParserConfig::default()
            .allow_multiple_spaces_in_response_status_delimiters(true)
            .parse_response(&mut theirs, &head);
        let mut reader = ResponseReader::new(ResponseLimits::default());
        // Read as a response to HEAD, so that framing does not matter.
        match reader.next(&mut HeadCache::new(), &mut &head[..], Expect::Head) {
            Ok(Some(ResponsePart::Head(ours))) => {
                // The other parser refuses folds, which we accept.
                if !ours.raw().windows(2).any(|w| w == b"  ") || parsed.is_ok() {
                    prop_assert!(parsed.is_ok(), "accepted by us alone");
                    let fields: Vec<_> = ours.fields().collect();
                    let same: Vec<_> = theirs.headers.iter().map(|h| (h.name.as_bytes(), h.value)).collect();
                    prop_assert_eq!(fields, same);
                }
            }
            Err(_) => prop_assert!(parsed.is_err(), "refused by us alone"),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn what_compiles_renders_as_one_request(
        method in select(vec!["GET", "POST", "PUT", "HEAD", "OPTIONS", "X"]),
        target in words(),
        fields in vec(("[A-Z][a-z-]{0,8}x", words()), 0..4),
        body in words(),
    ) {
        let fields: String = fields.iter().map(|(name, value)| format!("\n{name}:{value}")).collect();
        fuzz::template(format!("{method}\n/{target}\nHost: h{fields}\n\n{body}").as_bytes());
    }

    #[test]
    fn a_pipeline_is_a_list_of_requests(ops in vec(any::<u8>(), 0..300)) {
        fuzz::pipeline(&ops);
    }
}

/// Pieces of responses, from which near-valid responses are assembled.
const ALPHABET: [&[u8]; 24] = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
    b"HTTP/1.1 204 No\n\n",
    b"HTTP/1.0 404 \n",
    b"HTTP/1.1 100 C\r\n\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked",
    b"Connection: close",
    b"X-Tag: 12",
    b"Date: ",
    b"\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b" ",
    b":",
    b"1",
    b"2",
    b"0\r\n\r\n",
    b"ab",
    b"\0",
    b";x",
];

/// Text with slots, and with text that only looks like slots.
fn words() -> impl Strategy<Value = String> {
    const WORDS: [&str; 12] = [
        "a",
        "b",
        "{{seq}}",
        "{{rand:1-9}}",
        "{{rand:0-99999}}",
        "{{a.b}}",
        "{{a.c}}",
        "{{{{",
        "}}",
        "{{now_ms}}",
        "?",
        "{",
    ];
    vec(select(WORDS.to_vec()), 0..6).prop_map(|words| words.concat())
}
