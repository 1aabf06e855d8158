//! The limits of the design, through the layer.

use crate::support::{
    Body, MS, SECOND, ample, exhausted, get,
    recorder::Recorder,
    script::{Reply, Script, Seen},
    send, steady,
};
use http::Response;
use std::time::Duration;
use tokio::{task::JoinSet, time::sleep};
use tower::Layer;
use tower_retry_budget::{
    RetryBudget, RetryBudgetLayer, RetryPolicy, RetryState,
    budget::Key,
    policy::{AdaptiveLimits, Health},
    reason::StopReason,
};

/// A step of the histogram, so that a multiple of it is one too.
const USUAL: Duration = Duration::from_millis(128);

/// A dependency, and a layer with five attempts before it.
struct World {
    script: Script,
    layer: RetryBudgetLayer,
    service: RetryBudget<Script>,
    told: Recorder,
}

impl World {
    fn new(limits: AdaptiveLimits) -> Self {
        let policy = steady().max_attempts(5).build().expect("a valid policy");
        let told = Recorder::default();
        let layer = RetryBudgetLayer::new()
            .policy(policy)
            .budget(ample())
            .adaptive(limits)
            .observe(told.clone());
        let script = Script::new::<Reply>([]);
        let service = layer.layer(script.clone());
        Self {
            script,
            layer,
            service,
            told,
        }
    }

    /// One that has been well for as long as it takes to know what is usual.
    async fn well() -> Self {
        Self::well_by(AdaptiveLimits::default()).await
    }

    async fn well_by(limits: AdaptiveLimits) -> Self {
        let world = Self::new(limits);
        world.attempts(200, 0, USUAL).await;
        sleep(20 * SECOND).await;
        world
    }

    /// So many calls of one attempt, of which so many in a hundred fail.
    async fn attempts(&self, calls: u32, failing: u32, latency: Duration) {
        let mut tasks = JoinSet::new();
        for n in 0..calls {
            let status = if n % 100 < failing { 500 } else { 200 };
            self.script
                .then(Reply::After(latency, Box::new(Reply::Status(status))));
            let service = self.service.clone();
            let mut request = get();
            request.extensions_mut().insert(RetryPolicy::never());
            tasks.spawn(async move { send(&service, request).await.expect("a response") });
            // One after the other, as the script has it.
            tokio::task::yield_now().await;
        }
        tasks.join_all().await;
    }

    /// A call that fails as often as it is allowed to, and what the dependency saw of it.
    async fn probe(&self) -> (Response<impl http_body::Body>, Vec<Seen>) {
        for _ in 0..5 {
            self.script.then(500);
        }
        let before = self.script.count();
        let response = send(&self.service, get()).await.expect("a response");
        let seen = self.script.seen().split_off(before);
        for _ in seen.len()..5 {
            // What is left of the script.
            let mut request = get();
            request.extensions_mut().insert(RetryPolicy::never());
            send(&self.service, request).await.expect("a response");
        }
        (response, seen)
    }

    fn health(&self) -> Health {
        let now = tokio::time::Instant::now().into_std();
        let key = Key::from_uri(get().uri());
        self.layer.health(&key, now).expect("it is known")
    }
}

#[tokio::test(start_paused = true)]
async fn follows_the_error_rate_and_the_latency() {
    for (failing, times, expected) in [
        (0, 1.0, 5),
        (2, 1.0, 5),
        (10, 1.0, 3),
        (30, 1.0, 1),
        (0, 1.6, 5),
        (0, 2.5, 3),
        (0, 6.0, 2),
        (10, 6.0, 1),
        (30, 6.0, 1),
    ] {
        let world = World::well().await;
        world.attempts(200, failing, USUAL.mul_f64(times)).await;
        let (response, seen) = world.probe().await;
        let what = format!(
            "{failing} % failing, {times} times as slow: {:?}",
            world.health()
        );
        assert_eq!(seen.len(), expected, "{what}");
        let details = exhausted(&response);
        assert_eq!(details.reason(), StopReason::MaxAttempts, "{what}");
        let expected = u32::try_from(expected).expect("a few");
        assert_eq!(details.attempts(), expected);
        assert_eq!(details.max_attempts(), expected);
        // The next hop is told what is true, and nothing where nobody retries.
        let told = seen[0].header("x-retry-attempt").map(String::from);
        let max = (expected > 1).then(|| format!("1;max={expected}"));
        assert_eq!(told, max, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn allows_all_again_when_the_window_has_passed() {
    let world = World::well().await;
    world.attempts(200, 30, 6 * USUAL).await;
    assert_eq!(world.probe().await.1.len(), 1);
    sleep(11 * SECOND).await;
    assert_eq!(world.probe().await.1.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn does_not_take_an_incident_for_usual_and_takes_what_lasts_for_it() {
    // Ten times as fast as by default: a tenth of half an hour.
    let limits = AdaptiveLimits::builder().baseline(180 * SECOND).build();
    let world = World::well_by(limits.expect("valid limits")).await;
    for _ in 0..90 {
        world.attempts(120, 0, USUAL).await;
        sleep(2 * SECOND - USUAL).await;
    }
    let usual = world.health().usual_p99.expect("learnt");
    for _ in 0..15 {
        world.attempts(120, 0, 8 * USUAL).await;
        sleep(2 * SECOND - 8 * USUAL).await;
    }
    let after = world.health().usual_p99.expect("learnt");
    assert!(after < usual.mul_f64(1.5), "{usual:?} became {after:?}");
    assert_eq!(world.probe().await.1.len(), 2);
    for _ in 0..360 {
        world.attempts(120, 0, 8 * USUAL).await;
        sleep(2 * SECOND - 8 * USUAL).await;
    }
    assert_eq!(world.probe().await.1.len(), 5, "{:?}", world.health());
}

#[tokio::test(start_paused = true)]
async fn learns_nothing_while_it_fails() {
    let world = World::well().await;
    world.attempts(1, 0, USUAL).await;
    let usual = world.health().usual_p99;
    assert!(usual.is_some());
    for _ in 0..60 {
        world.attempts(120, 50, 8 * USUAL).await;
        sleep(2 * SECOND).await;
    }
    assert_eq!(world.health().usual_p99, usual);
}

#[tokio::test(start_paused = true)]
async fn lowers_a_call_that_has_begun_and_never_raises_it() {
    let world = World::new(AdaptiveLimits::default());
    let service = world.service.clone();
    world
        .script
        .then(Reply::After(SECOND, Box::new(500.into())));
    let under_way = tokio::spawn(async move { send(&service, get()).await });
    tokio::task::yield_now().await;
    world.attempts(100, 30, MS).await;
    for _ in 0..5 {
        world.script.then(500);
    }
    let response = under_way.await.expect("no panic").expect("a response");
    let details = exhausted(&response);
    assert_eq!((details.attempts(), details.max_attempts()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn says_so_before_the_first_attempt_and_when_it_becomes_less() {
    let world = World::new(AdaptiveLimits::default());
    world.attempts(100, 10, MS).await;
    world.told.take();
    world.probe().await;
    let told = world.told.take();
    let adapted: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("adapted"))
        .take(1)
        .collect();
    assert_eq!(adapted, ["adapted 3 of 5"]);
    assert_eq!(told[..2], ["call_started", "adapted 3 of 5"]);
}

/// A call with attempts behind it that another process made is not ended by a limit below them.
#[tokio::test(start_paused = true)]
async fn leaves_one_attempt_to_a_call_that_is_resumed() {
    let world = World::new(AdaptiveLimits::default());
    world.script.then(500);
    let mut request = get();
    let state = RetryState::new();
    request.extensions_mut().insert(state);
    let policy = steady().max_attempts(3).build().expect("a valid policy");
    request.extensions_mut().insert(policy);
    world.attempts(100, 30, MS).await;
    let response = send(&world.service, request).await.expect("a response");
    assert!(response.status().is_success());
}

#[tokio::test(start_paused = true)]
async fn is_off_unless_it_is_switched_on() {
    let script = Script::always(500);
    let policy = steady().max_attempts(5).build().expect("a valid policy");
    let layer = RetryBudgetLayer::new().policy(policy).budget(ample());
    let service = layer.layer(script.clone());
    for _ in 0..30 {
        send(&service, get()).await.expect("a response");
    }
    assert_eq!(script.count(), 150);
    let key = Key::from_uri(get().uri());
    let now = tokio::time::Instant::now().into_std();
    assert_eq!(layer.health(&key, now), None);
    let _: Option<Body> = None;
}
