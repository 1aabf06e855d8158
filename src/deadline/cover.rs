//! Response bodies under the deadline of the request that they answer.

use super::scope::Scope;
use crate::{
    body::{BoxError, DeadlineExceeded},
    clock,
};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::time::{Sleep, sleep_until};
use tower_layer::Layer;
use tower_service::Service;

/// Lets the deadline of a request cover its response body, which streams on after the head.
///
/// Inside of a [`DeadlineLayer`](crate::DeadlineLayer) or a layer
/// [for handlers](crate::RetryBudgetLayer::for_handlers), which alone cover the head. A body that is
/// cut ends with an error ([`DeadlineExceeded`]), never as if it were complete; what its stream
/// calls inherits as the handler did.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_retry_budget::{DeadlineLayer, deadline::CoverBodyLayer};
///
/// # async fn handler() {}
/// let app: Router = Router::new()
///     .route("/", get(handler))
///     .layer(CoverBodyLayer::new())
///     .layer(DeadlineLayer::new());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CoverBodyLayer(());

impl CoverBodyLayer {
    /// Creates the layer.
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for CoverBodyLayer {
    type Service = CoverBody<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CoverBody { inner }
    }
}

/// A service whose response bodies end by the deadline. Made by [`CoverBodyLayer`].
#[derive(Clone, Copy, Debug)]
pub struct CoverBody<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for CoverBody<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<CoveredBody<R>>;
    type Error = S::Error;
    type Future = CoverFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        CoverFuture {
            scope: Scope::current(),
            future: self.inner.call(request),
        }
    }
}

pin_project! {
    /// The future of a request through [`CoverBody`].
    #[must_use = "futures do nothing unless polled"]
    pub struct CoverFuture<F> {
        #[pin]
        future: F,
        scope: Option<Scope>,
    }
}

impl<F, R, E> Future for CoverFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<CoveredBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(cx))?;
        let scope = this.scope.take();
        Poll::Ready(Ok(response.map(|body| CoveredBody {
            limit: None,
            body,
            scope,
        })))
    }
}

impl<F> fmt::Debug for CoverFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoverFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// A response body that is cut off at the deadline.
    pub struct CoveredBody<B> {
        #[pin]
        body: B,
        scope: Option<Scope>,
        // There is none until the body is pending.
        limit: Option<Pin<Box<Sleep>>>,
    }
}

impl<B> Body for CoveredBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let Some(scope) = this.scope else {
            return this.body.poll_frame(cx).map_err(Into::into);
        };
        let frame = scope.enter(|| this.body.as_mut().poll_frame(cx));
        let Some(deadline) = scope.deadline() else {
            return frame.map_err(Into::into);
        };
        match &frame {
            Poll::Pending => {
                let limit = this
                    .limit
                    .get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
                ready!(limit.as_mut().poll(cx));
            }
            // A body that never waits, for a reader who does, would go on for ever. The last of it
            // may go out: there is no more work in it.
            Poll::Ready(Some(Ok(_))) if deadline <= clock::now() && !this.body.is_end_stream() => {}
            Poll::Ready(_) => return frame.map_err(Into::into),
        }
        Poll::Ready(Some(Err(DeadlineExceeded.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> fmt::Debug for CoveredBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoveredBody").finish_non_exhaustive()
    }
}
