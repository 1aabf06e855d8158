//! An inner service that answers by a script, and refuses to be called without readiness of its own.

use super::{Body, BoxError, MS};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;
use tower::Service;

/// What the service does with one request.
pub enum Reply {
    Status(u16),
    Response(Response<Body>),
    Error(BoxError),
    /// Never answers.
    Hang,
    /// Answers only after a while.
    After(Duration, Box<Reply>),
    /// Answers without looking at the request body.
    Unread(Box<Reply>),
}

impl Reply {
    pub fn retry_after(status: u16, value: &str) -> Self {
        let response = Response::builder().status(status);
        let response = response.header("retry-after", value).body(Body::default());
        Self::Response(response.expect("a valid response"))
    }

    pub fn io(kind: std::io::ErrorKind) -> Self {
        Self::Error(std::io::Error::from(kind).into())
    }

    pub fn after_ms(ms: u32, reply: Self) -> Self {
        Self::After(ms * MS, Box::new(reply))
    }

    pub fn unread(status: u16) -> Self {
        Self::Unread(Box::new(Self::Status(status)))
    }
}

impl From<u16> for Reply {
    fn from(status: u16) -> Self {
        Self::Status(status)
    }
}

/// One request as the service saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub head: Arc<http::request::Parts>,
    /// `None` when it was not read, or could not be.
    pub body: Option<Bytes>,
    pub trailers: Option<HeaderMap>,
    /// When it arrived, since the script was written.
    pub at: Duration,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.head.headers.get(name)?;
        Some(value.to_str().expect("a readable header"))
    }
}

/// The service. A clone has the same script, but no readiness.
pub struct Script {
    shared: Arc<Shared>,
    ready: bool,
}

struct Shared {
    start: Instant,
    replies: Mutex<VecDeque<Reply>>,
    /// What follows when the replies are used up.
    rest: Mutex<Option<u16>>,
    readiness: Mutex<VecDeque<Readiness>>,
    seen: Mutex<Vec<Seen>>,
    instances: AtomicUsize,
    in_flight: Arc<()>,
}

/// What one instance says when it is asked whether it is ready. Ready, by default.
pub enum Readiness {
    Ready,
    Error(BoxError),
    Never,
}

impl Script {
    /// Answers with these, one after the other, and with 200 afterwards.
    pub fn new<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        let shared = Shared {
            start: Instant::now(),
            replies: Mutex::new(replies.into_iter().map(Into::into).collect()),
            rest: Mutex::new(Some(200)),
            readiness: Mutex::default(),
            seen: Mutex::default(),
            instances: AtomicUsize::new(1),
            in_flight: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
            ready: false,
        }
    }

    /// Always answers with this status.
    pub fn always(status: u16) -> Self {
        let script = Self::new::<Reply>([]);
        *lock(&script.shared.rest) = Some(status);
        script
    }

    /// Says this to the next polls for readiness, then is ready.
    pub fn readiness(self, states: impl IntoIterator<Item = Readiness>) -> Self {
        lock(&self.shared.readiness).extend(states);
        self
    }

    /// Adds to the end of the script while it is in use.
    pub fn then(&self, reply: impl Into<Reply>) {
        lock(&self.shared.replies).push_back(reply.into());
    }

    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    pub fn count(&self) -> usize {
        lock(&self.shared.seen).len()
    }

    /// When each request arrived.
    pub fn offsets(&self) -> Vec<Duration> {
        self.seen().iter().map(|seen| seen.at).collect()
    }

    /// How many requests are being answered.
    pub fn in_flight(&self) -> usize {
        Arc::strong_count(&self.shared.in_flight) - 1
    }

    /// How many instances of the service there are.
    pub fn instances(&self) -> usize {
        self.shared.instances.load(Ordering::SeqCst)
    }
}

impl Clone for Script {
    fn clone(&self) -> Self {
        self.shared.instances.fetch_add(1, Ordering::SeqCst);
        Self {
            shared: Arc::clone(&self.shared),
            ready: false,
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.shared.instances.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<B> Service<Request<B>> for Script
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Apart from the match, which would hold the lock to its end.
        let next = lock(&self.shared.readiness).pop_front();
        match next {
            Some(Readiness::Error(error)) => return Poll::Ready(Err(error)),
            Some(Readiness::Never) => {
                lock(&self.shared.readiness).push_front(Readiness::Never);
                return Poll::Pending;
            }
            Some(Readiness::Ready) | None => {}
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        assert!(self.ready, "called without readiness of its own");
        self.ready = false;
        let shared = Arc::clone(&self.shared);
        let (head, body) = request.into_parts();
        let index = {
            let mut seen = lock(&shared.seen);
            seen.push(Seen {
                head: Arc::new(head),
                body: None,
                trailers: None,
                at: shared.start.elapsed(),
            });
            seen.len() - 1
        };
        let rest = *lock(&shared.rest);
        let reply = lock(&shared.replies).pop_front();
        let mut reply = reply.unwrap_or_else(|| rest.map_or(Reply::Hang, Reply::Status));
        let in_flight = Arc::clone(&shared.in_flight);
        Box::pin(async move {
            let _in_flight = in_flight;
            if let Reply::Unread(unread) = reply {
                reply = *unread;
            } else {
                let collected = Box::pin(body).collect().await.map_err(Into::into)?;
                let mut seen = lock(&shared.seen);
                seen[index].trailers = collected.trailers().cloned();
                seen[index].body = Some(collected.to_bytes());
            }
            while let Reply::After(wait, then) = reply {
                tokio::time::sleep(wait).await;
                reply = *then;
            }
            match reply {
                Reply::Response(response) => Ok(response),
                Reply::Error(error) => Err(error),
                Reply::Status(status) => {
                    let mut response = Response::new(Full::from(format!("status {status}")));
                    *response.status_mut() = StatusCode::from_u16(status)?;
                    Ok(response)
                }
                _ => std::future::pending().await,
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds a lock")
}
