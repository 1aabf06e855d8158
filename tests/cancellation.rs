//! A call that is dropped sends nothing more, gives back what was not sent, and leaves nothing
//! behind, whatever it was doing.

mod support;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use std::{
    collections::VecDeque,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use support::{
    BoxError, MS, SECOND, exhausted, get, info,
    ledger::{Answer, Ledger},
    script::{Reply, Script},
    send, steady, timed,
};
use tokio::{sync::Semaphore, time::advance};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, util::BoxCloneService};
use tower_retry_budget::{
    Deadline, RetryBudgetLayer,
    body::{ReplayBody, ResponseBody, Superseded},
    reason::{Cause, RetryOutcome, StopReason},
};

/// A layer that has room for one waiting call, and for one body.
fn tight(ledger: &Arc<Ledger>) -> RetryBudgetLayer {
    RetryBudgetLayer::new()
        .policy(steady().build().expect("a valid policy"))
        .shared_budget(ledger.clone())
        .max_waiting(1)
        .max_replay_bytes(Upload::LEN)
}

/// A request body in two pieces that know when they are freed.
#[derive(Default)]
struct Upload {
    pieces: VecDeque<Bytes>,
}

struct Piece {
    _alive: Arc<()>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        b"abc"
    }
}

impl Upload {
    const LEN: usize = 6;

    fn new(alive: &Arc<()>) -> Self {
        let piece = || {
            Bytes::from_owner(Piece {
                _alive: Arc::clone(alive),
            })
        };
        Self {
            pieces: [piece(), piece()].into(),
        }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// A response body: whole, or one whose end never comes.
enum Download {
    Whole(Full<Bytes>),
    Endless { _alive: Arc<()> },
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Endless { .. } => Poll::Pending,
        }
    }
}

type Answered = Result<Response<ResponseBody<Download>>, BoxError>;

/// Everything around one call that could be left behind.
struct Scene {
    script: Script,
    ledger: Arc<Ledger>,
    /// The inner service's only permit.
    permits: Arc<Semaphore>,
    uploads: Arc<()>,
    downloads: Arc<()>,
    service: BoxCloneService<Request<Upload>, Response<ResponseBody<Download>>, BoxError>,
    instances: usize,
}

/// A call that is polled by hand.
struct Driven {
    future: Pin<Box<dyn Future<Output = Answered>>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Driven {
    fn poll(&mut self) -> Poll<Answered> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn wait(&mut self) {
        assert!(self.poll().is_pending(), "the call has nothing to wait for");
    }
}

impl Scene {
    fn new(
        replies: impl IntoIterator<Item = impl Into<Reply>>,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Self {
        let script = Script::new(replies);
        let ledger = Ledger::new(answers);
        let permits = Arc::new(Semaphore::new(1));
        let downloads = Arc::new(());
        // One count for the service, however many clones of it there are.
        let alive = Arc::new(Arc::clone(&downloads));
        let limit = tower::limit::GlobalConcurrencyLimitLayer::with_semaphore(permits.clone());
        let service = ServiceBuilder::new()
            .layer(tight(&ledger))
            .layer(limit)
            .map_response(move |response: Response<support::Body>| {
                let endless = response.headers().contains_key("x-endless");
                response.map(|body| match endless {
                    true => Download::Endless {
                        _alive: Arc::clone(&*alive),
                    },
                    false => Download::Whole(body),
                })
            })
            .service(script.clone());
        let service = BoxCloneService::new(service);
        let instances = script.instances();
        Self {
            script,
            ledger,
            permits,
            uploads: Arc::default(),
            downloads,
            service,
            instances,
        }
    }

    fn upload(&self) -> Request<Upload> {
        let request = Request::put("http://search:8080/index");
        let request = request.body(Upload::new(&self.uploads));
        request.expect("a valid request")
    }

    async fn call(&self, request: Request<Upload>) -> Driven {
        let mut service = self.service.clone();
        let future = service.ready().await.expect("ready").call(request);
        Driven {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    async fn start(&self) -> Driven {
        self.call(self.upload()).await
    }

    /// Drops the call, and looks for what it left behind.
    async fn drop(&self, call: Driven, expected: &[RetryOutcome]) {
        let sent = self.script.count();
        let Driven { future, wakes } = call;
        drop(future);
        let registered = Arc::strong_count(&wakes) - 1;
        assert_eq!(registered, 0, "a timer or a queue still knows the task");
        assert_eq!(self.ledger.settled(), expected);
        assert_eq!(self.ledger.asking(), 0);
        assert_eq!(self.script.in_flight(), 0);
        assert_eq!(self.script.instances(), self.instances);
        assert_eq!(self.permits.available_permits(), 1);
        assert_eq!(Arc::strong_count(&self.uploads), 1, "the request body");
        assert_eq!(Arc::strong_count(&self.downloads), 2, "the response body");
        let metrics = tokio::runtime::Handle::current().metrics();
        assert_eq!(metrics.num_alive_tasks(), 0);

        let woken = wakes.0.load(Ordering::SeqCst);
        advance(3600 * SECOND).await;
        tokio::task::yield_now().await;
        assert_eq!(wakes.0.load(Ordering::SeqCst), woken);
        assert_eq!(self.script.count(), sent, "sent after the call was dropped");
        assert_eq!(self.ledger.settled(), expected, "settled once");

        // The place in the waiting room and the memory for the body are free for another call.
        Script::then(&self.script, 502);
        let request = self.upload();
        let (response, took) = timed(self.service.clone().oneshot(request)).await;
        let response = response.expect("a response");
        assert_eq!((response.status().as_u16(), took), (200, 10 * MS));
        assert_eq!(info(&response).attempts, 2);
    }
}

fn endless(status: u16) -> Reply {
    let response = Response::builder().status(status).header("x-endless", "1");
    Reply::Response(response.body(Full::default()).expect("a valid response"))
}

#[tokio::test(start_paused = true)]
async fn leaves_nothing_behind_when_it_was_never_polled() {
    let scene = Scene::new([502], []);
    let call = scene.start().await;
    assert_eq!(scene.script.count(), 1);
    assert_eq!(scene.permits.available_permits(), 0);
    scene.drop(call, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn leaves_nothing_behind_of_a_first_attempt_under_way() {
    let scene = Scene::new([Reply::Hang], []);
    let mut call = scene.start().await;
    call.wait();
    assert_eq!(scene.script.in_flight(), 1);
    assert!(scene.ledger.deposits().is_empty());
    scene.drop(call, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn withdraws_nothing_when_it_is_dropped_while_a_shared_budget_is_asked() {
    for answer in [Answer::Never, Answer::granted_after(5)] {
        let scene = Scene::new([502], [answer]);
        let mut call = scene.start().await;
        call.wait();
        assert_eq!(scene.ledger.asking(), 1);
        // The store has granted it, but the call never heard of it.
        advance(6 * MS).await;
        scene.drop(call, &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn gives_the_retry_back_when_it_is_dropped_while_it_drains() {
    let scene = Scene::new([endless(502)], []);
    let mut call = scene.start().await;
    call.wait();
    assert_eq!(Arc::strong_count(&scene.downloads), 3, "not draining");
    assert_eq!(scene.permits.available_permits(), 1);
    scene.drop(call, &[RetryOutcome::NotSent]).await;
}

#[tokio::test(start_paused = true)]
async fn gives_the_retry_back_when_it_is_dropped_while_it_waits() {
    for elapsed in [0, 9, 10] {
        let scene = Scene::new([502], []);
        let mut call = scene.start().await;
        call.wait();
        assert_eq!(scene.script.in_flight(), 0);
        assert_eq!(scene.permits.available_permits(), 1);
        advance(elapsed * MS).await;
        scene.drop(call, &[RetryOutcome::NotSent]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn gives_the_retry_back_when_it_is_dropped_before_the_inner_service_is_ready() {
    let scene = Scene::new([502], []);
    let mut call = scene.start().await;
    call.wait();
    let taken = scene.permits.clone().try_acquire_owned();
    let taken = taken.expect("a call that waits holds no permit");
    advance(10 * MS).await;
    call.wait();
    assert_eq!(scene.script.count(), 1);
    drop(taken);
    // The permit is on its way to the call, which does not take it.
    scene.drop(call, &[RetryOutcome::NotSent]).await;
}

#[tokio::test(start_paused = true)]
async fn counts_a_retry_that_was_sent_as_failed_when_it_is_dropped() {
    let scene = Scene::new([Reply::Status(502), Reply::Hang], []);
    let mut call = scene.start().await;
    call.wait();
    advance(10 * MS).await;
    call.wait();
    assert_eq!(scene.script.count(), 2);
    assert_eq!(scene.script.in_flight(), 1);
    scene.drop(call, &[RetryOutcome::Failed]).await;
}

#[tokio::test(start_paused = true)]
async fn leaves_nothing_behind_of_an_answer_that_nobody_fetched() {
    let late = |status| Reply::after_ms(5, Reply::Status(status));
    // Of the first attempt, and of a retry: that one was sent.
    let scene = Scene::new([late(200)], []);
    let mut call = scene.start().await;
    call.wait();
    advance(6 * MS).await;
    assert_eq!(call.wakes.0.load(Ordering::SeqCst), 1);
    scene.drop(call, &[]).await;

    let scene = Scene::new([Reply::Status(502), late(200)], []);
    let mut call = scene.start().await;
    call.wait();
    advance(10 * MS).await;
    call.wait();
    advance(6 * MS).await;
    scene.drop(call, &[RetryOutcome::Failed]).await;
}

#[tokio::test(start_paused = true)]
async fn leaves_nothing_behind_of_a_refusal_that_nobody_fetched() {
    let scene = Scene::new([0_u16; 0], []);
    let mut request = scene.upload();
    request
        .extensions_mut()
        .insert(Deadline::after(Duration::ZERO));
    let call = scene.call(request).await;
    assert_eq!(scene.script.count(), 0);
    assert_eq!(scene.permits.available_permits(), 1);
    scene.drop(call, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn leaves_nothing_behind_when_it_is_dropped_after_its_answer() {
    for (status, attempts) in [(200, 1), (404, 1), (502, 3)] {
        let scene = Scene::new(vec![status; attempts], []);
        let mut call = scene.start().await;
        let answer = loop {
            match call.poll() {
                Poll::Ready(answer) => break answer.expect("a response"),
                Poll::Pending => advance(10 * MS).await,
            }
        };
        // Nothing is left to the drop of the future: whoever keeps it keeps nothing else.
        assert_eq!(scene.script.instances(), scene.instances);
        assert_eq!(scene.permits.available_permits(), 1);
        assert_eq!(Arc::strong_count(&scene.uploads), 1);
        drop(answer);
        let settled = scene.ledger.settled();
        assert_eq!(settled, vec![RetryOutcome::Failed; attempts - 1]);
        scene.drop(call, &settled).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drop_in_a_long_wait_is_immediate() {
    let ledger = Ledger::new([]);
    let script = Script::new([Reply::retry_after(429, "25")]);
    let service = tight(&ledger).layer(script.clone());
    let (answer, took) = timed(tokio::time::timeout(100 * MS, send(&service, get()))).await;
    assert!(answer.is_err());
    assert_eq!(took, 100 * MS);
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
    advance(3600 * SECOND).await;
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn does_not_wait_for_a_body_without_end_longer_than_it_may() {
    // The wait of 10 ms is over long before the body is given up, and counts into it.
    let scene = Scene::new([endless(502)], []);
    let (response, took) = timed(scene.service.clone().oneshot(scene.upload())).await;
    let response = response.expect("a response");
    assert_eq!((response.status().as_u16(), took), (200, 50 * MS));
    assert_eq!(Arc::strong_count(&scene.downloads), 2);

    // A deadline leaves less.
    let scene = Scene::new([endless(502)], []);
    let mut request = scene.upload();
    request.extensions_mut().insert(Deadline::after(40 * MS));
    let (response, took) = timed(scene.service.clone().oneshot(request)).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_eq!(took, 30 * MS);
}

/// A response body that always has another frame, and never any data.
struct Hollow;

impl http_body::Body for Hollow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::new()))))
    }
}

#[tokio::test(start_paused = true)]
async fn gives_up_a_body_of_empty_frames_too() {
    let ledger = Ledger::new([]);
    let script = Script::new([502]);
    let service = ServiceBuilder::new()
        .layer(tight(&ledger))
        .map_response(|response: Response<support::Body>| response.map(|_| Hollow))
        .service(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(script.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_takes_a_place_until_it_sends() {
    let scene = Scene::new([502, 502], []);
    let mut first = scene.start().await;
    first.wait();
    // Without a body, so that it is not the memory that it lacks.
    let empty = scene.upload().map(|_| Upload::default());
    let second = scene.service.clone().oneshot(empty).await;
    let second = second.expect("a response");
    assert_eq!(exhausted(&second).reason(), StopReason::Overloaded);
    assert_eq!(exhausted(&second).attempts(), 1);
    assert_eq!(
        exhausted(&second).last_status(),
        Some(http::StatusCode::BAD_GATEWAY)
    );
    // The budget was not asked.
    assert_eq!(scene.ledger.withdrawals(), [Cause::ServerError]);

    drop(first);
    Script::then(&scene.script, 502);
    Script::then(&scene.script, Reply::Hang);
    let mut third = scene.start().await;
    third.wait();
    advance(10 * MS).await;
    third.wait();
    assert_eq!(scene.script.in_flight(), 1);
    scene
        .drop(third, &[RetryOutcome::NotSent, RetryOutcome::Failed])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_under_way_takes_no_place() {
    let ledger = Ledger::new([]);
    let slow = Reply::after_ms(1000, Reply::Status(200));
    let script = Script::new([Reply::Status(502), slow, Reply::Status(502)]);
    let service = tight(&ledger).layer(script.clone());
    let (first, second) = tokio::join!(send(&service, get()), async {
        tokio::time::sleep(500 * MS).await;
        assert_eq!(script.in_flight(), 1);
        timed(send(&service, get())).await
    });
    assert_eq!(info(&first.expect("a response")).attempts, 2);
    assert_eq!(info(&second.0.expect("a response")).attempts, 2);
    assert_eq!(second.1, 10 * MS);
}

#[tokio::test(start_paused = true)]
async fn without_places_nothing_is_retried() {
    let ledger = Ledger::new([]);
    let script = Script::new([502]);
    let service = tight(&ledger).max_waiting(0).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Overloaded);
    assert_eq!(script.count(), 1);
    assert!(ledger.withdrawals().is_empty());
    // What succeeds needs no place.
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
}

/// The request body is the inner service's for as long as its attempt lives, and no longer.
#[tokio::test(start_paused = true)]
async fn frees_a_body_that_was_not_read_to_its_end() {
    let scene = Scene::new([Reply::Unread(Box::new(Reply::Hang))], []);
    let mut call = scene.start().await;
    call.wait();
    assert_eq!(Arc::strong_count(&scene.uploads), 3);
    scene.drop(call, &[]).await;
}

/// As a pooled connection does: the body of an attempt outlives its answer.
#[tokio::test(start_paused = true)]
async fn an_earlier_attempt_reads_nothing_while_the_call_waits() {
    let kept: Arc<Mutex<Vec<ReplayBody<Upload>>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let inner = tower::service_fn(move |request: Request<ReplayBody<Upload>>| {
        let mut kept = keep.lock().expect("not poisoned");
        kept.push(request.into_body());
        let response = Response::builder().status(if kept.len() == 1 { 502 } else { 200 });
        std::future::ready(response.body(support::Body::default()))
    });
    let alive = Arc::new(());
    let request = Request::put("http://search:8080/index").body(Upload::new(&alive));
    let service = tight(&Ledger::new([])).layer(inner);
    let call = send(&service, request.expect("a valid request"));
    let (response, ()) = tokio::join!(call, async {
        tokio::time::sleep(5 * MS).await;
        let mut body = kept.lock().expect("not poisoned").remove(0);
        let frame = body.frame().await.expect("an error");
        assert!(frame.expect_err("cut off").is::<Superseded>());
        kept.lock().expect("not poisoned").insert(0, body);
    });
    assert_eq!(response.expect("a response").status(), 200);
    // The retry has the whole body all the same.
    let body = kept.lock().expect("not poisoned").remove(1);
    let body = body.collect().await.expect("a whole body").to_bytes();
    assert_eq!(body, "abcabc");
}
