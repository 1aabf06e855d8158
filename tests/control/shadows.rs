//! What a gate that is only observed would have decided is told once.

use super::{layer, sleepy};
use crate::support::{
    MS, SECOND, get,
    ledger::{Answer, Ledger},
    recorder::Recorder,
    request,
    script::{Reply, Script},
    send, steady,
};
use std::time::Duration;
use tower::Layer;
use tower_retry_budget::{
    Deadline, RetryBudgetLayer,
    control::{Gate, Gates, Mode},
    policy::{Backoff, RetryPolicyBuilder},
    reason::StopReason,
};

fn observing(gate: Gate) -> Gates {
    Gates::default().with(gate, Mode::Observe)
}

/// What was told of gates when one call had these answers.
async fn told<R: Into<Reply>>(
    layer: RetryBudgetLayer,
    replies: impl IntoIterator<Item = R>,
    request: http::Request<crate::support::Body>,
) -> Vec<String> {
    let recorder = Recorder::default();
    let layer = layer.observe(recorder.clone());
    _ = send(&layer.layer(Script::new(replies)), request).await;
    let told = recorder.take().into_iter();
    told.filter_map(|line| line.strip_prefix("shadow ").map(String::from))
        .collect()
}

async fn retry(policy: RetryPolicyBuilder, reply: impl Into<Reply>, method: &str) -> Vec<String> {
    let layer = layer(policy).gates(observing(Gate::Retry));
    told(layer, [reply.into()], request(method, "abc")).await
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_told_with_its_cause() {
    assert_eq!(retry(steady(), 502, "GET").await, ["retry server_error"]);
    assert_eq!(retry(steady(), 503, "GET").await, ["retry unavailable"]);
    let refused = || Reply::io(std::io::ErrorKind::ConnectionRefused);
    assert_eq!(
        retry(steady(), refused(), "POST").await,
        ["retry unprocessed"]
    );
    let cut = steady().attempt_timeout(SECOND);
    assert_eq!(retry(cut, Reply::Hang, "GET").await, ["retry timeout"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_have_been_given_up_is_told_with_the_reason() {
    let long = Reply::retry_after(503, "900");
    assert_eq!(
        retry(steady(), long, "GET").await,
        ["retry retry_after_too_long"]
    );
    let close = sleepy().total_timeout(500 * MS);
    assert_eq!(retry(close, 502, "GET").await, ["retry deadline_too_close"]);
}

#[tokio::test(start_paused = true)]
async fn what_would_not_have_been_retried_is_not_told() {
    for (status, method) in [(200, "GET"), (404, "GET"), (502, "POST"), (501, "GET")] {
        assert!(retry(steady(), status, method).await.is_empty());
    }
    assert!(retry(steady().max_attempts(1), 502, "GET").await.is_empty());
    assert!(retry(steady().replay_limit(2), 502, "PUT").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_told_and_the_retry_sent() {
    let denial = || Answer::Deny(StopReason::Budget);
    let later = Answer::denied_after(10, StopReason::FleetBudget);
    let ledger = Ledger::new([denial(), later]);
    let layer = layer(steady())
        .shared_budget(ledger.clone())
        .gates(observing(Gate::Budget));
    let told = told(layer, [502, 502, 200], get()).await;
    assert_eq!(told, ["budget budget", "budget fleet_budget"]);
    assert_eq!(
        (ledger.withdrawals().len(), ledger.deposits().len()),
        (2, 1)
    );
    assert!(ledger.settled().is_empty(), "there was no permit");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_the_budget_grants_is_settled_and_not_told() {
    let ledger = Ledger::new([]);
    let layer = layer(steady())
        .shared_budget(ledger.clone())
        .gates(observing(Gate::Budget));
    assert!(told(layer, [502, 200], get()).await.is_empty());
    assert_eq!(ledger.settled().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_off_is_neither_filled_nor_asked() {
    let ledger = Ledger::new([Answer::Deny(StopReason::Budget)]);
    let layer = layer(steady())
        .shared_budget(ledger.clone())
        .gates(Gates::default().with(Gate::Budget, Mode::Off));
    let script = Script::always(502);
    send(&layer.layer(script.clone()), get()).await.unwrap();
    assert_eq!(script.count(), 3);
    assert!(ledger.withdrawals().is_empty() && ledger.deposits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_shuts_down_is_obeyed() {
    let ledger = Ledger::new([Answer::Deny(StopReason::ShuttingDown)]);
    let layer = layer(steady())
        .shared_budget(ledger)
        .gates(observing(Gate::Budget));
    let script = Script::always(502);
    send(&layer.layer(script.clone()), get()).await.unwrap();
    assert_eq!(script.count(), 1);
}

async fn deadline<R: Into<Reply>>(
    policy: RetryPolicyBuilder,
    replies: impl IntoIterator<Item = R>,
) -> Vec<String> {
    let layer = layer(policy.total_timeout(SECOND)).gates(observing(Gate::Deadline));
    told(layer, replies, get()).await
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_would_have_cut_is_told_once() {
    let late = || Reply::after_ms(1_500, 502.into());
    let told = deadline(steady(), [late(), late(), 200.into()]).await;
    assert_eq!(told, ["deadline deadline_reached"]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_would_not_have_fitted_is_told_once() {
    let slow = steady().backoff(Backoff::fixed(2 * SECOND));
    assert_eq!(
        deadline(slow, [502, 502, 200]).await,
        ["deadline deadline_too_close"]
    );
    let asked = [Reply::retry_after(503, "2"), 200.into()];
    assert_eq!(
        deadline(steady(), asked).await,
        ["deadline retry_after_too_long"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_in_time_is_not_told() {
    let replies = [Reply::after_ms(900, 502.into()), 200.into()];
    assert!(deadline(steady(), replies).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_have_been_refused_is_told_and_sent() {
    let mut late = get();
    late.extensions_mut()
        .insert(Deadline::after(Duration::ZERO));
    let layer = layer(steady()).gates(observing(Gate::Deadline));
    let told = told(layer, [200], late).await;
    assert_eq!(told, ["deadline deadline_reached"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_after_its_deadline_is_told() {
    let recorder = Recorder::default();
    let layer = layer(steady().total_timeout(SECOND))
        .gates(observing(Gate::Deadline))
        .observe(recorder.clone());
    let service = layer.layer(Script::new([Reply::Hang]));
    let dropped = tokio::time::timeout(2 * SECOND, send(&service, get())).await;
    assert!(dropped.is_err());
    let told = recorder.take();
    assert!(
        told.contains(&"shadow deadline deadline_reached".to_owned()),
        "{told:?}"
    );
}

/// What a handler's call is told when the request it serves is one of a caller that retries.
async fn skipping<R: Into<Reply>>(
    inherited: &'static str,
    mode: Mode,
    replies: impl IntoIterator<Item = R>,
    method: &'static str,
) -> (Vec<String>, usize) {
    let recorder = Recorder::default();
    let layer = layer(steady())
        .gates(Gates::default().with(Gate::Skipping, mode))
        .observe(recorder.clone());
    let script = Script::new(replies);
    let client = layer.layer(script.clone());
    let handler = tower::service_fn(move |_: http::Request<crate::support::Body>| {
        let client = client.clone();
        async move { send(&client, request(method, "abc")).await }
    });
    let server = tower_retry_budget::DeadlineLayer::new().layer(handler);
    let mut request = get();
    let value = http::HeaderValue::from_static(inherited);
    request.headers_mut().insert("x-retry-attempt", value);
    _ = send(&server, request).await;
    let told = recorder.take().into_iter();
    let told = told.filter_map(|line| line.strip_prefix("shadow ").map(String::from));
    (told.collect(), script.count())
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_a_layer_above_owns_is_told_once_and_sent() {
    let (told, sent) = skipping("1;max=3", Mode::Observe, [502, 502, 200], "PUT").await;
    assert_eq!((told, sent), (vec!["skipping owned_above".to_owned()], 3));
    let (told, sent) = skipping("1;max=3", Mode::Enforce, [502, 200], "PUT").await;
    assert_eq!((told, sent), (vec![], 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_retry_to_leave_to_others_is_not_told() {
    let (told, sent) = skipping("1;max=3", Mode::Observe, [200], "PUT").await;
    assert_eq!((told, sent), (vec![], 1));
    let (told, sent) = skipping("1;max=3", Mode::Observe, [502], "POST").await;
    assert_eq!((told, sent), (vec![], 1));
    let (told, sent) = skipping("1;max=1", Mode::Observe, [502, 200], "PUT").await;
    assert_eq!((told, sent), (vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn a_retry_where_a_layer_below_gave_up_is_told_and_sent() {
    let given_up = || {
        let response = http::Response::builder()
            .status(502)
            .header("x-retry-exhausted", "reason=budget")
            .body(crate::support::Body::default());
        [
            Reply::Response(response.expect("a valid response")),
            200.into(),
        ]
    };
    let (told, sent) = skipping("1;max=1", Mode::Observe, given_up(), "PUT").await;
    assert_eq!((told, sent), (vec!["skipping final_answer".to_owned()], 2));
    let (told, sent) = skipping("1;max=1", Mode::Enforce, given_up(), "PUT").await;
    assert_eq!((told, sent), (vec![], 1));
}
