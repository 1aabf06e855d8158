//! Calls of one attempt without a time limit, to which nobody listens: the layer leaves out what only
//! others need, and that can be seen nowhere.

mod support;

use support::{
    Body, SECOND, get,
    ledger::Ledger,
    script::{Reply, Script},
    send, steady,
};
use tower::{Layer, Service, ServiceExt};
use tower_retry_budget::{
    Deadline, Exhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    deadline::{DEADLINE_REMAINING_MS, RETRY_ATTEMPT},
    reason::StopReason,
};

fn never() -> RetryBudgetLayer {
    RetryBudgetLayer::new().policy(RetryPolicy::never())
}

#[tokio::test(start_paused = true)]
async fn tells_the_budget_once_how_each_call_ended() {
    let ledger = Ledger::new([]);
    let refused = Reply::io(std::io::ErrorKind::ConnectionRefused);
    let script = Script::new([200.into(), 503.into(), 404.into(), refused]);
    let service = never().shared_budget(ledger.clone()).layer(script.clone());
    for status in [200, 503, 404] {
        let response = send(&service, get()).await.expect("an answer");
        assert_eq!(response.status(), status);
        assert!(response.extensions().get::<RetryInfo>().is_none());
    }
    assert!(send(&service, get()).await.is_err());
    assert_eq!(ledger.deposits(), [false, true, false, true]);
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn tells_the_budget_nothing_of_a_call_that_was_dropped() {
    let ledger = Ledger::new([]);
    let script = Script::new([Reply::Hang]);
    let service = never().shared_budget(ledger.clone()).layer(script.clone());
    let mut call = Box::pin(send(&service, get()));
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    drop(call);
    assert_eq!(script.seen().len(), 1);
    assert!(ledger.deposits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn ends_by_a_deadline_of_its_own_all_the_same() {
    let service = never().layer(Script::new([Reply::Hang]));
    let mut request = get();
    request.extensions_mut().insert(Deadline::after(SECOND));
    let response = send(&service, request).await.expect("an answer");
    let exhausted = response.extensions().get::<Exhausted>();
    let reason = exhausted.map(Exhausted::reason);
    assert_eq!(reason, Some(StopReason::DeadlineReached));
}

#[tokio::test(start_paused = true)]
async fn counts_under_a_layer_that_retries_as_part_of_its_calls() {
    let (outer, inner) = (Ledger::new([]), Ledger::new([]));
    let script = Script::new([503, 200]);
    let inside = never().shared_budget(inner.clone()).layer(script.clone());
    let outside = RetryBudgetLayer::new().policy(steady().build().expect("a valid policy"));
    let service = outside.shared_budget(outer.clone()).layer(inside);
    let response = send(&service, get()).await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(outer.deposits(), [true]);
    assert!(inner.deposits().is_empty());
    let seen = script.seen();
    assert_eq!(seen[1].header(RETRY_ATTEMPT.as_str()), Some("2;max=3"));
}

#[tokio::test(start_paused = true)]
async fn hands_on_nothing_that_was_written_for_another_hop() {
    let script = Script::new([200, 200]);
    let told = |mut request: http::Request<Body>| {
        for name in [RETRY_ATTEMPT, DEADLINE_REMAINING_MS] {
            request.headers_mut().insert(name, 7.into());
        }
        request
    };
    let service = never().layer(script.clone());
    send(&service, told(get())).await.expect("an answer");
    let nobody = never().propagate_to(|_| false).layer(script.clone());
    send(&nobody, told(get())).await.expect("an answer");
    for seen in script.seen() {
        assert_eq!(seen.header(RETRY_ATTEMPT.as_str()), None);
        assert_eq!(seen.header(DEADLINE_REMAINING_MS.as_str()), None);
    }
}

#[tokio::test(start_paused = true)]
#[should_panic = "polled after completion"]
async fn panics_when_it_is_polled_after_completion() {
    let mut service = never().layer(Script::new([200]));
    let service = ServiceExt::<http::Request<Body>>::ready(&mut service).await;
    let service = service.expect("ready");
    let mut call = Box::pin(service.call(get()));
    call.as_mut().await.expect("an answer");
    call.await.expect("never");
}
