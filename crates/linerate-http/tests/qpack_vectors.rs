//! The QPACK decoder against field sections of six other encoders, from qpackers/qifs, and against
//! that collection's broken ones: tables of four sizes, with and without acknowledgements, and
//! sections that come before their entries.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use linerate_http::h3::{QpackDecoder, QpackError, QpackSection};

type QifFields = Vec<(String, String)>;

fn folder(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/qpack")).join(name)
}

fn files(name: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path())
}

/// The lists of fields of a QIF: a line per field, name and value divided by a tab, and an empty line
/// behind each list.
fn lists(qif: &str) -> Vec<QifFields> {
    let text = fs::read_to_string(folder("qifs").join(qif)).unwrap();
    let lines = |list: &str| list.lines().filter(|line| !line.starts_with('#')).map(field).collect();
    text.split("\n\n").map(lines).filter(|list: &QifFields| !list.is_empty()).collect()
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once('\t').unwrap();
    (name.to_owned(), value.to_owned())
}

/// The parts of an encoder's output: a stream's number (0: the encoder stream), and bytes on it.
fn parts(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut parts = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<12>() {
        let stream = u64::from_be_bytes(head[..8].try_into().unwrap());
        let len = u32::from_be_bytes(head[8..].try_into().unwrap()) as usize;
        let (part, behind) = behind.split_at(len);
        parts.push((stream, part.to_vec()));
        rest = behind;
    }
    assert!(rest.is_empty(), "{}", path.display());
    parts
}

/// Set Dynamic Table Capacity (RFC 9204, section 4.3.1).
fn put_capacity(capacity: usize, out: &mut Vec<u8>) {
    let Some(mut rest) = capacity.checked_sub(31) else { return out.push(0x20 | capacity as u8) };
    out.push(0x3f);
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Decodes an encoder's output, with sections that wait for their entries: the fields by stream, and
/// how many sections had to wait.
fn decode(path: &Path, capacity: usize) -> Result<(HashMap<u64, QifFields>, usize), QpackError> {
    let mut decoder = QpackDecoder::new(capacity);
    // The collection's encoders may leave out the instruction that sets the capacity.
    let mut size = Vec::new();
    put_capacity(capacity, &mut size);
    decoder.read_instructions(&size)?;
    let (mut decoded, mut waited) = (HashMap::new(), 0);
    let mut waiting: Vec<(u64, Vec<u8>)> = Vec::new();
    for (stream, part) in parts(path) {
        if stream == 0 {
            decoder.read_instructions(&part)?;
        } else {
            waiting.push((stream, part));
        }
        let mut still = Vec::new();
        for (stream, section) in waiting {
            let mut fields = QifFields::new();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            match decoder.decode(stream, &section, 1 << 16, |n, v| fields.push((text(n), text(v))))? {
                QpackSection::Whole => drop(decoded.insert(stream, fields)),
                QpackSection::Blocked(inserts) => {
                    assert!(inserts > decoder.inserts());
                    waited += 1;
                    still.push((stream, section));
                }
            }
        }
        waiting = still;
        assert!(decoder.table_bytes() <= capacity);
    }
    assert!(waiting.is_empty(), "{}: {} sections wait for ever", path.display(), waiting.len());
    Ok((decoded, waited))
}

#[test]
fn sections_of_other_encoders_are_decoded() {
    let (mut encoders, mut waited, mut used) = (BTreeSet::new(), 0, 0);
    for encoder in files("encoded") {
        for path in files(&format!("encoded/{}", encoder.file_name().unwrap().display())) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // Such as `netbsd.out.4096.100.1`: table size, streams that may wait, acknowledgements.
            let (qif, how) = name.split_once(".out.").unwrap();
            let capacity: usize = how.split('.').next().unwrap().parse().unwrap();
            let (decoded, waits) = decode(&path, capacity).unwrap();
            let expected = lists(&format!("{qif}.qif"));
            assert_eq!(decoded.len(), expected.len(), "{}", path.display());
            for (list, stream) in expected.iter().zip(1..) {
                assert_eq!(&decoded[&stream], list, "{}, stream {stream}", path.display());
            }
            waited += waits;
            used += usize::from(capacity > 0);
        }
        encoders.insert(encoder.file_name().unwrap().to_owned());
    }
    assert!(encoders.len() >= 6 && used >= 12, "{encoders:?}, {used} with a dynamic table");
    assert!(waited > 0, "no section came before its entries");
}

#[test]
fn broken_sections_are_refused() {
    let mut broken = 0;
    for path in files("errors") {
        let refused = decode(&path, 0x1000).err();
        assert!(refused.is_some(), "{}: {:x?}", path.display(), parts(&path));
        broken += 1;
    }
    assert_eq!(broken, 10);
}
