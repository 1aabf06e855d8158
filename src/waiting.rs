//! Bounds how many calls may wait for a retry at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts the calls that wait.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    places: usize,
    taken: AtomicUsize,
}

/// A place in the room, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPlace(Arc<WaitingRoom>);

impl WaitingRoom {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places,
            taken: AtomicUsize::new(0),
        }
    }

    /// Takes a place if there is one.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<WaitingPlace> {
        let one_more = |taken| (taken < self.places).then_some(taken + 1);
        // A count guards nothing else, so no ordering is needed.
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(WaitingPlace(Arc::clone(self)))
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_as_many_as_there_are_places_and_no_more() {
        let room = Arc::new(WaitingRoom::new(2));
        let first = room.enter().expect("a place is free");
        let _second = room.enter().expect("a place is free");
        assert!(room.enter().is_none());
        drop(first);
        assert!(room.enter().is_some());
        assert!(Arc::new(WaitingRoom::new(0)).enter().is_none());
    }
}
