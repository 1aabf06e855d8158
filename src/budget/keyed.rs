//! A bounded map from keys to accounts.
//!
//! # Memory
//!
//! An entry is a key of at most 64 bytes and its account. Hash tables grow by doubling and are at
//! most seven eighths full, so the default limit of 4096 keys costs about 1.4 megabytes with the
//! accounts of the token budget, however many different keys are asked for.
//!
//! # What happens at the limit
//!
//! The map first looks for entries that may be evicted: those of which the caller's test says that
//! idling has refilled them, so that making one anew never gives anybody more than waiting would
//! have. It goes from shard to shard until it finds one, and over each at most once a second, so that
//! it costs a flood of different keys next to nothing each. If it finds none, the new key shares one
//! overflow account with all others in its position, until there is room.

use super::{Key, hash::Seed};
use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How many keys a budget has room for unless told otherwise: far more than a service has
/// dependencies, few enough that even the accounts of a proxy to the whole web cost little memory.
pub(crate) const DEFAULT_LIMIT: usize = 4096;

/// Few threads ever wait for the same shard, since all but the first use of a key take it for
/// reading.
const SHARDS: usize = 16;

/// How long a shard is not searched again for entries to evict.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

type Shard<T> = RwLock<HashMap<Key, T, Seed>>;

type Create<T> = Box<dyn Fn(Instant) -> T + Send + Sync>;

type IsRefilled<T> = Box<dyn Fn(&T, Instant) -> bool + Send + Sync>;

/// A map from keys to `T`, filled on demand and bounded.
///
/// The closures run under a lock of the map: they must be short and must not use the map.
pub(crate) struct KeyMap<T> {
    shards: [Shard<T>; SHARDS],
    overflow: OnceLock<T>,
    /// Entries over all shards. Grows under the lock of the shard that gets the entry.
    len: AtomicUsize,
    overflowed: AtomicU64,
    limit: usize,
    sweep: Mutex<Sweep>,
    create: Create<T>,
    is_refilled: IsRefilled<T>,
}

/// How far the search for entries to evict has come in its round over the shards.
struct Sweep {
    next: usize,
    /// When the last round ended.
    ended: Option<Instant>,
}

/// Whose account a closure was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    Own,
    Overflow,
}

impl<T> KeyMap<T> {
    /// Creates an empty map with room for `limit` keys.
    ///
    /// `create` makes the account of a new key; `is_refilled` tells whether one that has been idle
    /// holds at least as much as a new one.
    pub(crate) fn new(
        limit: usize,
        create: impl Fn(Instant) -> T + Send + Sync + 'static,
        is_refilled: impl Fn(&T, Instant) -> bool + Send + Sync + 'static,
    ) -> Self {
        let seed = Seed::random();
        Self {
            shards: std::array::from_fn(|_| Shard::new(HashMap::with_hasher(seed))),
            overflow: OnceLock::new(),
            len: AtomicUsize::new(0),
            overflowed: AtomicU64::new(0),
            limit,
            sweep: Mutex::new(Sweep {
                next: 0,
                ended: None,
            }),
            create: Box::new(create),
            is_refilled: Box::new(is_refilled),
        }
    }

    /// Uses the account of `key`, made now if it is new, or the overflow account if there is no
    /// room for it.
    pub(crate) fn with<R>(
        &self,
        key: &Key,
        now: Instant,
        use_it: impl FnOnce(&T, Account) -> R,
    ) -> R {
        if !key.is_overflow() {
            let shard = self.shard(key);
            // Asked before the shard is locked: if the last place has just been taken for this very
            // key, that was under the shard's lock, and the look-up waits for it and finds the key.
            let full = self.is_full();
            {
                let entries = shard.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(account) = entries.get(key) {
                    return use_it(account, Account::Own);
                }
            }
            if !full || self.make_room(now) {
                let mut entries = shard.write().unwrap_or_else(PoisonError::into_inner);
                match entries.entry(key.clone()) {
                    Entry::Occupied(entry) => return use_it(entry.get(), Account::Own),
                    Entry::Vacant(entry) if self.reserve() => {
                        return use_it(entry.insert((self.create)(now)), Account::Own);
                    }
                    Entry::Vacant(_) => {}
                }
            }
        }
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        let overflow = self.overflow.get_or_init(|| (self.create)(now));
        use_it(overflow, Account::Overflow)
    }

    /// Uses the account that `key` has, and makes none: a key without one passes `None`.
    pub(crate) fn with_existing<R>(&self, key: &Key, use_it: impl FnOnce(Option<&T>) -> R) -> R {
        if key.is_overflow() {
            return use_it(self.overflow.get());
        }
        let entries = self
            .shard(key)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        use_it(entries.get(key))
    }

    /// Looks at the account that a use of `key` would find: its own, or the shared one when there is
    /// no room; `None` when one would be made.
    pub(super) fn look<R>(&self, key: &Key, look: impl Fn(&T) -> R) -> Option<R> {
        let own = self.with_existing(key, |account| account.map(&look));
        own.or_else(|| match self.is_full() {
            true => self.with_existing(&Key::OVERFLOW, |account| account.map(&look)),
            false => None,
        })
    }

    /// Uses all accounts of keys, one after the other.
    #[cfg(feature = "redis")]
    pub(super) fn for_each(&self, mut use_it: impl FnMut(&Key, &T)) {
        for shard in &self.shards {
            let entries = shard.read().unwrap_or_else(PoisonError::into_inner);
            for (key, account) in entries.iter() {
                use_it(key, account);
            }
        }
    }

    /// How many keys have an account of their own.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether a new key finds no room, unless something can be evicted for it.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// How many times a key found no room and used the overflow account.
    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &Key) -> &Shard<T> {
        // The high byte is the best mixed, and the remainder is always within the array.
        let [.., high] = key.spread().to_le_bytes();
        &self.shards[usize::from(high) % SHARDS]
    }

    /// Takes one of the places, if one is left.
    fn reserve(&self) -> bool {
        self.len
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| {
                (len < self.limit).then_some(len.saturating_add(1))
            })
            .is_ok()
    }

    /// Goes on with the round over the shards until something was evicted. Nobody waits for it:
    /// while one thread searches, others take the overflow account.
    fn make_room(&self, now: Instant) -> bool {
        let mut sweep = match self.sweep.try_lock() {
            Ok(sweep) => sweep,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if sweep.next == 0 {
            let rested = |ended| now.saturating_duration_since(ended) >= SWEEP_INTERVAL;
            if !sweep.ended.is_none_or(rested) {
                return false;
            }
        }
        while let Some(shard) = self.shards.get(sweep.next) {
            sweep.next += 1;
            if self.evict(shard, now) {
                return true;
            }
        }
        *sweep = Sweep {
            next: 0,
            ended: Some(now),
        };
        false
    }

    fn evict(&self, shard: &Shard<T>, now: Instant) -> bool {
        let mut entries = shard.write().unwrap_or_else(PoisonError::into_inner);
        let before = entries.len();
        entries.retain(|_, account| !(self.is_refilled)(account, now));
        let evicted = before.saturating_sub(entries.len());
        self.len.fetch_sub(evicted, Ordering::Relaxed);
        evicted > 0
    }
}

impl<T> fmt::Debug for KeyMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMap")
            .field("len", &self.len())
            .field("limit", &self.limit)
            .field("overflowed", &self.overflowed())
            .finish_non_exhaustive()
    }
}

/// Locks an account. A panic cannot leave one half changed, since nothing under the lock panics.
pub(super) fn lock<T>(account: &Mutex<T>) -> MutexGuard<'_, T> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    const REFILL: Duration = Duration::from_secs(3);

    fn map(limit: usize) -> KeyMap<Instant> {
        // An account is refilled that long after it was made.
        KeyMap::new(
            limit,
            |now| now,
            |made, now| now.saturating_duration_since(*made) >= REFILL,
        )
    }

    fn key(n: usize) -> Key {
        Key::new(format!("key {n}"))
    }

    #[test]
    fn does_not_pass_the_limit_when_threads_race_for_the_last_places() {
        let map = Arc::new(map(100));
        let now = crate::clock::now();
        let barrier = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (map, barrier) = (map.clone(), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    // Neighbouring threads share half of their keys.
                    for n in 0..200 {
                        map.with(&key(thread * 100 + n), now, |_, _| ());
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(map.len(), 100);
        let entries = map.shards.iter().map(|shard| shard.read().unwrap().len());
        assert_eq!(entries.sum::<usize>(), 100);
    }

    #[test]
    fn gives_one_key_one_account_when_threads_race_for_the_only_place() {
        for _ in 0..200 {
            let map = Arc::new(map(1));
            let now = crate::clock::now();
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let map = map.clone();
                    std::thread::spawn(move || map.with(&key(0), now, |_, account| account))
                })
                .collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), Account::Own);
            }
        }
    }

    #[test]
    fn evicts_what_is_refilled_in_whatever_shard_and_nothing_else() {
        let map = map(64);
        let start = crate::clock::now();
        for n in 0..64 {
            // Every other account is made two seconds later.
            let made = if n % 2 == 0 {
                start
            } else {
                start + Duration::from_secs(2)
            };
            map.with(&key(n), made, |_, _| ());
        }
        let has = |n| map.with_existing(&key(n), |account| account.is_some());
        for n in 64..96 {
            assert_eq!(map.with(&key(n), start + REFILL, |_, a| a), Account::Own);
        }
        assert!((0..64).all(|n| has(n) == (n % 2 == 1)));
        assert_eq!(
            map.with(&key(96), start + REFILL, |_, a| a),
            Account::Overflow
        );
        assert_eq!((map.len(), map.overflowed()), (64, 1));
    }

    #[test]
    fn searches_each_shard_at_most_once_a_second() {
        let tested = Arc::new(AtomicUsize::new(0));
        let count = tested.clone();
        let map = KeyMap::new(
            100,
            |_| (),
            move |(), _| {
                count.fetch_add(1, Ordering::Relaxed);
                false
            },
        );
        let start = crate::clock::now();
        for n in 0..5_000 {
            map.with(&key(n), start, |_, _| ());
        }
        assert_eq!(tested.load(Ordering::Relaxed), 100);
        map.with(&key(5_000), start + Duration::from_millis(999), |_, _| ());
        assert_eq!(tested.load(Ordering::Relaxed), 100);
        map.with(&key(5_000), start + Duration::from_secs(1), |_, _| ());
        assert_eq!(tested.load(Ordering::Relaxed), 200);
    }

    #[test]
    fn works_on_after_a_closure_panicked() {
        let map = map(1);
        let now = crate::clock::now();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            map.with(&key(0), now, |_, _| panic!("under the write lock"));
        }));
        assert!(panicked.is_err());
        assert_eq!(map.with(&key(0), now, |_, a| a), Account::Own);
    }
}
