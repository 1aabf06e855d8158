//! A call that is resumed after a restart has what was left of it, and no more.

mod support;

use http::Request;
use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use support::{
    Body, MS, SECOND,
    client::layer,
    exhausted, get, info,
    script::{Reply, Script},
    send, steady, timed,
};
use tower::Layer;
use tower_retry_budget::{
    Persist, RetryBudgetLayer, RetryState, budget::TokenBudget, policy::Backoff, reason::StopReason,
};

fn resumed(state: RetryState) -> Request<Body> {
    let mut request = get();
    request.extensions_mut().insert(state);
    request
}

/// Milliseconds since 1970, so far from now.
fn at(offset: i64) -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("a near time") + offset
}

fn kept(text: serde_json::Value) -> RetryState {
    serde_json::from_value(text).expect("a state")
}

/// The states that were kept, and what else happened meanwhile.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Vec<RetryState>>>);

impl Store {
    fn persist(&self) -> Persist {
        let store = self.clone();
        Persist::new(move |state| {
            let store = store.clone();
            async move {
                tokio::time::sleep(5 * MS).await;
                store.0.lock().expect("not poisoned").push(state);
                Ok::<_, io::Error>(())
            }
        })
    }

    fn states(&self) -> Vec<RetryState> {
        self.0.lock().expect("not poisoned").clone()
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_used_stay_used() {
    for (used, sent) in [(0, 3), (1, 2), (2, 1)] {
        let script = Script::always(500);
        let service = layer(steady()).layer(script.clone());
        let state = kept(serde_json::json!({"attempts": used}));
        let response = send(&service, resumed(state)).await.expect("a response");
        assert_eq!((script.count(), exhausted(&response).attempts()), (sent, 3));
        let first = script.seen()[0].header("x-retry-attempt").map(String::from);
        assert_eq!(first, Some(format!("{};max=3", used + 1)));
        let state = response.extensions().get::<RetryState>();
        assert_eq!(state.map(RetryState::attempts), Some(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_over_its_limits_is_refused_at_once() {
    let over = [
        (serde_json::json!({"attempts": 3}), StopReason::MaxAttempts),
        (
            serde_json::json!({"attempts": u32::MAX}),
            StopReason::MaxAttempts,
        ),
        // Admitted with fewer than today's policy has.
        (
            serde_json::json!({"attempts": 2, "max_attempts": 2}),
            StopReason::MaxAttempts,
        ),
        (
            serde_json::json!({"attempts": 1, "deadline_ms": at(-1)}),
            StopReason::DeadlineReached,
        ),
        (
            serde_json::json!({"attempts": 1, "deadline_ms": at(5_000), "not_before_ms": at(6_000)}),
            StopReason::DeadlineTooClose,
        ),
        (
            serde_json::json!({"attempts": 1, "not_before_ms": u64::MAX}),
            StopReason::DeadlineTooClose,
        ),
    ];
    for (state, reason) in over {
        let script = Script::always(200);
        let service = layer(steady()).layer(script.clone());
        let (response, took) = timed(send(&service, resumed(kept(state.clone())))).await;
        let response = response.expect("a response");
        assert_eq!(exhausted(&response).reason(), reason, "{state}");
        assert_eq!((script.count(), took), (0, Duration::ZERO), "{state}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_cut_is_resumed_and_not_skipped() {
    let script = Script::always(200);
    let service = layer(steady()).layer(script.clone());
    let state = kept(serde_json::json!({"attempts": 1, "not_before_ms": at(2_000)}));
    let (response, took) = timed(send(&service, resumed(state))).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
    assert!(took > 1_500 * MS && took <= 2_001 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_window_never_restarts() {
    let policy = steady()
        .max_attempts(100)
        .total_timeout(60 * SECOND)
        .backoff(Backoff::fixed(SECOND));
    let service = layer(policy).layer(Script::always(500));
    let state = kept(serde_json::json!({"attempts": 1, "deadline_ms": at(5_000)}));
    let (response, took) = timed(send(&service, resumed(state))).await;
    let response = response.expect("a response");
    let reason = exhausted(&response).reason();
    assert_eq!(reason, StopReason::DeadlineTooClose);
    assert!(took <= 5 * SECOND, "{took:?}");
    let next = response.extensions().get::<RetryState>().expect("a state");
    assert_eq!(next.deadline(), state.deadline());
}

/// The state has seen a time an hour from now: since then the clock went back.
#[tokio::test(start_paused = true)]
async fn a_clock_that_went_back_cannot_extend_it() {
    const HOUR: i64 = 3_600_000;
    let policy = steady()
        .max_attempts(100)
        .total_timeout(None)
        .backoff(Backoff::fixed(SECOND));
    let service = layer(policy).layer(Script::always(500));
    let state = kept(serde_json::json!({
        "attempts": 1, "seen_at_ms": at(HOUR), "deadline_ms": at(HOUR + 5_000),
        "not_before_ms": at(HOUR + 1_000),
    }));
    let (response, took) = timed(send(&service, resumed(state))).await;
    let response = response.expect("a response");
    assert!(took <= 5_001 * MS, "{took:?}");
    let next = response.extensions().get::<RetryState>().expect("a state");
    let over = kept(serde_json::json!({
        "attempts": 1, "seen_at_ms": at(HOUR), "deadline_ms": at(HOUR - 1),
    }));
    let response = send(&service, resumed(over)).await.expect("a response");
    let reason = exhausted(&response).reason();
    assert_eq!(reason, StopReason::DeadlineReached);
    // What was kept meanwhile goes on from the latest time that was seen.
    assert!(next.not_before() > Some(SystemTime::now() + 3_500 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_kept_before_it_is_sent_and_every_wait_before_it_is_waited() {
    let script = Script::new([500, 503]);
    let service = layer(steady()).layer(script.clone());
    let store = Store::default();
    let mut request = support::request("PUT", "abc");
    request.extensions_mut().insert(store.persist());
    let response = send(&service, request).await.expect("a response");
    assert_eq!(response.status(), 200);
    let states = store.states();
    let told = states
        .iter()
        .map(|state| (state.attempts(), state.not_before().is_some()));
    let told: Vec<_> = told.collect();
    let expected = [(1, false), (1, true), (2, false), (2, true), (3, false)];
    assert_eq!(told, expected);
    // 5 ms to keep each attempt, and the waits of 10 ms and 1 s in which the waits were kept.
    assert_eq!(script.offsets(), [5 * MS, 20 * MS, 1_025 * MS]);
    for state in &states {
        assert_eq!(state.max_attempts(), Some(3));
        assert_eq!(state.deadline(), states[0].deadline());
        assert_eq!(state.first_attempted_at(), states[0].first_attempted_at());
        let text = serde_json::to_string(state).expect("text");
        let again: RetryState = serde_json::from_str(&text).expect("a state");
        assert_eq!(again.attempts(), state.attempts());
        assert!(again.not_before() >= state.not_before());
        assert!(again.deadline() <= state.deadline());
    }
}

/// The process ends at every point, and the next one goes on with what was kept.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_killed_again_and_again_sends_no_more_than_its_attempts() {
    for life in [3, 7, 12, 18, 30, 500] {
        let script = Script::always(500);
        let service = layer(steady()).layer(script.clone());
        let store = Store::default();
        let mut lives = 0;
        loop {
            lives += 1;
            let state = store.states().last().copied().unwrap_or_default();
            let mut request = resumed(state);
            request.extensions_mut().insert(store.persist());
            let ended = tokio::time::timeout(life * MS, send(&service, request)).await;
            if let Ok(response) = ended {
                let response = response.expect("a response");
                let reason = exhausted(&response).reason();
                assert_eq!(reason, StopReason::MaxAttempts);
                break;
            }
            if lives > 50 {
                break;
            }
        }
        assert!(script.count() <= 3, "{life} ms: {}", script.count());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_that_could_not_be_kept() {
    let failing = Persist::new(|_| async { Err(io::Error::other("the disk is full")) });
    let hanging = Persist::new(|_| std::future::pending::<io::Result<()>>());
    for (persist, reason, takes) in [
        (failing, StopReason::Overloaded, Duration::ZERO),
        (hanging, StopReason::DeadlineReached, SECOND),
    ] {
        let script = Script::new([Reply::Status(200)]);
        let service = layer(steady().total_timeout(SECOND)).layer(script.clone());
        let mut request = get();
        request.extensions_mut().insert(persist);
        let (response, took) = timed(send(&service, request)).await;
        let response = response.expect("a response");
        assert_eq!(exhausted(&response).reason(), reason);
        assert_eq!((script.count(), took), (0, takes));
        assert_eq!(exhausted(&response).attempts(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_call_has_the_idempotency_key_that_it_was_given_first() {
    let policy = || layer(steady().idempotency_keys());
    let post = |state: RetryState, store: &Store| {
        let mut request = support::request("POST", "");
        request.extensions_mut().insert(state);
        request.extensions_mut().insert(store.persist());
        request
    };
    let key = |script: &Script| {
        let seen = script.seen();
        seen[0].header("idempotency-key").map(String::from)
    };
    // Killed while its first attempt was under way.
    let (hangs, store) = (Script::new([Reply::Hang]), Store::default());
    let service = policy().layer(hangs.clone());
    let first = send(&service, post(RetryState::new(), &store));
    assert!(tokio::time::timeout(SECOND, first).await.is_err());
    let before = key(&hangs).expect("a key");

    let state = *store.states().last().expect("kept before it was sent");
    let state = serde_json::from_value(serde_json::to_value(state).expect("data"));
    let answers = Script::always(200);
    let service = policy().layer(answers.clone());
    let resumed = post(state.expect("a state"), &store);
    send(&service, resumed).await.expect("a response");
    assert_eq!(key(&answers), Some(before));

    // The caller's own wins.
    let mut own = post(state_with_key(), &store);
    let value = http::HeaderValue::from_static("mine");
    own.headers_mut().insert("idempotency-key", value);
    let answers = Script::always(200);
    send(&policy().layer(answers.clone()), own)
        .await
        .expect("a response");
    assert_eq!(key(&answers).as_deref(), Some("mine"));
}

fn state_with_key() -> RetryState {
    let key = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    kept(serde_json::json!({"attempts": 1, "idempotency_key": key}))
}

#[test]
fn a_state_with_a_key_that_cannot_be_read_is_refused() {
    let state = serde_json::json!({"attempts": 1, "idempotency_key": "k1"});
    assert!(serde_json::from_value::<RetryState>(state).is_err());
}

/// Or a queue that resumes what the budget denied would go past the budget.
#[tokio::test(start_paused = true)]
async fn the_budget_pays_for_the_attempt_that_resumes_a_call_unless_it_has() {
    let budget = TokenBudget::builder().initial(1).no_trickle().build();
    let script = Script::new([Reply::Status(500), Reply::Status(500)]);
    let layer = RetryBudgetLayer::new()
        .policy(steady().build().expect("a valid policy"))
        .budget(budget.expect("a valid budget"));
    let service = layer.layer(script.clone());
    let unpaid = || kept(serde_json::json!({"attempts": 2}));
    let paid = || kept(serde_json::json!({"attempts": 2, "paid": true}));
    // The one that there is.
    let response = send(&service, resumed(unpaid())).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    let response = send(&service, resumed(unpaid())).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
    assert_eq!((exhausted(&response).attempts(), script.count()), (2, 1));
    send(&service, resumed(paid())).await.expect("a response");
    assert_eq!(script.count(), 2);
    // A first attempt is nobody's retry.
    let first = send(&service, resumed(RetryState::new())).await;
    assert_eq!(first.expect("a response").status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_is_paid_for_and_one_that_was_sent_is_not() {
    let service = layer(steady()).layer(Script::always(500));
    let store = Store::default();
    let mut request = get();
    request.extensions_mut().insert(store.persist());
    let response = send(&service, request).await.expect("a response");
    let paid = |state: &RetryState| serde_json::to_value(state).expect("data")["paid"].clone();
    let states: Vec<_> = store.states().iter().map(paid).collect();
    assert_eq!(states, [false, true, false, true, false]);
    let last = response.extensions().get::<RetryState>().expect("a state");
    assert_eq!(paid(last), false);
}
