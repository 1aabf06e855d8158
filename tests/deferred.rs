//! A wait that is too long to sleep is handed over, and what a queue keeps of a delivery.

mod support;

use http::{Request, Response};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use support::{
    Body, SECOND, exhausted, get, info, json, request,
    script::{Reply, Script},
    send, steady, timed,
};
use tower::Layer;
use tower_retry_budget::{
    Delivery, DeliveryRecord, OnExhausted, RetryBudget, RetryBudgetLayer, RetryState,
    budget::{Key, TokenBudget},
    policy::RetryPolicyBuilder,
    reason::StopReason,
};

fn deferring() -> RetryPolicyBuilder {
    let policy = steady().total_timeout(3600 * SECOND);
    policy
        .max_retry_after(600 * SECOND)
        .defer_waits_over(5 * SECOND)
}

fn service(policy: RetryPolicyBuilder, script: &Script) -> RetryBudget<Script> {
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).layer(script.clone())
}

fn resumed(state: RetryState) -> Request<Body> {
    let mut request = get();
    request.extensions_mut().insert(state);
    request
}

fn state<B>(response: &Response<B>) -> RetryState {
    *response.extensions().get().expect("a state")
}

fn is_near(at: SystemTime, from_now: Duration) -> bool {
    let wait = at.duration_since(SystemTime::now()).expect("to come");
    (from_now.saturating_sub(2 * SECOND)..=from_now + SECOND).contains(&wait)
}

#[tokio::test(start_paused = true)]
async fn ends_with_the_time_of_the_next_attempt_and_goes_on_when_it_is_resumed() {
    let script = Script::new([Reply::retry_after(503, "60")]);
    let service = service(deferring(), &script);
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(took, Duration::ZERO);
    let details = exhausted(&response);
    assert_eq!(details.reason(), StopReason::Deferred);
    assert!(details.is_retryable());
    assert_eq!(details.attempts(), 1);
    let seconds: u64 = response.headers()["retry-after"]
        .to_str()
        .expect("text")
        .parse()
        .expect("a number");
    assert!(
        (60..=72).contains(&seconds),
        "never earlier than asked: {seconds}"
    );
    let state = state(&response);
    assert_eq!(state.attempts(), 1);
    let at = state.not_before().expect("a time");
    assert!(is_near(at, Duration::from_secs(seconds)), "{at:?}");
    assert_eq!(json(response).await["reason"], "deferred");

    // Too early: it sends nothing, and says the same.
    tokio::time::sleep(SECOND).await;
    let response = send(&service, resumed(state)).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Deferred);
    assert_eq!(script.count(), 1);
    let again = state_of_wait(&response);
    assert!(is_near(again, Duration::from_secs(seconds)), "{again:?}");

    // The clock of the wall stands still here: what is left is short enough to sleep.
    let near: RetryState = {
        let mut kept = serde_json::to_value(state).expect("a value");
        let soon = SystemTime::now() + 3 * SECOND;
        let soon = soon
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        kept["not_before_ms"] = u64::try_from(soon.as_millis()).expect("a time").into();
        serde_json::from_value(kept).expect("a state")
    };
    let response = send(&service, resumed(near)).await.expect("a response");
    assert_eq!((response.status().as_u16(), script.count()), (200, 2));
    assert_eq!(info(&response).attempts, 2);
}

fn state_of_wait<B>(response: &Response<B>) -> SystemTime {
    state(response).not_before().expect("a time")
}

#[tokio::test(start_paused = true)]
async fn sleeps_through_what_is_short_enough() {
    let script = Script::new([Reply::retry_after(503, "4")]);
    let policy = deferring().defer_waits_over(5 * SECOND);
    let (response, took) = timed(send(&service(policy, &script), get())).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert!((4 * SECOND..=5 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn does_not_defer_unless_it_is_told_to() {
    let script = Script::new([Reply::retry_after(503, "60")]);
    let policy = deferring().defer_waits_over(None);
    let (response, took) = timed(send(&service(policy, &script), get())).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert!(took >= 60 * SECOND);
    assert!(response.extensions().get::<RetryState>().is_none());
}

#[tokio::test(start_paused = true)]
async fn gives_up_and_does_not_defer_what_is_over_another_limit() {
    for (reply, reason) in [
        (
            Reply::retry_after(503, "601"),
            StopReason::RetryAfterTooLong,
        ),
        (Reply::retry_after(503, "600"), StopReason::Deferred),
    ] {
        let script = Script::new([reply]);
        let response = send(&service(deferring(), &script), get()).await;
        assert_eq!(exhausted(&response.expect("a response")).reason(), reason);
    }
}

#[tokio::test(start_paused = true)]
async fn passes_the_last_response_through_when_it_is_told_to() {
    let script = Script::new([Reply::retry_after(429, "60")]);
    let policy = deferring().on_exhausted(OnExhausted::PassThrough);
    let response = send(&service(policy, &script), get())
        .await
        .expect("a response");
    assert_eq!(response.status(), 429);
    assert_eq!(exhausted(&response).reason(), StopReason::Deferred);
    assert!(state(&response).not_before().is_some());
}

#[tokio::test(start_paused = true)]
async fn is_paid_for_when_it_is_deferred_and_not_when_it_is_resumed() {
    let budget = TokenBudget::builder().initial(2).no_trickle().build();
    let budget = Arc::new(budget.expect("a valid budget"));
    let script = Script::new((0..3).map(|_| Reply::retry_after(503, "60")));
    let policy = deferring().build().expect("a valid policy");
    let layer = RetryBudgetLayer::new()
        .policy(policy)
        .shared_budget(budget.clone());
    let service = layer.layer(script.clone());
    let balance = || {
        let now = tokio::time::Instant::now().into_std();
        budget.snapshot(&Key::from_uri(get().uri()), now).balance()
    };
    let response = send(&service, get()).await.expect("a response");
    assert!((balance() - 1.0).abs() < f64::EPSILON, "{}", balance());
    let mut kept = serde_json::to_value(state(&response)).expect("a value");
    kept["not_before_ms"] = serde_json::Value::Null;
    let kept = serde_json::from_value(kept).expect("a state");
    let response = send(&service, resumed(kept)).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Deferred);
    assert!(balance().abs() < f64::EPSILON, "one more for the next one");
    assert_eq!(script.count(), 2);
    // And none is left.
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
}

async fn recorded(policy: RetryPolicyBuilder, script: Script, method: &str) -> DeliveryRecord {
    let answer = send(&service(policy, &script), request(method, "")).await;
    DeliveryRecord::of(&answer)
}

#[tokio::test(start_paused = true)]
async fn records_what_became_of_a_delivery() {
    let policy = || steady().max_attempts(2);
    let delivered = recorded(policy(), Script::new([500]), "GET").await;
    assert_eq!(delivered.outcome, Delivery::Delivered);
    assert_eq!((delivered.attempts, delivered.last_status), (2, Some(200)));

    for status in [404, 410, 301] {
        let terminal = recorded(policy(), Script::always(status), "GET").await;
        assert_eq!(terminal.outcome, Delivery::TerminalResponse, "{status}");
        assert_eq!((terminal.attempts, terminal.last_status), (1, Some(status)));
        assert!(!terminal.retryable);
    }
    let gone = recorded(policy(), Script::always(410), "GET").await;
    assert_eq!(gone.skipped.as_deref(), Some("gone"));
    let unsafe_to_repeat = recorded(policy(), Script::always(500), "POST").await;
    assert_eq!(unsafe_to_repeat.outcome, Delivery::TerminalResponse);
    assert_eq!(unsafe_to_repeat.skipped.as_deref(), Some("not_idempotent"));

    let stopped = recorded(policy(), Script::always(502), "GET").await;
    assert_eq!(stopped.outcome, Delivery::Stopped(StopReason::MaxAttempts));
    assert_eq!((stopped.attempts, stopped.max_attempts), (2, Some(2)));
    assert_eq!(stopped.dependency.as_deref(), Some("http://search:8080"));
    assert!(stopped.retryable && stopped.not_before_ms > Some(stopped.recorded_at_ms));
    let history: Vec<_> = stopped
        .history
        .iter()
        .map(|entry| (entry.attempt, entry.status, entry.wait_ms))
        .collect();
    assert_eq!(history, [(1, Some(502), 10), (2, Some(502), 0)]);

    let error = Reply::Error("a stranger".into());
    let failed = recorded(policy(), Script::new([error]), "GET").await;
    assert_eq!(failed.outcome, Delivery::TerminalError);
    assert!(failed.error_type.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_record_is_read_as_it_was_written() {
    let record = recorded(
        deferring(),
        Script::new([Reply::retry_after(503, "60")]),
        "GET",
    )
    .await;
    let text = serde_json::to_string(&record).expect("text");
    assert!(text.contains(r#""outcome":"deferred""#), "{text}");
    let read: DeliveryRecord = serde_json::from_str(&text).expect("a record");
    assert_eq!(read, record);
    assert!(record.first_attempted_at_ms.is_some());
    let own = [
        Delivery::Delivered,
        Delivery::TerminalResponse,
        Delivery::TerminalError,
    ];
    let all = StopReason::ALL
        .iter()
        .copied()
        .map(Delivery::Stopped)
        .chain(own);
    for outcome in all {
        assert_eq!(Delivery::from_name(outcome.as_str()), Some(outcome));
    }
    assert_eq!(Delivery::from_name("lost"), None);
    let unknown = text.replace("deferred", "lost");
    let error = serde_json::from_str::<DeliveryRecord>(&unknown).expect_err("no such outcome");
    assert!(
        error.to_string().contains("no outcome is called `lost`"),
        "{error}"
    );
}
