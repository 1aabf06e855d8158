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
    /// The account of requests without an authority. It is not looked up: behind a server it is the
    /// only one.
    no_authority: OnceLock<T>,
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
            no_authority: OnceLock::new(),
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
        if key.is_no_authority() {
            let account = self.no_authority.get_or_init(|| (self.create)(now));
            return use_it(account, Account::Own);
        }
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
        if key.is_no_authority() {
            return use_it(self.no_authority.get());
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
        own.or_else(|| match self.is_full() && !key.is_no_authority() {
            true => self.with_existing(&Key::OVERFLOW, |account| account.map(&look)),
            false => None,
        })
    }

    /// Uses all accounts of keys, one after the other.
    #[cfg(feature = "redis")]
    pub(super) fn for_each(&self, mut use_it: impl FnMut(&Key, &T)) {
        if let Some(account) = self.no_authority.get() {
            use_it(&Key::no_authority(), account);
        }
        for shard in &self.shards {
            let entries = shard.read().unwrap_or_else(PoisonError::into_inner);
            for (key, account) in entries.iter() {
                use_it(key, account);
            }
        }
    }

    /// How many keys have an account of their own.
    pub(super) fn len(&self) -> usize {
        self.entries() + usize::from(self.no_authority.get().is_some())
    }

    /// How many of them are looked up.
    fn entries(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether a new key finds no room, unless something can be evicted for it.
    pub(super) fn is_full(&self) -> bool {
        self.entries() >= self.limit
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
mod tests;
