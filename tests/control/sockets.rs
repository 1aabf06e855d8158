//! Over real connections.

use crate::support::{
    MS,
    client::{bounded, http, layer, quick, request, until},
    origin::{BOTH, Origin},
    script::Script,
};
use bytes::Bytes;
use http_body_util::Full;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};
use tower_retry_budget::{Exhausted, policy::Backoff, reason::StopReason};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_retry_arrives_after_the_switch() {
    for version in BOTH {
        bounded(async {
            let origin = Origin::serve(version, Script::always(503)).await;
            // Half of them sleep for long, half come back all the time.
            let policies = [10 * MS, 60_000 * MS].map(|wait| {
                let policy = quick().throttled_backoff(Backoff::fixed(wait));
                policy.max_attempts(1_000).total_timeout(None)
            });
            let [busy, sleepy] = policies.map(|policy| policy.build().expect("a valid policy"));
            let layer = layer(quick());
            let control = layer.control();
            let service = layer.layer(http::<Full<Bytes>>(version));
            let mut calls = JoinSet::new();
            for n in 0..200 {
                let mut request = request("GET", &origin.uri(), Full::default());
                let policy = if n % 2 == 0 { &busy } else { &sleepy };
                request.extensions_mut().insert(policy.clone());
                calls.spawn(service.clone().oneshot(request));
            }
            until(|| origin.script().count() > 1_000).await;
            control.retries_off();
            // What was on its way at that moment arrives.
            while let Some(ended) = calls.join_next().await {
                let response = ended.expect("no panic").expect("a response");
                assert_eq!(response.status(), 503);
                if let Some(exhausted) = response.extensions().get::<Exhausted>() {
                    assert_eq!(exhausted.reason(), StopReason::Disabled);
                }
            }
            let sent = origin.script().count();
            tokio::time::sleep(100 * MS).await;
            assert_eq!(origin.script().count(), sent);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_arrive_again_when_they_are_on_again() {
    bounded(async {
        let origin = Origin::serve(BOTH[0], Script::always(503)).await;
        let layer = layer(quick());
        let control = layer.control();
        let service = layer.layer(http::<Full<Bytes>>(BOTH[0]));
        let send = || {
            service
                .clone()
                .oneshot(request("GET", &origin.uri(), Full::default()))
        };
        control.retries_off();
        send().await.expect("a response");
        assert_eq!(origin.script().count(), 1);
        control.retries_on();
        send().await.expect("a response");
        assert_eq!(origin.script().count(), 4);
    })
    .await;
}
