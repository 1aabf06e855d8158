//! Switched off, nothing is retried any more, and who sleeps is woken for it.

use super::{layer, sleepy};
use crate::support::{
    Body, MS, SECOND, ample, exhausted, get, info,
    ledger::{self, Ledger},
    recorder::Recorder,
    script::{Readiness, Reply, Script},
    send, steady, timed,
};
use http::Request;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinSet, time::sleep};
use tower::Layer;
use tower_retry_budget::{
    HoldOff, Persist, RetryBudget, RetryBudgetLayer, RetryState,
    body::ResponseBody,
    budget::{Key, TokenBudget},
    control::{Gate, Gates, Mode},
    policy::Credentials,
    reason::{RetryOutcome, SkipReason, StopReason},
};

type Answer = http::Response<ResponseBody<Body>>;

/// The answer of one call, and how long it took, while something else happens `after` a while. The call is a
/// task of its own: nothing polls it unless it is woken.
async fn meanwhile(
    service: &RetryBudget<Script>,
    after: Duration,
    act: impl FnOnce(),
) -> (Answer, Duration) {
    let service = service.clone();
    let call = tokio::spawn(async move { timed(send(&service, get())).await });
    sleep(after).await;
    act();
    let (response, elapsed) = call.await.expect("no panic");
    (response.expect("a response"), elapsed)
}

fn search() -> Key {
    Key::from_uri(get().uri())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_has_its_own_outcome_for_an_answer() {
    let layer = layer(steady());
    let control = layer.control();
    control.retries_off();
    let script = Script::always(502);
    let response = send(&layer.layer(script.clone()), get()).await.unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(script.count(), 1);
    // Nobody is told that this layer retries.
    assert_eq!(script.seen()[0].header("x-retry-attempt"), None);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_under_way_is_not_cut_and_not_retried() {
    let ledger = Ledger::new([]);
    let layer = layer(steady()).shared_budget(ledger.clone());
    let control = layer.control();
    let script = Script::new([Reply::after_ms(100, 502.into())]);
    let service = layer.layer(script.clone());
    let (response, _) = meanwhile(&service, 50 * MS, || {
        control.retries_off();
    })
    .await;
    assert_eq!(response.status(), 502);
    assert_eq!(info(&response).skipped, Some(SkipReason::Disabled));
    assert_eq!(script.count(), 1);
    assert!(ledger.withdrawals().is_empty(), "the budget is not asked");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_sleeps_ends_at_once_and_gives_its_permit_back() {
    let ledger = Ledger::new([]);
    let recorder = Recorder::default();
    let layer = layer(sleepy())
        .shared_budget(ledger.clone())
        .observe(recorder.clone());
    let control = layer.control();
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    let (response, elapsed) = meanwhile(&service, 300 * MS, || {
        control.retries_off();
    })
    .await;
    assert_eq!(elapsed, 300 * MS);
    let exhausted = exhausted(&response);
    assert_eq!(exhausted.reason(), StopReason::Disabled);
    assert_eq!(exhausted.attempts(), 1);
    assert_eq!(exhausted.waited(), 300 * MS);
    assert_eq!(script.count(), 1);
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
    assert_eq!(recorder.take().last().unwrap(), "stopped disabled");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_sleeps_on_is_not_disturbed_by_a_switch_back_on_or_another_key() {
    let layer = layer(sleepy());
    let control = layer.control();
    let service = layer.layer(Script::new([502]));
    let (response, elapsed) = meanwhile(&service, 300 * MS, || {
        control.retries_off_for(&Key::from_static("other")).unwrap();
        control.retries_on();
    })
    .await;
    assert_eq!(response.status(), 200);
    assert_eq!(elapsed, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_readiness_ends_at_once() {
    let layer = layer(steady());
    let control = layer.control();
    let script = Script::always(502).readiness([Readiness::Ready, Readiness::Never]);
    let service = layer.layer(script.clone());
    let (response, elapsed) = meanwhile(&service, SECOND, || {
        control.retries_off();
    })
    .await;
    assert_eq!(exhausted(&response).reason(), StopReason::Disabled);
    assert_eq!(elapsed, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_a_store_has_its_outcome_for_an_answer() {
    let ledger = Ledger::new([ledger::Answer::granted_after(40)]);
    let layer = layer(steady()).shared_budget(ledger.clone());
    let control = layer.control();
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    let (response, _) = meanwhile(&service, 20 * MS, || {
        control.retries_off();
    })
    .await;
    assert_eq!(response.status(), 502);
    assert_eq!(info(&response).skipped, Some(SkipReason::Disabled));
    assert_eq!(script.count(), 1);
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_that_is_held_back_is_sent_all_the_same() {
    let hold_off = HoldOff::new().first_attempts();
    let layer = layer(steady().max_attempts(1)).hold_off(hold_off);
    let control = layer.control();
    let script = Script::new([Reply::retry_after(503, "1")]);
    let service = layer.layer(script.clone());
    send(&service, get()).await.unwrap();
    let (response, _) = meanwhile(&service, 300 * MS, || {
        control.retries_off();
    })
    .await;
    assert_eq!(response.status(), 200);
    assert_eq!(script.count(), 2);
}

/// What another process has begun is a retry here.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_attempted_before_is_refused() {
    let layer = layer(steady());
    let control = layer.control();
    let kept = Arc::new(Mutex::new(RetryState::new()));
    let mut request = get();
    let keep = kept.clone();
    request.extensions_mut().insert(Persist::new(move |state| {
        *keep.lock().unwrap() = state;
        async { Ok::<_, std::io::Error>(()) }
    }));
    send(&layer.layer(Script::always(200)), request)
        .await
        .unwrap();
    let state = *kept.lock().unwrap();
    assert_eq!(state.attempts(), 1);

    let resumed = |layer: &RetryBudgetLayer| {
        let script = Script::always(200);
        let service = layer.layer(script.clone());
        let mut request = get();
        request.extensions_mut().insert(state);
        async move { (send(&service, request).await.unwrap(), script.count()) }
    };
    let (response, sent) = resumed(&layer).await;
    assert_eq!((response.status().as_u16(), sent), (200, 1));
    control.retries_off();
    let (response, sent) = resumed(&layer).await;
    assert_eq!(exhausted(&response).reason(), StopReason::Disabled);
    assert_eq!(sent, 0);
    for mode in [Mode::Observe, Mode::Off] {
        let gates = Gates::default().with(Gate::Retry, mode);
        let (response, sent) = resumed(&layer.clone().gates(gates)).await;
        assert_eq!(exhausted(&response).reason(), StopReason::Disabled);
        assert_eq!(sent, 0);
    }
}

/// With new credentials it would be a retry too.
#[tokio::test(start_paused = true)]
async fn credentials_are_not_refreshed_for_a_retry_that_is_not_sent() {
    let refreshes = Arc::new(AtomicUsize::new(0));
    let count = refreshes.clone();
    let credentials = Credentials::refreshed_by(move || {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, std::io::Error>(()) }
    });
    let layer = layer(steady().credentials(credentials));
    let control = layer.control();
    let service = layer.layer(Script::new([Reply::after_ms(100, 401.into()), 401.into()]));
    let (response, _) = meanwhile(&service, 50 * MS, || control.retries_off()).await;
    assert_eq!(response.status(), 401);
    assert_eq!(refreshes.load(Ordering::SeqCst), 0);
    control.retries_on();
    assert_eq!(send(&service, get()).await.unwrap().status(), 200);
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn one_key_is_switched_off_and_no_other() {
    let layer = layer(steady());
    let control = layer.control();
    control.retries_off_for(&search()).unwrap();
    assert!(control.is_off(&search()));
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    send(&service, get()).await.unwrap();
    assert_eq!(script.count(), 1);
    let other = Request::get("http://other/").body(Body::default());
    send(&service, other.unwrap()).await.unwrap();
    assert_eq!(script.count(), 4);
    control.retries_on_for(&search());
    send(&service, get()).await.unwrap();
    assert_eq!(script.count(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_off_stays_off_when_the_layer_is_switched_on() {
    let layer = layer(steady());
    let control = layer.control();
    control.retries_off_for(&search()).unwrap();
    control.retries_off();
    control.retries_on();
    assert!(control.is_off(&search()));
    assert!(!control.is_off(&Key::from_static("other")));
}

#[tokio::test(start_paused = true)]
async fn more_keys_than_there_is_room_for_are_refused() {
    let control = RetryBudgetLayer::new().control();
    for n in 0..1024 {
        control.retries_off_for(&Key::new(format!("{n}"))).unwrap();
    }
    let error = control.retries_off_for(&search()).unwrap_err();
    assert_eq!(error.setting, "retries_off_for");
    assert!(!control.is_off(&search()));
}

/// Services made before and after, clones of the layer, clones of the handle.
#[tokio::test(start_paused = true)]
async fn reaches_all_that_is_made_of_the_layer_and_nothing_else() {
    let layer = layer(steady());
    let scripts = [(); 4].map(|()| Script::always(502));
    let before = layer.layer(scripts[0].clone());
    let control = layer.control();
    let after = layer.clone().layer(scripts[1].clone());
    let other = layer.clone().max_waiting(9).layer(scripts[2].clone());
    control.clone().retries_off();
    let later = layer.layer(scripts[3].clone());
    for service in [&before, &after, &other, &later] {
        send(service, get()).await.unwrap();
    }
    assert_eq!(scripts.map(|script| script.count()), [1, 1, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn sends_nothing_more_under_load() {
    let budget = Arc::new(ample());
    let layer = layer(sleepy().max_attempts(9).total_timeout(None)).shared_budget(budget.clone());
    let control = layer.control();
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    let mut calls = JoinSet::new();
    for n in 0..200_u32 {
        let service = service.clone();
        calls.spawn(async move {
            // Each at another point of its wait when the switch is thrown.
            sleep(n * 7 * MS).await;
            send(&service, get()).await.unwrap()
        });
    }
    sleep(2500 * MS + MS / 2).await;
    let sent = script.count();
    assert!(sent > 400, "{sent}");
    control.retries_off();
    let (ended, elapsed) = timed(calls.join_all()).await;
    assert!(elapsed <= MS, "{elapsed:?}");
    assert_eq!(script.count(), sent, "sent after the switch");
    let reasons = ended.iter().map(|response| exhausted(response).reason());
    assert_eq!(reasons.filter(|r| *r == StopReason::Disabled).count(), 200);
    let now = tokio::time::Instant::now().into_std();
    let snapshot = budget.snapshot(&search(), now);
    assert_eq!(snapshot.spent() - snapshot.refunded(), sent as u64 - 200);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_slept_before_there_was_a_handle_sends_nothing() {
    let layer = layer(sleepy()).budget(TokenBudget::default());
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    let (response, elapsed) = meanwhile(&service, 300 * MS, || {
        layer.control().retries_off();
    })
    .await;
    assert_eq!(exhausted(&response).reason(), StopReason::Disabled);
    assert_eq!((script.count(), elapsed), (1, SECOND));
}
