//! Whether retries are off, and who is to be woken when that changes.

use crate::budget::Key;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

/// How many keys may be switched off one by one. An operator who needs more switches off the layer.
pub(super) const MAX_KEYS: usize = 1024;

/// The switch of a layer.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    /// Whether anything is off: all that a call looks at while nothing is.
    any: AtomicBool,
    off: RwLock<Off>,
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Off {
    all: bool,
    /// The retry gate does not enforce.
    gate: bool,
    keys: HashSet<Key>,
}

/// The calls that wait for a retry.
#[derive(Debug, Default)]
struct Sleepers {
    next: u64,
    wakers: HashMap<u64, Waker>,
}

impl Switch {
    /// Whether no retry to `key` may be sent.
    pub(crate) fn is_off(&self, key: &Key) -> bool {
        self.any.load(Ordering::Acquire) && {
            let off = self.off.read().unwrap_or_else(PoisonError::into_inner);
            off.all || off.gate || off.keys.contains(key)
        }
    }

    pub(super) fn set_all(&self, off: bool) {
        self.change(|state| state.all = off);
    }

    pub(super) fn set_gate(&self, off: bool) {
        self.change(|state| state.gate = off);
    }

    /// Returns false when there is no room for the key.
    pub(super) fn set_key(&self, key: &Key, off: bool) -> bool {
        self.change(|state| {
            if !off {
                state.keys.remove(key);
            } else if state.keys.len() < MAX_KEYS {
                state.keys.insert(key.clone());
            }
            !off || state.keys.contains(key)
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Off) -> T) -> T {
        let mut off = self.off.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut off);
        let any = off.all || off.gate || !off.keys.is_empty();
        self.any.store(any, Ordering::Release);
        drop(off);
        // Whoever registers after this has seen the change: it looks after it has registered.
        let woken = std::mem::take(&mut self.sleepers().wakers);
        woken.into_values().for_each(Waker::wake);
        changed
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one call among those that are woken. Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Sleeper {
    switch: Arc<Switch>,
    id: u64,
}

impl Sleeper {
    pub(crate) fn new(switch: &Arc<Switch>) -> Self {
        let mut sleepers = switch.sleepers();
        let id = sleepers.next;
        sleepers.next = id.wrapping_add(1);
        drop(sleepers);
        Self {
            switch: Arc::clone(switch),
            id,
        }
    }

    /// Has `waker` woken at the next change.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut sleepers = self.switch.sleepers();
        match sleepers.wakers.get_mut(&self.id) {
            Some(known) => known.clone_from(waker),
            None => _ = sleepers.wakers.insert(self.id, waker.clone()),
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // The waker is dropped outside of the lock: it may own the task that owns this.
        let waker = self.switch.sleepers().wakers.remove(&self.id);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic::AtomicUsize, task::Wake};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_who_sleeps_and_keeps_nobody_who_has_gone() {
        let switch = Arc::new(Switch::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let (stays, goes) = (Sleeper::new(&switch), Sleeper::new(&switch));
        stays.register(&waker);
        stays.register(&waker);
        goes.register(&waker);
        drop(goes);
        switch.set_all(true);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        drop(stays);
        assert!(switch.sleepers().wakers.is_empty());
    }

    #[test]
    fn has_room_for_so_many_keys_and_no_more() {
        let switch = Switch::default();
        let key = |n: usize| Key::new(format!("key {n}"));
        assert!((0..MAX_KEYS).all(|n| switch.set_key(&key(n), true)));
        assert!(!switch.set_key(&key(MAX_KEYS), true));
        assert!(switch.set_key(&key(7), true), "it is off already");
        assert!(switch.is_off(&key(7)) && !switch.is_off(&key(MAX_KEYS)));
        assert!(switch.set_key(&key(7), false) && !switch.is_off(&key(7)));
        assert!(switch.set_key(&key(MAX_KEYS), true));
    }
}
