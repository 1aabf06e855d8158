//! Holds calls back for as long as a server asked one of them to wait.

use crate::budget::Key;
use http::request::Parts;
use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

type TenantFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Makes a `Retry-After` hold for all calls to the same dependency, and not for the one call that was
/// given it.
///
/// Off unless [set](crate::RetryBudgetLayer::hold_off). Then a `503` or `429` with a `Retry-After`
/// holds back every retry to its dependency until that has passed. Those that waited come back spread
/// over a further fifth of the time. A call whose deadline does not leave room for the wait stops with
/// [`RetryAfterTooLong`](crate::reason::StopReason::RetryAfterTooLong).
///
/// ```
/// use tower_retry_budget::{HoldOff, RetryBudgetLayer};
///
/// // A 429 is for one customer: it holds back this customer's calls only.
/// let hold_off = HoldOff::new().first_attempts().tenant_fn(|request| {
///     let customer = request.headers.get("x-customer")?;
///     customer.to_str().ok().map(String::from)
/// });
/// let layer = RetryBudgetLayer::new().hold_off(hold_off);
/// # let _ = layer;
/// ```
#[derive(Clone)]
pub struct HoldOff {
    longest: Duration,
    first_attempts: bool,
    tenant: Option<Arc<TenantFn>>,
    max_keys: usize,
}

impl HoldOff {
    pub(crate) const LONGEST: Duration = Duration::from_secs(60);
    pub(crate) const MAX_KEYS: usize = 4096;

    /// Creates the setting with its defaults: for at most 60 s, retries only, a `429` counts for the
    /// whole dependency, 4096 keys.
    pub fn new() -> Self {
        Self {
            longest: Self::LONGEST,
            first_attempts: false,
            tenant: None,
            max_keys: Self::MAX_KEYS,
        }
    }

    /// The defaults, and whose a tenant's calls are.
    #[cfg(feature = "serde")]
    pub(crate) fn with_same_tenants(&self) -> Self {
        Self {
            tenant: self.tenant.clone(),
            ..Self::new()
        }
    }

    /// Sets for how long at most others are held back, whatever one call was told. 60 s by default.
    #[must_use]
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Holds back first attempts too.
    #[must_use]
    pub fn first_attempts(mut self) -> Self {
        self.first_attempts = true;
        self
    }

    /// Names the tenant or the credential that a `429` is meant for. Where it names none, and without
    /// this, a `429` counts for the whole dependency, as a `503` always does.
    #[must_use]
    pub fn tenant_fn(
        mut self,
        name: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.tenant = Some(Arc::new(name));
        self
    }

    /// Sets how many dependencies and tenants are held back at once. 4096 by default. Where there is
    /// no room, only the call that was told waits.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }
}

impl Default for HoldOff {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HoldOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldOff")
            .field("longest", &self.longest)
            .field("first_attempts", &self.first_attempts)
            .field("tenant_fn", &self.tenant.is_some())
            .field("max_keys", &self.max_keys)
            .finish()
    }
}

/// What is held back, over all calls of a layer.
pub(crate) struct HoldOffs {
    setting: HoldOff,
    held: RwLock<HashMap<Held, Hold>>,
    /// The number of entries, so that nobody takes the lock while there are none.
    len: AtomicUsize,
}

/// Who is held back: a dependency, or one tenant of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    dependency: Key,
    tenant: Option<String>,
}

/// Until when, and for how long that was when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    until: Instant,
    length: Duration,
}

/// How long a call is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    pub(crate) left: Duration,
    /// How long it was when it began: what those who waited are spread over a part of.
    pub(crate) length: Duration,
}

impl HoldOffs {
    pub(crate) fn new(setting: HoldOff) -> Self {
        Self {
            setting,
            held: RwLock::default(),
            len: AtomicUsize::new(0),
        }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn setting(&self) -> &HoldOff {
        &self.setting
    }

    pub(crate) fn holds_first_attempts(&self) -> bool {
        self.setting.first_attempts
    }

    /// Whose call a request is.
    pub(crate) fn tenant(&self, request: &Parts) -> Option<String> {
        self.setting.tenant.as_ref().and_then(|name| name(request))
    }

    /// Holds back `dependency`, or one tenant of it, for `wait`.
    pub(crate) fn hold(
        &self,
        dependency: &Key,
        tenant: Option<&str>,
        wait: Duration,
        now: Instant,
    ) {
        let length = wait.min(self.setting.longest);
        let Some(until) = now.checked_add(length).filter(|_| !length.is_zero()) else {
            return;
        };
        let held = Held {
            dependency: dependency.clone(),
            tenant: tenant.map(String::from),
        };
        let mut all = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(&held) && all.len() >= self.setting.max_keys {
            all.retain(|_, hold| hold.until > now);
        }
        let hold = Hold { until, length };
        let room = all.len() < self.setting.max_keys;
        match all.entry(held) {
            // The longest of all that was asked for.
            Entry::Occupied(mut known) if known.get().until < until => _ = known.insert(hold),
            Entry::Vacant(new) if room => _ = new.insert(hold),
            _ => {}
        }
        self.len.store(all.len(), Ordering::Relaxed);
    }

    /// How long a call to `dependency` by `tenant` is held back.
    pub(crate) fn held_back(
        &self,
        dependency: &Key,
        tenant: Option<&str>,
        now: Instant,
    ) -> Option<HeldBack> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let all = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let of = |tenant: Option<&str>| {
            let held = Held {
                dependency: dependency.clone(),
                tenant: tenant.map(String::from),
            };
            let hold = all.get(&held)?;
            let left = hold.until.checked_duration_since(now)?;
            let length = hold.length;
            (!left.is_zero()).then_some(HeldBack { left, length })
        };
        let tenants = tenant.and_then(|tenant| of(Some(tenant)));
        of(None)
            .into_iter()
            .chain(tenants)
            .max_by_key(|held| held.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    fn search() -> Key {
        Key::from_static("search")
    }

    #[test]
    fn holds_back_until_the_longest_wait_has_passed() {
        let holds = HoldOffs::new(HoldOff::new());
        let now = clock::now();
        assert_eq!(holds.held_back(&search(), None, now), None);
        holds.hold(&search(), None, 5 * SECOND, now);
        holds.hold(&search(), None, 2 * SECOND, now);
        let left = |after| {
            let held = holds.held_back(&search(), None, now + after);
            held.map(|held| held.left)
        };
        assert_eq!(left(2 * SECOND), Some(3 * SECOND));
        assert_eq!(left(5 * SECOND), None);
        let other = Key::from_static("other");
        assert_eq!(holds.held_back(&other, None, now), None);
    }

    #[test]
    fn holds_back_a_tenant_and_not_the_others() {
        let holds = HoldOffs::new(HoldOff::new());
        let now = clock::now();
        holds.hold(&search(), Some("a"), SECOND, now);
        assert!(holds.held_back(&search(), Some("a"), now).is_some());
        assert!(holds.held_back(&search(), Some("b"), now).is_none());
        assert!(holds.held_back(&search(), None, now).is_none());
        holds.hold(&search(), None, 2 * SECOND, now);
        let held = holds.held_back(&search(), Some("a"), now);
        assert_eq!(held.map(|held| held.left), Some(2 * SECOND));
    }

    #[test]
    fn is_bounded_in_time_and_in_keys() {
        let holds = HoldOffs::new(HoldOff::new().longest(3 * SECOND).max_keys(2));
        let now = clock::now();
        for name in ["a", "b", "c"] {
            holds.hold(&Key::from_static(name), None, Duration::MAX, now);
        }
        let held = |name, now| holds.held_back(&Key::from_static(name), None, now);
        assert_eq!(held("a", now).map(|held| held.left), Some(3 * SECOND));
        assert_eq!(held("c", now), None);
        // What has passed makes room.
        let later = now + 3 * SECOND;
        holds.hold(&Key::from_static("c"), None, SECOND, later);
        assert!(held("c", later).is_some());
    }
}
