//! Bodies of requests: read from files into memory that all threads share.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use linerate_net::InputFile;

use super::InvalidPlan;
use super::data::said;
use super::limits::MAX_BODY_BYTES;

/// The bytes of a file, read into the one place that they are sent from. The error says why it
/// cannot be read.
pub fn read_file(path: &Path) -> Result<Arc<[u8]>, InvalidPlan> {
    let file = InputFile::open(path).map_err(|e| said(&e))?;
    let metadata = file.metadata();
    if metadata.is_dir() {
        return Err("it is a directory".into());
    }
    if !metadata.is_file() || metadata.len() == 0 {
        return read(file);
    }
    let bytes =
        usize::try_from(metadata.len()).ok().filter(|n| *n as u64 <= MAX_BODY_BYTES).ok_or_else(too_large)?;
    let mut body: Arc<[u8]> = std::iter::repeat_n(0, bytes).collect();
    if let Some(room) = Arc::get_mut(&mut body) {
        let mut file = file;
        file.read_exact(room).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => "it became shorter while it was read".to_owned(),
            _ => said(&e),
        })?;
    }
    Ok(body)
}

/// The bytes of what has no known length, such as a pipe.
pub fn read(from: impl Read) -> Result<Arc<[u8]>, InvalidPlan> {
    Ok(read_up_to(MAX_BODY_BYTES, from)?)
}

fn read_up_to(most: u64, from: impl Read) -> Result<Arc<[u8]>, String> {
    let mut body = Vec::new();
    from.take(most + 1).read_to_end(&mut body).map_err(|e| said(&e))?;
    if body.len() as u64 > most {
        return Err(too_large());
    }
    Ok(body.into())
}

fn too_large() -> String {
    format!("it is larger than {} MiB, the most that is sent", MAX_BODY_BYTES >> 20)
}

/// A body as plain data: for each part its bytes and whether slots are filled in it.
pub(super) mod plain {
    use linerate_http::client::{Body, BodyPart};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(body: &Option<Body>, to: S) -> Result<S::Ok, S::Error> {
        let parts =
            |body: &Body| body.parts().iter().map(|p| (p.slots, p.bytes.to_vec())).collect::<Vec<_>>();
        body.as_ref().map(parts).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Body>, D::Error> {
        let parts = Option::<Vec<(bool, Vec<u8>)>>::deserialize(from)?;
        Ok(parts.map(|parts| {
            let mut body = Body::default();
            for (slots, bytes) in parts {
                body.push(BodyPart { bytes: bytes.into(), slots });
            }
            body
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_read_as_it_is_up_to_the_limit() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(read_file(file.path()).unwrap().len(), 0);
        file.write_all(b"{{\0\xff").unwrap();
        assert_eq!(&*read_file(file.path()).unwrap(), b"{{\0\xff");
        file.as_file().set_len(MAX_BODY_BYTES + 1).unwrap();
        assert!(read_file(file.path()).unwrap_err().to_string().contains("MiB"));
        assert_eq!(read_up_to(3, &b"abc"[..]).as_deref(), Ok(&b"abc"[..]));
        assert!(read_up_to(3, std::io::repeat(0)).unwrap_err().to_string().contains("MiB"));
        assert!(read_file(Path::new("/no/such/file")).unwrap_err().to_string().contains("no such file"));
        assert!(read_file(Path::new("/")).unwrap_err().to_string().contains("directory"));
    }
}
