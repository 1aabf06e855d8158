//! The bare cost of what no such layer can leave out: a copy of the head that can be sent again, a look
//! at the clock when the call begins and when it ends, the key of its account, and a deposit.
//!
//! It decides nothing, limits nothing and can repeat nothing. It says what part of the layer's cost
//! could at best be saved.

use http::{Method, Request, Response, Uri};
use pin_project_lite::pin_project;
use std::{
    future::Future,
    hint::black_box,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant as Now,
};
use tokio::time::Instant;
use tower::Service;
use tower_retry_budget::budget::{Budget, Key, TokenBudget};

/// Tells layers inside who retries.
#[derive(Clone)]
struct Mark;

#[derive(Clone)]
pub struct Floor<S> {
    inner: S,
    budget: Arc<dyn Budget>,
}

impl<S> Floor<S> {
    pub fn new(inner: S) -> Self {
        let budget = Arc::new(TokenBudget::default());
        Self { inner, budget }
    }
}

impl<S, B, R> Service<Request<B>> for Floor<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = FloorFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let started = Instant::now().into_std();
        let fields = request.headers().iter();
        let size = fields.map(|(name, value)| name.as_str().len() + value.len() + 8);
        let mut headers = Vec::with_capacity(size.sum());
        for (name, value) in request.headers() {
            let lengths = [name.as_str().len(), value.len()].map(usize::to_le_bytes);
            headers.extend_from_slice(&lengths[0][..4]);
            headers.extend_from_slice(&lengths[1][..4]);
            headers.extend_from_slice(name.as_str().as_bytes());
            headers.extend_from_slice(value.as_bytes());
        }
        let head = (request.method().clone(), request.uri().clone(), headers);
        let key = Key::from_uri(request.uri());
        request.extensions_mut().insert(Mark);
        FloorFuture {
            started,
            head: Some(head),
            key,
            budget: self.budget.clone(),
            future: self.inner.call(request),
        }
    }
}

pin_project! {
    pub struct FloorFuture<F> {
        #[pin]
        future: F,
        head: Option<(Method, Uri, Vec<u8>)>,
        started: Now,
        key: Key,
        budget: Arc<dyn Budget>,
    }
}

impl<F, R, E> Future for FloorFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let now = Instant::now().into_std();
        let failed = !matches!(&result, Ok(response) if response.status().is_success());
        this.budget.deposit(this.key, failed, now);
        black_box((this.started, this.head.take()));
        Poll::Ready(result)
    }
}
