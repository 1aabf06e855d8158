//! Credentials that are refreshed when a server refuses them.

use crate::body::BoxError;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use http::HeaderValue;
use std::{
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type RefreshFn =
    dyn Fn() -> BoxFuture<'static, Result<Option<HeaderValue>, BoxError>> + Send + Sync;

/// A refresh under way, shared by the calls that wait for it. Tells whether it succeeded.
pub(crate) type Refreshing = Shared<BoxFuture<'static, bool>>;

/// How credentials are refreshed after a `401` or `403`.
///
/// Without it both are final answers. With it such a call waits for the refresh and is sent exactly once
/// more, whatever its method: the server has refused it. That retry counts as an attempt, and is not
/// withdrawn from the budget. A second refusal is the answer of the call, as is the first one when the
/// refresh fails or panics, does not end before the deadline, or when there is no attempt left.
///
/// Calls that are refused while a refresh is under way wait for that one. A call that was sent before the
/// last refresh ended is sent again without another. Clones share all that. The refresh goes on while
/// somebody waits for it.
///
/// ```
/// use std::io;
/// use tower_retry_budget::policy::{Credentials, RetryPolicy};
///
/// # async fn fetch_token() -> io::Result<()> { Ok(()) }
/// // A layer inside puts the token, which is stored elsewhere, on each attempt.
/// let policy = RetryPolicy::builder()
///     .credentials(Credentials::refreshed_by(fetch_token))
///     .build()?;
/// # let _ = policy;
/// # Ok::<_, tower_retry_budget::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    refresh: Box<RefreshFn>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many refreshes have succeeded.
    generation: u64,
    authorization: Option<HeaderValue>,
    under_way: Option<WeakShared<BoxFuture<'static, bool>>>,
}

impl Credentials {
    /// Creates credentials that a layer inside of the retries puts on each attempt, and that `refresh`
    /// renews wherever that layer finds them.
    pub fn refreshed_by<F, T, E>(refresh: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::new(move || {
            let refreshed = refresh();
            async move { refreshed.await.map(|()| None).map_err(Into::into) }.boxed()
        })
    }

    /// Creates credentials that `refresh` returns as the value of an `Authorization` header. It replaces
    /// the caller's on the attempt that follows; first attempts carry what the caller gave them.
    ///
    /// Whoever answers `401` or `403` is sent it. A policy with such credentials is for the hosts that may see
    /// them and for no others: choose it by [`policy_fn`](crate::RetryBudgetLayer::policy_fn) or on the request.
    pub fn authorization_by<F, T, E>(refresh: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<HeaderValue, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::new(move || {
            let refreshed = refresh();
            async move { refreshed.await.map(Some).map_err(Into::into) }.boxed()
        })
    }

    fn new(
        refresh: impl Fn() -> BoxFuture<'static, Result<Option<HeaderValue>, BoxError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            refresh: Box::new(refresh),
            state: Mutex::default(),
        }))
    }

    /// How many refreshes have succeeded so far.
    pub(crate) fn generation(&self) -> u64 {
        self.state().generation
    }

    /// The value of the header, if the last refresh returned one.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.state().authorization.clone()
    }

    /// Refreshes, or joins the refresh that is under way, unless there was one since `seen`.
    pub(crate) fn refresh(&self, seen: u64) -> Refreshing {
        let mut state = self.state();
        if state.generation > seen {
            return std::future::ready(true).boxed().shared();
        }
        let under_way = state.under_way.as_ref().and_then(WeakShared::upgrade);
        if let Some(refreshing) = under_way.filter(|refreshing| refreshing.peek().is_none()) {
            return refreshing;
        }
        let this = self.clone();
        let refreshing = async move {
            let hook = AssertUnwindSafe(async { (this.0.refresh)().await });
            // Its panic would be that of every call that waits, in turn.
            let refreshed = hook.catch_unwind().await;
            let refreshed = refreshed.unwrap_or_else(|_| Err("the refresh panicked".into()));
            if let Err(error) = &refreshed {
                crate::observe::not_refreshed(&**error);
            }
            let mut state = this.state();
            state.under_way = None;
            let Ok(authorization) = refreshed else {
                return false;
            };
            state.generation += 1;
            state.authorization = authorization;
            true
        };
        let refreshing = refreshing.boxed().shared();
        state.under_way = refreshing.downgrade();
        refreshing
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("refreshes", &self.generation())
            .finish_non_exhaustive()
    }
}
