//! The promise: repeated requests cause no allocation.

use allocation_counter::measure;
use linerate_http::client::{
    Expect, HeadCache, Pipeline, RequestSpec, ResponseLimits, ResponsePart, ResponseReader, Run, Template,
    Values,
};

fn answer(fields: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nDate: Tue, 09 Nov 2010 14:49:00 GMT\r\n{fields}Content-Length: 5\r\n\r\nhello"
    )
}

/// Reads a stream in pieces of `size`, taking complete responses by comparison where possible;
/// returns how many there were.
fn read(reader: &mut ResponseReader, cache: &mut HeadCache, stream: &[u8], size: usize) -> u32 {
    let mut answers = 0;
    for mut input in stream.chunks(size) {
        loop {
            answers += reader.take_same(cache, &mut input, u32::MAX);
            match reader.next(cache, &mut input, Expect::Usual).expect("no fault") {
                Some(ResponsePart::End(_)) => answers += 1,
                Some(_) => {}
                None => break,
            }
        }
    }
    answers
}

/// Counts the allocations of reading a stream that has been read before.
fn allocations(stream: &str, size: usize) -> u64 {
    let (mut cache, mut reader) = (HeadCache::new(), ResponseReader::new(ResponseLimits::default()));
    let before = read(&mut reader, &mut cache, stream.as_bytes(), size);
    let mut again = 0;
    let info = measure(|| again = read(&mut reader, &mut cache, stream.as_bytes(), size));
    assert_eq!(before, again);
    info.count_total
}

#[test]
fn allocations_are_seen() {
    assert_eq!(measure(|| drop(std::hint::black_box(vec![1]))).count_total, 1);
}

#[test]
fn reading_answers_allocates_nothing() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nSum: a\r\n\r\n";
    let interim = format!("HTTP/1.1 103 Early\r\nLink: a\r\n\r\n{}", answer(""));
    let varying: String = (0..50).map(|i| answer(&format!("Trace: {}\r\n", "x".repeat(i % 9)))).collect();
    for stream in [answer("").repeat(50), chunked.repeat(50), interim.repeat(50), varying] {
        for size in [1, 7, 100, 1000, 1 << 20] {
            assert_eq!(allocations(&stream, size), 0, "pieces of {size} of {:?}", &stream[..100]);
        }
    }
}

#[test]
fn a_long_head_is_not_kept() {
    let long = answer(&format!("X: {}\r\n", "y".repeat(20_000)));
    let mut reader = ResponseReader::new(ResponseLimits::default());
    let info = measure(|| {
        let mut cache = HeadCache::new();
        assert_eq!(read(&mut reader, &mut cache, long.as_bytes(), 4096), 1);
    });
    assert!(info.bytes_current < 2048, "{} bytes stay", info.bytes_current);
}

#[test]
fn rendering_and_the_pipeline_allocate_nothing() {
    let spec = RequestSpec {
        method: "POST".to_owned(),
        target: "/{{seq}}?{{a.b}}".to_owned(),
        fields: vec![("Host".to_owned(), "h".to_owned()), ("X-At".to_owned(), "{{now_ms}}".to_owned())],
        body: "{{rand:1-1000000}}".into(),
    };
    let template = Template::compile(&spec, &["a.b".to_owned()]).expect("compiles");
    let row: [Box<[u8]>; 1] = [b"cell".as_slice().into()];
    let (mut out, mut pipeline) = (Vec::with_capacity(8192), Pipeline::new());
    let mut turn = |first: u64| {
        out.clear();
        for seq in first..first + 16 {
            template.render(&Values { seq, now_ms: seq, seed: 1, row: &row }, &mut out);
            let stamp = seq / 5;
            pipeline.push(Run {
                stamp,
                first: seq,
                count: 1,
                kind: 0,
                expect: Expect::Usual,
                idempotent: false,
            });
        }
        assert_eq!(pipeline.answered(16, &mut |_| {}), 16);
    };
    turn(0);
    let info = measure(|| (1..100).for_each(|i| turn(i * 16)));
    assert_eq!(info.count_total, 0);
}
