//! With a circuit breaker: one that a test sets, and one from crates.io.

use crate::support::{
    MS, SECOND, ample, exhausted, get,
    script::{Reply, Script},
    send, steady,
};
use failsafe::{Config, Instrument, StateMachine, backoff, failure_policy};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tower::{Layer, limit::ConcurrencyLimit};
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    observe::{AttemptFinished, AttemptOutcome, CallView, Observe},
    policy::{AdaptiveLimits, CircuitState},
    reason::{Processed, StopReason},
};

type Switch = Arc<Mutex<CircuitState>>;

fn switch(state: CircuitState) -> (Switch, RetryBudgetLayer) {
    let switch = Arc::new(Mutex::new(state));
    let seen = Arc::clone(&switch);
    let limits = AdaptiveLimits::builder()
        .circuit(move |_| *seen.lock().expect("no panic"))
        .build();
    let policy = steady().max_attempts(5).build().expect("a valid policy");
    let layer = RetryBudgetLayer::new()
        .policy(policy)
        .budget(ample())
        .adaptive(limits.expect("valid limits"));
    (switch, layer)
}

fn set(switch: &Switch, state: CircuitState) {
    *switch.lock().expect("no panic") = state;
}

fn open(seconds: u32) -> CircuitState {
    CircuitState::Open {
        retry_after: Some(seconds * SECOND),
    }
}

#[tokio::test(start_paused = true)]
async fn makes_no_call_while_it_is_open_and_says_when_to_come_back() {
    let (_, layer) = switch(open(17));
    let script = Script::always(200);
    let service = layer.layer(script.clone());
    for policy in [None, Some(RetryPolicy::never())] {
        let mut request = get();
        request.extensions_mut().extend(
            policy
                .map(|policy| {
                    let mut extensions = http::Extensions::new();
                    extensions.insert(policy);
                    extensions
                })
                .unwrap_or_default(),
        );
        let response = send(&service, request).await.expect("a response");
        assert_eq!(response.status(), 503);
        let details = exhausted(&response);
        assert_eq!(details.reason(), StopReason::CircuitOpen);
        assert_eq!(details.attempts(), 0);
        assert_eq!(details.processed(), Processed::No);
        assert_eq!(response.headers()["retry-after"], "17");
    }
    assert_eq!(script.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn gives_back_the_readiness_that_was_not_used() {
    let (switch, layer) = switch(open(1));
    let service = layer.layer(ConcurrencyLimit::new(Script::always(200), 1));
    let mut refused = service.clone();
    crate::support::call(&mut refused, get())
        .await
        .expect("a response");
    set(&switch, CircuitState::Closed);
    let other = send(&service, get());
    let response = tokio::time::timeout(SECOND, other).await;
    let response = response
        .expect("the permit was given back")
        .expect("a response");
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn makes_one_attempt_while_it_is_half_open_and_all_while_it_is_closed() {
    let (switch, layer) = switch(CircuitState::HalfOpen);
    let script = Script::always(500);
    let service = layer.layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    assert_eq!(script.count(), 1);
    set(&switch, CircuitState::Closed);
    send(&service, get()).await.expect("a response");
    assert_eq!(script.count(), 6);
}

#[tokio::test(start_paused = true)]
async fn ends_a_call_before_its_retry_when_it_opens_meanwhile() {
    let (switch, layer) = switch(CircuitState::Closed);
    // While the attempt is under way, and while the call waits.
    for (reply, at) in [(Reply::after_ms(100, 500.into()), 50), (503.into(), 500)] {
        set(&switch, CircuitState::Closed);
        let script = Script::new([reply]);
        let service = layer.layer(script.clone());
        let call = tokio::spawn(async move { send(&service, get()).await });
        tokio::time::sleep(at * MS).await;
        set(&switch, open(9));
        let response = call.await.expect("no panic").expect("a response");
        let details = exhausted(&response);
        assert_eq!(details.reason(), StopReason::CircuitOpen, "after {at} ms");
        assert_eq!((details.attempts(), script.count()), (1, 1));
        assert_eq!(response.headers()["retry-after"], "9");
    }
}

/// Where a breaker of `failsafe` stands: it tells only who listens.
#[derive(Clone, Default)]
struct Standing(Arc<Mutex<Option<CircuitState>>>);

impl Standing {
    fn set(&self, state: CircuitState) {
        *self.0.lock().expect("no panic") = Some(state);
    }
}

impl Instrument for Standing {
    fn on_call_rejected(&self) {}

    fn on_open(&self) {
        self.set(CircuitState::Open { retry_after: None });
    }

    fn on_half_open(&self) {
        self.set(CircuitState::HalfOpen);
    }

    fn on_closed(&self) {
        self.set(CircuitState::Closed);
    }
}

type Policy = failure_policy::ConsecutiveFailures<std::iter::Repeat<Duration>>;

/// A breaker of `failsafe`, told of every attempt.
#[derive(Clone)]
struct Breaker {
    machine: Arc<StateMachine<Policy, Standing>>,
    standing: Standing,
}

impl Breaker {
    /// One that opens after three failures in a row, for so long.
    fn new(open_for: Duration) -> Self {
        let standing = Standing::default();
        let policy = failure_policy::consecutive_failures(3, backoff::constant(open_for));
        let machine = Config::new()
            .failure_policy(policy)
            .instrument(standing.clone())
            .build();
        Self {
            machine: Arc::new(machine),
            standing,
        }
    }

    fn state(&self) -> CircuitState {
        // To ask is what makes it half open when its time has come.
        let permitted = self.machine.is_call_permitted();
        let standing = *self.standing.0.lock().expect("no panic");
        match standing {
            Some(CircuitState::Open { .. }) if permitted => CircuitState::HalfOpen,
            Some(state) => state,
            None => CircuitState::Closed,
        }
    }
}

impl Observe for Breaker {
    fn attempt_finished(&self, _: &CallView<'_>, attempt: &AttemptFinished) {
        match attempt.outcome {
            AttemptOutcome::Success | AttemptOutcome::FinalAnswer => self.machine.on_success(),
            AttemptOutcome::Failure | AttemptOutcome::FinalError => self.machine.on_error(),
            _ => {}
        }
    }
}

fn with(breaker: &Breaker) -> RetryBudgetLayer {
    let asked = breaker.clone();
    let limits = AdaptiveLimits::builder()
        .circuit(move |_| asked.state())
        .build();
    let policy = steady().max_attempts(5).build().expect("a valid policy");
    RetryBudgetLayer::new()
        .policy(policy)
        .budget(ample())
        .adaptive(limits.expect("valid limits"))
        .observe(breaker.clone())
}

#[tokio::test(start_paused = true)]
async fn works_with_a_breaker_that_was_made_by_others() {
    let breaker = Breaker::new(3600 * SECOND);
    let script = Script::always(500);
    let service = with(&breaker).layer(script.clone());
    // The third failure opens it, in the midst of a call.
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::CircuitOpen);
    assert_eq!(script.count(), 3);
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).attempts(), 0);
    assert_eq!(script.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn lets_a_breaker_that_was_made_by_others_close_again() {
    // Half open as soon as it is asked.
    let breaker = Breaker::new(Duration::ZERO);
    let script = Script::new([500, 500, 500]);
    let service = with(&breaker).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    assert_eq!(script.count(), 3);
    // One attempt, which succeeds and closes it.
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(breaker.state(), CircuitState::Closed);
}
