//! Responses that equal the last one in all but stream and content: taken by one comparison each.

use super::super::frame::{FRAME_HEAD, FrameHead, flag, kind};
use super::super::limits::{FIRST_WINDOW, FRAME_BYTES, LARGEST_WINDOW};
use super::super::streams::StreamData;
use super::{BlockCache, Client, ResponseSink};

/// Two frames that came whole: HEADERS with the last block, and DATA that ends the stream.
struct Same<'i> {
    stream: u32,
    content: &'i [u8],
    behind: &'i [u8],
}

/// The first response of the input, if it is of that kind. `opening`: length, kind and flags of the
/// HEADERS frame.
#[inline]
fn first<'i>(input: &'i [u8], opening: [u8; 5], block: &[u8], most: u32) -> Option<Same<'i>> {
    let (head, rest) = input.split_first_chunk::<FRAME_HEAD>()?;
    if head[..5] != opening {
        return None;
    }
    let (data, rest) = rest.strip_prefix(block)?.split_first_chunk::<FRAME_HEAD>()?;
    if data[3..5] != [kind::DATA, flag::END_STREAM] || data[5..] != head[5..] {
        return None;
    }
    let FrameHead { len, stream, .. } = FrameHead::read(data);
    if len > most {
        return None;
    }
    let (content, behind) = rest.split_at_checked(len as usize)?;
    Some(Same { stream, content, behind })
}

impl<S: StreamData> Client<S> {
    /// Takes such responses off the input, which stands between two frames. Whatever needs more
    /// thought is left there: windows that must grow, responses to HEAD, broken rules.
    #[inline]
    pub(super) fn take_same<'i>(
        &mut self,
        input: &mut &'i [u8],
        blocks: &BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) {
        if self.assembly.is_some() || sink.wants_parts() {
            return;
        }
        let Some(block) = blocks.last(&self.decoder).filter(|block| block.is_final()) else { return };
        let (bytes, length) = (block.bytes(), block.content_length());
        let [_, a, b, c] = (bytes.len() as u32).to_be_bytes();
        let opening = [a, b, c, kind::HEADERS, flag::END_HEADERS];
        let least_left = self.options.window.clamp(FIRST_WINDOW, LARGEST_WINDOW) / 2;
        let most = self.options.window.min(FRAME_BYTES);
        // The stream whose response was taken last, and the length of its content.
        let mut before = None;
        while let Some(same) = first(input, opening, bytes, most) {
            let (stream, len) = (same.stream, same.content.len() as u32);
            let Some(left) = self.receive_left.checked_sub(len).filter(|left| *left >= least_left) else {
                return;
            };
            if length.is_some_and(|length| length != u64::from(len)) {
                return;
            }
            let follows = before == Some((stream.wrapping_sub(2), len));
            if follows && let Some(data) = self.streams.remove_behind(stream) {
                sink.again(data, block, same.content);
            } else if let Some(data) = self.streams.remove_plain(stream) {
                sink.whole(data, block, same.content);
            } else {
                return;
            }
            before = Some((stream, len));
            self.receive_left = left;
            self.idle_frames = 0;
            *input = same.behind;
        }
    }
}
