//! A call ends by its deadline whatever it is doing, and tells the next hop how long it has.

mod support;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::Full;
use proptest::prelude::*;
use std::{
    convert::Infallible,
    future::pending,
    io::ErrorKind,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, Instant as StdInstant},
};
use support::{
    Body, MS, SECOND, ample, exhausted, get, info, json, request,
    script::{Readiness, Reply, Script},
    send, steady, text, timed,
};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_retry_budget::{
    Deadline, OnExhausted, RetryBudgetLayer, RetryPolicy,
    body::{BodyFactory, ReplayBody},
    budget::{Budget, Key, Permit, Settled, Withdrawal},
    policy::{Backoff, Idempotent, RetryPolicyBuilder},
    reason::{Cause, Processed, StopReason},
};

const LEFT: &str = "x-deadline-remaining-ms";
const ATTEMPT: &str = "x-retry-attempt";

fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

/// Never waits between attempts.
fn eager() -> RetryPolicyBuilder {
    steady()
        .backoff(Backoff::none())
        .throttled_backoff(Backoff::none())
}

fn with_deadline(mut request: Request<Body>, deadline: Deadline) -> Request<Body> {
    request.extensions_mut().insert(deadline);
    request
}

/// What each request said of one header.
fn said(script: &Script, name: &str) -> Vec<Option<String>> {
    let seen = script.seen();
    let values = seen.iter().map(|seen| seen.header(name));
    values.map(|value| value.map(Into::into)).collect()
}

/// The milliseconds that each request was told.
fn told(script: &Script) -> Vec<u64> {
    let said = said(script, LEFT).into_iter().flatten();
    said.map(|left| left.parse().expect("digits")).collect()
}

/// Fails where a call that never ended would have the test hang.
async fn in_an_hour<T>(call: impl Future<Output = T>) -> T {
    let ended = timeout(3600 * SECOND, call).await;
    ended.expect("a call that ends")
}

/// Asserts that the call ends after exactly this time, for this reason.
async fn assert_ends(
    service: impl Service<Request<Body>, Response = Response<impl Sized>, Error: std::fmt::Debug>
    + Clone,
    request: Request<Body>,
    after: Duration,
    reason: StopReason,
) {
    let (response, took) = timed(in_an_hour(send(&service, request))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 503);
    assert_eq!(exhausted(&response).reason(), reason);
    assert_eq!(exhausted(&response).elapsed(), after);
    assert_eq!(took, after);
}

#[tokio::test(start_paused = true)]
async fn shares_one_deadline_between_all_attempts() {
    let policy = steady().total_timeout(SECOND).attempt_timeout(400 * MS);
    let script = Script::new([Reply::Hang, Reply::Hang, Reply::Hang]);
    let service = layer(policy).layer(script.clone());
    assert_ends(service, get(), SECOND, StopReason::DeadlineReached).await;
    assert_eq!(script.offsets(), [Duration::ZERO, 410 * MS, 820 * MS]);
    assert_eq!(script.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn sends_nothing_once_the_first_attempt_has_used_up_the_time() {
    for (limit, ends, reason) in [
        (1000, 1000, StopReason::DeadlineReached),
        (60_000, 1000, StopReason::DeadlineReached),
        // 5 ms are less than an attempt needs.
        (995, 995, StopReason::DeadlineTooClose),
        (991, 991, StopReason::DeadlineTooClose),
    ] {
        let policy = eager().total_timeout(SECOND).attempt_timeout(limit * MS);
        let script = Script::new([Reply::Hang]);
        let service = layer(policy).layer(script.clone());
        assert_ends(service, get(), ends * MS, reason).await;
        assert_eq!(script.count(), 1);
    }
    let policy = eager().total_timeout(SECOND).attempt_timeout(990 * MS);
    let script = Script::new([Reply::Hang, Reply::Hang]);
    let service = layer(policy).layer(script.clone());
    assert_ends(service, get(), SECOND, StopReason::DeadlineReached).await;
    assert_eq!(told(&script), [990, 10]);
}

#[tokio::test(start_paused = true)]
async fn does_not_sleep_through_a_back_off_that_does_not_fit() {
    let policy = steady().backoff(Backoff::fixed(5 * SECOND));
    let script = Script::always(500);
    let service = layer(policy.total_timeout(50 * MS)).layer(script.clone());
    assert_ends(service, get(), Duration::ZERO, StopReason::DeadlineTooClose).await;
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_when_the_wait_and_the_least_attempt_just_fit() {
    let policy = |total| steady().min_attempt(20 * MS).total_timeout(total);
    let script = Script::new([500]);
    let service = layer(policy(30 * MS)).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(told(&script), [30, 20]);
    let service = layer(policy(29 * MS)).layer(Script::new([500]));
    assert_ends(service, get(), Duration::ZERO, StopReason::DeadlineTooClose).await;
}

#[tokio::test(start_paused = true)]
async fn does_not_wait_for_ever_for_a_service_that_never_gets_ready_again() {
    let script = Script::new([Reply::after_ms(100, Reply::Status(502))]);
    let script = script.readiness([Readiness::Ready, Readiness::Never]);
    let service = layer(steady().total_timeout(5 * SECOND)).layer(script.clone());
    let (response, took) = timed(in_an_hour(send(&service, get()))).await;
    let response = response.expect("a response");
    assert_eq!(took, 5 * SECOND);
    let details = exhausted(&response);
    assert_eq!(details.reason(), StopReason::DeadlineReached);
    assert_eq!(details.attempts(), 1);
    assert_eq!(details.last_status(), Some(StatusCode::BAD_GATEWAY));
    assert_eq!(details.waited(), 4900 * MS);
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn stops_when_the_service_fails_to_get_ready_and_reports_the_last_outcome() {
    let broken = std::io::Error::from(ErrorKind::BrokenPipe);
    let script = Script::new([502]);
    let script = script.readiness([Readiness::Ready, Readiness::Error(broken.into())]);
    let service = layer(steady()).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    let details = exhausted(&response);
    assert_eq!(details.reason(), StopReason::Overloaded);
    assert_eq!(details.last_status(), Some(StatusCode::BAD_GATEWAY));
    // What readiness failed with is not what the last attempt ended with.
    assert!(details.error().is_none());
}

/// Gives one byte each time that the interval has passed, and never ends.
struct Trickle(Duration, Pin<Box<tokio::time::Sleep>>);

impl Trickle {
    fn every(interval: Duration) -> Self {
        Self(interval, Box::pin(sleep(interval)))
    }
}

impl http_body::Body for Trickle {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.1.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let next = Instant::now() + self.0;
        self.1.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b".")))))
    }
}

/// When each request arrived.
type Sent = Arc<Mutex<Vec<Duration>>>;

/// Fails `latency` after each request, with a body that trickles.
fn trickling(
    latency: Duration,
    sent: &Sent,
) -> impl Service<
    Request<ReplayBody<Body>>,
    Response = Response<Trickle>,
    Error = Infallible,
    Future: Send,
> + Clone
+ use<> {
    let start = Instant::now();
    let sent = Arc::clone(sent);
    service_fn(move |_: Request<_>| {
        sent.lock().expect("no panic inside").push(start.elapsed());
        async move {
            sleep(latency).await;
            let response = Response::builder().status(500);
            let response = response.body(Trickle::every(MS));
            Ok::<_, Infallible>(response.expect("a valid response"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn gives_up_on_the_body_of_a_failed_response_that_trickles() {
    let sent = Sent::default();
    let inner = trickling(Duration::ZERO, &sent);
    let service = layer(eager().max_attempts(2)).layer(inner);
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    assert_eq!(exhausted(&response).waited(), 50 * MS);
    assert_eq!(*sent.lock().expect("no panic"), [Duration::ZERO, 50 * MS]);

    // The draining counts into the wait.
    let sent = Sent::default();
    let inner = trickling(Duration::ZERO, &sent);
    let policy = eager().max_attempts(2).backoff(Backoff::fixed(80 * MS));
    let service = layer(policy).layer(inner);
    send(&service, get()).await.expect("a response");
    assert_eq!(*sent.lock().expect("no panic"), [Duration::ZERO, 80 * MS]);
}

#[tokio::test(start_paused = true)]
async fn leaves_the_next_attempt_its_time_however_slowly_a_body_drains() {
    let sent = Sent::default();
    let inner = trickling(970 * MS, &sent);
    let policy = eager().total_timeout(SECOND).min_attempt(10 * MS);
    let service = layer(policy).layer(inner);
    assert_ends(service, get(), SECOND, StopReason::DeadlineReached).await;
    assert_eq!(*sent.lock().expect("no panic"), [Duration::ZERO, 990 * MS]);
}

/// A shared budget that takes its time. `None` never answers.
struct Slow {
    after: Option<Duration>,
    answer: Result<(), StopReason>,
}

impl Budget for Slow {
    fn deposit(&self, _: &Key, _: bool, _: StdInstant) {}

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: StdInstant) -> Withdrawal {
        let key = key.clone();
        Withdrawal::Pending(Box::pin(async move {
            match self.after {
                Some(after) => sleep(after).await,
                None => pending().await,
            }
            self.answer?;
            Ok(Permit::new(self, key, cause, 1000))
        }))
    }

    fn settle(&self, _: &Key, _: Settled, _: StdInstant) {}
}

#[tokio::test(start_paused = true)]
async fn does_not_wait_for_ever_for_a_shared_budget() {
    let never = || Slow {
        after: None,
        answer: Ok(()),
    };
    let script = Script::always(502);
    let policy = steady().total_timeout(5 * SECOND);
    let service = layer(policy).budget(never()).layer(script.clone());
    assert_ends(service, get(), 5 * SECOND, StopReason::DeadlineReached).await;
    assert_eq!(script.count(), 1);

    let policy = steady().total_timeout(5 * SECOND);
    let policy = policy.on_exhausted(OnExhausted::PassThrough);
    let service = layer(policy).budget(never()).layer(Script::always(502));
    let (response, took) = timed(in_an_hour(send(&service, get()))).await;
    let response = response.expect("a response");
    assert_eq!(took, 5 * SECOND);
    assert_eq!(response.status(), 502);
    assert_eq!(text(response).await, "status 502");
}

#[tokio::test(start_paused = true)]
async fn counts_the_asking_of_a_shared_budget_into_the_wait() {
    for (asking, sent) in [(30, 100), (100, 100), (200, 200)] {
        let slow = Slow {
            after: Some(asking * MS),
            answer: Ok(()),
        };
        let script = Script::new([502]);
        let policy = steady().backoff(Backoff::fixed(100 * MS));
        let service = layer(policy).budget(slow).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(info(&response).waited, sent * MS);
        assert_eq!(script.offsets(), [Duration::ZERO, sent * MS]);
    }
    let slow = Slow {
        after: Some(30 * MS),
        answer: Err(StopReason::FleetBudget),
    };
    let service = layer(steady()).budget(slow).layer(Script::always(502));
    assert_ends(service, get(), 30 * MS, StopReason::FleetBudget).await;
}

#[tokio::test(start_paused = true)]
async fn counts_the_asking_of_a_shared_budget_that_grants_nothing() {
    for (after, took) in [(Some(30 * MS), 30 * MS), (None, SECOND)] {
        let slow = Slow {
            after,
            answer: Err(StopReason::FleetBudget),
        };
        let policy = steady().total_timeout(SECOND);
        let service = layer(policy).budget(slow).layer(Script::always(502));
        let response = in_an_hour(send(&service, get())).await.expect("a response");
        let details = exhausted(&response);
        assert_eq!((details.elapsed(), details.waited()), (took, took));
        let waits: Vec<_> = details.history().map(|one| one.wait()).collect();
        assert_eq!(waits, [took]);
    }
}

#[tokio::test(start_paused = true)]
async fn sends_nothing_when_a_shared_budget_grants_too_late() {
    for (asking, ends, reason) in [
        (996, 996, StopReason::DeadlineTooClose),
        (1000, 1000, StopReason::DeadlineReached),
        (3000, 1000, StopReason::DeadlineReached),
    ] {
        let slow = Slow {
            after: Some(asking * MS),
            answer: Ok(()),
        };
        let script = Script::always(502);
        let policy = steady().total_timeout(SECOND);
        let service = layer(policy).budget(slow).layer(script.clone());
        assert_ends(service, get(), ends * MS, reason).await;
        assert_eq!(script.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn obeys_the_requests_own_deadline_when_it_is_the_shorter_one() {
    let hang = || Script::new([Reply::Hang]);
    let service = layer(steady().total_timeout(SECOND));
    for (own, ends) in [
        (200 * MS, 200 * MS),
        (5 * SECOND, SECOND),
        (Duration::MAX, SECOND),
    ] {
        let (script, own) = (hang(), Deadline::after(own));
        let service = service.layer(script.clone());
        let call = with_deadline(get(), own);
        assert_ends(service, call, ends, StopReason::DeadlineReached).await;
        assert_eq!(u128::from(told(&script)[0]), ends.as_millis());
    }
    // It binds every call, also one that is not retried.
    for policy in [steady(), RetryPolicy::never().to_builder()] {
        let service = layer(policy).layer(hang());
        let call = with_deadline(request("POST", "abc"), Deadline::after(200 * MS));
        assert_ends(service, call, 200 * MS, StopReason::DeadlineReached).await;
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_send_a_request_whose_time_is_up() {
    sleep(SECOND).await;
    let now = Instant::now().into_std();
    for deadline in [
        Deadline::after(Duration::ZERO),
        Deadline::after(Duration::from_micros(400)),
        Deadline::after(MS - Duration::from_nanos(1)),
        Deadline::at(now),
        Deadline::at(now - SECOND),
    ] {
        for method in ["GET", "POST"] {
            let script = Script::always(200);
            let service = layer(steady()).layer(script.clone());
            let call = with_deadline(request(method, ""), deadline);
            let response = send(&service, call).await.expect("a response");
            let details = exhausted(&response);
            assert_eq!(details.reason(), StopReason::DeadlineReached);
            assert_eq!((details.attempts(), details.max_attempts()), (0, 3));
            assert_eq!(details.processed(), Processed::No);
            assert!(details.is_retryable());
            assert_eq!(details.history().len(), 0);
            assert_eq!(script.count(), 0);
            let body = json(response).await;
            assert_eq!(
                body["detail"],
                "gave up after 0 attempts in 0 ms (deadline_reached)"
            );
        }
    }
    let script = Script::always(200);
    let service = layer(steady()).layer(script.clone());
    let call = with_deadline(get(), Deadline::after(MS));
    let response = send(&service, call).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(told(&script), [1]);
}

async fn readied<S>(service: &mut S) -> &mut S
where
    S: Service<Request<Body>, Error = support::BoxError>,
{
    service.ready().await.expect("a service that gets ready")
}

#[tokio::test(start_paused = true)]
async fn lets_go_of_the_permit_of_a_request_that_is_not_sent() {
    let script = Script::always(200);
    let inner = ConcurrencyLimit::new(script.clone(), 1);
    let mut service = layer(steady()).layer(inner);
    let late = || with_deadline(get(), Deadline::after(Duration::ZERO));
    let ready = readied(&mut service).await;
    let answer = ready.call(late());
    // While the call is neither polled nor dropped, and the service that was readied lives on.
    let other = timeout(SECOND, send(&service, get())).await;
    assert_eq!(
        other
            .expect("a permit is free")
            .expect("a response")
            .status(),
        200
    );
    exhausted(&answer.await.expect("a response"));
    for _ in 0..3 {
        let ready = readied(&mut service).await;
        exhausted(&ready.call(late()).await.expect("a response"));
    }
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn holds_no_permit_while_it_waits() {
    let script = Script::new([500]);
    let service = layer(steady().backoff(Backoff::fixed(SECOND)));
    let service = service.layer(ConcurrencyLimit::new(script.clone(), 1));
    let retried = send(&service, get());
    let other = async {
        sleep(500 * MS).await;
        timed(send(&service, get())).await
    };
    let (retried, (other, took)) = tokio::join!(retried, other);
    assert_eq!(info(&retried.expect("a response")).attempts, 2);
    assert_eq!(other.expect("a response").status(), 200);
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn stamps_what_is_left_at_the_moment_of_sending() {
    // The retry waits 10 ms, and then 290 ms for a permit that another call has.
    let script = Script::new([Reply::Status(500), Reply::after_ms(295, Reply::Status(200))]);
    let policy = || steady().total_timeout(10 * SECOND);
    let service = layer(policy()).layer(ConcurrencyLimit::new(script.clone(), 1));
    let other = async {
        sleep(5 * MS).await;
        send(&service, get()).await
    };
    let (retried, other) = tokio::join!(send(&service, get()), other);
    assert_eq!(retried.expect("a response").status(), 200);
    assert_eq!(other.expect("a response").status(), 200);
    assert_eq!(script.offsets(), [Duration::ZERO, 5 * MS, 300 * MS]);
    assert_eq!(told(&script), [10_000, 10_000, 9_700]);
}

#[tokio::test(start_paused = true)]
async fn tells_each_attempt_the_shorter_of_its_own_time_and_the_calls() {
    let policy = eager().total_timeout(250 * MS).attempt_timeout(100 * MS);
    let script = Script::new([Reply::Hang, Reply::Hang, Reply::Hang]);
    let service = layer(policy).layer(script.clone());
    assert_ends(service, get(), 250 * MS, StopReason::DeadlineReached).await;
    assert_eq!(told(&script), [100, 100, 50]);

    let policy = steady().total_timeout(250 * MS).attempt_timeout(100 * MS);
    let script = Script::new([Reply::Hang, Reply::Hang, Reply::Hang]);
    let service = layer(policy).layer(script.clone());
    assert_ends(service, get(), 250 * MS, StopReason::DeadlineReached).await;
    assert_eq!(told(&script), [100, 100, 30]);
}

#[tokio::test(start_paused = true)]
async fn rounds_what_is_left_down_and_never_says_none() {
    for (micros, said) in [(1_000, 1), (1_999, 1), (2_000, 2), (400_999, 400)] {
        let script = Script::always(200);
        let service = layer(steady()).layer(script.clone());
        let left = Deadline::after(Duration::from_micros(micros));
        send(&service, with_deadline(get(), left))
            .await
            .expect("a response");
        assert_eq!(told(&script), [said]);
    }
}

#[tokio::test(start_paused = true)]
async fn never_lets_another_hops_headers_through() {
    let stale = |method| {
        let mut call = request(method, "");
        for (name, value) in [(LEFT, "99999"), (ATTEMPT, "7;max=9")] {
            for _ in 0..2 {
                call.headers_mut()
                    .append(name, HeaderValue::from_static(value));
            }
        }
        call
    };
    let script = Script::always(500);
    let service = layer(steady().total_timeout(SECOND)).layer(script.clone());
    send(&service, stale("GET")).await.expect("a response");
    assert_eq!(told(&script), [1000, 990, 980]);
    let numbers = ["1;max=3", "2;max=3", "3;max=3"].map(|number| Some(number.to_owned()));
    assert_eq!(said(&script, ATTEMPT), numbers);
    for seen in script.seen() {
        for name in [LEFT, ATTEMPT] {
            assert_eq!(seen.head.headers.get_all(name).iter().count(), 1);
        }
    }
    // Nor where there is nothing to say in their place.
    for policy in [
        steady().total_timeout(None),
        RetryPolicy::never().to_builder(),
    ] {
        let script = Script::always(500);
        let service = layer(policy).layer(script.clone());
        send(&service, stale("POST")).await.expect("a response");
        assert_eq!(said(&script, LEFT), [None]);
        assert_eq!(said(&script, ATTEMPT), [None]);
    }
}

#[tokio::test(start_paused = true)]
async fn claims_to_retry_exactly_when_it_does() {
    let numbered = async |policy: RetryPolicyBuilder, call: Request<Body>| {
        let script = Script::new([200]);
        let service = layer(policy).layer(script.clone());
        send(&service, call).await.expect("a response");
        said(&script, ATTEMPT).remove(0)
    };
    let idempotent = |method, yes| {
        let mut call = request(method, "");
        call.extensions_mut().insert(Idempotent(yes));
        call
    };
    let mut upgrade = get();
    let websocket = HeaderValue::from_static("websocket");
    upgrade.headers_mut().insert("upgrade", websocket);
    for (call, says) in [
        (get(), Some("1;max=3")),
        (request("PUT", "abc"), Some("1;max=3")),
        (idempotent("POST", true), Some("1;max=3")),
        (request("POST", ""), None),
        (idempotent("GET", false), None),
        (upgrade, None),
    ] {
        assert_eq!(numbered(steady(), call).await.as_deref(), says);
    }
    assert_eq!(numbered(steady().max_attempts(1), get()).await, None);
    let five = numbered(steady().max_attempts(5), get()).await;
    assert_eq!(five.as_deref(), Some("1;max=5"));
}

#[tokio::test(start_paused = true)]
async fn says_nothing_where_a_header_is_switched_off() {
    let script = Script::new([500]);
    let quiet = layer(steady()).no_deadline_header().no_attempt_header();
    let service = quiet.layer(script.clone());
    send(&service, get()).await.expect("a response");
    assert_eq!(said(&script, LEFT), [None, None]);
    assert_eq!(said(&script, ATTEMPT), [None, None]);
}

/// What the call was told it has, of a server that never answers, and when it was cut: after an hour
/// it is taken for never.
async fn cut<B>(policy: RetryPolicyBuilder, call: Request<B>) -> (Option<u64>, Option<Duration>)
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<support::BoxError>,
{
    let script = Script::new([Reply::Unread(Box::new(Reply::Hang))]);
    let service = layer(policy).layer(script.clone());
    let (ended, took) = timed(timeout(3600 * SECOND, send(&service, call))).await;
    (told(&script).pop(), ended.is_ok().then_some(took))
}

#[tokio::test(start_paused = true)]
async fn cuts_by_default_only_what_can_be_repeated_whatever_happens() {
    let unknown = || request("PUT", "").map(|_| NoLength(Full::from("abc")));
    let thirty = (Some(30_000), Some(30 * SECOND));
    let large = || request("PUT", "").map(|_| Full::new(Bytes::from(vec![0; 64 * 1024 + 1])));
    let just_fits = request("PUT", "").map(|_| Full::new(Bytes::from(vec![0; 64 * 1024])));
    assert_eq!(cut(steady(), get()).await, thirty);
    assert_eq!(cut(steady(), request("PUT", "abc")).await, thirty);
    assert_eq!(cut(steady(), just_fits).await, thirty);
    assert_eq!(cut(steady(), request("POST", "abc")).await, (None, None));
    assert_eq!(cut(steady(), large()).await, (None, None));
    assert_eq!(cut(steady(), unknown()).await, (None, None));
    assert_eq!(cut(steady().max_attempts(1), get()).await, (None, None));
    // A body that can be made again need not fit.
    let mut made_again = unknown();
    let factory = BodyFactory::new(|| Ok::<_, Infallible>(NoLength(Full::from("abc"))));
    made_again.extensions_mut().insert(factory);
    assert_eq!(cut(steady(), made_again).await, thirty);
    // A limit that was asked for cuts every call.
    let asked = || steady().total_timeout(SECOND);
    let second = (Some(1000), Some(SECOND));
    assert_eq!(cut(asked(), request("POST", "abc")).await, second);
    assert_eq!(cut(asked(), large()).await, second);
    assert_eq!(cut(asked(), unknown()).await, second);
    assert_eq!(cut(asked().max_attempts(1), get()).await, second);
    assert_eq!(cut(steady().total_timeout(None), get()).await, (None, None));
}

#[tokio::test(start_paused = true)]
async fn gives_an_attempt_of_any_call_its_own_limit() {
    for call in [request("POST", "abc"), request("PATCH", "abc")] {
        let script = Script::new([Reply::Hang]);
        let service = layer(steady().attempt_timeout(SECOND)).layer(script.clone());
        let (response, took) = timed(send(&service, call)).await;
        let response = response.expect("a response");
        let details = exhausted(&response);
        assert_eq!(details.reason(), StopReason::AttemptTimeout);
        assert_eq!(details.attempts(), 1);
        assert_eq!(details.error_type(), Some("attempt_timeout"));
        // It may have been done: nobody is told to come back with it.
        assert_eq!(details.processed(), Processed::Unknown);
        assert!(!details.is_retryable());
        assert!(!response.headers().contains_key("retry-after"));
        assert_eq!(took, SECOND);
        assert_eq!((told(&script), script.in_flight()), (vec![1000], 0));
    }
    let script = Script::new([Reply::Hang]);
    let policy = steady().attempt_timeout(SECOND).max_attempts(1);
    let service = layer(policy).layer(script.clone());
    assert_ends(service, get(), SECOND, StopReason::AttemptTimeout).await;
    // An answer in time is left alone.
    let script = Script::new([Reply::after_ms(999, Reply::Status(201))]);
    let service = layer(steady().attempt_timeout(SECOND)).layer(script);
    let response = send(&service, request("POST", "")).await;
    assert_eq!(response.expect("a response").status(), 201);
}

#[tokio::test(start_paused = true)]
async fn gives_each_attempt_a_share_of_what_is_left() {
    let hang = || Script::new([Reply::Hang, Reply::Hang, Reply::Hang]);
    let script = hang();
    let policy = eager().total_timeout(800 * MS).attempt_timeout_share(0.5);
    let service = layer(policy).layer(script.clone());
    assert_ends(service, get(), 700 * MS, StopReason::MaxAttempts).await;
    assert_eq!(told(&script), [400, 200, 100]);
    // A share of no limit is no limit.
    let policy = eager().total_timeout(None).attempt_timeout_share(0.5);
    assert_eq!(cut(policy, get()).await, (None, None));
    // Nor is a share ever so short that it could not be told.
    let script = hang();
    let policy = eager().total_timeout(50 * MS).attempt_timeout_share(0.001);
    let service = layer(policy).layer(script.clone());
    assert_ends(service, get(), 3 * MS, StopReason::MaxAttempts).await;
    assert_eq!(told(&script), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn gives_the_last_attempt_all_that_is_left_when_told_to() {
    let script = Script::new([Reply::Hang, Reply::Hang, Reply::Hang]);
    let policy = eager().total_timeout(SECOND).attempt_timeout(200 * MS);
    let service = layer(policy.last_attempt_uncapped()).layer(script.clone());
    assert_ends(service, get(), SECOND, StopReason::DeadlineReached).await;
    assert_eq!(told(&script), [200, 200, 600]);
}

#[tokio::test(start_paused = true)]
async fn takes_the_longest_duration_for_no_limit() {
    let longest = || {
        let policy = steady().total_timeout(Duration::MAX);
        policy.attempt_timeout(Duration::MAX)
    };
    assert_eq!(cut(longest(), get()).await, (None, None));
    let own = with_deadline(get(), Deadline::after(Duration::MAX));
    assert_eq!(cut(longest(), own).await, (None, None));
    // What no clock can hold is no limit either; what one can hold is.
    let beyond = steady().total_timeout(Duration::MAX - SECOND);
    assert_eq!(cut(beyond, get()).await, (None, None));
    let century = steady().total_timeout(100 * 365 * 24 * 3600 * SECOND);
    assert_eq!(cut(century, get()).await, (Some(3_153_600_000_000), None));
    let script = Script::new([500]);
    let service = layer(longest()).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn explains_a_call_that_ran_out_of_time() {
    let service = layer(steady().total_timeout(SECOND)).layer(Script::new([Reply::Hang]));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 503);
    let body = json(response).await;
    assert_eq!(body["reason"], "deadline_reached");
    assert_eq!(body["dependency"], "http://search:8080");
    assert_eq!(body["attempts"], 1);
    assert_eq!(body["elapsed_ms"], 1000);
    assert_eq!(body["last_status"], serde_json::Value::Null);
    assert_eq!(body["error_type"], "deadline_reached");
    assert_eq!(body["processed"], "unknown");
}

/// A body of a length that it does not tell.
struct NoLength(Full<Bytes>);

impl http_body::Body for NoLength {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

/// What the server does with one attempt, and after how many milliseconds.
#[derive(Clone, Copy, Debug)]
enum Does {
    Answers(u16, u32),
    Asks(u16, u32),
    Breaks(u32),
    Hangs,
}

impl Does {
    fn reply(self) -> Reply {
        match self {
            Self::Answers(status, after) => Reply::after_ms(after, Reply::Status(status)),
            Self::Asks(status, seconds) => Reply::retry_after(status, &seconds.to_string()),
            Self::Breaks(after) => Reply::after_ms(after, Reply::io(ErrorKind::ConnectionReset)),
            Self::Hangs => Reply::Hang,
        }
    }
}

fn does() -> impl Strategy<Value = Does> {
    let status = prop::sample::select(vec![200_u16, 404, 429, 500, 502, 503]);
    prop_oneof![
        6 => (status.clone(), 0..300_u32).prop_map(|(status, after)| Does::Answers(status, after)),
        1 => (status, 0..3_u32).prop_map(|(status, seconds)| Does::Asks(status, seconds)),
        2 => (0..300_u32).prop_map(Does::Breaks),
        1 => Just(Does::Hangs),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    idempotent: bool,
    attempts: u32,
    total: Option<u32>,
    own: Option<u32>,
    attempt: Option<u32>,
    share: bool,
    uncapped: bool,
    least: u32,
    backoff: u32,
    asking: Option<u32>,
    never_ready_after: Option<usize>,
    server: Vec<Does>,
}

prop_compose! {
    fn case()(
        (idempotent, share, uncapped) in (prop::bool::weighted(0.8), any::<bool>(), any::<bool>()),
        attempts in 1..6_u32,
        total in prop::option::of(1..1000_u32),
        own in prop::option::of(0..1000_u32),
        attempt in prop::option::of(1..400_u32),
        least in 0..40_u32,
        backoff in 0..300_u32,
        asking in prop::option::weighted(0.3, 0..100_u32),
        never_ready_after in prop::option::weighted(0.1, 1..4_usize),
        server in prop::collection::vec(does(), 6),
    ) -> Case {
        Case {
            idempotent, attempts, total, own, attempt, share, uncapped, least, backoff, asking,
            never_ready_after, server,
        }
    }
}

impl Case {
    fn policy(&self) -> RetryPolicyBuilder {
        let backoff = Backoff::builder().base(self.backoff * MS).seed(1);
        let backoff = backoff.build().expect("a valid back-off");
        let policy = RetryPolicy::builder()
            .max_attempts(self.attempts)
            .total_timeout(self.total.map(|total| total * MS))
            .min_attempt(self.least * MS)
            .backoff(backoff.clone())
            .throttled_backoff(backoff);
        let policy = match (self.attempt, self.share) {
            (Some(_), true) => policy.attempt_timeout_share(0.4),
            (limit, _) => policy.attempt_timeout(limit.map(|limit| limit * MS)),
        };
        if self.uncapped {
            policy.last_attempt_uncapped()
        } else {
            policy
        }
    }

    async fn run(&self) -> Result<(), TestCaseError> {
        let script = Script::new(self.server.iter().map(|does| does.reply()));
        let script = match self.never_ready_after {
            Some(ready) => {
                let ready = (0..ready).map(|_| Readiness::Ready);
                script.readiness(ready.chain([Readiness::Never]))
            }
            None => script,
        };
        let layer = layer(self.policy());
        let layer = match self.asking {
            Some(after) => layer.budget(Slow {
                after: Some(after * MS),
                answer: Ok(()),
            }),
            None => layer,
        };
        let mut call = request("POST", "abc");
        call.extensions_mut().insert(Idempotent(self.idempotent));
        if let Some(own) = self.own {
            call = with_deadline(call, Deadline::after(own * MS));
        }
        let limit = self.total.into_iter().chain(self.own).min();
        let limit = limit.map(|limit| limit * MS);
        let service = layer.layer(script.clone());
        // Without a limit a server that hangs is waited for as long as it takes.
        let (ended, took) = timed(timeout(60 * SECOND, send(&service, call))).await;
        if let Some(limit) = limit {
            prop_assert!(ended.is_ok() && took <= limit, "{took:?} of {limit:?}");
        }
        prop_assert!(script.count() <= self.attempts as usize);
        let allowed = if limit.is_some_and(|limit| limit < MS) {
            0
        } else {
            1
        };
        prop_assert!(script.count() >= allowed);
        for (seen, index) in script.seen().iter().zip(0_u32..) {
            let left = limit.map(|limit| limit.saturating_sub(seen.at));
            if let Some(left) = left {
                let least = if index == 0 {
                    MS
                } else {
                    // Half of it has to do when the time comes.
                    MS.max(self.least * MS / 2)
                };
                prop_assert!(left >= least, "sent with {left:?} left");
            }
            match seen.header(LEFT) {
                Some(told) => {
                    let told = Duration::from_millis(told.parse().expect("digits"));
                    prop_assert!(told >= MS);
                    prop_assert!(left.is_none_or(|left| told <= left));
                    if let (Some(own), false) = (self.attempt, self.share || self.uncapped) {
                        prop_assert!(told <= own * MS);
                    }
                }
                None => prop_assert!(limit.is_none()),
            }
            let number = format!("{};max={}", index + 1, self.attempts);
            let retries = self.idempotent && self.attempts > 1;
            prop_assert_eq!(seen.header(ATTEMPT), retries.then_some(&*number));
        }
        if let Ok(Ok(response)) = ended {
            if let Some(details) = response.extensions().get::<tower_retry_budget::Exhausted>() {
                prop_assert_eq!(details.attempts() as usize, script.count());
                prop_assert_eq!(details.elapsed(), took);
                prop_assert!(details.waited() <= took);
            }
        }
        prop_assert_eq!(script.in_flight(), 0);
        Ok(())
    }
}

proptest! {
    #[test]
    fn ends_by_the_deadline_whatever_the_policy_and_the_server(case in case()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(case.run())?;
    }
}
