//! The HPACK decoder against field blocks of six other encoders, from hpack-test-case: with static
//! and dynamic tables, with and without Huffman codes, and tables whose size changes.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linerate_http::h2::{Decoder, HpackError};
use serde::Deserialize;

/// The vectors that lie beside this file. `fields` holds each story's lists of fields, one for each
/// block.
#[derive(Deserialize)]
struct Vectors {
    fields: HashMap<String, Vec<Fields>>,
    runs: Vec<Run>,
}

type Fields = Vec<(String, String)>;

/// The field blocks of one connection.
#[derive(Deserialize)]
struct Run {
    story: String,
    encoders: Vec<String>,
    /// A size of the table that the decoder announced before the block, and the block in base64.
    blocks: Vec<(Option<usize>, String)>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("hpack/vectors.json")).unwrap()
}

impl Run {
    fn blocks(&self) -> impl Iterator<Item = (Option<usize>, Vec<u8>)> {
        self.blocks.iter().map(|(size, block)| (*size, STANDARD.decode(block).unwrap()))
    }
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Fields::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    decoder.decode(block, 1 << 16, |name, value| fields.push((text(name), text(value))))?;
    Ok(fields)
}

#[test]
fn blocks_of_other_encoders_are_decoded() {
    let Vectors { fields, runs } = vectors();
    let mut encoders = std::collections::BTreeSet::new();
    for run in &runs {
        let expected = &fields[&run.story];
        assert_eq!(expected.len(), run.blocks.len());
        let mut decoder = Decoder::default();
        for (n, (size, block)) in run.blocks().enumerate() {
            if let Some(size) = size {
                decoder.set_limit(size);
            }
            let got = decode(&mut decoder, &block);
            assert_eq!(got.as_ref(), Ok(&expected[n]), "{:?}, story {}, block {n}", run.encoders, run.story);
        }
        encoders.extend(&run.encoders);
    }
    assert_eq!(encoders.len(), 14, "{encoders:?}");
}

/// A block that breaks off is refused, or is the beginning of the same fields: never other ones.
#[test]
fn a_block_that_breaks_off_gives_no_other_fields() {
    let Vectors { fields, runs } = vectors();
    for run in &runs {
        for (n, (_, block)) in run.blocks().enumerate().take_while(|(n, (size, _))| *n == 0 && size.is_none())
        {
            for end in 0..block.len() {
                match decode(&mut Decoder::default(), &block[..end]) {
                    Ok(got) => assert!(fields[&run.story][n].starts_with(&got), "{:?}", run.encoders),
                    Err(error) => assert_eq!(error, HpackError::Short, "{:?}", run.encoders),
                }
            }
        }
    }
}
