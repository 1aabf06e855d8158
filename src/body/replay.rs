use super::{
    BodyFactory, BoxError, ReplayBody, ReplayMemory,
    factory::Make,
    gate::Gate,
    handle::{Handle, Shared},
};
use http_body::Body;
use std::sync::Arc;

/// The side of a request body that stays with the call, and can produce the body again.
///
/// At a decision: [`prepare`](Replay::prepare) says whether there can be another attempt, before
/// anything is spent on it; [`supersede`](Replay::supersede) cuts the earlier ones off, before the
/// wait; [`next`](Replay::next) is the body of the one that follows. Dropped, it rules out further
/// attempts, and the one under way streams on.
pub(crate) struct Replay<B> {
    kind: Kind<B>,
}

enum Kind<B> {
    /// Nothing, as often as needed.
    Empty,
    /// Kept while it is read.
    Kept(Shared<B>),
    /// Made anew for each attempt.
    Made {
        make: Arc<Make<B>>,
        /// What `prepare` made for the next attempt.
        ready: Option<B>,
        /// Holds the body of the attempt under way.
        gate: Gate,
    },
}

impl<B> Replay<B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Splits a body into that of the first attempt, and what makes those of the others.
    ///
    /// Up to `limit` bytes are kept while `memory` has room; none when `factory` can make a `B`.
    pub(crate) fn new(
        body: B,
        limit: usize,
        memory: &Arc<ReplayMemory>,
        factory: Option<BodyFactory>,
    ) -> (ReplayBody<B>, Self) {
        if body.is_end_stream() {
            return (ReplayBody::default(), Self { kind: Kind::Empty });
        }
        if let Some(make) = factory.and_then(BodyFactory::downcast) {
            let gate = Gate::default();
            let first = ReplayBody::gated(body, Some(gate.clone()));
            let ready = None;
            let kind = Kind::Made { make, ready, gate };
            return (first, Self { kind });
        }
        let handle = Handle::new(body, limit, memory);
        let kind = Kind::Kept(handle.shared());
        (ReplayBody::buffered(handle), Self { kind })
    }

    /// Whether another attempt can carry the whole body, as far as is known without making it.
    pub(crate) fn is_replayable(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Kept(shared) => shared.is_replayable(),
            Kind::Made { gate, .. } => !gate.has_failed(),
        }
    }

    /// Whether another attempt can carry the whole body.
    ///
    /// A body that is made anew is made now, so that a factory that fails costs nothing.
    pub(crate) fn prepare(&mut self) -> bool {
        match &mut self.kind {
            Kind::Empty => true,
            Kind::Kept(shared) => shared.is_replayable(),
            Kind::Made { make, ready, gate } => {
                if gate.has_failed() {
                    return false;
                }
                if ready.is_none() {
                    *ready = make.call();
                }
                ready.is_some()
            }
        }
    }

    /// Makes every body given out so far fail, and wakes the task that last polled one, unless the
    /// body cannot be carried again: then it says no, and the one under way streams on.
    ///
    /// After a yes the source is not read again before [`next`](Replay::next).
    pub(crate) fn supersede(&mut self) -> bool {
        match &mut self.kind {
            Kind::Empty => true,
            Kind::Kept(shared) => shared.supersede(),
            Kind::Made { gate, .. } => {
                let whole = !gate.has_failed();
                if whole {
                    std::mem::take(gate).close();
                }
                whole
            }
        }
    }

    /// The body of the next attempt; nothing is kept for another when it is the `last`.
    ///
    /// Without a [`prepare`](Replay::prepare) that said yes, its body may be one that fails.
    pub(crate) fn next(&mut self, last: bool) -> ReplayBody<B> {
        _ = self.supersede();
        match &mut self.kind {
            Kind::Empty => ReplayBody::default(),
            Kind::Kept(shared) => ReplayBody::buffered(shared.next(last)),
            Kind::Made { make, ready, gate } => match ready.take().or_else(|| make.call()) {
                Some(body) => ReplayBody::gated(body, (!last).then(|| gate.clone())),
                None => ReplayBody::buffered(Handle::incomplete()),
            },
        }
    }
}

impl<B> Replay<B> {
    /// Rules out further attempts: what was kept is let go of as the one under way sends it.
    pub(crate) fn release(&self) {
        if let Kind::Kept(shared) = &self.kind {
            shared.release();
        }
    }
}

impl<B> Drop for Replay<B> {
    fn drop(&mut self) {
        self.release();
    }
}
