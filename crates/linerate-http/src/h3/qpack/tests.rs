//! RFC 9204, appendix B, and what must be refused.

use super::table::STATIC;
use super::*;
use crate::fields::of_hex as bytes;

type FieldList = Vec<(String, String)>;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn decode(decoder: &mut QpackDecoder, stream: u64, hex: &str) -> Result<FieldList, QpackError> {
    let mut fields = FieldList::new();
    let end = decoder.decode(stream, &bytes(hex), 1 << 16, |n, v| fields.push((text(n), text(v))))?;
    assert_eq!(end, QpackSection::Whole);
    Ok(fields)
}

fn list(fields: &[(&str, &str)]) -> FieldList {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// What the decoder stream carries.
fn sent(decoder: &mut QpackDecoder) -> Vec<u8> {
    std::mem::take(decoder.instructions())
}

#[test]
fn rfc9204_b_1_literal_with_a_name_of_the_static_table() {
    let mut decoder = QpackDecoder::new(0);
    let fields = decode(&mut decoder, 0, "0000 510b 2f69 6e64 6578 2e68 746d 6c").unwrap();
    assert_eq!(fields, list(&[(":path", "/index.html")]));
    assert_eq!(sent(&mut decoder), b"");
}

#[test]
fn rfc9204_b_2_to_b_5_dynamic_table() {
    let mut decoder = QpackDecoder::new(220);
    // B.2: a section that comes before its entries is blocked.
    let section = "0381 10 11";
    let blocked = decoder.decode(4, &bytes(section), 1 << 16, |_, _| panic!("a field"));
    assert_eq!(blocked, Ok(QpackSection::Blocked(2)));
    let inserts = "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468";
    for byte in bytes(inserts) {
        decoder.read_instructions(&[byte]).unwrap();
    }
    let fields = decode(&mut decoder, 4, section).unwrap();
    assert_eq!(fields, list(&[(":authority", "www.example.com"), (":path", "/sample/path")]));
    // The acknowledgement covers both inserts.
    assert_eq!(sent(&mut decoder), [0x84]);
    assert_eq!(decoder.table_bytes(), 106);

    // B.3
    decoder.read_instructions(&bytes("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565")).unwrap();
    assert_eq!(sent(&mut decoder), [0x01]);
    assert_eq!(decoder.table_bytes(), 160);

    // B.4
    decoder.read_instructions(&[0x02]).unwrap();
    assert_eq!(decoder.table_bytes(), 217);
    let expected = [(":authority", "www.example.com"), (":path", "/"), ("custom-key", "custom-value")];
    assert_eq!(decode(&mut decoder, 8, "0500 80 c1 81").unwrap(), list(&expected));
    assert_eq!(sent(&mut decoder), [0x88]);
    decoder.cancel(8);
    assert_eq!(sent(&mut decoder), [0x48]);

    // B.5: the oldest entry is evicted.
    decoder.read_instructions(&bytes("810d 6375 7374 6f6d 2d76 616c 7565 32")).unwrap();
    assert_eq!((decoder.table_bytes(), decoder.inserts()), (215, 5));
    assert_eq!(decode(&mut decoder, 12, "0600 80 84"), Err(QpackError::Index), "entry 0 is gone");
    assert_eq!(decode(&mut decoder, 12, "0600 80").unwrap(), list(&[("custom-key", "custom-value2")]));
}

#[test]
fn what_we_encode_is_decoded() {
    let mut given: Vec<(&str, &str)> = STATIC.to_vec();
    given.extend([(":path", "/a/b"), ("x-unknown", ""), ("accept-encoding", "br"), (":status", "599")]);
    let long = "v".repeat(3000);
    given.push(("x-long-name-of-its-own", &long));
    let mut section = Vec::new();
    section_prefix(&mut section);
    for (name, value) in &given {
        field_line(name.as_bytes(), value.as_bytes(), &mut section);
    }
    let mut decoder = QpackDecoder::new(0);
    let mut fields = FieldList::new();
    decoder.decode(0, &section, 1 << 16, |n, v| fields.push((text(n), text(v)))).unwrap();
    assert_eq!(fields, list(&given));
    // Each entry of the static table needs one or two bytes.
    let mut statics = Vec::new();
    STATIC.iter().for_each(|(name, value)| field_line(name.as_bytes(), value.as_bytes(), &mut statics));
    assert_eq!(statics.len(), 63 + 36 * 2);
}

#[test]
fn sections_that_make_no_sense_are_refused() {
    let cases = [
        ("", QpackError::Short),
        ("00", QpackError::Short),
        ("0000 51", QpackError::Short),
        ("0000 5104 6162", QpackError::Short),
        ("0000 ff25", QpackError::Index),
        ("0000 80", QpackError::Index),
        ("0000 10", QpackError::Index),
        ("0000 40 00", QpackError::Index),
        ("0000 00 00", QpackError::Index),
        ("0080", QpackError::Prefix),
        ("0100", QpackError::Prefix),
        ("ffff ffff ffff ffff ff 00", QpackError::Integer),
        ("0000 5184 ffff ffff", QpackError::Huffman),
    ];
    for (hex, expected) in cases {
        assert_eq!(decode(&mut QpackDecoder::new(0), 0, hex), Err(expected), "{hex}");
    }
}

/// The Required Insert Count wraps around at twice the number of entries that the table can have.
#[test]
fn rfc9204_4_5_1_1_required_insert_counts_wrap() {
    // Room for 3 entries of 32 bytes: the count wraps at 6.
    let mut decoder = QpackDecoder::new(100);
    decoder.read_instructions(&bytes("3f45")).unwrap();
    for n in 1..=20u64 {
        // A name and a value of no bytes.
        decoder.read_instructions(&[0x40, 0]).unwrap();
        let encoded = n % 6 + 1;
        let section = [encoded as u8, 0, 0x80];
        let mut fields = 0;
        assert_eq!(decoder.decode(n, &section, 100, |_, _| fields += 1), Ok(QpackSection::Whole), "{n}");
        assert_eq!(fields, 1);
        let next = (n + 1) % 6 + 1;
        let blocked = decoder.decode(n, &[next as u8, 0, 0x80], 100, |_, _| ());
        assert_eq!(blocked, Ok(QpackSection::Blocked(n + 1)));
    }
    assert_eq!(decode(&mut decoder, 0, "0700"), Err(QpackError::Prefix), "above 6");
}

#[test]
fn instructions_that_make_no_sense_are_refused() {
    let cases = [
        // More capacity than was announced.
        "3f46",
        // An entry that no table has: inserted by name, static, and duplicated.
        "80 00",
        "ff24 00",
        "00",
        // An entry that does not fit, because the capacity is 0 at first.
        "40 00",
        // A string that never ends, and a number that does not.
        "3f45 5f ff ff ff ff ff ff ff ff ff ff",
    ];
    for hex in cases {
        let refused = QpackDecoder::new(100).read_instructions(&bytes(hex));
        assert!(matches!(refused, Err(QpackError::EncoderStream(_))), "{hex}: {refused:?}");
    }
}

/// A few bytes that decode to many: one long field in the table, used again and again.
#[test]
fn a_bomb_does_not_go_off() {
    let mut decoder = QpackDecoder::new(4096);
    decoder.read_instructions(&bytes("3fe11f 4161 7f ed1d")).unwrap();
    decoder.read_instructions(&vec![b'b'; 3948]).unwrap();
    assert_eq!(decoder.inserts(), 1);
    let mut section = vec![2, 0];
    section.extend_from_slice(&[0x80; 10_000]);
    let mut seen = 0;
    let bomb = decoder.decode(0, &section, 1 << 16, |name, value| seen += name.len() + value.len());
    assert_eq!(bomb, Err(QpackError::TooLarge(1 << 16)));
    assert!(seen <= 1 << 16);
}

/// Instructions whose end never comes are kept only up to what could fit into the table.
#[test]
fn an_instruction_without_end_is_refused() {
    let mut decoder = QpackDecoder::new(100);
    let mut refused = decoder.read_instructions(&bytes("3f45 80"));
    let mut fed = 0;
    while refused.is_ok() && fed < 100_000 {
        refused = decoder.read_instructions(&bytes("7f ff ff"));
        fed += 1;
    }
    assert!(fed < 1000, "{fed} pieces were stored");
}
