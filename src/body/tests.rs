//! What an attempt carries, what it costs, and when there is no other one.

mod attempts;
mod bounds;
mod hyper;
mod property;
mod whole;

use super::{BoxError, Replay, ReplayBody, ReplayMemory, ResponseBody};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

const LIMIT: usize = 1024;

/// One poll of a [`Script`].
#[derive(Clone, Debug)]
enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    Pending,
    Fail,
    Panic,
}

fn data(data: &str) -> Step {
    Step::Data(Bytes::copy_from_slice(data.as_bytes()))
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("sum"))])
}

/// A body that follows a script, counts its polls, and must not be polled after its end.
#[derive(Debug, Default)]
struct Script {
    steps: VecDeque<Step>,
    exact: Option<u64>,
    knows_its_end: bool,
    over: bool,
    polls: Arc<AtomicUsize>,
}

impl Script {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self {
            steps,
            ..Self::default()
        }
    }

    /// Has the exact length of its data.
    fn sized(mut self) -> Self {
        self.exact = Some(self.steps.iter().map(step_len).sum());
        self
    }

    /// Answers `is_end_stream` after its last frame.
    fn knowing_its_end(mut self) -> Self {
        self.knows_its_end = true;
        self
    }

    fn polls(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.polls)
    }
}

fn step_len(step: &Step) -> u64 {
    match step {
        Step::Data(data) => data.len() as u64,
        _ => 0,
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        assert!(!self.over, "polled after its end");
        self.polls.fetch_add(1, Ordering::Relaxed);
        let step = self.steps.pop_front();
        if let (Some(exact), Some(step)) = (&mut self.exact, &step) {
            *exact -= step_len(step);
        }
        let next = match step {
            Some(Step::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Step::Fail) => Some(Err("the source failed")),
            Some(Step::Panic) => {
                self.over = true;
                panic!("the source panicked");
            }
            Some(Step::Pending) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            None => None,
        };
        self.over = matches!(next, None | Some(Err(_)));
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.knows_its_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.exact
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Woken {
    fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::<Self>::default();
        (Arc::clone(&woken), woken.into())
    }

    fn times(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a body carried to its end.
#[derive(Debug, Default, PartialEq)]
struct Carried {
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
    frames: usize,
}

type Polled<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

fn poll<B: Body + Unpin>(body: &mut B) -> Polled<B> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

/// Polls to the end, and checks after each frame that the hints were true.
fn carry<B>(body: &mut B) -> Result<Carried, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let exact = body.size_hint().exact();
    let least = body.size_hint().lower();
    let mut carried = Carried::default();
    loop {
        let at_end = body.is_end_stream();
        match poll(body) {
            Poll::Pending => assert!(!at_end),
            Poll::Ready(None) => break,
            Poll::Ready(Some(frame)) => {
                assert!(!at_end, "a frame after the end");
                carried.frames += 1;
                match frame?.into_data() {
                    Ok(data) => carried.data.extend_from_slice(&data),
                    Err(frame) => carried.trailers = frame.into_trailers().ok(),
                }
                let sent = carried.data.len() as u64;
                if let Some(exact) = exact {
                    assert_eq!(body.size_hint().exact(), Some(exact - sent));
                }
            }
        }
    }
    let sent = carried.data.len() as u64;
    assert!(sent >= least);
    assert!(exact.is_none_or(|exact| exact == sent));
    assert!(body.is_end_stream());
    Ok(carried)
}

/// Polls one frame of data.
fn frame<B>(body: &mut B) -> Bytes
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    match poll(body) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().expect("data"),
        _ => panic!("no frame"),
    }
}

fn error_of(body: &mut ReplayBody<Script>) -> BoxError {
    match poll(body) {
        Poll::Ready(Some(Err(error))) => error,
        other => panic!("no error: {other:?}"),
    }
}

/// The decision to retry and the next attempt, in the order in which the call takes these steps.
fn retry(replay: &mut Replay<Script>, last: bool) -> Option<ReplayBody<Script>> {
    replay.prepare().then(|| {
        replay.supersede();
        replay.next(last)
    })
}

fn start(source: Script) -> (ReplayBody<Script>, Replay<Script>, Arc<ReplayMemory>) {
    let memory = ReplayMemory::new(ReplayMemory::DEFAULT_LIMIT);
    let (body, replay) = Replay::new(source, LIMIT, &memory, None);
    (body, replay, memory)
}

fn assert_send<T: Send>() {}
fn assert_sync<T: Sync>() {}
fn assert_unpin<T: Unpin>() {}

#[test]
fn has_the_auto_traits_that_clients_ask_for() {
    assert_send::<ReplayBody<axum::body::Body>>();
    assert_send::<Replay<axum::body::Body>>();
    assert_unpin::<ReplayBody<axum::body::Body>>();
    assert_sync::<ReplayBody<Script>>();
    assert_send::<ResponseBody<axum::body::Body>>();
    assert_unpin::<ResponseBody<axum::body::Body>>();
    assert_send::<super::BodyFactory>();
    assert_sync::<super::BodyFactory>();
}

#[test]
fn is_unpin_only_when_the_body_is() {
    // Only one of the two candidates for `MARK` applies to a type, or this does not compile.
    trait Marked<A> {
        const MARK: bool = true;
    }
    struct IfUnpin;
    impl<T: ?Sized> Marked<()> for T {}
    impl<T: ?Sized + Unpin> Marked<IfUnpin> for T {}

    struct Pinned(#[allow(dead_code)] std::marker::PhantomPinned);
    const { assert!(<ReplayBody<Pinned> as Marked<_>>::MARK) };
    const { assert!(<ResponseBody<Pinned> as Marked<_>>::MARK) };
}
