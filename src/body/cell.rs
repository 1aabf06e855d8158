use super::{
    BoxError, ReplayMemory,
    buffer::Buffer,
    error::{Incomplete, Superseded},
    gate::register,
    into_bytes,
};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

type FrameResult = Result<Frame<Bytes>, BoxError>;

/// The body of one call: its source, what was read of it, and who may read on.
///
/// The lock is held only inside one synchronous call. That includes one poll of the source, which
/// is the crate's named exception to "no lock across a poll": only the live handle polls, so nobody
/// waits but a call that decides on a retry at that very moment.
pub(super) struct Shared<B>(Arc<Mutex<Cell<B>>>);

struct Cell<B> {
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

enum Source<B> {
    Open(Pin<Box<B>>),
    /// It gave everything that it promised. It is never polled again.
    Ended,
    /// It failed, panicked, ended too early or was let go of. It is never polled again.
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

impl<B> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, Cell<B>> {
        // A source that panics while it is polled poisons the lock, and leaves a cell that is
        // marked as failed and is otherwise sound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a further attempt can carry the whole body.
    pub(super) fn is_replayable(&self) -> bool {
        self.lock().is_replayable()
    }

    /// Cuts off every handle given out so far and wakes the task that last polled the live one.
    pub(super) fn supersede(&self) {
        let waker = self.lock().supersede();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Starts over with a new live handle; after the `last` one nothing is kept any more.
    pub(super) fn next(&self, last: bool) -> Handle<B> {
        let (waker, _failed, generation) = {
            let mut cell = self.lock();
            let waker = cell.supersede();
            let failed = cell.rewind(last);
            (waker, failed, cell.generation)
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Handle {
            cell: Self(Arc::clone(&self.0)),
            generation,
        }
    }

    /// Rules out further attempts, and lets go of all that the live handle will not need.
    pub(super) fn release(&self) {
        // Whatever is let go of is dropped after the lock: it may run the caller's code.
        let _let_go = self.lock().release();
    }
}

impl<B> Cell<B> {
    fn is_replayable(&self) -> bool {
        self.keeping == Keeping::All && !matches!(self.source, Source::Failed)
    }

    fn supersede(&mut self) -> Option<Waker> {
        self.generation += 1;
        self.live = false;
        self.waker.take()
    }

    #[must_use = "dropped after the lock"]
    fn rewind(&mut self, last: bool) -> Option<Source<B>> {
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

    #[must_use = "dropped after the lock"]
    fn release(&mut self) -> Option<Source<B>> {
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
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
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
        if self.read < self.promised.lower() {
            // Passed on as the source has it, but never taken for the whole in another attempt.
            self.lose();
        } else {
            self.source = Source::Ended;
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none()
            && self.buffer.is_read()
            && match &self.source {
                Source::Open(source) => source.is_end_stream(),
                Source::Ended => true,
                Source::Failed => false,
            }
    }

    fn size_hint(&self) -> SizeHint {
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

/// What one attempt holds of the body.
pub(super) struct Handle<B> {
    cell: Shared<B>,
    generation: u64,
}

impl<B: Body> Handle<B> {
    /// Creates a cell, and the handle of the first attempt.
    pub(super) fn new(source: B, limit: usize, memory: &Arc<ReplayMemory>) -> Self {
        let promised = source.size_hint();
        let source = Source::Open(Box::pin(source));
        Self::with_buffer(source, promised, Buffer::new(limit, memory))
    }

    /// Creates a handle that can only fail.
    pub(super) fn incomplete() -> Self {
        let buffer = Buffer::new(0, &ReplayMemory::new(0));
        Self::with_buffer(Source::Failed, SizeHint::default(), buffer)
    }

    fn with_buffer(source: Source<B>, promised: SizeHint, buffer: Buffer) -> Self {
        let cell = Cell {
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
        };
        Self {
            cell: Shared(Arc::new(Mutex::new(cell))),
            generation: 0,
        }
    }

    /// The side that stays with the call.
    pub(super) fn shared(&self) -> Shared<B> {
        Shared(Arc::clone(&self.cell.0))
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<FrameResult>>
    where
        B::Error: Into<BoxError>,
    {
        // Dropped after the lock is let go: a waker may be the last that holds a task.
        let _stale;
        let mut cell = self.cell.lock();
        if cell.generation != self.generation {
            return Poll::Ready(Some(Err(Superseded.into())));
        }
        _stale = register(&mut cell.waker, cx);
        cell.poll_frame(cx)
    }

    pub(super) fn is_end_stream(&self) -> bool
    where
        B::Error: Into<BoxError>,
    {
        let cell = self.cell.lock();
        cell.generation == self.generation && cell.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint
    where
        B::Error: Into<BoxError>,
    {
        let cell = self.cell.lock();
        if cell.generation == self.generation {
            cell.size_hint()
        } else {
            SizeHint::default()
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
    ) -> Option<Bytes>
    where
        B::Error: Into<BoxError>,
    {
        let mut cell = self.cell.lock();
        if cell.generation != self.generation || cell.ahead.is_some() || !cell.buffer.is_one_piece()
        {
            return None;
        }
        if let Source::Open(source) = &cell.source {
            let len = cell.promised.exact()?;
            let fits = match cell.keeping {
                Keeping::All => cell.buffer.limit(),
                Keeping::Nothing | Keeping::Lost => eager,
            };
            if cell.read > 0 || !(len <= fits as u64 || in_memory(source)) {
                return None;
            }
            let Poll::Ready(Some(frame)) =
                cell.poll_source(&mut Context::from_waker(Waker::noop()))
            else {
                return (len == 0 && cell.is_end_stream()).then(Bytes::new);
            };
            return cell.accept_whole(len, frame);
        }
        if matches!(cell.source, Source::Failed) {
            return None;
        }
        let keep = cell.keeping == Keeping::All;
        let piece = cell.buffer.next(keep);
        let whole = piece
            .and_then(|frame| frame.into_data().ok())
            .unwrap_or_default();
        cell.sent += whole.len() as u64;
        Some(whole)
    }
}

impl<B: Body> Cell<B>
where
    B::Error: Into<BoxError>,
{
    /// Gives out the first frame read as the whole body, or puts it back when it is not.
    fn accept_whole(&mut self, len: u64, frame: FrameResult) -> Option<Bytes> {
        let ended = self.is_end_stream();
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) if ended && data.len() as u64 == len => {
                self.sent = len;
                Some(data)
            }
            Ok(Ok(data)) => {
                self.ahead = Some(Ok(Frame::data(data)));
                None
            }
            Ok(Err(frame)) => {
                self.ahead = Some(Ok(frame));
                None
            }
            Err(error) => {
                self.ahead = Some(Err(error));
                None
            }
        }
    }
}

impl<B> Drop for Handle<B> {
    fn drop(&mut self) {
        let (_waker, _let_go) = {
            let mut cell = self.cell.lock();
            if cell.generation != self.generation {
                return;
            }
            cell.live = false;
            let let_go = (cell.keeping != Keeping::All).then(|| cell.let_go());
            (cell.waker.take(), let_go)
        };
    }
}

fn data_len(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}
