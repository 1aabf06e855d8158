use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts the bytes that all replay buffers of one layer hold, and limits them.
#[derive(Debug)]
pub(crate) struct ReplayMemory {
    limit: usize,
    in_use: AtomicUsize,
}

impl ReplayMemory {
    /// What a layer may hold unless told otherwise: a thousand calls at the default replay limit.
    pub(crate) const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

    /// Creates a counter of which at most `limit` bytes are reserved at any time.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            in_use: AtomicUsize::new(0),
        })
    }

    /// The bytes reserved now.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Check and take in one step. The counter guards no other memory, hence relaxed.
    fn reserve(&self, bytes: usize) -> bool {
        self.in_use
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |in_use| {
                in_use
                    .checked_add(bytes)
                    .filter(|wanted| *wanted <= self.limit)
            })
            .is_ok()
    }
}

/// One buffer's share of a [`ReplayMemory`]. Given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: Arc<ReplayMemory>,
    bytes: usize,
}

impl Reservation {
    pub(super) fn new(memory: Arc<ReplayMemory>) -> Self {
        Self { memory, bytes: 0 }
    }

    /// Reserves `bytes` more, or answers false and changes nothing.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let granted = self.memory.reserve(bytes);
        if granted {
            self.bytes += bytes;
        }
        granted
    }

    /// Gives `bytes` back, at most what is held.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.in_use.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives everything back.
    pub(super) fn clear(&mut self) {
        self.shrink(self.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_up_to_the_limit_and_not_a_byte_more() {
        let memory = ReplayMemory::new(10);
        let mut one = Reservation::new(memory.clone());
        let mut two = Reservation::new(memory.clone());
        assert!(one.grow(6));
        assert!(!two.grow(5));
        assert!(two.grow(4));
        assert!(!one.grow(usize::MAX));
        assert_eq!(memory.in_use(), 10);
        one.shrink(100);
        assert_eq!(memory.in_use(), 4);
        drop((one, two));
        assert_eq!(memory.in_use(), 0);
    }

    #[test]
    fn gives_everything_back_under_threads() {
        let memory = ReplayMemory::new(1_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for bytes in 0..1_000 {
                        let mut held = Reservation::new(memory.clone());
                        let _ = held.grow(bytes);
                        assert!(memory.in_use() <= 1_000);
                    }
                });
            }
        });
        assert_eq!(memory.in_use(), 0);
    }
}
