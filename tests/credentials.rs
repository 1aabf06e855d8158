//! Credentials that are refused are refreshed once, and keys make a request one that may be repeated.

mod support;

use http::{HeaderValue, Request};
use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use support::{
    Body, MS, SECOND,
    client::{bounded, http1, layer, request},
    exhausted, get, info,
    script::{Reply, Script},
    send, steady, timed,
    wire::{Wire, status},
};
use tower::Layer;
use tower_retry_budget::{
    RetryBudgetLayer,
    budget::TokenBudget,
    policy::{Credentials, Idempotent},
    reason::{SkipReason, StopReason},
};

/// Counts how often it is asked, and takes so long.
fn counted(takes: Duration) -> (Credentials, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let refreshes = Arc::clone(&count);
    let credentials = Credentials::authorization_by(move || {
        let number = refreshes.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            tokio::time::sleep(takes).await;
            HeaderValue::try_from(format!("token {number}"))
        }
    });
    (credentials, count)
}

fn refusing(credentials: Credentials) -> RetryBudgetLayer {
    layer(steady().credentials(credentials))
}

fn with_token(mut request: Request<Body>) -> Request<Body> {
    let stale = HeaderValue::from_static("token 0");
    request.headers_mut().insert("authorization", stale);
    request
}

#[tokio::test]
async fn fifty_concurrent_calls_make_a_hundred_requests_and_one_refresh() {
    let wire = Wire::serve(|mut conn| async move {
        loop {
            let received = conn.request().await?;
            let fresh = received.values("authorization") == ["token 1"];
            conn.send(status(if fresh { 200 } else { 401 })).await?;
        }
    })
    .await;
    let (credentials, refreshes) = counted(20 * MS);
    let service = refusing(credentials).layer(http1());
    let calls = (0..50).map(|_| {
        let post = with_token(request("POST", &wire.uri(), Body::from("abc")));
        let service = service.clone();
        tokio::spawn(async move { send(&service, post).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let response = bounded(call).await.expect("no panic").expect("a response");
        assert_eq!(
            (response.status().as_u16(), info(&response).attempts),
            (200, 2)
        );
    }
    assert_eq!(wire.count(), 100);
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn is_final_when_refused_again() {
    for code in [401, 403] {
        let (credentials, refreshes) = counted(MS);
        let script = Script::always(code);
        let service = refusing(credentials).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status().as_u16(), code);
        assert_eq!(info(&response).skipped, Some(SkipReason::FinalAnswer));
        assert_eq!((script.count(), refreshes.load(Ordering::SeqCst)), (2, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn is_final_without_a_hook() {
    let script = Script::always(401);
    let service = layer(steady()).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!((response.status().as_u16(), script.count()), (401, 1));
}

#[tokio::test(start_paused = true)]
async fn spends_an_attempt_and_nothing_of_the_budget() {
    let (credentials, _) = counted(MS);
    let empty = TokenBudget::builder().initial(0);
    let policy = steady().max_attempts(2).credentials(credentials);
    let layer = RetryBudgetLayer::new()
        .policy(policy.build().expect("a valid policy"))
        .budget(empty.build().expect("a valid budget"));
    let script = Script::new([401, 500]);
    let response = send(&layer.layer(script.clone()), get()).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    // A failure has no attempt left for it, and a refusal after it neither.
    let script = Script::new([500, 401]);
    let response = send(&layer.layer(script.clone()), get()).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
}

#[tokio::test(start_paused = true)]
async fn lets_the_refusal_stand_when_the_refresh_fails_or_takes_too_long() {
    let failing = Credentials::refreshed_by(|| async { Err(io::Error::other("no")) });
    let hanging = Credentials::refreshed_by(std::future::pending::<io::Result<()>>);
    for (credentials, takes) in [(failing, Duration::ZERO), (hanging, SECOND)] {
        let script = Script::always(401);
        let policy = steady().total_timeout(SECOND).credentials(credentials);
        let service = layer(policy).layer(script.clone());
        let (response, took) = timed(send(&service, get())).await;
        assert_eq!(response.expect("a response").status(), 401);
        assert_eq!((script.count(), took), (1, takes));
    }
}

#[tokio::test(start_paused = true)]
async fn goes_on_for_the_others_when_the_first_who_waits_is_dropped() {
    let (credentials, refreshes) = counted(100 * MS);
    let script = Script::new([401, 401]);
    let service = refusing(credentials).layer(script.clone());
    let first = tokio::time::timeout(50 * MS, send(&service, get()));
    let (first, second) = tokio::join!(first, send(&service, get()));
    assert!(first.is_err());
    assert_eq!(second.expect("a response").status(), 200);
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
    assert_eq!(script.count(), 3);
}

fn keys(script: &Script) -> Vec<Option<String>> {
    let seen = script.seen();
    let keys = seen.iter().map(|seen| seen.header("idempotency-key"));
    keys.map(|key| key.map(String::from)).collect()
}

#[tokio::test(start_paused = true)]
async fn gives_each_call_one_key_for_all_its_attempts() {
    let all = Arc::<Mutex<HashSet<String>>>::default();
    for _ in 0..10 {
        let script = Script::new([500, 500]);
        let service = layer(steady().idempotency_keys()).layer(script.clone());
        let post = support::request("POST", "abc");
        let response = send(&service, post).await.expect("a response");
        assert_eq!(info(&response).attempts, 3);
        let keys: HashSet<_> = keys(&script).into_iter().flatten().collect();
        assert_eq!(keys.len(), 1);
        all.lock().expect("not poisoned").extend(keys);
    }
    assert_eq!(all.lock().expect("not poisoned").len(), 10);
}

#[tokio::test(start_paused = true)]
async fn keeps_the_callers_own_key_and_gives_none_where_none_is_needed() {
    let sent = async |mut request: Request<Body>, own: Option<&'static str>, idempotent| {
        if let Some(own) = own {
            let own = HeaderValue::from_static(own);
            request.headers_mut().insert("idempotency-key", own);
        }
        if let Some(idempotent) = idempotent {
            request.extensions_mut().insert(Idempotent(idempotent));
        }
        let script = Script::new([500].map(Reply::Status));
        let service = layer(steady().idempotency_keys()).layer(script.clone());
        send(&service, request).await.expect("a response");
        keys(&script)
    };
    let post = || support::request("POST", "abc");
    let own = Some(String::from("k1"));
    assert_eq!(sent(post(), Some("k1"), None).await, [own.clone(), own]);
    assert_eq!(sent(get(), None, None).await, [None, None]);
    assert_eq!(sent(post(), None, Some(true)).await, [None, None]);
    assert_eq!(sent(post(), None, Some(false)).await, [None]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_has_failed_for_all_who_wait_and_may_succeed_the_next_time() {
    let times = AtomicUsize::new(0);
    let credentials = Credentials::refreshed_by(move || {
        let first = times.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            tokio::time::sleep(MS).await;
            assert!(!first, "a bug in the hook");
            Ok::<_, io::Error>(())
        }
    });
    let script = Script::new([401, 401, 401]);
    let service = refusing(credentials).layer(script.clone());
    let (first, second) = tokio::join!(send(&service, get()), send(&service, get()));
    for response in [first, second] {
        assert_eq!(response.expect("a response").status(), 401);
    }
    let response = send(&service, get()).await.expect("a response");
    assert_eq!((response.status().as_u16(), script.count()), (200, 4));
    let at_once = Credentials::refreshed_by(|| -> std::future::Ready<io::Result<()>> {
        panic!("before there is a future")
    });
    let service = refusing(at_once).layer(Script::always(401));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 401);
}
