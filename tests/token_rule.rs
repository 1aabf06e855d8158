//! What the default budget does to a dependency that is ill, end to end.
//!
//! The model is the one that the numbers in the documentation of `TokenBudget` come from: one client
//! that makes 1000 calls per second at random times, answers after 20 ms on average (here: 10 to
//! 30 ms, evenly), at most two retries, full jitter of 25 ms x 2^n. Those numbers know no longer
//! back-off after a 503, so both back-offs are set alike. Whether a request succeeds is decided when
//! it reaches the server.
//!
//! Everything goes through the real layer, on paused time. The same server is asked without retries,
//! and with retries that nothing limits, so that a budget which is not wired in fails the tests.
//!
//! `cargo test --test token_rule -- --nocapture` prints the figures beside the published ones.

mod support;

use http::{Request, Response};
use std::{
    convert::Infallible,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};
use support::script::{Reply, Script};
use support::{Body, MS, SECOND, ample, exhausted, get, send, steady, timed};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower::{Layer, service_fn};
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    budget::{Key, TokenBudget},
    policy::Backoff,
    reason::StopReason,
};

const RPS: f64 = 1000.0;

/// Where what is measured is a share over seconds, half the traffic gives the same figures sooner.
const HALF_RPS: f64 = RPS / 2.0;

/// Long enough for the budget to know the traffic.
const WARM: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    NoRetries,
    Default,
    /// Two retries whatever happens.
    Unlimited,
}

impl Rule {
    fn layer(self) -> RetryBudgetLayer {
        let attempts = if self == Self::NoRetries { 1 } else { 3 };
        let backoff = Backoff::builder().base(25 * MS).seed(7);
        let backoff = backoff.build().expect("a valid back-off");
        let policy = RetryPolicy::builder()
            .max_attempts(attempts)
            .backoff(backoff.clone())
            .throttled_backoff(backoff);
        let layer = RetryBudgetLayer::new().policy(policy.build().expect("a valid policy"));
        match self {
            Self::NoRetries | Self::Default => layer,
            Self::Unlimited => layer.budget(unlimited()).max_waiting(usize::MAX),
        }
    }
}

fn unlimited() -> TokenBudget {
    let most = u64::from(u32::MAX);
    let budget = TokenBudget::builder().cap(most).initial(most).no_ceiling();
    budget.build().expect("a valid budget")
}

/// What the server says to a request that reaches it at a time.
type Server = Box<dyn FnMut(Duration) -> u16 + Send>;

/// Fails with this status for a while.
fn down(during: Range<Duration>, status: u16) -> Server {
    Box::new(move |at| if during.contains(&at) { status } else { 200 })
}

/// Fails a share of all requests.
fn unlucky(share: f64, status: u16) -> Server {
    let mut random = fastrand::Rng::with_seed(11);
    Box::new(move |_| if random.f64() < share { status } else { 200 })
}

/// Does `capacity` requests per second and rejects the rest, which costs it a fifth of a request.
fn limited(capacity: f64) -> Server {
    /// What may wait inside the server: as much as it does in this part of a second.
    const SHARE_QUEUED: f64 = 0.05;

    let (mut queued, mut last) = (0.0_f64, Duration::ZERO);
    Box::new(move |at| {
        queued = (queued - (at - last).as_secs_f64() * capacity).max(0.0);
        last = at;
        let (cost, status) = match queued < capacity * SHARE_QUEUED {
            true => (1.0, 200),
            false => (0.2, 503),
        };
        queued += cost;
        status
    })
}

/// What happened in a run.
struct Run {
    /// When each call began, and whether it succeeded in the end.
    calls: Vec<(Duration, bool)>,
    /// When each request reached the server.
    requests: Vec<Duration>,
}

impl Run {
    /// Which part of the calls begun in that time succeeded, in percent.
    fn success(&self, during: Range<Duration>) -> f64 {
        let begun = self.calls.iter().filter(|(at, _)| during.contains(at));
        let (begun, saved) = begun.fold((0_u32, 0_u32), |(begun, saved), (_, ok)| {
            (begun + 1, saved + u32::from(*ok))
        });
        assert!(begun > 0, "no call began in {during:?}");
        100.0 * f64::from(saved) / f64::from(begun)
    }

    /// Requests in that time for each call begun in it.
    fn load(&self, during: Range<Duration>) -> f64 {
        let begun = self.calls.iter().filter(|(at, _)| during.contains(at));
        let sent = self.requests.iter().filter(|at| during.contains(at));
        sent.count() as f64 / begun.count() as f64
    }
}

/// Calls the server at random times for `span`, and waits for the last answer.
async fn run(rule: Rule, rps: f64, span: Duration, server: Server) -> Run {
    let start = Instant::now();
    let server = Arc::new(Mutex::new((
        server,
        fastrand::Rng::with_seed(3),
        Vec::new(),
    )));
    let inner = {
        let server = Arc::clone(&server);
        service_fn(move |_: Request<_>| {
            let at = start.elapsed();
            let mut server = server.lock().expect("no panic inside");
            let (answer, random, requests) = &mut *server;
            requests.push(at);
            let status = answer(at);
            let latency = SECOND.mul_f64(0.010 + 0.020 * random.f64());
            async move {
                sleep(latency).await;
                let response = Response::builder().status(status).body(Body::default());
                Ok::<_, Infallible>(response.expect("a valid response"))
            }
        })
    };
    let service = rule.layer().layer(inner);
    let mut calls = JoinSet::new();
    let mut random = fastrand::Rng::with_seed(5);
    let mut next = Duration::ZERO;
    while next < span {
        sleep_until(start + next).await;
        let service = service.clone();
        calls.spawn(async move {
            let begun = start.elapsed();
            let Ok(response) = send(&service, get()).await;
            (begun, response.status() == 200)
        });
        next += SECOND.mul_f64(-(1.0 - random.f64()).ln() / rps);
    }
    let calls = calls.join_all().await;
    let requests = std::mem::take(&mut server.lock().expect("no panic inside").2);
    Run { calls, requests }
}

fn row(rule: Rule, figure: &str, measured: &str, published: &str) {
    let rule = format!("{rule:?}");
    println!("{rule:<10} {figure:<52} {measured:>14}   published {published}");
}

#[tokio::test(start_paused = true)]
async fn saves_the_calls_of_a_blip_in_which_every_answer_fails() {
    let blip = WARM..WARM + 50 * MS;
    let saved = async |rule| {
        let server = down(WARM..WARM + 50 * MS, 500);
        run(rule, RPS, WARM + 200 * MS, server)
            .await
            .success(blip.clone())
    };
    let none = saved(Rule::NoRetries).await;
    let default = saved(Rule::Default).await;
    let unlimited = saved(Rule::Unlimited).await;
    for (rule, saved, published) in [
        (Rule::NoRetries, none, "-"),
        (Rule::Default, default, "99.4 %"),
        (Rule::Unlimited, unlimited, "99.4 %"),
    ] {
        row(
            rule,
            "blip of 50 ms, saved",
            &format!("{saved:.1} %"),
            published,
        );
    }
    assert_eq!(none, 0.0);
    assert!(default >= 98.0, "{default}");
    assert!(default >= unlimited - 1.0, "{default} of {unlimited}");
}

#[tokio::test(start_paused = true)]
async fn adds_next_to_nothing_to_the_load_of_a_full_outage() {
    for status in [500, 503] {
        let end = WARM + 10 * SECOND;
        let outage = run(Rule::Default, RPS, end, down(WARM..end, status)).await;
        let first = outage.load(WARM..WARM + SECOND);
        let ten = outage.load(WARM..end);
        let last = outage.load(WARM + 2 * SECOND..end);
        let figure = format!("outage ({status}), load in first 1 s / 10 s / later");
        let measured = format!("{first:.2} {ten:.2} {last:.3}");
        row(Rule::Default, &figure, &measured, "1.19 1.02 1.00");
        assert!(first > 1.1 && first < 1.25, "{first}");
        assert!(ten <= 1.05, "{ten}");
        assert!(last <= 1.002, "{last}");
    }
    let end = WARM + SECOND;
    let outage = run(Rule::Unlimited, RPS, end, down(WARM..end, 500)).await;
    let unlimited = outage.load(WARM..end);
    row(
        Rule::Unlimited,
        "outage (500), load in first 1 s",
        &format!("{unlimited:.2}"),
        "2.94",
    );
    assert!(unlimited > 2.8, "{unlimited}");
}

#[tokio::test(start_paused = true)]
async fn mends_random_failures_and_spends_less_on_those_that_say_too_much() {
    let end = WARM + 4 * SECOND;
    let mut figures = Vec::new();
    for (rule, status, published) in [
        (Rule::NoRetries, 500, "80.1 % / 1.00"),
        (Rule::Default, 500, "99.1 % / 1.24"),
        (Rule::Default, 503, "93.1 % / 1.16"),
        (Rule::Unlimited, 503, "99.2 % / 1.24"),
    ] {
        let all = run(rule, HALF_RPS, end, unlucky(0.2, status)).await;
        let (success, load) = (all.success(WARM..end), all.load(WARM..end));
        let figure = format!("20 % random failures ({status}), success / load");
        row(
            rule,
            &figure,
            &format!("{success:.1} % / {load:.2}"),
            published,
        );
        figures.push((success, load));
    }
    let [none, transient, overload, unlimited] = figures[..] else {
        unreachable!("four runs");
    };
    assert!(none.0 < 82.0, "{none:?}");
    assert!(transient.0 >= 98.0, "{transient:?}");
    assert!((transient.1 - 1.24).abs() < 0.02, "{transient:?}");
    assert!((overload.0 - 93.1).abs() < 1.5, "{overload:?}");
    assert!((overload.1 - 1.16).abs() < 0.02, "{overload:?}");
    assert!(unlimited.0 >= 98.0, "{unlimited:?}");
}

/// One test for each load, so that they run side by side.
async fn sustained_overload(offered: f64, published: [&str; 3]) {
    let end = WARM + 4 * SECOND;
    let mut success = Vec::new();
    for (rule, published) in [Rule::NoRetries, Rule::Default, Rule::Unlimited]
        .into_iter()
        .zip(published)
    {
        let all = run(rule, HALF_RPS, end, limited(HALF_RPS / offered)).await;
        let (saved, load) = (all.success(WARM..end), all.load(WARM..end));
        let figure = format!("{offered} of capacity, success / load");
        row(
            rule,
            &figure,
            &format!("{saved:.1} % / {load:.2}"),
            published,
        );
        success.push(saved);
    }
    let [none, default, unlimited] = success[..] else {
        unreachable!("three rules");
    };
    assert!(default >= none - 5.0, "{default} against {none}");
    assert!(unlimited < none - 15.0, "{unlimited} against {none}");
}

#[tokio::test(start_paused = true)]
async fn does_not_push_a_server_over_that_has_five_percent_too_much() {
    let published = ["93.3 % / 1.00", "90.4 % / 1.16", "63.9 % / 2.21"];
    sustained_overload(1.05, published).await;
}

#[tokio::test(start_paused = true)]
async fn does_not_push_a_server_over_that_has_ten_percent_too_much() {
    let published = ["88.5 % / 1.00", "85.4 % / 1.15", "55.0 % / 2.35"];
    sustained_overload(1.1, published).await;
}

#[tokio::test(start_paused = true)]
async fn does_not_push_a_server_over_that_has_twenty_percent_too_much() {
    let published = ["79.3 % / 1.00", "75.7 % / 1.13", "41.2 % / 2.54"];
    sustained_overload(1.2, published).await;
}

/// A budget that nothing but successes fills, its key, and a layer with it that retries at once.
fn watched() -> (Arc<TokenBudget>, Key, RetryBudgetLayer) {
    let budget = Arc::new(TokenBudget::builder().no_trickle().build().expect("valid"));
    let policy = steady()
        .backoff(Backoff::none())
        .throttled_backoff(Backoff::none());
    let layer = RetryBudgetLayer::new()
        .policy(policy.build().expect("a valid policy"))
        .shared_budget(budget.clone());
    (budget, Key::from_uri(get().uri()), layer)
}

fn balance(budget: &TokenBudget, key: &Key) -> f64 {
    budget.snapshot(key, Instant::now().into_std()).balance()
}

/// Makes calls that fail until one is refused a retry; returns how many requests that took.
async fn drain(layer: &RetryBudgetLayer) -> usize {
    let script = Script::always(500);
    let service = layer.layer(script.clone());
    loop {
        let response = send(&service, get()).await.expect("a response");
        if exhausted(&response).reason() == StopReason::Budget {
            return script.count();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fills_a_drained_budget_by_successes_alone() {
    let (budget, key, layer) = watched();
    // Five retries: two calls of three attempts, and one of two.
    assert_eq!(drain(&layer).await, 8);
    assert_eq!(balance(&budget, &key), 0.0);
    let script = Script::new([200, 200, 200, 200, 500]);
    let service = layer.layer(script.clone());
    for _ in 0..4 {
        send(&service, get()).await.expect("a response");
    }
    assert_eq!(balance(&budget, &key), 0.8);
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
    // Nobody waits for a token.
    assert_eq!(took, Duration::ZERO);
    send(&service, get()).await.expect("a response");
    assert_eq!(balance(&budget, &key), 1.0);
    script.then(500);
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    // The retry was of no overload signal and succeeded, so it was free.
    assert_eq!(balance(&budget, &key), 1.0);
}

#[tokio::test(start_paused = true)]
async fn does_not_fill_a_budget_by_time_or_failures_where_there_is_no_trickle() {
    let (budget, key, layer) = watched();
    drain(&layer).await;
    sleep(3600 * SECOND).await;
    drain(&layer).await;
    assert_eq!(balance(&budget, &key), 0.0);
}

#[tokio::test(start_paused = true)]
async fn saves_the_one_request_a_minute_of_a_quiet_client() {
    for status in [500, 503] {
        let script = Script::new::<Reply>([]);
        let policy = steady().build().expect("a valid policy");
        let service = RetryBudgetLayer::new().policy(policy).layer(script.clone());
        for _ in 0..60 {
            script.then(status);
            let response = send(&service, get()).await.expect("a response");
            assert_eq!(response.status(), 200);
            sleep(60 * SECOND).await;
        }
        assert_eq!(script.count(), 120);
    }
}

#[tokio::test(start_paused = true)]
async fn earns_once_for_each_call_and_nothing_for_a_retry() {
    let (budget, key, layer) = watched();
    let service = layer.layer(Script::always(200));
    for _ in 0..10 {
        send(&service, get()).await.expect("a response");
    }
    assert_eq!(balance(&budget, &key), 7.0);
    // Calls that each take a retry to succeed earn nothing and lose nothing.
    let script = Script::new::<Reply>([]);
    let service = layer.layer(script.clone());
    for _ in 0..50 {
        script.then(502);
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 200);
    }
    assert_eq!(balance(&budget, &key), 7.0);
}

#[tokio::test(start_paused = true)]
async fn bounds_retries_that_all_succeed_by_the_ceiling() {
    let (budget, key, layer) = watched();
    let script = Script::new::<Reply>([]);
    let service = layer.layer(script.clone());
    let mut saved = 0;
    for _ in 0..1000 {
        script.then(502);
        let response = send(&service, get()).await.expect("a response");
        saved += u32::from(response.status() == 200);
    }
    // 30 to start with, and half a retry for each of the thousand calls; those saved cost nothing
    // of the balance itself.
    assert!((528..=531).contains(&saved), "{saved}");
    assert_eq!(balance(&budget, &key), 5.0);
}

#[tokio::test(start_paused = true)]
async fn counts_attempts_for_each_call_and_tokens_for_all() {
    let (_, _, layer) = watched();
    let service = layer.layer(Script::new([500, 500, 500, 500]));
    let first = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&first).reason(), StopReason::MaxAttempts);
    let second = send(&service, get()).await.expect("a response");
    assert_eq!(second.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn takes_a_refusal_of_the_request_itself_for_no_failure() {
    let (budget, key, layer) = watched();
    let script = Script::always(400);
    let service = layer.layer(script.clone());
    drain(&layer).await;
    for _ in 0..5 {
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 400);
    }
    assert_eq!(script.count(), 5);
    assert_eq!(balance(&budget, &key), 1.0);
    for reply in [503, 200] {
        script.then(reply);
    }
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    // What said "too much" is not given back.
    assert_eq!(balance(&budget, &key), 0.0);
}

#[tokio::test(start_paused = true)]
async fn refuses_at_once_when_there_is_no_budget() {
    let none = TokenBudget::builder()
        .cap(0)
        .initial(0)
        .ratio(0.0)
        .no_trickle();
    let script = Script::always(503);
    let layer = RetryBudgetLayer::new().budget(none.build().expect("a valid budget"));
    let service = layer.layer(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
    assert_eq!(took, Duration::ZERO);
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn gives_back_a_retry_that_was_not_sent() {
    let (budget, key, layer) = watched();
    let policy = steady().build().expect("a valid policy");
    let script = Script::always(500);
    let service = layer.policy(policy).layer(script.clone());
    {
        let call = send(&service, get());
        // Dropped in the wait before the retry.
        let cut = tokio::time::timeout(5 * MS, call).await;
        cut.expect_err("it waits for 10 ms");
    }
    assert_eq!(balance(&budget, &key), 5.0);
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn does_not_multiply_a_thousand_failing_calls_by_the_attempts_allowed() {
    let requests = async |budget: TokenBudget| {
        let script = Script::always(500);
        let policy = steady().build().expect("a valid policy");
        let service = RetryBudgetLayer::new().policy(policy).budget(budget);
        let service = service.layer(script.clone());
        let mut calls = JoinSet::new();
        for _ in 0..1000 {
            let service = service.clone();
            calls.spawn(async move { send(&service, get()).await.expect("a response") });
        }
        for response in calls.join_all().await {
            assert_eq!(response.status(), 503);
        }
        script.count()
    };
    assert_eq!(requests(TokenBudget::default()).await, 1005);
    assert_eq!(requests(ample()).await, 3000);
}
