//! Odd inputs, slow clocks and stubborn servers, through the whole layer.

mod support;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant as StdInstant},
};
use support::{
    Body, MS, SECOND,
    client::{self, bounded, http, http1, quick},
    exhausted, get,
    h2::{Streams, Turn},
    info, json,
    ledger::{Answer, Ledger},
    origin::Version,
    request,
    script::{Readiness, Reply, Script},
    send, steady, text, timed,
    wire::{Wire, answer},
};
use tokio::{
    task::JoinSet,
    time::{Instant, advance, timeout},
};
use tower::{Layer, Service, service_fn};
use tower_retry_budget::{
    Deadline, OnExhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    body::{BodyFactory, ReplayBody},
    budget::{Budget, Key, Permit, Settled, TokenBudget, Withdrawal},
    policy::{Backoff, Jitter, Outcome, RetryPolicyBuilder, Verdict},
    reason::{Cause, Processed, RetryOutcome, SkipReason, StopReason},
};

fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    client::layer(policy)
}

fn doubling(base: Duration, cap: Duration) -> Backoff {
    let backoff = Backoff::builder().base(base).cap(cap);
    let backoff = backoff.jitter(Jitter::None).build();
    backoff.expect("a valid back-off")
}

// Back-off.

#[tokio::test(start_paused = true)]
async fn each_call_starts_its_back_off_anew() {
    let policy = steady().backoff(doubling(10 * MS, 20 * SECOND));
    let service = layer(policy).layer(Script::always(500));
    for _ in 0..40 {
        let response = send(&service, get()).await.expect("a response");
        let waits: Vec<_> = exhausted(&response)
            .history()
            .map(|one| one.wait())
            .collect();
        assert_eq!(waits, [10 * MS, 20 * MS, Duration::ZERO]);
    }
}

#[tokio::test(start_paused = true)]
async fn waits_the_longest_back_off_for_as_many_attempts_as_it_takes() {
    let policy = steady().max_attempts(2000).total_timeout(None);
    let policy = policy.backoff(doubling(50 * MS, 5 * SECOND));
    let script = Script::always(500);
    let service = layer(policy).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).attempts(), 2000);
    let offsets = script.offsets();
    let waits: Vec<_> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.is_sorted());
    assert_eq!(waits[..3], [50 * MS, 100 * MS, 200 * MS]);
    assert!(waits[7..].iter().all(|wait| *wait == 5 * SECOND));
}

// Clocks.

/// Lets time pass while whoever calls this does not let go of the thread.
fn stall(time: Duration) {
    let mut passing = pin!(advance(time));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(passing.as_mut().poll(&mut cx).is_pending());
}

/// What the thread is at when time passes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Answering,
    Asking,
    Draining,
    MakingBody,
    GettingReady,
}

/// A server that fails, a budget that grants and a body, one of which stalls once.
#[derive(Clone)]
struct Stalls {
    at: At,
    sent: Arc<AtomicUsize>,
}

impl Service<Request<ReplayBody<Body>>> for Stalls {
    type Response = Response<StallingBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.at == At::GettingReady && self.sent.load(Ordering::SeqCst) > 0 {
            stall(2 * SECOND);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<ReplayBody<Body>>) -> Self::Future {
        self.sent.fetch_add(1, Ordering::SeqCst);
        if self.at == At::Answering {
            stall(2 * SECOND);
        }
        let response = Response::builder().status(500);
        let response = response.body(StallingBody(self.at == At::Draining));
        std::future::ready(Ok(response.expect("a valid response")))
    }
}

struct StallingBody(bool);

impl http_body::Body for StallingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 {
            stall(2 * SECOND);
        }
        Poll::Ready(None)
    }
}

struct StallingBudget(At, Mutex<Vec<RetryOutcome>>);

impl Budget for StallingBudget {
    fn deposit(&self, _: &Key, _: bool, _: StdInstant) {}

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: StdInstant) -> Withdrawal {
        if self.0 == At::Asking {
            stall(2 * SECOND);
        }
        Withdrawal::Granted(Permit::new(self, key.clone(), cause, 1000))
    }

    fn settle(&self, _: &Key, settled: Settled, _: StdInstant) {
        let mut outcomes = self.1.lock().expect("no panic inside");
        outcomes.push(settled.outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn sends_nothing_more_when_a_stall_has_used_up_the_time() {
    for at in [
        At::Answering,
        At::Asking,
        At::Draining,
        At::MakingBody,
        At::GettingReady,
    ] {
        let sent = Arc::<AtomicUsize>::default();
        let stalls = Stalls {
            at,
            sent: Arc::clone(&sent),
        };
        let budget = Arc::new(StallingBudget(at, Mutex::default()));
        let left = Arc::<Mutex<Vec<(Duration, Option<Duration>)>>>::default();
        let seen = Arc::clone(&left);
        let policy = steady().total_timeout(SECOND);
        let policy = policy.classifier(move |outcome: &Outcome<'_>| {
            let mut seen = seen.lock().expect("no panic inside");
            seen.push((outcome.elapsed(), outcome.remaining()));
            None
        });
        let service = layer(policy).shared_budget(budget.clone()).layer(stalls);
        let mut call = request("PUT", "abc");
        call.extensions_mut().insert(BodyFactory::new(move || {
            if at == At::MakingBody {
                stall(2 * SECOND);
            }
            Ok::<_, Infallible>(Body::from("abc"))
        }));
        let response = send(&service, call).await.expect("a response");
        let details = exhausted(&response);
        assert!(
            matches!(
                details.reason(),
                StopReason::DeadlineReached | StopReason::DeadlineTooClose
            ),
            "{at:?}: {details:?}"
        );
        assert_eq!(details.attempts(), 1, "{at:?}");
        assert_eq!(sent.load(Ordering::SeqCst), 1, "{at:?}");
        // Some states are left by a timer, which rounds up to a millisecond.
        assert!(details.elapsed() >= 2 * SECOND, "{at:?}: {details:?}");
        assert!(details.elapsed() <= 2 * SECOND + 20 * MS, "{at:?}");
        let parts: Duration = details
            .history()
            .map(|one| one.elapsed() + one.wait())
            .sum();
        assert_eq!(parts, details.elapsed(), "{at:?}");
        let outcomes = budget.1.lock().expect("no panic inside").clone();
        assert!(
            outcomes.iter().all(|one| *one == RetryOutcome::NotSent),
            "{at:?}: {outcomes:?}"
        );
        let (elapsed, remaining) = left.lock().expect("no panic inside")[0];
        let late = at == At::Answering;
        assert_eq!(elapsed, if late { 2 * SECOND } else { Duration::ZERO });
        assert_eq!(remaining, Some(SECOND.saturating_sub(elapsed)));
    }
}

#[tokio::test(start_paused = true)]
async fn goes_on_after_a_century_of_silence() {
    let script = Script::new([500, 200, 500]);
    let policy = steady().build().expect("a valid policy");
    let service = RetryBudgetLayer::new().policy(policy).layer(script.clone());
    for _ in 0..2 {
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 200);
        advance(100 * 365 * 24 * 3600 * SECOND).await;
    }
}

/// The first instant that the clock of this machine can say.
fn beginning() -> StdInstant {
    let mut first = Instant::now().into_std();
    for shift in (0..64).rev() {
        let step = Duration::from_secs(1 << shift);
        first = first.checked_sub(step).unwrap_or(first);
    }
    first
}

#[tokio::test(start_paused = true)]
async fn a_budget_counts_from_the_first_instant_there_is() {
    let key = Key::from_static("search");
    let start = beginning();
    for trickle in [MS, 10 * SECOND, 24 * 3600 * SECOND, Duration::MAX] {
        let budget = TokenBudget::builder().trickle(trickle).build();
        let budget = Arc::new(budget.expect("a valid budget"));
        // A permit that is dropped settles at the time of the clock, which is much later.
        let mut held = Vec::new();
        let mut granted = |now| match budget.clone().withdraw(&key, Cause::ServerError, now) {
            Withdrawal::Granted(permit) => {
                held.push(permit);
                true
            }
            _ => false,
        };
        for _ in 0..5 {
            budget.deposit(&key, true, start);
            assert!(granted(start));
        }
        assert!(!granted(start), "{trickle:?}");
        let later = start
            .checked_add(10 * SECOND)
            .expect("room for ten seconds");
        assert_eq!(granted(later), trickle <= 10 * SECOND, "{trickle:?}");
    }
    // A deadline at that instant has passed, and is told as such.
    let script = Script::always(200);
    let service = layer(steady()).layer(script.clone());
    let mut call = get();
    call.extensions_mut().insert(Deadline::at(start));
    let response = send(&service, call).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::DeadlineReached);
    assert_eq!(script.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_setting_is_so_short_or_so_long_that_a_call_panics_or_goes_on_for_ever() {
    let lengths = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];
    let mut ran = 0;
    for total in lengths.map(Some).into_iter().chain([None]) {
        for attempt in lengths.map(Some).into_iter().chain([None]) {
            for least in lengths {
                for longest_hint in lengths {
                    for wait in lengths {
                        let policy = RetryPolicy::builder()
                            .total_timeout(total)
                            .attempt_timeout(attempt)
                            .min_attempt(least)
                            .max_retry_after(longest_hint)
                            .backoff(doubling(wait, Duration::MAX))
                            .throttled_backoff(doubling(wait, wait));
                        if let Ok(policy) = policy.build() {
                            ran += 1;
                            extremes(policy.to_builder()).await;
                        }
                    }
                }
            }
        }
    }
    assert!(ran >= 100, "{ran} policies were valid");
}

/// Makes calls to servers that ask for every extreme.
async fn extremes(policy: RetryPolicyBuilder) {
    let huge = u64::MAX.to_string();
    for asked in ["", "0", "1", &huge] {
        let replies = (0..9).map(|_| Reply::retry_after(503, asked));
        let script = Script::new(replies);
        let service = layer(policy.clone()).layer(script.clone());
        let ended = timeout(60 * SECOND, send(&service, get())).await;
        if let Ok(response) = ended {
            let response = response.expect("a response");
            assert_eq!(response.status(), 503);
            assert_eq!(exhausted(&response).attempts() as usize, script.count());
        }
        assert!((1..=3).contains(&script.count()));
    }
}

// Classifiers.

/// Makes calls whose attempts are cut, by their own limit and by the deadline, and judged so.
async fn cut_and_judged(verdict: Verdict) {
    let limits = [
        steady().attempt_timeout(SECOND),
        steady().total_timeout(SECOND),
    ];
    for limit in limits {
        let said = verdict.clone();
        let policy = limit.classifier(move |_: &Outcome<'_>| Some(said.clone()));
        let script = Script::new([Reply::Hang, Reply::Hang, Reply::Hang]);
        let service = layer(policy.max_attempts(2)).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 503, "{verdict:?}");
        let details = exhausted(&response);
        assert_eq!(details.attempts() as usize, script.count(), "{verdict:?}");
        assert_eq!(script.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn takes_any_verdict_of_failure_on_an_attempt_that_was_cut() {
    let retry = || Verdict::retry(Cause::Other);
    cut_and_judged(retry()).await;
    cut_and_judged(retry().unprocessed()).await;
    cut_and_judged(retry().after(3600 * SECOND)).await;
    cut_and_judged(Verdict::final_answer()).await;
}

/// There is no response and no error that could be handed on as a success.
#[tokio::test(start_paused = true)]
async fn explains_an_attempt_that_was_cut_even_to_a_classifier_that_calls_it_a_success() {
    cut_and_judged(Verdict::success()).await;
}

#[tokio::test(start_paused = true)]
async fn ends_at_the_limit_whatever_a_classifier_asks_for() {
    for cause in [
        Cause::Throttled,
        Cause::Unavailable,
        Cause::Timeout,
        Cause::ServerError,
        Cause::Unprocessed,
        Cause::Transport,
        Cause::Other,
    ] {
        for method in ["GET", "POST"] {
            let verdict = Verdict::retry(cause).unprocessed().after(Duration::ZERO);
            let policy = steady().classifier(move |_: &Outcome<'_>| Some(verdict.clone()));
            let errors = (0..9).map(|_| Reply::Error("of a kind of its own".into()));
            for script in [Script::always(200), Script::new(errors)] {
                let service = layer(policy.clone()).layer(script.clone());
                let response = send(&service, request(method, "abc")).await;
                let response = response.expect("a response");
                assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
                assert_eq!(script.count(), 3, "{cause}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gives_up_in_one_shape_whatever_made_it_retry() {
    let only_here = steady().classifier(|outcome: &Outcome<'_>| {
        let odd = outcome.status() == Some(StatusCode::CREATED);
        odd.then(|| Verdict::retry(Cause::Other))
    });
    let asked = |status| Script::new((0..3).map(move |_| Reply::retry_after(status, "1")));
    let mut shapes = BTreeSet::new();
    for (policy, script) in [
        (steady(), Script::always(502)),
        (steady(), asked(503)),
        (steady(), asked(429)),
        (only_here, Script::always(201)),
    ] {
        let service = layer(policy).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 503);
        assert_eq!(exhausted(&response).attempts(), 3);
        let names = |headers: &HeaderMap| {
            let names = headers.keys().map(|name| name.as_str().to_owned());
            names.collect::<BTreeSet<_>>()
        };
        let headers = names(response.headers());
        let body = json(response).await;
        assert_eq!(body["reason"], "max_attempts");
        let members = body.as_object().expect("an object").keys().cloned();
        let members: BTreeSet<_> = members.collect();
        shapes.insert((headers, members));
    }
    assert_eq!(shapes.len(), 1, "{shapes:?}");
}

// Streams and connections.

#[tokio::test]
async fn ends_at_the_limit_when_every_stream_is_refused_or_reset() {
    for (method, reason) in [
        ("POST", h2::Reason::REFUSED_STREAM),
        ("GET", h2::Reason::REFUSED_STREAM),
        ("GET", h2::Reason::INTERNAL_ERROR),
        ("GET", h2::Reason::NO_ERROR),
    ] {
        let streams = Streams::take([Turn::Reset(reason); 30]).await;
        let service = layer(quick()).layer(http(Version::Http2));
        let call = client::request(method, &streams.uri(), Body::from("abc"));
        let response = bounded(send(&service, call)).await.expect("a response");
        let details = exhausted(&response);
        assert_eq!(details.reason(), StopReason::MaxAttempts);
        assert_eq!(details.attempts(), 3);
        let refused = reason == h2::Reason::REFUSED_STREAM;
        assert_eq!(details.processed() == Processed::No, refused, "{reason:?}");
        assert_eq!(streams.count(), 3, "{method} {reason:?}");
    }
}

#[tokio::test]
async fn a_request_time_out_that_ends_its_connection_is_repeated_over_another() {
    for (headers, method, asked) in [
        ("connection: close\r\n", "GET", Duration::ZERO),
        ("connection: close\r\n", "PUT", Duration::ZERO),
        ("", "GET", Duration::ZERO),
        ("retry-after: 1\r\nconnection: close\r\n", "GET", SECOND),
    ] {
        let wire = Wire::serve(move |mut conn| async move {
            conn.request().await?;
            // The connection ends with this.
            if conn.number == 1 {
                return conn.send(answer(408, headers, "slow")).await;
            }
            conn.send(answer(200, "", "ok")).await
        })
        .await;
        let service = layer(quick()).layer(http1());
        let call = client::request(method, &wire.uri(), Body::from("abc"));
        let (response, took) = timed(bounded(send(&service, call))).await;
        let response = response.expect("a response");
        assert_eq!(info(&response).attempts, 2, "{headers:?}");
        assert_eq!(text(response).await, "ok");
        assert!(took >= asked, "{took:?} of {asked:?}");
        assert_eq!((wire.count(), wire.connections()), (2, 2), "{headers:?}");
    }
}

/// A pool of one: it gets its connection back when the response body is gone.
#[derive(Clone)]
struct Pool {
    free: Arc<AtomicUsize>,
    script: Script,
}

struct Lent {
    free: Arc<AtomicUsize>,
    endless: bool,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.free.fetch_add(1, Ordering::SeqCst);
    }
}

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.endless {
            true => Poll::Pending,
            false => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Service<Request<ReplayBody<Body>>> for Pool {
    type Response = Response<Lent>;
    type Error = support::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Lent>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Nobody is woken: whoever asks too early waits for ever.
        if self.free.load(Ordering::SeqCst) == 0 {
            return Poll::Pending;
        }
        Service::<Request<ReplayBody<Body>>>::poll_ready(&mut self.script, cx)
    }

    fn call(&mut self, request: Request<ReplayBody<Body>>) -> Self::Future {
        self.free.fetch_sub(1, Ordering::SeqCst);
        let free = Arc::clone(&self.free);
        let answer = self.script.call(request);
        Box::pin(async move {
            let response = answer.await?;
            let endless = response.status() == 503;
            Ok(response.map(|_| Lent { free, endless }))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn lets_the_only_connection_of_a_pool_go_before_it_asks_for_another() {
    for failure in [500, 503] {
        let pool = Pool {
            free: Arc::new(AtomicUsize::new(1)),
            script: Script::new([failure, failure]),
        };
        let service = layer(quick()).layer(pool.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(info(&response).attempts, 3);
        assert_eq!(pool.free.load(Ordering::SeqCst), 0);
        drop(response);
        assert_eq!(pool.free.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_pass_on_the_shell_of_an_answer_that_it_has_let_go() {
    let failure = || {
        let response = Response::builder().status(502);
        let response = response.header("content-length", "4");
        let response = response.header("x-from", "upstream");
        Reply::Response(response.body(Body::from("busy")).expect("valid"))
    };
    let broken = || Readiness::Error("broken".into());
    for never in [Readiness::Never, broken()] {
        let script = Script::new([failure()]).readiness([Readiness::Ready, never]);
        let policy = steady().on_exhausted(OnExhausted::PassThrough);
        let service = layer(policy.total_timeout(SECOND)).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 503);
        assert!(response.body().is_own());
        assert!(!response.headers().contains_key("x-from"));
        let declared = response.headers().get("content-length").cloned();
        let last = exhausted(&response).last_status();
        assert_eq!(last, Some(StatusCode::BAD_GATEWAY));
        let body = text(response).await;
        assert!(body.contains("\"last_status\":502"), "{body}");
        assert!(declared.is_none_or(|len| len == body.len().to_string().as_str()));
    }
}

// Budgets and places.

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_made_again_costs_no_retry() {
    let ledger = Ledger::new([]);
    let script = Script::always(500);
    let service = layer(steady())
        .shared_budget(ledger.clone())
        .layer(script.clone());
    let mut call = request("PUT", "abc");
    call.extensions_mut().insert(BodyFactory::new(|| {
        Err::<Full<Bytes>, _>(std::io::Error::from(std::io::ErrorKind::NotFound))
    }));
    let response = send(&service, call).await.expect("a response");
    assert_eq!(response.status(), 500);
    assert_eq!(info(&response).skipped, Some(SkipReason::NotReplayable));
    assert_eq!(script.count(), 1);
    assert_eq!(ledger.withdrawals(), []);
    assert_eq!(ledger.settled(), []);
}

#[tokio::test(start_paused = true)]
async fn lets_no_more_calls_wait_than_it_has_places_for() {
    const CALLS: usize = 10_000;

    let script = Script::always(503);
    let service = layer(steady()).max_waiting(100).layer(script.clone());
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let service = service.clone();
        calls.spawn(async move { timed(send(&service, get())).await });
    }
    let mut waited = 0;
    for (response, took) in calls.join_all().await {
        let response = response.expect("a response");
        match exhausted(&response).reason() {
            StopReason::MaxAttempts => waited += 1,
            reason => {
                assert_eq!(reason, StopReason::Overloaded);
                assert_eq!(took, Duration::ZERO);
            }
        }
    }
    assert_eq!(waited, 100);
    assert_eq!(script.count(), CALLS + 2 * 100);
}

/// Two layers with one budget around one client, as when a stack is wrapped twice.
#[tokio::test(start_paused = true)]
async fn two_layers_around_one_client_earn_once_for_each_call() {
    let budget = TokenBudget::builder().ratio(0.1).initial(0).no_trickle();
    let budget = Arc::new(budget.build().expect("a valid budget"));
    let one = layer(steady()).shared_budget(budget.clone());
    let inner = one.layer(Script::always(200));
    let service = one.layer(inner);
    for _ in 0..10 {
        send(&service, get()).await.expect("a response");
    }
    let now = Instant::now().into_std();
    let held = budget.snapshot(&Key::from_uri(get().uri()), now);
    assert_eq!(held.balance(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_denies_everything_holds_up_no_first_attempt() {
    let denies = || (0..50).map(|_| Answer::Deny(StopReason::Budget));
    let ledger = Ledger::new(denies());
    let seen = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&seen);
    let inner = service_fn(move |_: Request<ReplayBody<Body>>| {
        let even = count.fetch_add(1, Ordering::SeqCst) % 2 == 0;
        let response = Response::builder().status(if even { 200 } else { 503 });
        std::future::ready(response.body(Body::default()))
    });
    let service = layer(steady()).shared_budget(ledger).layer(inner);
    for call in 0..50 {
        let (response, took) = timed(send(&service, get())).await;
        let response = response.expect("a response");
        assert_eq!(response.status() == 200, call % 2 == 0);
        let info: Option<&RetryInfo> = response.extensions().get();
        assert!(info.is_none_or(|info| info.attempts == 1));
        assert_eq!(took, Duration::ZERO);
    }
    assert_eq!(seen.load(Ordering::SeqCst), 50);
}
