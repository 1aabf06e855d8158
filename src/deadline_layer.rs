//! The server side of a deadline that travels.

use crate::{
    Exhausted, OnExhausted,
    body::ResponseBody,
    budget::Key,
    clock,
    deadline::{Inbound, Received, RetryHeaders},
    exhausted::{Details, respond},
    observe,
    reason::{Processed, StopReason},
    timer::Timer,
};
use http::{HeaderMap, Method, Request, Response};
use pin_project_lite::pin_project;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tower_layer::Layer;
use tower_service::Service;

/// Holds a server's handlers to the deadline of the request that they serve.
///
/// - The time left is read from the request's headers. A request that is over is answered with a
///   `503` before any work.
/// - A handler that runs is cut off at the deadline, less a reserve for the way of the answer: 5 %
///   of the time left, at least 2 and at most 50 ms.
/// - Deadline and ownership become the task's own: every client layer that is called in it inherits
///   them (see [`Deadline::scope`](crate::Deadline::scope) for spawned tasks). They are in the
///   request's extensions as [`Inherited`](crate::deadline::Inherited) too.
/// - When a call that the handler made was given up, and the handler answers with a 5xx, the caller
///   is told so in [`x-retry-exhausted`](crate::deadline::RETRY_EXHAUSTED), if it said that it
///   retries.
///
/// An inherited header can only reduce what is done for that one request: shorten it, skip its
/// retries, withhold its deposit. A value that cannot be read is as good as absent; one over 10
/// minutes is cut down to that.
///
/// ```
/// use axum::{Router, routing::get};
/// use std::time::Duration;
/// use tower_retry_budget::DeadlineLayer;
///
/// # async fn handler() {}
/// let app: Router = Router::new()
///     .route("/", get(handler))
///     .layer(DeadlineLayer::new().longest(Duration::from_secs(30)));
/// ```
///
/// It covers a response up to its head; put a [`CoverBodyLayer`](crate::deadline::CoverBodyLayer)
/// inside to have it cover the body too. [`RetryBudgetLayer::for_handlers`](crate::RetryBudgetLayer::for_handlers) does all of this as
/// well: use one of them.
#[derive(Clone, Debug)]
pub struct DeadlineLayer {
    inbound: Arc<Inbound>,
}

impl DeadlineLayer {
    /// Creates the layer.
    pub fn new() -> Self {
        let inbound = Arc::default();
        Self { inbound }
    }

    fn with(mut self, change: impl FnOnce(&mut Inbound)) -> Self {
        change(Arc::make_mut(&mut self.inbound));
        self
    }

    pub(crate) fn into_inbound(self) -> Inbound {
        Arc::unwrap_or_clone(self.inbound)
    }

    /// Sets which headers are read and written.
    #[must_use]
    pub fn headers(self, headers: RetryHeaders) -> Self {
        self.with(|inbound| inbound.headers = headers)
    }

    /// Sets the longest time that a caller can ask for. 10 minutes by default.
    #[must_use]
    pub fn longest(self, longest: Duration) -> Self {
        self.with(|inbound| inbound.longest = longest)
    }

    /// Sets between what bounds 5 % of the time left are kept back for the way of the answer. 2 to
    /// 50 ms by default.
    #[must_use]
    pub fn reserve(self, least: Duration, most: Duration) -> Self {
        self.with(|inbound| {
            inbound.reserve.least = least.min(most);
            inbound.reserve.most = most;
        })
    }

    /// For the edge, where callers are strangers: the headers are removed from requests unread, none
    /// is put into responses, and a `503` has no details.
    #[must_use]
    pub fn edge(self) -> Self {
        self.with(|inbound| inbound.edge = true)
    }
}

impl Default for DeadlineLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DeadlineService {
            inner,
            inbound: Arc::clone(&self.inbound),
        }
    }
}

/// A service that is held to its callers' deadlines. Made by [`DeadlineLayer`].
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    inner: S,
    inbound: Arc<Inbound>,
}

impl<S, B, R> Service<Request<B>> for DeadlineService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = DeadlineFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let started = clock::now();
        let (mut head, body) = request.into_parts();
        let received = self.inbound.receive(&mut head, started);
        let method = head.method.clone();
        let deadline = received.scope.deadline();
        let future = if deadline.is_some_and(|deadline| deadline <= started) {
            // The readied instance may hold a permit of the inner service: it goes with the request.
            self.inner = self.inner.clone();
            None
        } else {
            let request = Request::from_parts(head, body);
            Some(received.scope.enter(|| self.inner.call(request)))
        };
        DeadlineFuture {
            future,
            request: Served {
                inbound: Arc::clone(&self.inbound),
                received,
                method,
                started,
                deadline,
            },
            timer: Timer::default(),
        }
    }
}

pin_project! {
    /// The future of a request through [`DeadlineService`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the handler.
    #[must_use = "futures do nothing unless polled"]
    pub struct DeadlineFuture<F> {
        // `None` when the request was over before it began.
        #[pin]
        future: Option<F>,
        request: Served,
        #[pin]
        timer: Timer,
    }
}

/// What is known of the request being served.
struct Served {
    inbound: Arc<Inbound>,
    received: Received,
    method: Method,
    started: Instant,
    deadline: Option<Instant>,
}

impl<F, R, E> Future for DeadlineFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let request = this.request;
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            return Poll::Ready(Ok(request.over(0)));
        };
        match request.received.scope.enter(|| future.poll(cx)) {
            Poll::Ready(answer) => Poll::Ready(answer.map(|response| request.answered(response))),
            Poll::Pending => {
                ready!(this.timer.poll_at(request.deadline, cx));
                // The handler stops now, not when somebody drops this future.
                request.received.scope.enter(|| this.future.set(None));
                Poll::Ready(Ok(request.over(1)))
            }
        }
    }
}

impl Served {
    fn answered<R>(&self, response: Response<R>) -> Response<ResponseBody<R>> {
        let mut response = response.map(ResponseBody::inner);
        self.inbound.tell(&self.received, &mut response);
        response
    }

    /// The answer to a request that was cut off, or over before it began.
    fn over<R>(&self, attempts: u32) -> Response<ResponseBody<R>> {
        let started = attempts > 0;
        let exhausted = Exhausted::new(Details {
            attempts,
            elapsed: clock::now().saturating_duration_since(self.started),
            retryable: !started || self.method.is_idempotent(),
            processed: if started {
                Processed::Unknown
            } else {
                Processed::No
            },
            ..Details::new(StopReason::DeadlineReached, Key::from_static("handlers"))
        });
        observe::stopped(&self.method, &exhausted);
        self.received.scope.note(exhausted.marker());
        let answer = if self.inbound.edge {
            OnExhausted::Terse
        } else {
            OnExhausted::Respond
        };
        let response = respond(exhausted, HeaderMap::new(), answer, &self.method);
        let mut response = response.map(ResponseBody::own);
        self.inbound.tell(&self.received, &mut response);
        response
    }
}

impl<F> fmt::Debug for DeadlineFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineFuture").finish_non_exhaustive()
    }
}
