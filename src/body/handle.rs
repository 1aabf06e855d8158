use super::{
    BoxError, ReplayMemory,
    buffer::Buffer,
    cell::{Cell, FrameResult, Source},
    error::Superseded,
};
use bytes::Bytes;
use http_body::{Body, SizeHint};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

/// The body of one call, shared by the call and its attempts.
///
/// The lock is held only inside one synchronous call. That includes one poll of the source, which
/// is the crate's named exception to "no lock across a poll": only the live handle polls, so nobody
/// waits but a call that decides on a retry at that very moment.
pub(super) struct Shared<B>(Arc<Mutex<Cell<B>>>);

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

    /// Cuts off every handle given out so far and wakes the task that last polled the live one, if
    /// another can carry the whole body.
    pub(super) fn supersede(&self) -> bool {
        let waker = {
            let mut cell = self.lock();
            if !cell.is_replayable() {
                return false;
            }
            cell.supersede()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Starts over with a new live handle; after the `last` one nothing is kept any more.
    pub(super) fn next(&self, last: bool) -> Handle<B> {
        let (waker, _failed, generation) = {
            let mut cell = self.lock();
            let waker = cell.supersede();
            let failed = cell.rewind(last);
            (waker, failed, cell.generation())
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
        let cell = Cell::new(source, promised, buffer);
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
        if cell.generation() != self.generation {
            return Poll::Ready(Some(Err(Superseded.into())));
        }
        _stale = cell.register(cx);
        cell.poll_frame(cx)
    }

    pub(super) fn is_end_stream(&self) -> bool
    where
        B::Error: Into<BoxError>,
    {
        let cell = self.cell.lock();
        cell.generation() == self.generation && cell.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint
    where
        B::Error: Into<BoxError>,
    {
        let cell = self.cell.lock();
        if cell.generation() == self.generation {
            cell.size_hint()
        } else {
            SizeHint::default()
        }
    }

    /// See [`Cell::take_whole`].
    pub(super) fn take_whole(
        &mut self,
        eager: usize,
        in_memory: impl FnOnce(&B) -> bool,
    ) -> Option<Bytes>
    where
        B::Error: Into<BoxError>,
    {
        let mut cell = self.cell.lock();
        if cell.generation() == self.generation {
            cell.take_whole(eager, in_memory)
        } else {
            None
        }
    }
}

impl<B> Drop for Handle<B> {
    fn drop(&mut self) {
        // Dropped after the lock, like everything else that may run the caller's code.
        let _let_go;
        let mut cell = self.cell.lock();
        if cell.generation() == self.generation {
            _let_go = cell.abandon();
        }
    }
}
