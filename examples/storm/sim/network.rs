//! The way to the server and back: what the layers call.

use super::{
    random::{Delay, Random},
    record::Recorder,
    server::{Answer, Ask, Server},
};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Empty;
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};
use tower::Service;

pub(crate) type Body = Empty<Bytes>;

/// The server, who watches it, and the way there. There is one for all clients of a run.
pub(crate) struct Place {
    network: Delay,
    random: Random,
    server: Box<dyn Server>,
    pub(crate) record: Recorder,
}

impl Place {
    pub(crate) fn new(network: Delay, server: Box<dyn Server>, seed: u64) -> Self {
        Self {
            network,
            random: Random::new(seed, "network"),
            server,
            record: Recorder::default(),
        }
    }
}

/// A client's connection to the server: a plain tower service, of the kind that the layer wraps.
///
/// An attempt ends where its future is dropped; what the server has begun it finishes all the same.
#[derive(Clone)]
pub(crate) struct Link {
    place: Arc<Mutex<Place>>,
    start: Instant,
    under_way: Arc<AtomicUsize>,
}

impl Link {
    pub(crate) fn new(place: Arc<Mutex<Place>>, start: Instant) -> Self {
        let under_way = Arc::default();
        Self {
            place,
            start,
            under_way,
        }
    }

    /// The attempts of this client that are under way, for a rule that needs to know.
    pub(crate) fn under_way(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.under_way)
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        lock(&self.place)
    }

    /// The time since the run began.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Asks the server, and says when its answer is back.
    fn ask<B>(&self, request: &Request<B>, at: Duration) -> (Answer, Duration) {
        let mut place = self.place();
        let place = &mut *place;
        let answer = place.server.arrive(Ask::new(request, at));
        let back = place.network.draw(&mut place.random);
        let queued = place.server.queued(at);
        place.record.request(at, queued);
        let returns = answer.at + back;
        (answer, returns)
    }
}

impl<B: Send + 'static> Service<Request<B>> for Link {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let link = self.clone();
        let sent = link.now();
        let under_way = UnderWay::new(&link.under_way);
        Box::pin(async move {
            let _under_way = under_way;
            let there = {
                let mut place = link.place();
                let place = &mut *place;
                place.network.draw(&mut place.random)
            };
            // Times add up exactly; only waking up is rounded to the timer's milliseconds. So a
            // request comes to the server with the time at which it really would.
            let arrives = sent + there;
            if !there.is_zero() {
                sleep_until(link.start + arrives).await;
            }
            let (answer, returns) = link.ask(&request, arrives);
            sleep_until(link.start + returns).await;
            Ok(response(&answer))
        })
    }
}

fn response(answer: &Answer) -> Response<Body> {
    let mut response = Response::new(Body::new());
    *response.status_mut() = answer.status;
    if let Some(after) = answer.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, after.as_secs().into());
    }
    response
}

/// Counts an attempt until it ends or is abandoned.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
