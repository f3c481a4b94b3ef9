//! Checks of the fuzz target for requests; ordinary tests replay its corpus.

use super::{BodyReader, Framing, HeadReader, RequestFault, RequestLimits};

/// How the server reads a stream of bytes: its requests, and how it ended.
#[derive(Debug, PartialEq, Eq, Default)]
#[allow(clippy::type_complexity)]
pub struct ServerReading {
    /// Head bytes, body and trailers of each request.
    pub requests: Vec<(Vec<u8>, Vec<u8>, Vec<(String, Vec<u8>)>)>,
    /// The fault that ended it.
    pub fault: Option<RequestFault>,
}

/// Reads a stream in pieces as a server would: unconsumed bytes are passed again with the next
/// piece.
pub fn read_all<'a>(pieces: impl Iterator<Item = &'a [u8]>, limits: RequestLimits) -> ServerReading {
    let mut reader = HeadReader::new(limits);
    let mut reading = ServerReading::default();
    let mut buffer: Vec<u8> = Vec::new();
    let (mut seen, mut body): (usize, Option<BodyReader>) = (0, None);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let outcome = match &mut body {
                Some(b) => body_step(b, &mut buffer, &mut reading),
                None => match reader.read(&buffer, seen) {
                    Ok(Some((head, taken))) => {
                        seen = 0;
                        buffer.drain(..taken);
                        reading.requests.push((head.bytes().to_vec(), Vec::new(), Vec::new()));
                        check_head(&head);
                        BodyReader::new(head.framing(), &limits).map(|b| body = Some(b)).map(|()| true)
                    }
                    Ok(None) => {
                        seen = buffer.len();
                        Ok(false)
                    }
                    Err(fault) => Err(fault),
                },
            };
            match outcome {
                Ok(true) if body.as_ref().is_some_and(BodyReader::is_ended) => body = None,
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => {
                    reading.fault = Some(fault);
                    return reading;
                }
            }
        }
    }
    reading
}

fn body_step(
    body: &mut BodyReader,
    buffer: &mut Vec<u8>,
    reading: &mut ServerReading,
) -> Result<bool, RequestFault> {
    let step = body.step(buffer)?;
    assert!(step.data.end <= step.consumed && step.consumed <= buffer.len());
    if let Some(request) = reading.requests.last_mut() {
        request.1.extend_from_slice(&buffer[step.data.clone()]);
        if step.ended {
            request.2 = body.trailers().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
        }
    }
    buffer.drain(..step.consumed);
    Ok(step.consumed > 0 || step.ended)
}

fn check_head(head: &super::RequestHead) {
    assert!(!head.method_name().is_empty() && !head.target().is_empty());
    assert!(!head.path().is_empty());
    let both = head.field("content-length").is_some() && head.field("transfer-encoding").is_some();
    assert!(!both, "both lengths must never pass");
    assert!(head.framing() != Framing::Chunked || head.field("transfer-encoding").is_some());
    for (name, value) in head.fields() {
        assert!(
            !name.is_empty() && !value.contains(&b'\n') && !value.contains(&b'\r') && !value.contains(&0)
        );
    }
}

/// The fuzz target. The first byte says where to cut: whole, cut in two and byte by byte must read
/// the same.
pub fn request(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let limits = RequestLimits {
        request_line: 64,
        head: 256,
        fields: 8,
        body: 512,
        chunk_line: 32,
        chunk_extensions: 64,
        trailers: 64,
    };
    let whole = read_all(std::iter::once(stream), limits);
    let (a, b) = stream.split_at(usize::from(cut).min(stream.len()));
    assert_eq!(whole, read_all([a, b].into_iter(), limits));
    assert_eq!(whole, read_all(stream.chunks(1), limits));
}
