//! A connection that was never established is proof, unless no further attempt would mend it.

use crate::{
    get, post,
    support::{
        MS, SECOND,
        client::{bounded, builder, connector, http1, layer, quick},
        exhausted, info, send,
        wire::{Refusing, Wire, status},
    },
};
use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::net::{TcpSocket, TcpStream};
use tower::{Layer, Service, service_fn};
use tower_retry_budget::{
    policy::Outcome,
    reason::{Processed, StopReason},
};

#[tokio::test]
async fn a_post_to_a_server_that_comes_up_in_between_is_sent_again() {
    let live = Wire::answers([status(200)]).await;
    let refusing = Refusing::new();
    let refused: Uri = refusing.uri().parse().expect("a URI");
    let live_uri: Uri = live.uri().parse().expect("a URI");
    let dials = Arc::<AtomicUsize>::default();
    let dialled = Arc::clone(&dials);
    // The name stands for another address the second time.
    let resolving = service_fn(move |_: Uri| {
        let first = dialled.fetch_add(1, Ordering::SeqCst) == 0;
        let to = if first { &refused } else { &live_uri };
        connector().call(to.clone())
    });
    let service = layer(quick()).layer(builder().build(resolving));
    let response = bounded(send(&service, post("http://search/find"))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(dials.load(Ordering::SeqCst), 2);
    let requests = live.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].text(), "abc");
}

#[tokio::test]
async fn a_post_that_was_refused_throughout_may_be_tried_again_by_others() {
    let refusing = Refusing::new();
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, post(&refusing.uri()))).await;
    let response = response.expect("the layer's own answer");
    let details = exhausted(&response);
    assert_eq!(details.reason(), StopReason::MaxAttempts);
    assert_eq!(details.attempts(), 3);
    assert_eq!(details.processed(), Processed::No);
    assert_eq!(details.error_type(), Some("connection_refused"));
    assert!(details.is_retryable());
    assert!(response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn a_connection_that_takes_too_long_to_establish_is_proof_too() {
    // A listener whose queue is full: whoever else connects hears nothing.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind(([127, 0, 0, 1], 0).into())
        .expect("a free port");
    let listener = socket.listen(0).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut queue = Vec::new();
    while let Ok(stream) = tokio::time::timeout(50 * MS, TcpStream::connect(address)).await {
        queue.push(stream.expect("a connection"));
        assert!(queue.len() < 16, "the queue has no end");
    }
    let mut connector = connector();
    connector.set_connect_timeout(Some(50 * MS));
    let service = layer(quick().max_attempts(2)).layer(builder().build(connector));
    let uri = format!("http://{address}/");
    let response = bounded(send(&service, post(&uri))).await;
    let response = response.expect("the layer's own answer");
    let details = exhausted(&response);
    assert_eq!(details.attempts(), 2);
    assert_eq!(details.processed(), Processed::No);
    assert_eq!(details.error_type(), Some("timeout"));
    drop((listener, queue));
}

/// Connects, and fails as a TLS stack does that does not like what it reads.
async fn handshake(mut http: HttpConnector, uri: Uri) -> io::Result<TokioIo<TcpStream>> {
    let connected = http.call(uri).await.map_err(io::Error::other)?;
    let mut read = [0; 7];
    tokio::io::AsyncReadExt::read_exact(&mut connected.into_inner(), &mut read).await?;
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "received corrupt message",
    ))
}

#[tokio::test]
async fn a_handshake_that_failed_is_not_tried_again() {
    let wire = Wire::serve(|mut conn| async move {
        conn.send("HTTP/1.1 400 Bad Request\r\n\r\n").await?;
        conn.rest().await;
        Ok(())
    })
    .await;
    let http = connector();
    let connector = service_fn(move |uri: Uri| Box::pin(handshake(http.clone(), uri)));
    let service = layer(quick()).layer(builder().build(connector));
    for request in [get(&wire.uri()), post(&wire.uri())] {
        let before = wire.connections();
        let result = bounded(send(&service, request)).await;
        assert!(result.expect_err("the handshake's error").is_connect());
        assert_eq!(wire.connections(), before + 1);
    }
}

#[tokio::test]
async fn a_classifier_can_tell_a_break_before_sending_from_one_after() {
    let seen = Arc::<std::sync::Mutex<Vec<bool>>>::default();
    let look = Arc::clone(&seen);
    let policy = quick().classifier(move |outcome: &Outcome<'_>| {
        let error = outcome.downcast_error::<hyper_util::client::legacy::Error>()?;
        look.lock().expect("no panic").push(error.is_connect());
        None
    });
    let service = layer(policy.max_attempts(2).total_timeout(SECOND)).layer(http1());
    let refusing = Refusing::new();
    bounded(send(&service, get(&refusing.uri())))
        .await
        .expect("an answer");
    let wire = refusing.listen(|mut conn| async move {
        conn.request().await?;
        conn.reset()
    });
    bounded(send(&service, get(&wire.uri())))
        .await
        .expect("an answer");
    assert_eq!(*seen.lock().expect("no panic"), [true, true, false, false]);
}
