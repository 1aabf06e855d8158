//! Asking a budget that needs time to answer: a store that many processes share.

mod support;

use http::Response;
use std::{sync::Arc, time::Duration};
use support::{
    MS, SECOND, exhausted, get, info,
    ledger::{Answer, Ledger},
    request,
    script::Script,
    send, steady, text, timed,
};
use tower::Layer;
use tower_retry_budget::{
    Deadline, OnExhausted, RetryBudgetLayer, RetryPolicy,
    body::ResponseBody,
    reason::{Cause, RetryOutcome, StopReason},
};

/// A layer in which one call may wait, or ask.
fn layer(ledger: &Arc<Ledger>) -> RetryBudgetLayer {
    RetryBudgetLayer::new()
        .policy(steady().build().expect("a valid policy"))
        .shared_budget(ledger.clone())
        .max_waiting(1)
}

/// A shared budget is asked once, with this answer, by a call that fails once with a `502`.
async fn asked(
    answer: Answer,
    policy: RetryPolicy,
    deadline: Option<Deadline>,
) -> (Script, Arc<Ledger>, Response<ResponseBody<support::Body>>) {
    let ledger = Ledger::new([answer]);
    let script = Script::new([502]);
    let service = layer(&ledger).policy(policy).layer(script.clone());
    let mut request = request("PUT", "abc");
    if let Some(deadline) = deadline {
        request.extensions_mut().insert(deadline);
    }
    let response = send(&service, request).await.expect("a response");
    (script, ledger, response)
}

fn passing_through() -> RetryPolicy {
    let policy = steady().on_exhausted(OnExhausted::PassThrough);
    policy.build().expect("a valid policy")
}

#[tokio::test(start_paused = true)]
async fn the_time_a_shared_budget_takes_counts_into_the_wait() {
    for (asking, sent) in [(0, 10), (4, 10), (10, 10), (40, 40)] {
        let policy = steady().build().expect("a valid policy");
        let (script, ledger, response) = asked(Answer::granted_after(asking), policy, None).await;
        assert_eq!(response.status(), 200);
        assert_eq!(script.offsets(), [Duration::ZERO, sent * MS]);
        assert_eq!(info(&response).waited, sent * MS);
        assert_eq!(ledger.settled(), [RetryOutcome::Succeeded]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_a_shared_budget_ends_the_call() {
    let denied = || Answer::denied_after(4, StopReason::FleetBudget);
    let policy = steady().build().expect("a valid policy");
    let (script, ledger, response) = asked(denied(), policy, None).await;
    assert_eq!(response.status(), 503);
    assert_eq!(exhausted(&response).reason(), StopReason::FleetBudget);
    assert_eq!(exhausted(&response).elapsed(), 4 * MS);
    assert_eq!(exhausted(&response).waited(), 4 * MS);
    assert_eq!(script.count(), 1);
    assert!(ledger.settled().is_empty());

    // The outcome is still in hand.
    let (_, _, response) = asked(denied(), passing_through(), None).await;
    assert_eq!(response.status(), 502);
    assert_eq!(exhausted(&response).reason(), StopReason::FleetBudget);
    assert_eq!(text(response).await, "status 502");
}

#[tokio::test(start_paused = true)]
async fn a_denial_on_the_spot_ends_the_call() {
    let denied = Answer::Deny(StopReason::FleetBudget);
    let (_, ledger, response) = asked(denied, passing_through(), None).await;
    assert_eq!(exhausted(&response).reason(), StopReason::FleetBudget);
    assert_eq!(exhausted(&response).elapsed(), Duration::ZERO);
    assert_eq!(text(response).await, "status 502");
    assert!(ledger.settled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shared_budget_that_never_answers_is_asked_until_the_deadline() {
    let deadline = || Some(Deadline::after(200 * MS));
    let policy = steady().build().expect("a valid policy");
    let (response, took) = timed(asked(Answer::Never, policy, deadline())).await;
    let (script, ledger, response) = response;
    assert_eq!(took, 200 * MS);
    assert_eq!(exhausted(&response).reason(), StopReason::DeadlineReached);
    assert_eq!((script.count(), ledger.asking()), (1, 0));
    assert!(ledger.settled().is_empty());

    let (_, _, response) = asked(Answer::Never, passing_through(), deadline()).await;
    assert_eq!(response.status(), 502);
    assert_eq!(text(response).await, "status 502");
}

#[tokio::test(start_paused = true)]
async fn a_retry_granted_too_late_is_given_back_and_not_sent() {
    // Granted 4 ms before the deadline: less than half of `min_attempt`.
    for policy in [steady().build().expect("a valid policy"), passing_through()] {
        let deadline = Some(Deadline::after(100 * MS));
        let late = Answer::granted_after(96);
        let (answer, took) = timed(asked(late, policy.clone(), deadline)).await;
        let (script, ledger, response) = answer;
        assert_eq!(exhausted(&response).reason(), StopReason::DeadlineTooClose);
        assert_eq!(took, 96 * MS);
        assert_eq!(script.count(), 1);
        assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_granted_too_late_leaves_the_outcome_in_hand() {
    let deadline = Some(Deadline::after(100 * MS));
    let late = Answer::granted_after(96);
    let (_, ledger, response) = asked(late, passing_through(), deadline).await;
    assert_eq!(response.status(), 502);
    assert_eq!(exhausted(&response).reason(), StopReason::DeadlineTooClose);
    assert_eq!(text(response).await, "status 502");
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_only_the_caller_ends_the_asking() {
    let policy = steady().total_timeout(None).build();
    let ledger = Ledger::new([Answer::Never]);
    let layer = layer(&ledger).policy(policy.expect("a valid policy"));
    let script = Script::new([502]);
    let service = layer.layer(script.clone());
    let answer = tokio::time::timeout(86_400 * SECOND, send(&service, get())).await;
    assert!(answer.is_err());
    assert_eq!(ledger.asking(), 0);
    assert!(ledger.settled().is_empty());
    // It held nothing of the inner service meanwhile, and its place is free again.
    Script::then(&script, 502);
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(info(&response).attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn tells_the_budget_of_each_retry_once() {
    let ledger = Ledger::new([]);
    let service = layer(&ledger).layer(Script::new([502, 502]));
    send(&service, get()).await.expect("a response");
    assert_eq!(ledger.deposits(), [true]);
    assert_eq!(
        ledger.settled(),
        [RetryOutcome::Failed, RetryOutcome::Succeeded]
    );
    // A call that succeeds at once deposits, and asks for nothing.
    send(&service, get()).await.expect("a response");
    assert_eq!(ledger.deposits(), [true, false]);
    assert_eq!(ledger.withdrawals(), [Cause::ServerError; 2]);
}
