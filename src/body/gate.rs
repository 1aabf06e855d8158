use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

/// Lets an attempt's own body through until a later attempt closes it.
///
/// For bodies that share nothing with the next attempt, and only have to stop.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    closed: bool,
    failed: bool,
    waker: Option<Waker>,
}

impl Gate {
    /// Whether the body may be polled; if so the task is woken when that changes.
    pub(super) fn is_open(&self, cx: &mut Context<'_>) -> bool {
        // Dropped after the lock is let go: a waker may be the last that holds a task.
        let _stale;
        let mut state = self.lock();
        if !state.closed {
            _stale = register(&mut state.waker, cx);
        }
        !state.closed
    }

    /// Makes the body fail from now on, and wakes the task that last polled it.
    pub(super) fn close(&self) {
        let waker = {
            let mut state = self.lock();
            state.closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notes that the source of the body failed.
    pub(super) fn fail(&self) {
        self.lock().failed = true;
    }

    /// Whether the source of the body failed: the error is the attempt's own, and no other follows.
    pub(super) fn has_failed(&self) -> bool {
        self.lock().failed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores the waker of `cx`, and returns the one that it replaces, to be dropped outside of a lock.
pub(super) fn register(slot: &mut Option<Waker>, cx: &Context<'_>) -> Option<Waker> {
    match slot {
        Some(waker) if waker.will_wake(cx.waker()) => None,
        _ => slot.replace(cx.waker().clone()),
    }
}
