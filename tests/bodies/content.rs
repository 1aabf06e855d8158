//! Every attempt carries the whole body.

use crate::{
    full,
    support::{
        client::{bounded, http, http1, layer, quick, request, until},
        info,
        origin::{BOTH, Origin, Version},
        script::{Script, Seen},
        send,
        source::Source,
        wire::{Received, Wire, status},
    },
};
use tower::Layer;
use tower_retry_budget::policy::Idempotent;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

fn bodies(seen: &[Seen]) -> Vec<&[u8]> {
    seen.iter()
        .map(|seen| seen.body.as_deref().expect("a whole body"))
        .collect()
}

fn texts(requests: &[Received]) -> Vec<&str> {
    requests.iter().map(Received::text).collect()
}

#[tokio::test]
async fn a_small_body_is_the_same_on_both_attempts() {
    for version in BOTH {
        for method in ["PUT", "PATCH"] {
            let origin = Origin::serve(version, Script::new([500])).await;
            let mut request = request(method, &origin.uri(), full("abc"));
            request.extensions_mut().insert(Idempotent(true));
            let response = bounded(send(&layer(quick()).layer(http(version)), request)).await;
            assert_eq!(response.expect("a response").status(), 200);
            let seen = origin.script().seen();
            assert_eq!(bodies(&seen), [b"abc", b"abc"], "{method} over {version:?}");
            for seen in &seen {
                assert_eq!(seen.header("content-length"), Some("3"), "over {version:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_patch_is_not_repeated_unless_somebody_says_that_it_may() {
    let origin = Origin::serve(Version::Http1, Script::new([500])).await;
    let service = layer(quick()).layer(http1());
    let request = request("PATCH", &origin.uri(), full("abc"));
    let response = bounded(send(&service, request)).await;
    assert_eq!(response.expect("a response").status(), 500);
    assert_eq!(bodies(&origin.script().seen()), [b"abc"]);
}

#[tokio::test]
async fn a_chunked_body_is_chunked_again_and_the_same() {
    let wire = Wire::answers([status(500)]).await;
    let service = layer(quick()).layer(http1());
    let body = Source::new()
        .data("abcdefghij")
        .data("klmnopqrst")
        .data("uvwxyz");
    let response = bounded(send(&service, request("PUT", &wire.uri(), body))).await;
    assert_eq!(response.expect("a response").status(), 200);
    let requests = wire.requests();
    assert_eq!(texts(&requests), [LETTERS, LETTERS]);
    for request in &requests {
        assert_eq!(request.values("transfer-encoding"), ["chunked"]);
        assert!(request.values("content-length").is_empty());
    }
}

#[tokio::test]
async fn the_declared_length_and_the_bytes_agree_on_each_attempt() {
    // Declared by the body itself, by a header of the caller's, and by both.
    let sized = || {
        Source::new()
            .data("abcdefghijklm")
            .data("nopqrstuvwxyz")
            .exact(26)
    };
    let unsized_ = || Source::new().data("abcdefghijklm").data("nopqrstuvwxyz");
    for (body, header) in [(sized(), false), (unsized_(), true), (sized(), true)] {
        let wire = Wire::answers([status(500), status(502)]).await;
        let service = layer(quick()).layer(http1());
        let mut request = request("PUT", &wire.uri(), body);
        if header {
            let length = http::HeaderValue::from_static("26");
            request.headers_mut().insert("content-length", length);
        }
        let response = bounded(send(&service, request)).await;
        assert_eq!(response.expect("a response").status(), 200);
        let requests = wire.requests();
        // A byte too many would be read as the head of a request that nobody sent.
        assert_eq!(texts(&requests), [LETTERS; 3]);
        for request in &requests {
            assert_eq!(request.values("content-length"), ["26"]);
            assert!(request.values("transfer-encoding").is_empty());
        }
    }
}

#[tokio::test]
async fn a_connection_that_fails_half_way_through_costs_no_byte_of_the_next_attempt() {
    let wire = Wire::serve(|mut conn| async move {
        if conn.number == 1 {
            conn.head().await?;
            conn.read(10, &mut Vec::new()).await?;
            return conn.reset();
        }
        conn.request().await?;
        conn.send(status(200)).await
    })
    .await;
    let service = layer(quick()).layer(http1());
    let (body, go) = Source::new().data("abcdefghij").exact(20).until();
    let body = body.data("klmnopqrst");
    let response = send(&service, request("PUT", &wire.uri(), body));
    // The second half is there only once the first connection is gone.
    let second = async {
        until(|| wire.connections() == 2).await;
        go.send(()).expect("the source is waited for");
    };
    let (response, ()) = bounded(async { tokio::join!(response, second) }).await;
    assert_eq!(response.expect("a response").status(), 200);
    let requests = wire.requests();
    assert_eq!(texts(&requests), ["abcdefghijklmnopqrst"]);
    assert_eq!(requests[0].values("content-length"), ["20"]);
}

#[tokio::test]
async fn a_stream_without_a_length_is_kept_and_repeated() {
    const PART: &str = "0123456789012345678901234567890123456789";
    for version in BOTH {
        let origin = Origin::serve(version, Script::new([503])).await;
        let body = (0..5).fold(Source::new(), |body, _| body.data(PART));
        let request = request("PUT", &origin.uri(), body);
        let response = bounded(send(&layer(quick()).layer(http(version)), request)).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(info(&response).attempts, 2);
        let whole = PART.repeat(5);
        assert_eq!(
            bodies(&origin.script().seen()),
            [whole.as_bytes(); 2],
            "{version:?}"
        );
    }
}

#[tokio::test]
async fn trailers_come_with_every_attempt() {
    for version in BOTH {
        let origin = Origin::serve(version, Script::new([500, 502])).await;
        let body = Source::new().data("abc").trailer("x-sum", "1");
        let mut request = request("PUT", &origin.uri(), body);
        // Over HTTP/1.1 hyper sends only the trailers that the head announces.
        let announced = http::HeaderValue::from_static("x-sum");
        request.headers_mut().insert("trailer", announced);
        let response = bounded(send(&layer(quick()).layer(http(version)), request)).await;
        assert_eq!(response.expect("a response").status(), 200);
        let seen = origin.script().seen();
        assert_eq!(bodies(&seen), [b"abc"; 3], "{version:?}");
        for seen in seen {
            let trailers = seen.trailers.expect("trailers");
            assert_eq!(trailers["x-sum"], "1", "{version:?}");
        }
    }
}

#[tokio::test]
async fn an_empty_body_stays_one_without_a_length() {
    let wire = Wire::answers([status(500)]).await;
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, request("GET", &wire.uri(), full("")))).await;
    assert_eq!(response.expect("a response").status(), 200);
    for request in wire.requests() {
        assert!(request.values("content-length").is_empty());
        assert!(request.values("transfer-encoding").is_empty());
    }
    assert_eq!(wire.count(), 2);
}
