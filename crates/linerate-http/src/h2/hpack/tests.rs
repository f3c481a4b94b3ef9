//! RFC 7541, appendix C, and what must be refused.

use super::*;
use crate::fields::{of_hex as bytes, put_integer};

type Fields = Vec<(String, String)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    decoder.decode(block, 1 << 16, |name, value| fields.push((text(name), text(value))))?;
    Ok(fields)
}

fn fields(text: &str) -> Fields {
    let field = |line: &str| {
        let (name, value) = line.trim().rsplit_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(field).collect()
}

/// Decodes blocks one after the other, as on one connection.
fn on_one_connection(decoder: &mut Decoder, blocks: &[(&str, &str)]) {
    for (hex, expected) in blocks {
        assert_eq!(decode(decoder, &bytes(hex)).unwrap(), fields(expected), "{hex}");
    }
}

const REQUESTS: [&str; 3] = [
    ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com",
    ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache",
    ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value",
];

#[test]
fn rfc7541_c_2_single_fields() {
    let each = [
        ("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "custom-key: custom-header"),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path"),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret"),
        ("82", ":method: GET"),
    ];
    for block in each {
        on_one_connection(&mut Decoder::default(), &[block]);
    }
}

#[test]
fn rfc7541_c_3_requests() {
    let hex = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let blocks: Vec<_> = hex.into_iter().zip(REQUESTS).collect();
    on_one_connection(&mut Decoder::default(), &blocks);
}

#[test]
fn rfc7541_c_4_requests_with_huffman_codes() {
    let hex = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let blocks: Vec<_> = hex.into_iter().zip(REQUESTS).collect();
    on_one_connection(&mut Decoder::default(), &blocks);
}

/// A table of 256 bytes, from which fields are evicted.
#[test]
fn rfc7541_c_6_responses_with_eviction() {
    let blocks = [
        (
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
             919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
             location: https://www.example.com",
        ),
        (
            "4883 640e ffc1 c0bf",
            ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
             location: https://www.example.com",
        ),
        (
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
             821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
             4ee5 b106 3d50 07",
            ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
             location: https://www.example.com\ncontent-encoding: gzip\n\
             set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ),
    ];
    let mut decoder = Decoder::default();
    // As if we had announced a table of that size.
    decoder.set_limit(256);
    on_one_connection(&mut decoder, &blocks);
}

#[test]
fn what_we_encode_is_decoded() {
    let given = fields(REQUESTS[2]);
    let mut block = Vec::new();
    shrink(&mut block);
    for (name, value) in &given {
        field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let mut decoder = Decoder::default();
    assert_eq!(decode(&mut decoder, &block).unwrap(), given);
    assert!(decoder.is_stateless());
}

#[test]
fn integers_of_any_size_come_back() {
    for value in [0, 30, 31, 127, 128, 1337, 65_535, 1 << 23] {
        let mut block = Vec::new();
        put_integer(value, 5, 0x20, &mut block);
        let mut decoder = Decoder::default();
        decoder.limit_for_test(1 << 24);
        assert_eq!(decoder.decode(&block, 0, |_, _| ()), Ok(()), "{value}");
    }
    assert_eq!(
        {
            let mut block = Vec::new();
            put_integer(1337, 5, 0, &mut block);
            block
        },
        [31, 154, 10],
        "RFC 7541, C.1.2"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let cases: [(&str, HpackError); 9] = [
        ("80", HpackError::Index(0)),
        ("be", HpackError::Index(62)),
        ("7f", HpackError::Short),
        ("00", HpackError::Short),
        ("0004 6162", HpackError::Short),
        ("ff ff ff ff ff ff ff ff ff", HpackError::Integer),
        ("82 20", HpackError::Size),
        ("3f e2 1f", HpackError::Size),
        ("0084 ffff ffff 00", HpackError::Huffman),
    ];
    for (hex, expected) in cases {
        assert_eq!(decode(&mut Decoder::default(), &bytes(hex)), Err(expected), "{hex}");
    }
}

/// A few bytes that decode to many: one long field in the table, used again and again.
#[test]
fn a_bomb_does_not_go_off() {
    let mut block = vec![0x40, 1, b'a'];
    length(4000, &mut block);
    block.extend_from_slice(&[b'b'; 4000]);
    block.extend_from_slice(&[0xbe; 10_000]);
    let mut bytes = 0;
    let bomb = Decoder::default().decode(&block, 1 << 16, |name, value| bytes += name.len() + value.len());
    assert_eq!(bomb, Err(HpackError::TooLarge(1 << 16)));
    assert!(bytes <= 1 << 16);
}

/// After the acknowledgement of a table without room nothing of it can be used.
#[test]
fn a_table_without_room_stays_empty() {
    let mut decoder = Decoder::default();
    decode(&mut decoder, &bytes("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572")).unwrap();
    decoder.set_limit(0);
    assert!(decoder.is_stateless());
    assert_eq!(decode(&mut decoder, &[0xbe]), Err(HpackError::Index(62)));
    assert_eq!(decode(&mut decoder, &[0x21]), Err(HpackError::Size));
    // Literals with indexing are decoded, and nothing is kept of them.
    decode(&mut decoder, &bytes("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572")).unwrap();
    assert_eq!(decode(&mut decoder, &[0xbe]), Err(HpackError::Index(62)));
}

/// An observer that did not see the first blocks knows what was added since, and nothing else.
#[test]
fn an_observer_invents_nothing() {
    let seen = |decoder: &mut Decoder, hex: &str| {
        let mut fields = Vec::new();
        let told = decoder.decode(&bytes(hex), 1 << 16, |name, value| {
            fields.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        });
        told.map(|()| fields)
    };
    let mut decoder = Decoder::of_observer(1 << 16, true);
    assert_eq!(seen(&mut decoder, "82 be c5").unwrap(), [":method=GET", "=", "="]);
    // a: b is added, then a value under a name that is not known.
    assert_eq!(seen(&mut decoder, "4001 6101 62 be").unwrap(), ["a=b", "a=b"]);
    assert_eq!(seen(&mut decoder, "7f01 0163 be bf c0").unwrap(), ["=c", "=c", "a=b", "="]);
    assert_eq!(decoder.table_bytes(), 34 + 33);
    // An update empties the table: from then on all of it is known.
    assert_eq!(seen(&mut decoder, "20 3f e1 1f be"), Err(HpackError::Index(62)));
    let mut whole = Decoder::of_observer(1 << 16, false);
    assert_eq!(seen(&mut whole, "be"), Err(HpackError::Index(62)));
    // It obeys updates beyond the default of 4,096 bytes.
    assert_eq!(seen(&mut whole, "3f e1 3f 82").unwrap(), [":method=GET"]);
    assert_eq!(seen(&mut whole, "3f e2 ff 03 82"), Err(HpackError::Size));
}
