//! How an HTTP/1.1 exchange can break, and what of it is repeated.

use crate::{
    get, post,
    support::{
        MS,
        client::{bounded, http1, layer, quick, request},
        exhausted, info, send, text,
        wire::{Conn, Wire, answer, status},
    },
};
use http::{HeaderValue, StatusCode, header::EXPECT};
use std::io;
use tower::Layer;
use tower_retry_budget::{
    policy::{Outcome, Verdict},
    reason::{Cause, Processed, SkipReason, StopReason},
};

/// Reads the first request whole, ends its connection so, and answers the others.
async fn first_ends<F>(end: F) -> Wire
where
    F: Fn(Conn) -> io::Result<()> + Clone + Send + Sync + 'static,
{
    Wire::serve(move |mut conn| {
        let end = end.clone();
        async move {
            conn.request().await?;
            if conn.number == 1 {
                return end(conn);
            }
            conn.send(answer(200, "", "ok")).await
        }
    })
    .await
}

fn closed(conn: Conn) -> io::Result<()> {
    drop(conn);
    Ok(())
}

#[tokio::test]
async fn a_post_whose_connection_broke_after_it_was_read_is_not_repeated() {
    for end in [Conn::reset, closed] {
        let wire = first_ends(end).await;
        let service = layer(quick()).layer(http1());
        let result = bounded(send(&service, post(&wire.uri()))).await;
        assert!(result.is_err());
        assert_eq!((wire.count(), wire.connections()), (1, 1));
    }
}

#[tokio::test]
async fn a_get_or_put_whose_connection_broke_after_it_was_read_is_repeated() {
    for end in [Conn::reset, closed] {
        for method in ["GET", "PUT"] {
            let wire = first_ends(end).await;
            let service = layer(quick()).layer(http1());
            let request = request(method, &wire.uri(), "abc".to_owned());
            let response = bounded(send(&service, request)).await;
            let response = response.expect("a response");
            assert_eq!(info(&response).attempts, 2);
            assert_eq!(text(response).await, "ok");
            let bodies = wire.requests().into_iter().map(|request| request.body);
            assert_eq!(bodies.collect::<Vec<_>>(), [b"abc", b"abc"]);
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_in_its_head_is_an_incomplete_message() {
    let cut = |mut conn: Conn| async move {
        conn.request().await?;
        if conn.number == 1 {
            return conn.send("HTTP/1.1 200 O").await;
        }
        conn.send(status(200)).await
    };
    let wire = Wire::serve(cut).await;
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_eq!(wire.count(), 2);

    let wire = Wire::serve(cut).await;
    assert!(bounded(send(&service, post(&wire.uri()))).await.is_err());
    assert_eq!(wire.count(), 1);
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_not_asked_for_again() {
    // The second is what a server that wants TLS says to a client without.
    for garbage in ["HTTP/1.1 banana\r\n\r\n", "\x15\x03\x01\0\x02\x02\x0a"] {
        let wire = Wire::answers([garbage]).await;
        let service = layer(quick()).layer(http1());
        let result = bounded(send(&service, get(&wire.uri()))).await;
        assert!(result.is_err(), "{garbage:?}");
        assert_eq!(wire.count(), 1, "{garbage:?}");
    }
}

#[tokio::test]
async fn a_post_that_the_application_answered_is_not_repeated() {
    for failure in [
        answer(503, "", "busy"),
        answer(503, "retry-after: 0\r\n", "busy"),
        answer(504, "retry-after: 0\r\n", "busy"),
        answer(502, "", "busy"),
    ] {
        let wire = Wire::answers([failure]).await;
        let service = layer(quick()).layer(http1());
        let response = bounded(send(&service, post(&wire.uri()))).await;
        let response = response.expect("a response");
        assert!(response.status().is_server_error());
        assert_eq!(info(&response).skipped, Some(SkipReason::NotIdempotent));
        assert_eq!(text(response).await, "busy");
        assert_eq!(wire.count(), 1);
    }
}

#[tokio::test]
async fn a_post_that_takes_too_long_is_cut_and_not_repeated() {
    let wire = Wire::serve(|mut conn| async move {
        conn.request().await?;
        std::future::pending().await
    })
    .await;
    let service = layer(quick().attempt_timeout(50 * MS)).layer(http1());
    let response = bounded(send(&service, post(&wire.uri()))).await;
    let response = response.expect("the layer's own answer");
    assert_eq!(response.status(), 503);
    assert_eq!(exhausted(&response).reason(), StopReason::AttemptTimeout);
    assert_eq!(exhausted(&response).processed(), Processed::Unknown);
    assert!(!response.headers().contains_key("retry-after"));
    // Long enough for a retry.
    tokio::time::sleep(30 * MS).await;
    assert!(wire.count() <= 1);
    assert_eq!(wire.connections(), 1);
}

#[tokio::test]
async fn an_expectation_that_failed_is_the_answer() {
    let service = layer(quick()).layer(http1());
    for method in ["POST", "PUT"] {
        let wire = Wire::answers([answer(417, "", "no")]).await;
        let mut request = request(method, &wire.uri(), "abc".to_owned());
        request
            .headers_mut()
            .insert(EXPECT, HeaderValue::from_static("100-continue"));
        let response = bounded(send(&service, request)).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), StatusCode::EXPECTATION_FAILED);
        assert_eq!(text(response).await, "no");
        assert_eq!(wire.count(), 1);
    }
}

#[tokio::test]
async fn a_policy_may_repeat_a_failed_expectation_without_it() {
    let without = |outcome: &Outcome<'_>| {
        let failed = outcome.status() == Some(StatusCode::EXPECTATION_FAILED)
            && outcome.request_headers().contains_key(EXPECT);
        // RFC 9110, section 10.1.1: the server has not processed the request.
        failed.then(|| {
            Verdict::retry(Cause::Other)
                .unprocessed()
                .without_header(EXPECT)
        })
    };
    let wire = Wire::answers([answer(417, "", "no")]).await;
    let service = layer(quick().classifier(without)).layer(http1());
    let mut request = post(&wire.uri());
    request
        .headers_mut()
        .insert(EXPECT, HeaderValue::from_static("100-continue"));
    let response = bounded(send(&service, request)).await;
    assert_eq!(response.expect("a response").status(), 200);
    let requests = wire.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].values("expect"), ["100-continue"]);
    assert!(requests[1].values("expect").is_empty());
    assert_eq!(requests[1].text(), "abc");
}

#[tokio::test]
async fn a_request_with_a_key_is_repeated_with_the_same_key_once_and_the_same_body() {
    let wire = Wire::answers([status(503), status(500)]).await;
    let service = layer(quick()).layer(http1());
    let mut request = post(&wire.uri());
    let key = HeaderValue::from_static("k1");
    request.headers_mut().insert("idempotency-key", key);
    let response = bounded(send(&service, request)).await;
    assert_eq!(response.expect("a response").status(), 200);
    let requests = wire.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!(request.values("idempotency-key"), ["k1"]);
        assert_eq!(request.text(), "abc");
        assert_eq!(request.method(), "POST");
    }
}
