//! A server that answers before it has read the whole upload.

use crate::support::{
    MS,
    client::{bounded, http, http1, layer, quick, request, until},
    info,
    origin::{BOTH, Origin},
    script::{Reply, Script},
    send,
    source::Source,
    text,
    wire::{Refusing, Wire, answer, status},
};
use http::Request;
use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tower::{Layer, ServiceBuilder};
use tower_retry_budget::{policy::Backoff, reason::SkipReason};

static CHUNK: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// Chunks that take long to go through a socket that nobody reads.
const MANY: usize = 128;

#[tokio::test]
async fn a_refusal_of_a_huge_upload_by_a_peer_that_stops_reading_is_the_answer() {
    let huge = || Source::chunks(1024, &CHUNK);
    for body in [huge(), huge().exact(64 * 1024 * 1024)] {
        let wire = Wire::serve(|mut conn| async move {
            conn.head().await?;
            conn.send(answer(503, "", "busy")).await?;
            pending().await
        })
        .await;
        let lent = body.lent();
        let service = layer(quick()).layer(http1());
        let response = bounded(send(&service, request("PUT", &wire.uri(), body))).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 503);
        assert_eq!(info(&response).skipped, Some(SkipReason::NotReplayable));
        assert_eq!(bounded(text(response)).await, "busy");
        assert_eq!(wire.connections(), 1);
        // What the client's and the sockets' buffers hold, and no more.
        assert!(lent.peak() <= 1024 * 1024, "{lent:?}");
        assert!(lent.bytes() <= 8 * 1024 * 1024, "{lent:?}");
    }
}

#[tokio::test]
async fn the_source_is_not_read_during_the_wait() {
    let wire = Wire::serve(|mut conn| async move {
        if conn.number == 1 {
            conn.head().await?;
            conn.send(status(503)).await?;
            return pending().await;
        }
        conn.request().await?;
        conn.send(status(200)).await
    })
    .await;
    let body = Source::chunks(MANY, &CHUNK);
    let lent = body.lent();
    // How often the source was asked when each attempt began and ended.
    let polls = Arc::<Mutex<Vec<usize>>>::default();
    let note = {
        let (polls, lent) = (Arc::clone(&polls), Arc::clone(&lent));
        move || polls.lock().expect("no panic").push(lent.polls())
    };
    let policy = quick().replay_limit(16 * 1024 * 1024);
    let policy = policy.throttled_backoff(Backoff::fixed(100 * MS));
    let service = ServiceBuilder::new()
        .layer(layer(policy))
        .map_request({
            let note = note.clone();
            move |request: Request<_>| {
                note();
                request
            }
        })
        .map_response(move |response: http::Response<_>| {
            note();
            response
        })
        .service(http1());
    let response = bounded(send(&service, request("PUT", &wire.uri(), body))).await;
    assert_eq!(response.expect("a response").status(), 200);
    let polls = polls.lock().expect("no panic").clone();
    let [begun, answered, again, _] = polls[..] else {
        panic!("two attempts: {polls:?}");
    };
    assert_eq!(begun, 0);
    assert!(answered > 0);
    assert_eq!(again, answered);
    let requests = wire.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].body == CHUNK.repeat(MANY), "not the same bytes");
}

#[tokio::test]
async fn an_attempt_that_was_answered_early_carries_nothing_after_the_decision() {
    let rest = Arc::<Mutex<Option<Vec<u8>>>>::default();
    let seen = Arc::clone(&rest);
    let wire = Wire::serve(move |mut conn| {
        let seen = Arc::clone(&seen);
        async move {
            if conn.number == 1 {
                conn.head().await?;
                let mut first = Vec::new();
                conn.read(10, &mut first).await?;
                conn.send(status(503)).await?;
                // It goes on reading.
                first.extend(conn.rest().await);
                *seen.lock().expect("no panic") = Some(first);
                return Ok(());
            }
            conn.request().await?;
            conn.send(status(200)).await
        }
    })
    .await;
    let (body, go) = Source::new().data("first").until();
    let body = body.data("second");
    let service = layer(quick()).layer(http1());
    let response = send(&service, request("PUT", &wire.uri(), body));
    // There is more to read only once the old connection is gone and the new one is there.
    let more = async {
        until(|| rest.lock().expect("no panic").is_some()).await;
        until(|| wire.connections() == 2).await;
        go.send(()).expect("the source is waited for");
    };
    let (response, ()) = bounded(async { tokio::join!(response, more) }).await;
    assert_eq!(response.expect("a response").status(), 200);
    // No last chunk: what was sent of it must not pass for whole.
    let rest = rest.lock().expect("no panic").take();
    assert_eq!(rest.as_deref(), Some(&b"5\r\nfirst\r\n"[..]));
    let requests = wire.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].text(), "firstsecond");
}

#[tokio::test]
async fn an_upload_that_was_refused_early_is_repeated_whole() {
    for version in BOTH {
        let script = Script::new([Reply::unread(503), Reply::unread(500)]);
        let origin = Origin::serve(version, script).await;
        let policy = quick().replay_limit(16 * 1024 * 1024);
        let service = layer(policy).layer(http(version));
        let body = Source::chunks(32, &CHUNK);
        let response = bounded(send(&service, request("PUT", &origin.uri(), body))).await;
        assert_eq!(response.expect("a response").status(), 200, "{version:?}");
        let seen = origin.script().seen();
        assert_eq!(seen.len(), 3, "{version:?}");
        let last = seen[2].body.as_ref().expect("a whole body");
        assert!(
            *last == CHUNK.repeat(32),
            "not the same bytes over {version:?}"
        );
    }
}

#[tokio::test]
async fn an_upload_over_the_limit_is_retried_as_long_as_not_a_byte_was_read() {
    let refusing = Refusing::new();
    let uri = refusing.uri();
    let failed = Arc::<AtomicBool>::default();
    let seen = Arc::clone(&failed);
    let policy = quick().backoff(Backoff::fixed(100 * MS));
    let service = ServiceBuilder::new()
        .layer(layer(policy))
        .map_err(move |error| {
            seen.store(true, Ordering::SeqCst);
            error
        })
        .service(http1());
    let body = Source::chunks(4, &CHUNK);
    let lent = body.lent();
    let response = send(&service, request("POST", &uri, body));
    let comes_up = async {
        until(|| failed.load(Ordering::SeqCst)).await;
        assert_eq!(lent.polls(), 0);
        refusing.listen(|mut conn| async move {
            conn.request().await?;
            conn.send(status(200)).await
        })
    };
    let (response, wire) = bounded(async { tokio::join!(response, comes_up) }).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 2);
    let requests = wire.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].body == CHUNK.repeat(4), "not the same bytes");
}
