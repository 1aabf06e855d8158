//! A request body that follows a script, and counts what it has lent out.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};
use tokio::sync::oneshot;

/// What the source of a body fails with.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the source broke")
    }
}

impl std::error::Error for Broken {}

enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    Break,
    Until(oneshot::Receiver<()>),
}

/// The body. It has no length unless it is given one, and it cannot be cloned.
#[derive(Default)]
pub struct Source {
    steps: VecDeque<Step>,
    exact: Option<u64>,
    lent: Arc<Lent>,
}

/// What was read of a source, and what of it is still somewhere in memory.
#[derive(Debug, Default)]
pub struct Lent {
    polls: AtomicUsize,
    bytes: AtomicU64,
    live: AtomicU64,
    peak: AtomicU64,
}

impl Source {
    pub fn new() -> Self {
        Self::default()
    }

    /// So many chunks of so many bytes, all from the same memory.
    pub fn chunks(count: usize, chunk: &'static [u8]) -> Self {
        let chunk = Bytes::from_static(chunk);
        let steps = std::iter::repeat_with(|| Step::Data(chunk.clone()));
        Self {
            steps: steps.take(count).collect(),
            ..Self::default()
        }
    }

    pub fn data(mut self, data: &'static str) -> Self {
        self.steps
            .push_back(Step::Data(Bytes::from_static(data.as_bytes())));
        self
    }

    pub fn trailer(mut self, name: &'static str, value: &'static str) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, http::HeaderValue::from_static(value));
        self.steps.push_back(Step::Trailers(trailers));
        self
    }

    pub fn breaks(mut self) -> Self {
        self.steps.push_back(Step::Break);
        self
    }

    /// Has nothing to give until the sender says so, or is gone.
    pub fn until(mut self) -> (Self, oneshot::Sender<()>) {
        let (sender, receiver) = oneshot::channel();
        self.steps.push_back(Step::Until(receiver));
        (self, sender)
    }

    /// Says beforehand how long it is.
    pub fn exact(mut self, len: u64) -> Self {
        self.exact = Some(len);
        self
    }

    pub fn lent(&self) -> Arc<Lent> {
        Arc::clone(&self.lent)
    }
}

impl Body for Source {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        this.lent.polls.fetch_add(1, Ordering::SeqCst);
        loop {
            let Some(step) = this.steps.front_mut() else {
                return Poll::Ready(None);
            };
            if let Step::Until(go) = step {
                _ = ready!(Pin::new(go).poll(cx));
            }
            match this.steps.pop_front() {
                Some(Step::Data(data)) => {
                    this.exact = this.exact.map(|left| left - data.len() as u64);
                    return Poll::Ready(Some(Ok(Frame::data(lend(&this.lent, data)))));
                }
                Some(Step::Trailers(trailers)) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Some(Step::Break) => return Poll::Ready(Some(Err(Broken))),
                Some(Step::Until(_)) | None => {}
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.exact
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Lent {
    /// How often the source was asked for more.
    pub fn polls(&self) -> usize {
        self.polls.load(Ordering::SeqCst)
    }

    /// How many bytes it gave.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// How many of them somebody still holds.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::SeqCst)
    }

    /// How many of them were held at once at most.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }
}

/// Bytes that are counted until the last who holds them lets go.
pub fn lend(lent: &Arc<Lent>, data: Bytes) -> Bytes {
    let len = data.len() as u64;
    lent.bytes.fetch_add(len, Ordering::SeqCst);
    let live = lent.live.fetch_add(len, Ordering::SeqCst) + len;
    lent.peak.fetch_max(live, Ordering::SeqCst);
    Bytes::from_owner(Held {
        data,
        lent: Arc::clone(lent),
    })
}

struct Held {
    data: Bytes,
    lent: Arc<Lent>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let len = self.data.len() as u64;
        self.lent.live.fetch_sub(len, Ordering::SeqCst);
    }
}
