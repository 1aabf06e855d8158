use super::memory::{ReplayMemory, Reservation};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use std::{collections::VecDeque, sync::Arc};

/// Data frames below this size are gathered into blocks, so that a body of single bytes costs its
/// length and not an allocation for each of them. Above it, a reference to the frame costs less.
const GATHER_BELOW: usize = 4096;

/// The largest block that small frames are gathered in: a page.
const BLOCK: usize = 4096;

/// What one more field of kept trailers is charged, besides its name and its value.
const FIELD: usize = 64;

/// What was read of a body, and how far the one reader has got in it.
///
/// Invariant: data is only ever added when everything before it has been read, because the source
/// is read only once the buffer is. So `tail` holds bytes only while nothing is unread.
pub(super) struct Buffer {
    pieces: VecDeque<Bytes>,
    /// Small frames that are not sealed into a piece yet.
    tail: BytesMut,
    trailers: Option<HeaderMap>,
    /// The first piece that the reader has not had.
    cursor: usize,
    /// Bytes in `pieces` from `cursor` on.
    unread: usize,
    trailers_unread: bool,
    /// Bytes kept, never over `limit`.
    len: usize,
    limit: usize,
    memory: Reservation,
}

impl Buffer {
    /// Creates an empty buffer that keeps up to `limit` bytes of data while `memory` has room.
    pub(super) fn new(limit: usize, memory: &Arc<ReplayMemory>) -> Self {
        Self {
            pieces: VecDeque::new(),
            tail: BytesMut::new(),
            trailers: None,
            cursor: 0,
            unread: 0,
            trailers_unread: false,
            len: 0,
            limit,
            memory: Reservation::new(Arc::clone(memory)),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Keeps a frame that the reader has just had, or answers false when a limit forbids it.
    #[must_use]
    pub(super) fn push(&mut self, data: &Bytes) -> bool {
        if data.is_empty() {
            return true;
        }
        let room = self.limit - self.len;
        if data.len() > room {
            return false;
        }
        // A lone frame is kept as it is, however small: most bodies are no more than that.
        if self.len == 0 || data.len() >= GATHER_BELOW {
            if !self.memory.grow(data.len()) {
                return false;
            }
            self.seal();
            self.pieces.push_back(data.clone());
        } else {
            if data.len() > self.tail.capacity() - self.tail.len() {
                // As large as all that came before, so that blocks are few and waste little.
                let block = self.len.min(BLOCK).max(data.len()).min(room);
                if !self.memory.grow(block) {
                    return false;
                }
                self.seal();
                self.tail = BytesMut::with_capacity(block);
            }
            self.tail.extend_from_slice(data);
        }
        self.len += data.len();
        self.cursor = self.pieces.len();
        true
    }

    /// Keeps trailers that the reader has just had, or answers false when there is no memory left.
    #[must_use]
    pub(super) fn push_trailers(&mut self, trailers: &HeaderMap) -> bool {
        let size = trailers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + FIELD)
            .sum();
        let granted = self.memory.grow(size);
        if granted {
            self.trailers = Some(trailers.clone());
        }
        granted
    }

    /// Starts over for a new reader.
    pub(super) fn rewind(&mut self) {
        self.seal();
        self.cursor = 0;
        self.unread = self.len;
        self.trailers_unread = self.trailers.is_some();
    }

    /// The next frame for the reader, and let go of with `keep` false.
    pub(super) fn next(&mut self, keep: bool) -> Option<Frame<Bytes>> {
        if let Some(piece) = self.pieces.get(self.cursor).cloned() {
            self.unread -= piece.len();
            if keep {
                self.cursor += 1;
            } else {
                self.forget(1);
            }
            return Some(Frame::data(piece));
        }
        if !std::mem::take(&mut self.trailers_unread) {
            return None;
        }
        if keep {
            self.trailers.clone().map(Frame::trailers)
        } else {
            let trailers = self.trailers.take();
            self.clear();
            trailers.map(Frame::trailers)
        }
    }

    /// Lets go of everything that the reader has had.
    pub(super) fn forget_read(&mut self) {
        let read = std::mem::take(&mut self.cursor);
        self.forget(read);
    }

    /// Lets go of everything.
    pub(super) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        self.tail = BytesMut::new();
        self.trailers = None;
        self.cursor = 0;
        self.unread = 0;
        self.trailers_unread = false;
        self.len = 0;
        self.memory.clear();
    }

    /// Bytes that the reader has yet to have.
    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Whether the reader has had everything, trailers too.
    pub(super) fn is_read(&self) -> bool {
        self.unread == 0 && !self.trailers_unread
    }

    /// Whether what the reader has yet to have is one piece of data at most.
    pub(super) fn is_one_piece(&self) -> bool {
        self.pieces.len() - self.cursor <= 1 && !self.trailers_unread
    }

    /// Drops the first pieces, which the reader has had; all that is reserved, with the last.
    fn forget(&mut self, pieces: usize) {
        let bytes = self.pieces.drain(..pieces).map(|piece| piece.len()).sum();
        if self.is_read() {
            self.clear();
        } else {
            self.len -= bytes;
            self.memory.shrink(bytes);
        }
    }

    /// Makes a piece of the small frames gathered so far; what is left of their block stays in use.
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(limit: usize) -> (Buffer, Arc<ReplayMemory>) {
        let memory = ReplayMemory::new(1 << 20);
        (Buffer::new(limit, &memory), memory)
    }

    fn read(buffer: &mut Buffer, keep: bool) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| buffer.next(keep))
            .map(|frame| frame.into_data().expect("data").to_vec())
            .collect()
    }

    #[test]
    fn gathers_single_bytes_into_few_pieces_and_wastes_little() {
        let (mut buffer, memory) = buffer(100_000);
        for _ in 0..50_000 {
            assert!(buffer.push(&Bytes::from_static(b"x")));
        }
        assert!(memory.in_use() >= 50_000);
        assert!(memory.in_use() <= 50_000 + BLOCK);
        buffer.rewind();
        let pieces = read(&mut buffer, true);
        assert!(pieces.len() < 30, "{} pieces", pieces.len());
        assert_eq!(pieces.concat(), vec![b'x'; 50_000]);
    }

    #[test]
    fn keeps_a_large_frame_and_a_lone_small_one_without_a_copy() {
        for len in [3, 2_000] {
            let (mut buffer, memory) = buffer(4_000);
            let data = Bytes::from(vec![7; len]);
            assert!(buffer.push(&data));
            assert_eq!(memory.in_use(), len);
            buffer.rewind();
            let kept = buffer.next(true).and_then(|frame| frame.into_data().ok());
            assert_eq!(kept.map(|kept| kept.as_ptr()), Some(data.as_ptr()));
        }
    }

    #[test]
    fn keeps_the_order_of_small_and_large_frames() {
        let (mut buffer, memory) = buffer(100_000);
        let mut sent = Vec::new();
        for (n, len) in [1, 700, 2, 2, 900, 511, 0, 512, 5].into_iter().enumerate() {
            let data = vec![u8::try_from(n).unwrap(); len];
            assert!(buffer.push(&data.clone().into()));
            sent.extend(data);
        }
        for keep in [true, true, false] {
            buffer.rewind();
            assert_eq!(buffer.unread(), sent.len());
            assert_eq!(read(&mut buffer, keep).concat(), sent);
            assert!(buffer.is_read());
        }
        assert_eq!(memory.in_use(), 0);
    }

    #[test]
    fn goes_on_after_a_rewind_in_the_middle_of_a_block() {
        let (mut buffer, _memory) = buffer(1_000);
        for byte in 0..10u8 {
            assert!(buffer.push(&Bytes::copy_from_slice(&[byte])));
            buffer.rewind();
            assert_eq!(
                read(&mut buffer, true).concat(),
                (0..=byte).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn gives_back_piece_by_piece_what_is_read_for_the_last_time() {
        let (mut buffer, memory) = buffer(50_000);
        for _ in 0..3 {
            assert!(buffer.push(&Bytes::from(vec![0; 10_000])));
        }
        buffer.rewind();
        assert!(buffer.next(true).is_some());
        buffer.forget_read();
        assert_eq!(memory.in_use(), 20_000);
        assert!(buffer.next(false).is_some());
        assert_eq!(memory.in_use(), 10_000);
        assert!(buffer.next(false).is_some());
        assert_eq!(memory.in_use(), 0);
        assert!(buffer.next(false).is_none());
    }

    #[test]
    fn refuses_what_is_over_the_limit_and_changes_nothing() {
        let (mut buffer, memory) = buffer(4);
        assert!(buffer.push(&Bytes::from_static(b"abc")));
        assert!(!buffer.push(&Bytes::from_static(b"de")));
        assert!(buffer.push(&Bytes::from_static(b"d")));
        assert!(!buffer.push(&Bytes::from_static(b"e")));
        assert_eq!(memory.in_use(), 4);
    }
}
