//! What of a call outlives the process that makes it.

use crate::body::BoxError;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// How far a call has come, to be kept in a queue and resumed after a restart.
///
/// A request extension: a new one begins a call, one that was kept resumes it. The layer then has the
/// attempts that are left and no more, waits what is left of a wait that was cut, and ends at the deadline
/// of the first admission, however often the call was resumed:
///
/// - a key that [`idempotency_keys`](crate::policy::RetryPolicyBuilder::idempotency_keys) gave it stays the same;
/// - attempts that began before count, also one whose answer was lost. Whoever must tell whether it arrived
///   puts an id of its own on the request, the same each time;
/// - of the attempts that the call was admitted with and those of today's policy the fewer count;
/// - a state over its limits is refused at once, with [`MaxAttempts`](crate::reason::StopReason::MaxAttempts)
///   or [`DeadlineReached`](crate::reason::StopReason::DeadlineReached), and nothing is sent;
/// - times are wall times. A clock that went back since cannot extend them: the state knows the latest time
///   that it has seen, and goes on from there;
/// - the attempt that resumes a call is paid for by the budget, unless it was before: when its wait began, or
///   when it was [deferred](crate::policy::RetryPolicyBuilder::defer_waits_over).
///
/// [`Persist`] keeps it. A response to a call that had one has the latest in its extensions; after a call
/// that was given up it is not to be resumed before the `503`'s own `Retry-After`.
///
/// With the feature `serde` it is serialised, with times as whole milliseconds since 1970.
///
/// ```
/// use tower_retry_budget::{Persist, RetryState};
///
/// # fn resume(kept: Option<RetryState>) -> Result<(), http::Error> {
/// let mut request = http::Request::post("http://hooks/1").body(())?;
/// request.extensions_mut().insert(kept.unwrap_or_default());
/// request.extensions_mut().insert(Persist::new(|state: RetryState| async move {
///     println!("event 1: {} attempts used", state.attempts());
///     Ok::<_, std::io::Error>(())
/// }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "wire::Wire", into = "wire::Wire"))]
pub struct RetryState {
    pub(crate) attempts: u32,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) first_attempted_at: Option<SystemTime>,
    pub(crate) not_before: Option<SystemTime>,
    pub(crate) deadline: Option<SystemTime>,
    /// The latest time that the state has seen.
    pub(crate) seen_at: Option<SystemTime>,
    /// The key that the layer gave the call, to be the same on each attempt.
    pub(crate) idempotency_key: Option<Uuid>,
    /// Whether the budget has paid for the next attempt.
    pub(crate) paid: bool,
}

impl RetryState {
    /// Creates the state of a call that was never attempted.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many attempts have begun.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How many attempts the call was admitted with. `None` before its first admission.
    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// When the first attempt began.
    pub fn first_attempted_at(&self) -> Option<SystemTime> {
        self.first_attempted_at
    }

    /// Before when the next attempt must not be made.
    pub fn not_before(&self) -> Option<SystemTime> {
        self.not_before
    }

    /// When the call ends, if it was admitted with a limit: the earliest deadline that applied then.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.deadline
    }

    /// How long `now` is before the earliest time at which the call may go on.
    pub fn wait(&self, now: SystemTime) -> Duration {
        let left = self.not_before.and_then(|at| at.duration_since(now).ok());
        left.unwrap_or_default()
    }
}

/// A persisting under way.
pub(crate) type Persisting = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

type PersistFn = dyn Fn(RetryState) -> Persisting + Send + Sync;

/// A request extension: keeps the [`RetryState`] of the call somewhere durable.
///
/// It is asked twice for every attempt: with the attempt counted before that is sent, and when a retry is
/// decided on, with the time before which it must not be made. Nothing is sent before the first has
/// succeeded: when it fails, the call stops with
/// [`Overloaded`](crate::reason::StopReason::Overloaded), and when it hangs, at the deadline. Nothing of the
/// inner service is held meanwhile. A failure of the second is logged and does no harm but that a restart
/// during the wait skips it.
#[derive(Clone)]
pub struct Persist(Arc<PersistFn>);

impl Persist {
    /// Creates it from a function that keeps a state. The states of a call come in order, the next one after
    /// the last one's future has ended.
    pub fn new<F, T, E>(persist: F) -> Self
    where
        F: Fn(RetryState) -> T + Send + Sync + 'static,
        T: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self(Arc::new(move |state| {
            let persisted = persist(state);
            Box::pin(async move { persisted.await.map_err(Into::into) })
        }))
    }

    pub(crate) fn persist(&self, state: RetryState) -> Persisting {
        (self.0)(state)
    }
}

impl fmt::Debug for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Persist(..)")
    }
}

#[cfg(feature = "serde")]
mod wire {
    use super::RetryState;
    use std::time::{Duration, SystemTime};
    use uuid::Uuid;

    /// How a state is written.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Wire {
        attempts: u32,
        max_attempts: Option<u32>,
        first_attempted_at_ms: Option<u64>,
        not_before_ms: Option<u64>,
        deadline_ms: Option<u64>,
        seen_at_ms: Option<u64>,
        idempotency_key: Option<String>,
        #[serde(default)]
        paid: bool,
    }

    impl From<RetryState> for Wire {
        fn from(state: RetryState) -> Self {
            Self {
                attempts: state.attempts,
                max_attempts: state.max_attempts,
                first_attempted_at_ms: state.first_attempted_at.map(millis),
                // Rounded up: never earlier.
                not_before_ms: state.not_before.map(|at| millis(at).saturating_add(1)),
                deadline_ms: state.deadline.map(millis),
                seen_at_ms: state.seen_at.map(millis),
                idempotency_key: state.idempotency_key.map(|key| key.to_string()),
                paid: state.paid,
            }
        }
    }

    /// A key that cannot be read is an error: with another one the call would be made twice.
    impl TryFrom<Wire> for RetryState {
        type Error = uuid::Error;

        fn try_from(wire: Wire) -> Result<Self, uuid::Error> {
            let key = wire.idempotency_key.as_deref().map(Uuid::parse_str);
            Ok(Self {
                attempts: wire.attempts,
                max_attempts: wire.max_attempts,
                first_attempted_at: wire.first_attempted_at_ms.map(time),
                not_before: wire.not_before_ms.map(time),
                deadline: wire.deadline_ms.map(time),
                seen_at: wire.seen_at_ms.map(time),
                idempotency_key: key.transpose()?,
                paid: wire.paid,
            })
        }
    }

    fn millis(time: SystemTime) -> u64 {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, crate::clock::millis)
    }

    /// What is no time on this system is over.
    fn time(millis: u64) -> SystemTime {
        let since = Duration::from_millis(millis);
        let time = SystemTime::UNIX_EPOCH.checked_add(since);
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}
