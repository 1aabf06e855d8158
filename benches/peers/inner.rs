//! The service inside of all stacks.

use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use http_body::Body;
use http_body_util::Full;
use pin_project_lite::pin_project;
use std::{
    convert::Infallible,
    future::Future,
    hint::black_box,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
};
use tower_service::Service;

/// Reads the request to its end, and answers.
#[derive(Clone, Default)]
pub struct Inner {
    pending: bool,
    failing: bool,
    /// Counts the requests, of which every other one fails. `None` when none does.
    requests: Option<Arc<AtomicU32>>,
}

impl Inner {
    /// Answers at once.
    pub fn ready() -> Self {
        Self::default()
    }

    /// Answers when it is polled again.
    pub fn pending() -> Self {
        Self {
            pending: true,
            ..Self::default()
        }
    }

    /// Answers at once, first with a `503`, then with a success.
    pub fn failing_first() -> Self {
        Self {
            requests: Some(Arc::default()),
            ..Self::default()
        }
    }

    /// Answers at once, with a `503`.
    #[allow(dead_code, reason = "not by everybody who has this module")]
    pub fn failing_always() -> Self {
        Self {
            failing: true,
            ..Self::default()
        }
    }
}

impl<B: Body> Service<Request<B>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Answer<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer<B> {
        let number = self.requests.as_ref();
        let number = number.map_or(1, |requests| requests.fetch_add(1, Ordering::Relaxed));
        let (head, body) = request.into_parts();
        Answer {
            head,
            body,
            pending: self.pending,
            failing: self.failing || number % 2 == 0,
        }
    }
}

pin_project! {
    pub struct Answer<B> {
        // Held until the end, as by a connection.
        head: Parts,
        #[pin]
        body: B,
        pending: bool,
        failing: bool,
    }
}

impl<B: Body> Future for Answer<B> {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if std::mem::take(this.pending) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut body = this.body;
        while !body.is_end_stream() {
            match ready!(body.as_mut().poll_frame(cx)) {
                Some(frame) => drop(black_box(frame)),
                None => break,
            }
        }
        let mut response = Response::new(Full::default());
        if *this.failing {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        Poll::Ready(Ok(response))
    }
}
