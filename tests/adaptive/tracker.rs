//! What is kept of each dependency.

use crate::support::{
    Body, MS, SECOND, ample, get,
    script::{Reply, Script},
    send, steady,
};
use http::Request;
use std::time::Instant;
use tower::Layer;
use tower_retry_budget::{RetryBudgetLayer, RetryPolicy, budget::Key, policy::AdaptiveLimits};

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn to(host: u32) -> Request<Body> {
    let uri = format!("http://host-{host}:8080/");
    let mut request = Request::get(uri).body(Body::default()).expect("a request");
    request.extensions_mut().insert(RetryPolicy::never());
    request
}

#[tokio::test(start_paused = true)]
async fn counts_every_attempt_that_was_sent_and_how_it_ended() {
    let policy = steady().build().expect("a valid policy");
    let layer = RetryBudgetLayer::new()
        .policy(policy)
        .budget(ample())
        .adaptive(AdaptiveLimits::default());
    let replies = [
        Reply::Status(500),
        Reply::after_ms(300, 404.into()),
        503.into(),
        200.into(),
    ];
    let service = layer.layer(Script::new(replies));
    send(&service, get()).await.expect("a response");
    send(&service, get()).await.expect("a response");
    let key = Key::from_uri(get().uri());
    let health = layer.health(&key, now()).expect("it is known");
    assert_eq!((health.attempts, health.failures), (4, 2));
    assert!((health.error_rate() - 0.5).abs() < f64::EPSILON);
    // Within a fifth of what it was.
    let p99 = health.p99.expect("there were attempts");
    assert!((300 * MS..360 * MS).contains(&p99), "{p99:?}");
    assert!(
        (health.latency_ratio() - 1.0).abs() < f64::EPSILON,
        "nothing is known to be usual"
    );
}

#[tokio::test(start_paused = true)]
async fn forgets_what_is_past_the_window_whatever_the_gap() {
    let layer = RetryBudgetLayer::new().adaptive(AdaptiveLimits::default());
    let service = layer.layer(Script::always(200));
    let key = Key::from_uri(to(1).uri());
    send(&service, to(1)).await.expect("a response");
    tokio::time::sleep(30 * 24 * 3600 * SECOND).await;
    let attempts = |at| layer.health(&key, at).expect("it is known").attempts;
    assert_eq!(attempts(now()), 0);
    tokio::time::sleep(10 * MS).await;
    send(&service, to(1)).await.expect("a response");
    assert_eq!(attempts(now()), 1);
    // A clock that is read by another thread may be behind.
    assert_eq!(attempts(now() - MS), 1);
}

/// Strangers without room do not answer for each other: they have the policy's attempts.
#[tokio::test(start_paused = true)]
async fn keeps_nothing_of_those_for_whom_there_is_no_room() {
    let limits = AdaptiveLimits::builder().max_keys(1).build();
    let layer = RetryBudgetLayer::new().adaptive(limits.expect("valid limits"));
    let service = layer.layer(Script::always(500));
    for host in [1, 2] {
        send(&service, to(host)).await.expect("a response");
    }
    let known = |host| {
        layer
            .health(&Key::from_uri(to(host).uri()), now())
            .is_some()
    };
    assert!(known(1) && !known(2));
    // Who was idle for a minute makes room.
    tokio::time::sleep(75 * SECOND).await;
    send(&service, to(2)).await.expect("a response");
    assert!(known(2) && !known(1));
}
