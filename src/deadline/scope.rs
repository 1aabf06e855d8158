//! What the request being served hands on to the calls that are made for it.

use super::{Deadline, Marker, RetryAttempt};
use http::{Request, request::Parts};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Instant,
};
use tower_layer::Layer;
use tower_service::Service;

tokio::task_local! {
    static CURRENT: Scope;
}

/// The deadline and the ownership of the request being served. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    deadline: Option<Instant>,
    attempt: Option<RetryAttempt>,
    /// The last call in this scope that was given up.
    noted: Arc<Mutex<Option<Marker>>>,
}

impl Scope {
    pub(crate) fn new(deadline: Option<Instant>, attempt: Option<RetryAttempt>) -> Self {
        let noted = Arc::default();
        Self {
            deadline,
            attempt,
            noted,
        }
    }

    /// The same scope with an earlier deadline, if this is one.
    pub(crate) fn until(&self, deadline: Option<Instant>) -> Self {
        let deadline = self.deadline.into_iter().chain(deadline).min();
        Self {
            deadline,
            ..self.clone()
        }
    }

    /// The scope that a request is served in, and takes with it what was captured for it: the task's
    /// own from here on counts.
    pub(super) fn around(request: &mut Parts) -> Option<Self> {
        let captured = request.extensions.remove::<Captured>();
        captured.map(|captured| captured.0).or_else(Self::current)
    }

    /// The same scope with another owner of the retries.
    pub(crate) fn owned_by(&self, attempt: RetryAttempt) -> Self {
        let attempt = Some(attempt);
        Self {
            attempt,
            ..self.clone()
        }
    }

    /// The scope of this task.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// What a request inherits: the scope that was captured for it, else that of the task.
    pub(crate) fn inherited(request: &Parts) -> Option<Self> {
        let captured = request.extensions.get::<Captured>();
        captured
            .map(|captured| captured.0.clone())
            .or_else(Self::current)
    }

    /// Whether a request inherits anything.
    pub(crate) fn is_inherited(request: &Parts) -> bool {
        CURRENT.try_with(|_| ()).is_ok() || request.extensions.get::<Captured>().is_some()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn attempt(&self) -> Option<RetryAttempt> {
        self.attempt
    }

    /// Notes that a call in this scope was given up.
    pub(crate) fn note(&self, marker: Marker) {
        *self.lock() = Some(marker);
    }

    /// The last call in this scope that was given up.
    pub(crate) fn noted(&self) -> Option<Marker> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Marker>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with this as the scope of the task.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }
}

impl Deadline {
    /// The deadline of the request that this task serves, if it has one.
    pub fn current() -> Option<Self> {
        let at = CURRENT.try_with(Scope::deadline).ok()??;
        Some(Self::at(at))
    }

    /// Makes a future inherit what this task has inherited, wherever it is polled.
    ///
    /// For futures that are handed to `tokio::spawn`: a spawned task inherits nothing by itself. What
    /// inherits and what does not is in [a table](crate::deadline#what-a-task-inherits).
    ///
    /// ```
    /// use tower_retry_budget::Deadline;
    ///
    /// # async fn handler() {
    /// tokio::spawn(Deadline::scope(async {
    ///     // Calls through a client layer end by the deadline of the request being served.
    /// }));
    /// # }
    /// ```
    pub fn scope<F: Future>(future: F) -> Scoped<F> {
        Scoped::new(Scope::current(), future)
    }

    /// Makes this the deadline of what a future does, unless it has inherited an earlier one.
    ///
    /// For work that no request asks for, such as a job. It also inherits who retries.
    pub fn limit<F: Future>(self, future: F) -> Scoped<F> {
        let current = Scope::current();
        let inherited = current.as_ref().and_then(Scope::deadline);
        let deadline = inherited.into_iter().chain(self.instant()).min();
        let scope = match current {
            Some(current) => Scope {
                deadline,
                ..current
            },
            None => Scope::new(deadline, None),
        };
        Scoped::new(Some(scope), future)
    }

    /// A layer that makes requests remember what they inherit, to be put outside of a `Buffer` or
    /// another worker. The worker is a task of its own, and would inherit nothing.
    pub const fn capture_layer() -> CaptureLayer {
        CaptureLayer(())
    }
}

pin_project_lite::pin_project! {
    /// The future of [`Deadline::scope`] and [`Deadline::limit`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Scoped<F> {
        #[pin]
        future: F,
        scope: Option<Scope>,
    }
}

impl<F> Scoped<F> {
    fn new(scope: Option<Scope>, future: F) -> Self {
        Self { future, scope }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.scope {
            Some(scope) => scope.enter(|| this.future.poll(cx)),
            None => this.future.poll(cx),
        }
    }
}

/// What a request inherits, as one of its extensions.
#[derive(Clone)]
struct Captured(Scope);

/// See [`Deadline::capture_layer`].
#[derive(Clone, Copy, Debug)]
pub struct CaptureLayer(());

impl<S> Layer<S> for CaptureLayer {
    type Service = Capture<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Capture { inner }
    }
}

/// A service that makes requests remember what they inherit. Made by [`CaptureLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Capture<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for Capture<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(scope) = Scope::current() {
            request.extensions_mut().insert(Captured(scope));
        }
        self.inner.call(request)
    }
}
