//! Each path through a call, and what an observer hears of it.

use crate::support::{
    Body, MS, SECOND, get,
    ledger::{Answer, Ledger},
    recorder::Recorder,
    request,
    script::{Readiness, Reply, Script},
    send, steady,
};
use http::Request;
use std::{io::ErrorKind, sync::Arc, time::Duration};
use tower::{Layer, timeout::error::Elapsed};
use tower_retry_budget::{
    Deadline, HoldOff, RetryBudgetLayer, RetryPolicy,
    budget::StoreMode,
    observe::Observe,
    policy::{Credentials, RetryPolicyBuilder},
    reason::StopReason,
};

fn watched(
    policy: RetryPolicyBuilder,
    answers: impl IntoIterator<Item = Answer>,
) -> (RetryBudgetLayer, Recorder) {
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::new()
        .policy(policy.build().expect("a valid policy"))
        .shared_budget(Ledger::new(answers))
        .observe(recorder.clone());
    (layer, recorder)
}

/// What is told of one call.
async fn told(
    policy: RetryPolicyBuilder,
    answers: impl IntoIterator<Item = Answer>,
    script: Script,
    request: Request<Body>,
) -> Vec<String> {
    let (layer, recorder) = watched(policy, answers);
    let service = layer.layer(script);
    _ = send(&service, request).await;
    recorder.take()
}

const FAILED: [&str; 4] = [
    "call_started",
    "attempt_started 1 first",
    "attempt_finished 1 failure",
    "deposited failed=true",
];

fn failed_then(rest: &[&'static str]) -> Vec<&'static str> {
    [&FAILED, rest].concat()
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_success() {
    let told = told(steady(), [], Script::always(200), get()).await;
    let expected = [
        "call_started",
        "attempt_started 1 first",
        "attempt_finished 1 success",
        "deposited failed=false",
        "succeeded 1",
    ];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_retry_that_mends() {
    let told = told(steady(), [], Script::new([502]), get()).await;
    let expected = failed_then(&[
        "retry_scheduled server_error",
        "attempt_started 2 server_error",
        "attempt_finished 2 success",
        "settled Succeeded",
        "succeeded 2",
    ]);
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn tells_of_attempts_used_up() {
    let replies = [Reply::Status(502), Reply::io(ErrorKind::ConnectionReset)];
    let policy = steady().max_attempts(2);
    let told = told(policy, [], Script::new(replies), get()).await;
    let expected = failed_then(&[
        "retry_scheduled server_error",
        "attempt_started 2 server_error",
        "attempt_finished 2 failure",
        "settled Failed",
        "stopped max_attempts",
    ]);
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn tells_of_answers_and_of_failures_that_stand() {
    let told_of = |request, reply: Reply| told(steady(), [], Script::new([reply]), request);
    let expected = [
        "call_started",
        "attempt_started 1 first",
        "attempt_finished 1 final_answer",
        "deposited failed=false",
        "skipped final_answer",
    ];
    assert_eq!(told_of(get(), 404.into()).await, expected);
    let post = told_of(request("POST", ""), 500.into()).await;
    assert_eq!(post, failed_then(&["skipped not_idempotent"]));
    let mut never = get();
    never.extensions_mut().insert(RetryPolicy::never());
    let never = told_of(never, 500.into()).await;
    assert_eq!(never, failed_then(&["skipped disabled"]));
    let unknown = told_of(get(), Reply::Error("nobody knows this".into())).await;
    let expected = [
        "call_started",
        "attempt_started 1 first",
        "attempt_finished 1 final_error",
        "deposited failed=true",
        "skipped final_answer",
    ];
    assert_eq!(unknown, expected);
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_denial_apart_from_the_stop() {
    let deny = Answer::Deny(StopReason::Budget);
    let at_once = told(steady(), [deny], Script::always(502), get()).await;
    let expected = failed_then(&["budget_denied server_error budget", "stopped budget"]);
    assert_eq!(at_once, expected);
    let later = Answer::denied_after(20, StopReason::FleetBudget);
    let later = told(steady(), [later], Script::always(502), get()).await;
    let expected = failed_then(&[
        "budget_denied server_error fleet_budget",
        "stopped fleet_budget",
    ]);
    assert_eq!(later, expected);
}

#[tokio::test(start_paused = true)]
async fn tells_of_no_denial_when_the_deadline_ends_the_asking() {
    let policy = || steady().total_timeout(100 * MS);
    let never = told(policy(), [Answer::Never], Script::always(502), get()).await;
    assert_eq!(never, failed_then(&["stopped deadline_reached"]));
    // Granted, but so late that it is given back.
    let late = told(
        policy(),
        [Answer::granted_after(97)],
        Script::always(502),
        get(),
    )
    .await;
    assert_eq!(late, failed_then(&["stopped deadline_too_close"]));
}

#[tokio::test(start_paused = true)]
async fn tells_of_every_limit() {
    let call = async |policy, replies: Vec<Reply>, request| {
        let mut told = told(policy, [], Script::new(replies), request).await;
        told.split_off(2)
    };
    let reached = call(steady().total_timeout(SECOND), vec![Reply::Hang], get());
    let expected = [
        "attempt_finished 1 failure",
        "deposited failed=true",
        "stopped deadline_reached",
    ];
    assert_eq!(reached.await, expected);

    let policy = steady().attempt_timeout(SECOND);
    let cut = call(policy, vec![Reply::Hang], request("POST", ""));
    let expected = [
        "attempt_finished 1 failure",
        "deposited failed=true",
        "stopped attempt_timeout",
    ];
    assert_eq!(cut.await, expected);

    let hinted = call(steady(), vec![Reply::retry_after(503, "3600")], get());
    let expected = [
        "attempt_finished 1 failure",
        "deposited failed=true",
        "stopped retry_after_too_long",
    ];
    assert_eq!(hinted.await, expected);

    let policy = steady().total_timeout(15 * MS);
    let close = call(policy, vec![Reply::Status(500)], get());
    let expected = [
        "attempt_finished 1 failure",
        "deposited failed=true",
        "stopped deadline_too_close",
    ];
    assert_eq!(close.await, expected);

    let replies = vec![Reply::retry_after(502, "nonsense"), Reply::Status(404)];
    let expected = [
        "attempt_finished 1 failure",
        "deposited failed=true",
        "malformed_hint",
        "retry_scheduled server_error",
        "attempt_started 2 server_error",
        "attempt_finished 2 final_answer",
        "settled Succeeded",
        "skipped final_answer",
    ];
    assert_eq!(call(steady(), replies, get()).await, expected);
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_call_that_is_over_before_it_began() {
    let mut late = get();
    late.extensions_mut()
        .insert(Deadline::after(Duration::ZERO));
    let told = told(steady(), [], Script::always(200), late).await;
    assert_eq!(told, ["call_started", "stopped deadline_reached"]);
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_retry_that_was_not_sent() {
    let refused =
        Script::new([502]).readiness([Readiness::Ready, Readiness::Error("closed".into())]);
    let unready = told(steady(), [], refused, get()).await;
    let expected = failed_then(&[
        "retry_scheduled server_error",
        "not_ready",
        "settled NotSent",
        "stopped overloaded",
    ]);
    assert_eq!(unready, expected);

    let shed = Reply::Error(Box::new(tower::load_shed::error::Overloaded::new()));
    let shed = told(steady(), [], Script::new([Reply::Status(502), shed]), get()).await;
    let expected = failed_then(&[
        "retry_scheduled server_error",
        "attempt_started 2 server_error",
        "attempt_finished 2 refused",
        "settled NotSent",
        "stopped overloaded",
    ]);
    assert_eq!(shed, expected);

    let (layer, recorder) = watched(steady(), []);
    let service = layer.max_waiting(0).layer(Script::always(502));
    send(&service, get()).await.expect("a response");
    assert_eq!(recorder.take(), failed_then(&["stopped overloaded"]));
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_time_out_inside() {
    let elapsed = Reply::Error(Box::new(Elapsed::new()));
    let told = told(steady(), [], Script::new([elapsed]), get()).await;
    assert_eq!(told[4], "retry_scheduled timeout");
}

#[tokio::test(start_paused = true)]
async fn tells_of_credentials_that_are_refreshed_without_a_withdrawal() {
    let fresh = || async { Ok::<_, std::io::Error>(()) };
    let policy = steady().credentials(Credentials::refreshed_by(fresh));
    let refreshed = told(policy, [], Script::new([401]), get()).await;
    let expected = [
        "call_started",
        "attempt_started 1 first",
        "attempt_finished 1 final_answer",
        "deposited failed=false",
        "retry_scheduled credentials",
        "attempt_started 2 credentials",
        "attempt_finished 2 success",
        "succeeded 2",
    ];
    assert_eq!(refreshed, expected);

    let hanging = Credentials::refreshed_by(std::future::pending::<std::io::Result<()>>);
    let policy = steady().credentials(hanging).total_timeout(SECOND);
    let refused = told(policy, [], Script::new([401]), get()).await;
    assert_eq!(
        refused,
        [&expected[..4], &["skipped final_answer"]].concat()
    );
}

#[tokio::test(start_paused = true)]
async fn tells_of_calls_held_back() {
    let (layer, recorder) = watched(steady(), []);
    let layer = layer.hold_off(HoldOff::new().first_attempts());
    let service = layer.layer(Script::new([Reply::retry_after(503, "1")]));
    let first = tokio::spawn({
        let service = service.clone();
        async move {
            send(&service, get())
                .await
                .map(|response| response.status())
        }
    });
    tokio::time::sleep(MS).await;
    let expected = failed_then(&["held_off 1s", "retry_scheduled unavailable"]);
    assert_eq!(recorder.take(), expected);

    let held = tokio::spawn(async move { send(&service, get()).await.map(drop) });
    tokio::time::sleep(MS).await;
    assert_eq!(recorder.take(), ["call_started", "first_attempt_held"]);
    _ = first.await.expect("no panic");
    _ = held.await.expect("no panic");
    let mut rest = recorder.take();
    rest.sort();
    let expected = [
        "attempt_finished 1 success",
        "attempt_finished 2 success",
        "attempt_started 1 first",
        "attempt_started 2 unavailable",
        "deposited failed=false",
        "settled Succeeded",
        "succeeded 1",
        "succeeded 2",
    ];
    assert_eq!(rest, expected);
}

#[tokio::test(start_paused = true)]
async fn tells_everybody_who_was_added_and_nobody_twice() {
    let (layer, first) = watched(steady(), []);
    let second = Recorder::default();
    let layer = layer.observe(()).observe(Arc::new(second.clone()));
    let service = layer.layer(Script::new([502]));
    send(&service, get()).await.expect("a response");
    let told = first.take();
    assert_eq!(told.len(), 9);
    assert_eq!(second.take(), told);
}

#[test]
fn hands_on_what_budgets_and_settings_tell() {
    let (first, second) = (Recorder::default(), Recorder::default());
    let both: Arc<dyn Observe> = Arc::new((first.clone(), second.clone()));
    both.store_mode_changed(StoreMode::LocalShare);
    both.store_failed("timeout");
    both.configuration_changed("c0ffee");
    let told = first.take();
    let expected = [
        "store_mode_changed local_share",
        "store_failed timeout",
        "configuration_changed c0ffee",
    ];
    assert_eq!(told, expected);
    assert_eq!(second.take(), told);
}
