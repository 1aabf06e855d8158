//! What holds over odd inner services, odd bodies and odd classifiers.

mod support;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};
use support::{
    Body, BoxError, MS, SECOND, ample, call, exhausted, get,
    ledger::{Answer, Ledger},
    log::Log,
    request,
    script::{Readiness, Reply, Script},
    send, steady,
    wire::{Refusing, Wire, answer, status},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_retry_budget::{
    Deadline, RetryBudgetLayer, RetryPolicy,
    body::{BodyFactory, ReplayBody},
    policy::{Outcome, Verdict},
    reason::{Cause, RetryOutcome, StopReason},
};

fn quick() -> RetryPolicy {
    steady().build().expect("a valid policy")
}

fn layer() -> RetryBudgetLayer {
    RetryBudgetLayer::new().policy(quick()).budget(ample())
}

// ---------------------------------------------------------------- proof that is none

#[cfg(feature = "reqwest")]
fn reqwest_client() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy();
    client
        .retry(reqwest::retry::never())
        .build()
        .expect("as the test has it")
}

/// The order was taken (303 See Other); only the page that shows it cannot be reached.
#[cfg(feature = "reqwest")]
#[tokio::test]
async fn a_post_is_not_repeated_when_only_its_redirect_cannot_connect() {
    use tower_retry_budget::reqwest::{ClientExt, RequestBuilderExt};
    for code in [302, 303] {
        let gone = Refusing::new();
        let see = format!("location: {}\r\n", gone.uri());
        let shop = Wire::answers(vec![answer(code, &see, ""); 5]).await;
        let client = reqwest_client();
        let retry = layer().layer(client.clone().into_service());
        let order = client.post(shop.uri()).body("one bicycle");
        let outcome = order.send_with(&retry).await;
        assert_eq!(shop.count(), 1, "{code}: bicycles ordered; {outcome:?}");
    }
}

/// As above, and the second hop is cut off while it connects.
#[tokio::test]
async fn a_policy_can_doubt_the_proof_of_a_layer_that_follows_redirects() {
    // What tower-http's FollowRedirect over a hyper-util client does.
    let shop = Wire::answers(vec![status(303); 5]).await;
    let gone = Refusing::new();
    let (shop_uri, gone_uri) = (shop.uri(), gone.uri());
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<UnsyncBoxBody<Bytes, BoxError>>();
    let follow = service_fn(move |request: Request<ReplayBody<Body>>| {
        let (client, gone) = (client.clone(), gone_uri.clone());
        async move {
            let request = request.map(|body| body.boxed_unsync());
            let response = client.request(request).await?;
            if response.status() == 303 {
                let empty = Full::default().map_err(|never: Infallible| match never {});
                let next = Request::get(gone)
                    .body(empty.boxed_unsync())
                    .expect("as the test has it");
                return client.request(next).await;
            }
            Ok::<_, hyper_util::client::legacy::Error>(response)
        }
    });
    let mut post = request("POST", "one bicycle");
    *post.uri_mut() = shop_uri.parse().expect("as the test has it");
    let policy = steady().no_proof().build().expect("as the test has it");
    let outcome = send(&layer().policy(policy).layer(follow), post).await;
    assert_eq!(shop.count(), 1, "{:?}", outcome.map(|r| r.status()));
}

#[derive(Debug)]
struct Audit(io::Error);

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the audit log could not be written")
    }
}

impl Error for Audit {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Somebody inside failed to connect to something else, after the request had been processed.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_of_somebody_else_is_no_proof() {
    let audit = Audit(io::ErrorKind::ConnectionRefused.into());
    let script = Script::new([Reply::Error(audit.into())]);
    _ = send(&layer().layer(script.clone()), request("POST", "x")).await;
    assert_eq!(script.count(), 1);
}

/// A connector's own error type: nothing was sent, `is_connect` says so.
#[tokio::test]
async fn a_connection_that_was_never_established_is_proof_whatever_the_connectors_error() {
    #[derive(Debug)]
    struct ServFail;
    impl fmt::Display for ServFail {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("SERVFAIL")
        }
    }
    impl Error for ServFail {}

    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let connector = service_fn(move |_: http::Uri| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Err::<hyper_util::rt::TokioIo<tokio::net::TcpStream>, _>(
            ServFail,
        ))
    });
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build::<_, ReplayBody<Body>>(connector);
    let outcome = send(&layer().layer(client), get()).await;
    assert_eq!(tries.load(Ordering::SeqCst), 3, "{outcome:?}");
}

// ---------------------------------------------------------------- panics

/// "Whatever is no server error is a success": the first classifier that anybody writes.
#[tokio::test(start_paused = true)]
async fn a_classifier_that_calls_a_time_out_a_success_does_not_panic() {
    let lenient = |outcome: &Outcome<'_>| match outcome.status() {
        Some(status) if status.is_server_error() => Some(Verdict::retry(Cause::ServerError)),
        _ => Some(Verdict::success()),
    };
    for (attempt, total) in [(Some(50 * MS), None), (None, Some(50 * MS))] {
        let policy = steady().classifier(lenient);
        let policy = policy.attempt_timeout(attempt).total_timeout(total);
        let service = layer().policy(policy.build().expect("as the test has it"));
        let service = service.layer(Script::new([Reply::Hang]));
        let called = tokio::spawn(async move { send(&service, get()).await });
        let response = called.await.expect("no panic").expect("a response");
        assert_eq!(response.status(), 503);
    }
}

/// The far future, as somebody writes it who means "no deadline".
#[tokio::test]
async fn the_last_instant_of_all_is_a_deadline_like_any_other() {
    let mut last = tokio::time::Instant::now().into_std();
    let mut step = Duration::from_secs(1 << 62);
    while step > Duration::from_nanos(1) {
        match last.checked_add(step) {
            Some(later) => last = later,
            None => step /= 2,
        }
    }
    let service = layer().layer(Script::new([Reply::after_ms(5, Reply::Status(200))]));
    let mut request = get();
    request.extensions_mut().insert(Deadline::at(last));
    let called = tokio::spawn(async move { send(&service, request).await });
    let response = called.await.expect("no panic").expect("a response");
    assert_eq!(response.status(), 200);
}

// ---------------------------------------------------------------- hangs

/// Runs on a thread of its own: what does not end must not hang the test.
fn within<F, T>(limit: Duration, make: impl FnOnce() -> F + Send + 'static) -> Option<T>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }
            .enable_all()
            .build()
            .expect("as the test has it");
        _ = done.send(runtime.block_on(make()));
    });
    ended.recv_timeout(limit).ok()
}

/// A handler that is never out of work yields by tokio's budget, as every socket and channel does.
/// `tokio::time::timeout` ends it; see its source for how.
#[test]
fn a_busy_inner_future_is_cut_at_its_time_out() {
    async fn busy() {
        loop {
            tokio::task::consume_budget().await;
        }
    }
    let plain = within(5 * SECOND, || async {
        tokio::time::timeout(50 * MS, busy()).await
    });
    assert!(matches!(plain, Some(Err(_))), "tokio's own time-out");

    let cut = within(5 * SECOND, || async {
        let policy = steady().attempt_timeout(50 * MS).max_attempts(1);
        let layer = layer().policy(policy.build().expect("as the test has it"));
        let service = layer.layer(service_fn(|_: Request<ReplayBody<Body>>| async {
            busy().await;
            Ok::<_, Infallible>(Response::new(Body::default()))
        }));
        let response = send(&service, get()).await.expect("as the test has it");
        exhausted(&response).reason()
    });
    assert_eq!(cut, Some(StopReason::AttemptTimeout));
}

// ---------------------------------------------------------------- bodies

/// Answers 503 at once, and reads the body a little later, as hyper's connection task does.
#[derive(Clone)]
struct Early(Arc<std::sync::Mutex<Vec<&'static str>>>);

impl Service<Request<ReplayBody<Body>>> for Early {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody<Body>>) -> Self::Future {
        let seen = self.0.clone();
        Box::pin(async move {
            let first = seen.lock().expect("as the test has it").is_empty();
            if first {
                seen.lock().expect("as the test has it").push("early");
                tokio::spawn(async move {
                    tokio::time::sleep(5 * MS).await;
                    _ = request.into_body().collect().await;
                });
                let response = Response::builder().status(502);
                return Ok(response
                    .body(Full::from("busy"))
                    .expect("as the test has it"));
            }
            match request.into_body().collect().await {
                Ok(_) => seen.lock().expect("as the test has it").push("whole"),
                Err(error) => {
                    seen.lock().expect("as the test has it").push("cut short");
                    return Err(error);
                }
            }
            Ok(Response::new(Body::default()))
        })
    }
}

/// "An attempt carries the whole body, or it is not made."
#[tokio::test(start_paused = true)]
async fn no_attempt_is_made_whose_body_was_lost_while_a_budget_was_asked() {
    let policy = steady().replay_limit(4).total_timeout(None);
    let ledger = Ledger::new([Answer::granted_after(20)]);
    let layer = RetryBudgetLayer::new().policy(policy.build().expect("as the test has it"));
    let seen = Arc::default();
    let service = layer
        .shared_budget(ledger.clone())
        .layer(Early(Arc::clone(&seen)));
    let outcome = send(&service, request("PUT", "longer than four")).await;
    let seen = seen.lock().expect("as the test has it").clone();
    assert_eq!(seen, ["early"], "{:?}", outcome.map(|r| r.status()));
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
}

/// The window is there with a budget that answers at once too: the connection is another thread's.
#[test]
fn no_attempt_is_made_whose_body_was_lost_at_the_decision() {
    // Reads the rest of the body in the middle of the decision, from another thread.
    struct Racing(Arc<std::sync::Mutex<Option<ReplayBody<Body>>>>);
    impl tower_retry_budget::budget::Budget for Racing {
        fn deposit(&self, _: &tower_retry_budget::budget::Key, _: bool, _: Instant) {}
        fn withdraw(
            self: Arc<Self>,
            key: &tower_retry_budget::budget::Key,
            cause: Cause,
            _: Instant,
        ) -> tower_retry_budget::budget::Withdrawal {
            let body = self.0.lock().expect("as the test has it").take();
            let read = std::thread::spawn(move || {
                if let Some(mut body) = body {
                    let mut cx = Context::from_waker(std::task::Waker::noop());
                    _ = Pin::new(&mut body).poll_frame(&mut cx);
                }
            });
            read.join().expect("as the test has it");
            let permit = tower_retry_budget::budget::Permit::new(self, key.clone(), cause, 1000);
            tower_retry_budget::budget::Withdrawal::Granted(permit)
        }
        fn settle(
            &self,
            _: &tower_retry_budget::budget::Key,
            _: tower_retry_budget::budget::Settled,
            _: Instant,
        ) {
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("as the test has it");
    runtime.block_on(async {
        let slot = Arc::new(std::sync::Mutex::new(None));
        let policy = steady()
            .replay_limit(4)
            .build()
            .expect("as the test has it");
        let layer = RetryBudgetLayer::new()
            .policy(policy)
            .budget(Racing(slot.clone()));
        let attempts = Arc::new(AtomicUsize::new(0));
        let count = attempts.clone();
        let service = layer.layer(service_fn(move |request: Request<ReplayBody<Body>>| {
            let (slot, first) = (slot.clone(), count.fetch_add(1, Ordering::SeqCst) == 0);
            async move {
                if first {
                    *slot.lock().expect("as the test has it") = Some(request.into_body());
                    return Ok(Response::builder()
                        .status(502)
                        .body(Body::default())
                        .expect("as the test has it"));
                }
                request.into_body().collect().await?;
                Ok::<_, BoxError>(Response::new(Body::default()))
            }
        }));
        let outcome = send(&service, request("PUT", "longer than four")).await;
        let shown = format!("{:?}", outcome.map(|r| r.status()));
        assert_eq!(attempts.load(Ordering::SeqCst), 1, "{shown}");
    });
}

/// A body that was cut off must not look complete to whoever asks once more.
#[tokio::test(start_paused = true)]
async fn a_superseded_body_does_not_end_well_when_it_is_polled_again() {
    let slot = Arc::new(std::sync::Mutex::new(None));
    let kept = slot.clone();
    let service = layer().layer(service_fn(move |request: Request<ReplayBody<Body>>| {
        let first = kept.lock().expect("as the test has it").is_none();
        if first {
            *kept.lock().expect("as the test has it") = Some(request.into_body());
        }
        let status = if first { 502 } else { 200 };
        std::future::ready(Ok::<_, BoxError>(
            Response::builder()
                .status(status)
                .body(Body::default())
                .expect("as the test has it"),
        ))
    }));
    send(&service, request("PUT", "abc"))
        .await
        .expect("as the test has it");
    let mut body = slot
        .lock()
        .expect("as the test has it")
        .take()
        .expect("as the test has it");
    let error = body.frame().await;
    assert!(matches!(error, Some(Err(_))), "cut off");
    assert!(!body.is_end_stream(), "says that it is whole");
    assert_ne!(
        body.size_hint().exact(),
        Some(0),
        "says that nothing is missing"
    );
    assert!(body.frame().await.is_some(), "ends as if it were whole");
}

/// What a layer keeps is bounded by what it really holds, not by what it was shown of it.
#[tokio::test(start_paused = true)]
async fn kept_slices_do_not_hold_more_memory_than_the_limit() {
    static HELD: AtomicUsize = AtomicUsize::new(0);
    struct Page(Vec<u8>);
    impl AsRef<[u8]> for Page {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Page {
        fn drop(&mut self) {
            HELD.fetch_sub(self.0.len(), Ordering::SeqCst);
        }
    }
    fn page(shown: usize) -> Bytes {
        const PAGE: usize = 64 * 1024;
        HELD.fetch_add(PAGE, Ordering::SeqCst);
        Bytes::from_owner(Page(vec![7; PAGE])).slice(..shown)
    }
    // Chunks of a proxied body: 600 bytes each, of a read buffer of 64 KiB each.
    let chunks = (0..50).map(|_| Ok::<_, Infallible>(Frame::data(page(600))));
    let body = http_body_util::StreamBody::new(tokio_stream::iter(chunks.collect::<Vec<_>>()));
    let service = layer().max_replay_bytes(64 * 1024);
    let service = service.layer(Script::new([502]));
    let mut called = Box::pin(send(&service, get().map(|_| body)));
    assert!(
        tokio::time::timeout(5 * MS, &mut called).await.is_err(),
        "waits for the retry"
    );
    let held = HELD.load(Ordering::SeqCst);
    assert!(held <= 2 * 64 * 1024, "{held} bytes held");
}

/// "The factory is called when a retry is decided on."
#[tokio::test(start_paused = true)]
async fn a_factory_is_not_called_for_a_retry_that_is_not_made() {
    for (method, reply) in [
        ("POST", Reply::Status(500)),
        ("PUT", Reply::retry_after(503, "86400")),
    ] {
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let service = layer().layer(Script::new([reply]));
        let mut request = request(method, "abc");
        request.extensions_mut().insert(BodyFactory::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Full::<Bytes>::from("abc"))
        }));
        _ = send(&service, request).await;
        assert_eq!(made.load(Ordering::SeqCst), 0, "{method}");
    }
}

/// A body whose hint promises less than it gives.
#[tokio::test(start_paused = true)]
async fn a_body_that_gives_more_than_it_promised_is_the_same_on_every_attempt() {
    struct Lies(u8);
    impl http_body::Body for Lies {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0 += 1;
            Poll::Ready((self.0 <= 3).then(|| Ok(Frame::data(Bytes::from_static(b"ab")))))
        }
        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(1)
        }
    }
    let script = Script::new([502]);
    let service = layer().layer(script.clone());
    let response = send(&service, request("PUT", "").map(|_| Lies(0)))
        .await
        .expect("as the test has it");
    assert_eq!(response.status(), 200);
    let bodies: Vec<_> = script.seen().iter().map(|s| s.body.clone()).collect();
    assert_eq!(
        bodies,
        [Some(Bytes::from("ababab")), Some(Bytes::from("ababab"))]
    );
}

// ---------------------------------------------------------------- leaks and untrue words

/// A future that has ended and is still in scope (`pin!`, `select!`) holds nothing of the call.
#[tokio::test(start_paused = true)]
async fn a_finished_call_holds_no_inner_service_and_no_body() {
    for reply in [Reply::Status(200), Reply::io(io::ErrorKind::InvalidData)] {
        let shown = matches!(reply, Reply::Error(_));
        let script = Script::new([reply]);
        let mut service = layer().layer(script.clone());
        let future = ServiceExt::<Request<Body>>::ready(&mut service);
        let future = future
            .await
            .expect("as the test has it")
            .call(request("PUT", "abc"));
        tokio::pin!(future);
        _ = (&mut future).await;
        // This one and the service's.
        assert_eq!(script.instances(), 2, "error: {shown}");
    }
}

/// "No header value, body or query string is ever written." (observe/mod.rs)
#[cfg(feature = "reqwest")]
#[tokio::test]
async fn the_log_of_a_failed_reqwest_call_has_no_query_string() {
    use tower_retry_budget::reqwest::{ClientExt, RequestBuilderExt};
    let log = Log::listen();
    let gone = Refusing::new();
    let client = reqwest_client();
    let retry = layer().layer(client.clone().into_service());
    let uri = gone.uri().replace("q=1", "token=hunter2");
    let response = client
        .get(uri)
        .send_with(&retry)
        .await
        .expect("as the test has it");
    assert_eq!(response.status(), 503);
    assert_eq!(log.events("retries exhausted").len(), 1);
    let all = log.everything();
    assert!(!all.contains("hunter2"), "{all}");
}

/// `attempts`: "How often the request was sent."
#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_shed_inside_does_not_count_as_sent() {
    let shed = tower::load_shed::error::Overloaded::new();
    let script = Script::new([Reply::Status(502), Reply::Error(shed.into())]);
    let ledger = Ledger::new([]);
    let service = layer().shared_budget(ledger.clone()).layer(script);
    let response = send(&service, get()).await.expect("as the test has it");
    // The budget was told that the second one was not sent ...
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
    assert_eq!(exhausted(&response).reason(), StopReason::Overloaded);
    // ... and the caller that it was.
    assert_eq!(exhausted(&response).attempts(), 1);
    assert_eq!(
        exhausted(&response).last_status().map(|s| s.as_u16()),
        Some(502)
    );
}

/// `error`: "The error that the last attempt ended with". It ended with a status.
#[tokio::test(start_paused = true)]
async fn an_error_of_readiness_is_not_told_as_that_of_the_last_attempt() {
    let script = Script::new([502]);
    let error = io::Error::other("the pool is closed");
    let script = script.readiness([Readiness::Ready, Readiness::Error(error.into())]);
    let response = send(&layer().layer(script), get())
        .await
        .expect("as the test has it");
    let exhausted = exhausted(&response);
    assert_eq!(exhausted.last_status().map(|s| s.as_u16()), Some(502));
    assert_eq!(exhausted.error_type(), None);
    assert!(exhausted.error().is_none(), "{:?}", exhausted.error());
}

/// Also when the inner service took longer to get ready than the back-off.
#[tokio::test(start_paused = true)]
async fn the_wait_in_the_history_is_the_one_that_passed() {
    let script = Script::new([502]).readiness([Readiness::Ready, Readiness::Never]);
    let mut request = get();
    request.extensions_mut().insert(Deadline::after(SECOND));
    let response = send(&layer().layer(script), request)
        .await
        .expect("as the test has it");
    let waits: Vec<_> = exhausted(&response).history().map(|r| r.wait()).collect();
    assert_eq!(waits, [SECOND]);
}

/// The task that drives the connection is gone (its runtime was shut down): no fault of the request.
#[tokio::test]
async fn a_connection_task_that_is_gone_is_a_broken_connection() {
    #[derive(Clone, Default)]
    struct Spawn(Arc<std::sync::Mutex<Vec<tokio::task::AbortHandle>>>);
    impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawn {
        fn execute(&self, task: F) {
            self.0
                .lock()
                .expect("as the test has it")
                .push(tokio::spawn(task).abort_handle());
        }
    }
    let spawn = Spawn::default();
    let tasks = spawn.clone();
    let server = Wire::serve(move |mut conn| {
        let tasks = tasks.clone();
        async move {
            conn.request().await?;
            let running = std::mem::take(&mut *tasks.0.lock().expect("as the test has it"));
            let first = !running.is_empty();
            if first {
                running.iter().for_each(|task| task.abort());
                tokio::time::sleep(SECOND).await;
            }
            conn.send(status(200)).await
        }
    })
    .await;
    let client =
        hyper_util::client::legacy::Client::builder(spawn).build_http::<ReplayBody<Body>>();
    let mut request = get();
    *request.uri_mut() = server.uri().parse().expect("as the test has it");
    let outcome = send(&layer().layer(client), request).await;
    assert!(server.count() > 1, "{:?}", outcome.map(|r| r.status()));
}

/// "A call under it returns its own outcome, whatever it is."
#[tokio::test(start_paused = true)]
async fn never_skips_say_what_they_are() {
    let log = Log::listen();
    let mut service = layer().layer(Script::new([404]));
    let mut request = get();
    request.extensions_mut().insert(RetryPolicy::never());
    call(&mut service, request)
        .await
        .expect("as the test has it");
    let events = log.events("failure not retried");
    // A 404 is an answer under any policy, not a failure that was let stand because retries are off.
    assert!(
        events.iter().all(|e| e["reason"] == "final_answer"),
        "{events:?}"
    );
}
