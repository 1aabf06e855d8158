//! A body that cannot be sent again is sent once, and the outcome says so.

use crate::support::{
    client::{bounded, http, http1, layer, quick, request},
    info,
    log::Log,
    origin::{BOTH, Origin, Version},
    script::Script,
    send,
    source::{Broken, Source},
    text,
    wire::{Wire, answer, status},
};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tower::Layer;
use tower_retry_budget::{RetryInfo, body::BodyFactory, reason::SkipReason};

/// More than the replay limit.
fn large() -> Source {
    Source::chunks(9, &[b'x'; 8 * 1024])
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[tokio::test]
async fn a_source_that_fails_ends_the_call_with_its_error() {
    let wire = Wire::answers([status(200)]).await;
    let service = layer(quick()).layer(http1());
    let body = Source::new().data("abcdefghij").breaks().exact(20);
    let lent = body.lent();
    let error = bounded(send(&service, request("PUT", &wire.uri(), body))).await;
    let error = error.expect_err("the source's error");
    assert!(chain(&error).any(<dyn Error>::is::<Broken>), "{error:?}");
    assert_eq!(wire.connections(), 1);
    assert_eq!(lent.bytes(), 10);
    assert_eq!(
        wire.requests()
            .iter()
            .filter(|request| request.whole)
            .count(),
        0
    );
}

#[tokio::test]
async fn a_source_that_fails_over_http2_ends_the_call_too() {
    let script = Script::new([200]);
    let origin = Origin::serve(Version::Http2, script).await;
    let service = layer(quick()).layer(http(Version::Http2));
    let body = Source::new().data("abcdefghij").breaks();
    let lent = body.lent();
    let result = bounded(send(&service, request("PUT", &origin.uri(), body))).await;
    assert!(result.is_err());
    assert_eq!(lent.bytes(), 10);
    // It may not have heard of the request at all.
    assert!(
        origin
            .script()
            .seen()
            .iter()
            .all(|seen| seen.body.is_none())
    );
    assert!(origin.script().count() <= 1);
}

#[tokio::test]
async fn a_factory_is_not_asked_for_another_source_after_one_failed() {
    for version in BOTH {
        let origin = Origin::serve(version, Script::new([200])).await;
        let mut request = request("PUT", &origin.uri(), Source::new().data("abc").breaks());
        let asked = Arc::<AtomicUsize>::default();
        let again = Arc::clone(&asked);
        request.extensions_mut().insert(BodyFactory::new(move || {
            again.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Broken>(Source::new().data("abc"))
        }));
        let result = bounded(send(&layer(quick()).layer(http(version)), request)).await;
        assert!(result.is_err(), "{version:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 0, "{version:?}");
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_cloned_needs_no_more_than_a_healthy_upstream() {
    for version in BOTH {
        let origin = Origin::serve(version, Script::new([200])).await;
        let request = request("PUT", &origin.uri(), large());
        let response = bounded(send(&layer(quick()).layer(http(version)), request)).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 200);
        assert!(response.extensions().get::<RetryInfo>().is_none());
        let seen = origin.script().seen();
        assert_eq!(seen.len(), 1);
        assert_eq!(
            seen[0].body.as_ref().map(|body| body.len()),
            Some(9 * 8 * 1024)
        );
    }
}

#[tokio::test]
async fn why_a_large_body_was_not_sent_again_is_in_the_response_and_in_the_log() {
    let log = Log::listen();
    let wire = Wire::answers([answer(503, "", "busy")]).await;
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, request("PUT", &wire.uri(), large()))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 503);
    assert_eq!(info(&response).skipped, Some(SkipReason::NotReplayable));
    assert_eq!(info(&response).attempts, 1);
    assert_eq!(text(response).await, "busy");
    assert_eq!(wire.count(), 1);
    let skipped = log.events("not retried");
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0]["reason"], "not_replayable");
    assert_eq!(skipped[0]["status"], "503");
}

#[tokio::test]
async fn a_body_just_within_the_limit_is_sent_again_and_one_byte_more_is_not() {
    for (limit, attempts) in [(26, 2), (25, 1)] {
        let wire = Wire::answers([status(500)]).await;
        let service = layer(quick().replay_limit(limit)).layer(http1());
        let body = Source::new().data("abcdefghijklm").data("nopqrstuvwxyz");
        let response = bounded(send(&service, request("PUT", &wire.uri(), body))).await;
        assert!(response.is_ok());
        assert_eq!(wire.count(), attempts);
        for request in wire.requests() {
            assert_eq!(request.text(), "abcdefghijklmnopqrstuvwxyz");
        }
    }
}
