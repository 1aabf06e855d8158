use super::{BoxError, buffer::Buffer, error::Incomplete, gate::register, into_bytes};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

pub(super) type FrameResult = Result<Frame<Bytes>, BoxError>;

/// The source of one call's body, what was read of it, and who may read on.
pub(super) struct Cell<B> {
    source: Source<B>,
    buffer: Buffer,
    keeping: Keeping,
    /// Only the handle of this generation may read.
    generation: u64,
    /// Whether there is a handle of this generation.
    live: bool,
    /// The task that last polled the live handle.
    waker: Option<Waker>,
    /// What was read ahead of the live handle, to see whether it was all; it comes next.
    ahead: Option<FrameResult>,
    /// What the source said before it was read. An exact length stays every attempt's length, and
    /// an end before the least is no end.
    promised: SizeHint,
    /// Bytes that the source gave.
    read: u64,
    /// Bytes that the live handle gave.
    sent: u64,
}

pub(super) enum Source<B> {
    Open(Pin<Box<B>>),
    /// It came to its end. It is never polled again.
    Ended,
    /// It failed, panicked or was let go of. It is never polled again.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    /// Everything that is read is kept: another attempt may follow.
    All,
    /// No further attempt follows, so nothing more is kept.
    Nothing,
    /// A frame was let go of, so no further attempt can follow.
    Lost,
}

impl<B> Cell<B> {
    /// Creates a cell with a live handle of generation 0.
    pub(super) fn new(source: Source<B>, promised: SizeHint, buffer: Buffer) -> Self {
        Self {
            source,
            buffer,
            keeping: Keeping::All,
            generation: 0,
            live: true,
            waker: None,
            ahead: None,
            promised,
            read: 0,
            sent: 0,
        }
    }

    /// The only generation whose handle may read.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Has the task of `cx` woken when its handle is cut off; returns the waker that this replaces.
    #[must_use = "dropped after the lock"]
    pub(super) fn register(&mut self, cx: &Context<'_>) -> Option<Waker> {
        register(&mut self.waker, cx)
    }

    /// The live handle is gone; so is what it held, when no other can follow.
    #[must_use = "dropped after the lock"]
    pub(super) fn abandon(&mut self) -> (Option<Waker>, Option<Source<B>>) {
        self.live = false;
        let let_go = (self.keeping != Keeping::All).then(|| self.let_go());
        (self.waker.take(), let_go)
    }

    /// Whether another handle can carry the whole body.
    pub(super) fn is_replayable(&self) -> bool {
        self.keeping == Keeping::All && !matches!(self.source, Source::Failed)
    }

    /// Cuts off the live handle; returns the waker of the task that polled it.
    pub(super) fn supersede(&mut self) -> Option<Waker> {
        self.generation += 1;
        self.live = false;
        self.waker.take()
    }

    /// Starts over for a new live handle.
    #[must_use = "dropped after the lock"]
    pub(super) fn rewind(&mut self, last: bool) -> Option<Source<B>> {
        self.live = true;
        self.sent = 0;
        self.ahead = None;
        if !self.is_replayable() {
            // The caller did not ask whether it may. Fail the attempt rather than shorten its body.
            return Some(self.let_go());
        }
        self.buffer.rewind();
        if last {
            self.keeping = Keeping::Nothing;
        }
        None
    }

    /// Rules out other handles.
    #[must_use = "dropped after the lock"]
    pub(super) fn release(&mut self) -> Option<Source<B>> {
        if self.keeping == Keeping::All {
            self.keeping = Keeping::Nothing;
            self.buffer.forget_read();
        }
        (!self.live).then(|| self.let_go())
    }

    fn let_go(&mut self) -> Source<B> {
        self.lose();
        mem::replace(&mut self.source, Source::Failed)
    }

    fn lose(&mut self) {
        self.keeping = Keeping::Lost;
        self.buffer.clear();
    }
}

impl<B: Body> Cell<B>
where
    B::Error: Into<BoxError>,
{
    /// The next frame for the live handle.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        let next = match self.ahead.take() {
            Some(ahead) => Some(ahead),
            None => match self.buffer.next(self.keeping == Keeping::All) {
                Some(kept) => Some(Ok(kept)),
                None => ready!(self.poll_source(cx)),
            },
        };
        if let Some(Ok(frame)) = &next {
            self.sent += data_len(frame);
        }
        Poll::Ready(next)
    }

    /// Reads on, and keeps what is read.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        // Failed for as long as it is polled, so that a panic leaves it so.
        let mut source = match mem::replace(&mut self.source, Source::Failed) {
            Source::Open(source) => source,
            Source::Ended => {
                self.source = Source::Ended;
                return Poll::Ready(None);
            }
            Source::Failed => return Poll::Ready(Some(Err(Incomplete.into()))),
        };
        match source.as_mut().poll_frame(cx) {
            Poll::Pending => {
                self.source = Source::Open(source);
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.lose();
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(Some(Ok(frame))) => {
                let frame = into_bytes(frame);
                self.read += data_len(&frame);
                self.keep(&frame);
                if frame.is_trailers() || source.is_end_stream() {
                    self.end();
                } else {
                    self.source = Source::Open(source);
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        if self.keeping != Keeping::All {
            return;
        }
        let kept = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => self.buffer.push(data),
            (None, Some(trailers)) => self.buffer.push_trailers(trailers),
            // A kind of frame that is not known yet cannot be copied.
            (None, None) => false,
        };
        if !kept {
            self.lose();
        }
    }

    fn end(&mut self) {
        self.source = Source::Ended;
        if self.read < self.promised.lower() {
            // Passed on as the source has it, but never taken for the whole in another attempt.
            self.lose();
        }
    }

    /// All that is still to be sent, if it can be had at once, in one piece and without trailers.
    ///
    /// A source that has not been read is polled once: when its whole exact length fits the limit
    /// (or `eager`, when nothing is kept), or when `in_memory` knows that it all comes at once.
    /// What comes and is not all is not lost; it is the next frame.
    pub(super) fn take_whole(
        &mut self,
        eager: usize,
        in_memory: impl FnOnce(&B) -> bool,
    ) -> Option<Bytes> {
        if self.ahead.is_some() || !self.buffer.is_one_piece() {
            return None;
        }
        match &self.source {
            Source::Open(source) => {
                let len = self.promised.exact()?;
                let fits = match self.keeping {
                    Keeping::All => self.buffer.limit(),
                    Keeping::Nothing | Keeping::Lost => eager,
                };
                if self.read > 0 || !(len <= fits as u64 || in_memory(source)) {
                    return None;
                }
                self.read_whole(len)
            }
            Source::Ended => {
                let piece = self.buffer.next(self.keeping == Keeping::All);
                let whole = piece
                    .and_then(|frame| frame.into_data().ok())
                    .unwrap_or_default();
                self.sent += whole.len() as u64;
                Some(whole)
            }
            Source::Failed => None,
        }
    }

    /// Polls once, and gives out what comes as the whole body or puts it back when it is not.
    fn read_whole(&mut self, len: u64) -> Option<Bytes> {
        let next = match self.poll_source(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(next)) => next,
            Poll::Ready(None) => return (len == 0).then(Bytes::new),
            Poll::Pending => return None,
        };
        if let Some(data) = next.as_ref().ok().and_then(Frame::data_ref) {
            if data.len() as u64 == len && self.is_end_stream() {
                self.sent = len;
                return Some(data.clone());
            }
        }
        self.ahead = Some(next);
        None
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.ahead.is_none()
            && self.buffer.is_read()
            && match &self.source {
                Source::Open(source) => source.is_end_stream(),
                Source::Ended => true,
                Source::Failed => false,
            }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        if let Some(len) = self.promised.exact() {
            return SizeHint::with_exact(len.saturating_sub(self.sent));
        }
        let rest = match &self.source {
            Source::Open(source) => source.size_hint(),
            Source::Ended => SizeHint::with_exact(0),
            Source::Failed => SizeHint::default(),
        };
        let ahead = match &self.ahead {
            Some(Ok(frame)) => data_len(frame),
            _ => 0,
        };
        let kept = ahead + self.buffer.unread() as u64;
        let mut hint = SizeHint::default();
        hint.set_lower(rest.lower().saturating_add(kept));
        // A body without a length gets none by being kept: each attempt is framed like the first,
        // and over HTTP/1.1 a length would cost it its trailers.
        let upper = rest.upper().and_then(|upper| upper.checked_add(kept));
        if let Some(upper) = upper.filter(|upper| *upper > hint.lower()) {
            hint.set_upper(upper);
        }
        hint
    }
}

fn data_len(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}
