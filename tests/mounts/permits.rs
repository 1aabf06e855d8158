//! What is limited inside the layer is not used up by calls that do not use it.

use crate::{
    layer,
    support::{
        Body, BoxError, MS, SECOND, call, exhausted, get, info,
        ledger::{Answer, Ledger},
        request,
        script::{Readiness, Reply, Script},
        send, steady, timed,
    },
};
use http::{Request, Response};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use tower::{
    Layer, ServiceBuilder,
    buffer::Buffer,
    limit::ConcurrencyLimit,
    load_shed::{LoadShed, error::Overloaded},
};
use tower_retry_budget::{
    Deadline, OnExhausted, RetryBudgetLayer, RetryPolicy,
    body::ResponseBody,
    policy::RetryPolicyBuilder,
    reason::{Processed, RetryOutcome, SkipReason, StopReason},
};

type Answered = Result<Response<ResponseBody<Body>>, BoxError>;

/// Makes a call over a service with one permit, and then two more: with the same instance, and with
/// a clone while that one is still there.
async fn over_one_permit(
    layer: RetryBudgetLayer,
    script: &Script,
    request: Request<Body>,
) -> Answered {
    let permits = Arc::new(Semaphore::new(1));
    let inner = ConcurrencyLimit::with_semaphore(script.clone(), permits.clone());
    let mut service = layer.layer(inner);
    let answer = call(&mut service, request).await;
    assert_eq!(permits.available_permits(), 1, "a permit leaked");
    let never = || {
        let mut request = get();
        request.extensions_mut().insert(RetryPolicy::never());
        request
    };
    let mut clone = service.clone();
    for instance in [&mut clone, &mut service] {
        let next = tokio::time::timeout(SECOND, call(instance, never()));
        let (next, took) = timed(next).await;
        assert!(next.expect("a free permit").is_ok());
        assert_eq!(took, Duration::ZERO);
    }
    assert_eq!(permits.available_permits(), 1, "a permit leaked");
    answer
}

async fn ok(layer: RetryBudgetLayer, script: &Script, request: Request<Body>) -> u16 {
    let answer = over_one_permit(layer, script, request).await;
    answer.expect("a response").status().as_u16()
}

async fn stopped(layer: RetryBudgetLayer, script: &Script, request: Request<Body>) -> StopReason {
    let answer = over_one_permit(layer, script, request).await;
    exhausted(&answer.expect("a response")).reason()
}

fn with(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    layer().policy(policy.build().expect("a valid policy"))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_answered_leaves_its_permit() {
    assert_eq!(ok(layer(), &Script::new([200]), get()).await, 200);
    assert_eq!(ok(layer(), &Script::new([404]), get()).await, 404);
    assert_eq!(ok(layer(), &Script::new([502]), get()).await, 200);
    let post = request("POST", "abc");
    assert_eq!(ok(layer(), &Script::new([502]), post).await, 502);
    let broken = || Script::new([Reply::Error("unknown".into())]);
    assert!(over_one_permit(layer(), &broken(), get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_leaves_its_permit() {
    let script = Script::new([502, 502, 502]);
    assert_eq!(
        stopped(layer(), &script, get()).await,
        StopReason::MaxAttempts
    );
    let script = Script::new([Reply::retry_after(503, "3600")]);
    let reason = stopped(layer(), &script, get()).await;
    assert_eq!(reason, StopReason::RetryAfterTooLong);
    let denied = Ledger::new([Answer::Deny(StopReason::Budget)]);
    let denying = layer().shared_budget(denied);
    let reason = stopped(denying, &Script::new([502]), get()).await;
    assert_eq!(reason, StopReason::Budget);
    let reason = stopped(layer().max_waiting(0), &Script::new([502]), get()).await;
    assert_eq!(reason, StopReason::Overloaded);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_cut_leaves_its_permit() {
    let limit = steady().total_timeout(SECOND);
    let reason = stopped(with(limit), &Script::new([Reply::Hang]), get()).await;
    assert_eq!(reason, StopReason::DeadlineReached);
    let limit = steady().attempt_timeout(SECOND);
    let post = request("POST", "abc");
    let reason = stopped(with(limit), &Script::new([Reply::Hang]), post).await;
    assert_eq!(reason, StopReason::AttemptTimeout);
    let limit = steady().attempt_timeout(SECOND);
    assert_eq!(
        ok(with(limit), &Script::new([Reply::Hang]), get()).await,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_made_leaves_its_permit() {
    for policy in [None, Some(RetryPolicy::never())] {
        let mut late = get();
        late.extensions_mut()
            .insert(Deadline::after(Duration::ZERO));
        if let Some(policy) = policy {
            late.extensions_mut().insert(policy);
        }
        let script = Script::new([200]);
        let answer = over_one_permit(layer(), &script, late).await;
        let answer = answer.expect("a response");
        assert_eq!(exhausted(&answer).reason(), StopReason::DeadlineReached);
        assert_eq!(exhausted(&answer).attempts(), 0);
        assert_eq!(exhausted(&answer).processed(), Processed::No);
        // Two more by the check, and not this one.
        assert_eq!(script.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_cannot_get_ready_again_ends_the_call() {
    let ledger = Ledger::new([]);
    let states = [Readiness::Ready, Readiness::Error("broken".into())];
    let script = Script::new([502]).readiness(states);
    let answer = over_one_permit(layer().shared_budget(ledger.clone()), &script, get()).await;
    let answer = answer.expect("a response");
    assert_eq!(exhausted(&answer).reason(), StopReason::Overloaded);
    assert_eq!(exhausted(&answer).attempts(), 1);
    let status = exhausted(&answer).last_status();
    assert_eq!(status, Some(http::StatusCode::BAD_GATEWAY));
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);

    // Before the first attempt it is the caller's to know.
    let states = [Readiness::Error("broken".into())];
    let script = Script::new([200]).readiness(states);
    let error = send(&layer().layer(script), get())
        .await
        .expect_err("not ready");
    assert_eq!(error.to_string(), "broken");
}

#[tokio::test(start_paused = true)]
async fn waits_for_readiness_until_the_deadline_and_no_longer() {
    let ledger = Ledger::new([]);
    let script = Script::new([502]).readiness([Readiness::Ready, Readiness::Never]);
    let policy = steady().total_timeout(SECOND).build();
    let layer = layer().shared_budget(ledger.clone());
    let service = layer.policy(policy.expect("a valid policy")).layer(script);
    let (answer, took) = timed(send(&service, get())).await;
    let answer = answer.expect("a response");
    assert_eq!(took, SECOND);
    assert_eq!(exhausted(&answer).reason(), StopReason::DeadlineReached);
    assert_eq!(exhausted(&answer).waited(), SECOND);
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_back_off_lets_another_one_run() {
    let script = Script::new([503]);
    let service = layer().layer(ConcurrencyLimit::new(script.clone(), 1));
    let (first, second) = tokio::join!(timed(send(&service, get())), async {
        tokio::time::sleep(MS).await;
        timed(send(&service, get())).await
    });
    assert_eq!(info(&first.0.expect("a response")).attempts, 2);
    assert_eq!(first.1, SECOND);
    assert_eq!(second.0.expect("a response").status(), 200);
    assert_eq!(second.1, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_limit_outside_lets_no_other_call_run_meanwhile() {
    let script = Script::new([503]);
    let service = ServiceBuilder::new()
        .concurrency_limit(1)
        .layer(layer())
        .service(script.clone());
    let (_, second) = tokio::join!(send(&service, get()), async {
        tokio::time::sleep(MS).await;
        timed(send(&service, get())).await
    });
    assert_eq!(second.0.expect("a response").status(), 200);
    assert_eq!(second.1, SECOND - MS);
}

#[tokio::test(start_paused = true)]
async fn a_retry_queues_for_a_permit_like_any_other_call() {
    let slow = Reply::after_ms(100, Reply::Status(200));
    let script = Script::new([Reply::Status(502), slow]);
    let service = layer().layer(ConcurrencyLimit::new(script.clone(), 1));
    let (first, _) = tokio::join!(send(&service, get()), async {
        tokio::time::sleep(5 * MS).await;
        send(&service, get()).await
    });
    assert_eq!(info(&first.expect("a response")).attempts, 2);
    assert_eq!(script.offsets(), [Duration::ZERO, 5 * MS, 105 * MS]);
}

fn shedding(script: &Script, layer: &RetryBudgetLayer) -> Shedding {
    let limit = ConcurrencyLimit::new(script.clone(), 1);
    layer.layer(LoadShed::new(limit))
}

type Shedding = tower_retry_budget::RetryBudget<LoadShed<ConcurrencyLimit<Script>>>;

#[tokio::test(start_paused = true)]
async fn passes_on_untouched_what_was_shed_at_once() {
    let ledger = Ledger::new([]);
    let script = Script::new([Reply::Hang]);
    let service = shedding(&script, &layer().shared_budget(ledger.clone()));
    let busy = tokio::spawn({
        let service = service.clone();
        async move { send(&service, get()).await }
    });
    tokio::task::yield_now().await;
    for method in ["GET", "POST"] {
        let error = send(&service, request(method, "abc")).await;
        assert!(error.expect_err("shed").is::<Overloaded>());
    }
    assert_eq!(script.count(), 1);
    assert!(ledger.withdrawals().is_empty());
    // It never reached the dependency, so it is no first attempt of it either.
    assert!(ledger.deposits().is_empty());
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn stops_as_overloaded_and_gives_back_a_retry_that_was_shed() {
    for answer in [OnExhausted::Respond, OnExhausted::PassThrough] {
        let ledger = Ledger::new([]);
        let policy = steady().on_exhausted(answer).build();
        let policy = policy.expect("a valid policy");
        let layer = layer().policy(policy).shared_budget(ledger.clone());
        let script = Script::new([Reply::Status(502), Reply::Hang]);
        let service = shedding(&script, &layer);
        let busy = tokio::spawn({
            let service = service.clone();
            async move {
                tokio::time::sleep(5 * MS).await;
                send(&service, get()).await
            }
        });
        let outcome = send(&service, get()).await;
        match answer {
            OnExhausted::PassThrough => {
                assert!(outcome.expect_err("shed").is::<Overloaded>());
            }
            _ => {
                let response = outcome.expect("a response");
                assert_eq!(response.status(), 503);
                assert_eq!(exhausted(&response).reason(), StopReason::Overloaded);
                // The last outcome is that of the attempt that was sent.
                assert_eq!(exhausted(&response).attempts(), 1);
                assert!(exhausted(&response).last_status().is_some());
                assert!(exhausted(&response).error().is_none());
            }
        }
        assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
        assert_eq!(script.count(), 2);
        busy.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_shed_was_not_processed() {
    let refused = Reply::io(std::io::ErrorKind::ConnectionRefused);
    let script = Script::new([refused, Reply::Hang]);
    let service = shedding(&script, &layer());
    let busy = tokio::spawn({
        let service = service.clone();
        async move {
            tokio::time::sleep(5 * MS).await;
            send(&service, get()).await
        }
    });
    let response = send(&service, request("POST", "abc")).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Overloaded);
    assert_eq!(exhausted(&response).processed(), Processed::No);
    assert!(exhausted(&response).is_retryable());
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn retries_over_a_buffer_and_leaves_no_slot_of_it_taken() {
    let script = Script::new([502, 502]);
    let mut service = layer().layer(Buffer::new(script.clone(), 1));
    for attempts in [3, 1] {
        let mut late = get();
        late.extensions_mut()
            .insert(Deadline::after(Duration::ZERO));
        let refused = call(&mut service, late).await.expect("a response");
        let reason = exhausted(&refused).reason();
        assert_eq!(reason, StopReason::DeadlineReached);
        // The refused instance is still there, and another one gets a slot.
        let next = tokio::time::timeout(SECOND, send(&service, get())).await;
        let next = next.expect("a free slot").expect("a response");
        let info = next.extensions().get::<tower_retry_budget::RetryInfo>();
        assert_eq!(info.map_or(1, |info| info.attempts), attempts);
    }
    assert_eq!(script.count(), 4);
    let post = request("POST", "abc");
    Script::then(&script, 502);
    let response = send(&service, post).await.expect("a response");
    assert_eq!(info(&response).skipped, Some(SkipReason::NotIdempotent));
}

#[tokio::test(start_paused = true)]
async fn a_buffer_that_closed_is_passed_on_at_once_and_ends_a_retry() {
    let broken = || Readiness::Error("broken".into());
    let script = Script::new([200]).readiness([broken()]);
    let service = layer().layer(Buffer::new(script, 4));
    let error = send(&service, get()).await.expect_err("a closed buffer");
    assert!(error.is::<tower::buffer::error::ServiceError>());

    let script = Script::new([502]).readiness([Readiness::Ready, broken()]);
    let ledger = Ledger::new([]);
    let layer = layer().shared_budget(ledger.clone());
    let service = layer.layer(Buffer::new(script, 4));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Overloaded);
    let last = exhausted(&response).last_status();
    assert_eq!(last.map(|status| status.as_u16()), Some(502));
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
}
