//! A kept connection that the server closes just as the next request goes out.
//!
//! hyper tells two cases apart. A request that it has not begun to write when it learns of the end is
//! *canceled*: its client repeats that by itself on another connection, unless it is built with
//! `retry_canceled_requests(false)`, and nobody hears of it. One that it has written, into a socket
//! that nobody reads any more, ends as an incomplete message or a reset, which proves nothing.

use crate::{
    get, post,
    support::{
        Body, BoxError, MS,
        client::{Http, bounded, builder, connector, layer, quick},
        info, send, text,
        wire::{Wire, status},
    },
};
use http::{Request, Response};
use hyper_util::client::legacy;
use std::{
    error::Error,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Mutex, mpsc},
    task::Poll,
};
use tokio::{runtime, sync::oneshot};
use tower::Layer;
use tower_retry_budget::{
    RetryBudget, RetryInfo,
    body::ResponseBody,
    policy::{Outcome, RetryPolicyBuilder, Verdict},
    reason::Cause,
};

type Answer = Result<Response<ResponseBody<hyper::body::Incoming>>, legacy::Error>;

/// When the client learns that its connection was closed.
#[derive(Clone, Copy, Debug)]
enum Learns {
    /// While the request waits for the connection to write it.
    BeforeWriting,
    AfterWriting,
}

/// Sends a request over a connection that its server has closed. Returns what came of it, and how
/// many requests the server saw after that.
fn over_a_closed_connection(
    learns: Learns,
    policy: RetryPolicyBuilder,
    client: Http<Body>,
    request: impl FnOnce(&str) -> Request<Body>,
) -> Result<(Answer, usize), BoxError> {
    let (close, told) = oneshot::channel::<()>();
    let (closing, closed) = mpsc::channel();
    let told = Arc::new(Mutex::new(Some(told)));
    // On a thread of its own, so that it goes on while the client's stands still.
    let server = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let wire = server.block_on(Wire::serve(move |mut conn| {
        let told = told.lock().expect("no panic").take();
        let closing = closing.clone();
        async move {
            while conn.request().await.is_ok() {
                conn.send(status(200)).await?;
                if let Some(told) = told {
                    _ = told.await;
                    drop(conn);
                    // Longer than the client's timer.
                    tokio::time::sleep(5 * MS).await;
                    _ = closing.send(());
                    return Ok(());
                }
            }
            Ok(())
        }
    }));
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answer = runtime.block_on(bounded(async {
        let service: RetryBudget<Http<Body>> = layer(policy).layer(client);
        let response = send(&service, get(&wire.uri())).await?;
        assert_eq!(text(response).await, "");
        // The connection goes back to the pool.
        tokio::time::sleep(5 * MS).await;
        let mut timer = pin!(tokio::time::sleep(MS));
        if let Learns::BeforeWriting = learns {
            // Armed, so that the runtime finds it due in the same turn as the end of the connection,
            // and goes on here first.
            assert!(poll_once(timer.as_mut()).await.is_pending());
        }
        close.send(()).map_err(|()| "the server is gone")?;
        // The thread stands still, and the connection with it.
        closed.recv()?;
        if let Learns::BeforeWriting = learns {
            timer.await;
        }
        Ok::<_, BoxError>(send(&service, request(&wire.uri())).await)
    }))?;
    let count = wire.count() - 1;
    drop(wire);
    server.shutdown_background();
    Ok((answer, count))
}

/// Polls a future once, with the waker of the task that asks.
fn poll_once<F: Future>(mut future: Pin<&mut F>) -> impl Future<Output = Poll<F::Output>> {
    poll_fn(move |cx| Poll::Ready(future.as_mut().poll(cx)))
}

fn plain() -> Http<Body> {
    builder().build(connector())
}

#[test]
fn a_get_is_repeated() -> Result<(), BoxError> {
    for learns in [Learns::BeforeWriting, Learns::AfterWriting] {
        let (answer, count) = over_a_closed_connection(learns, quick(), plain(), get)?;
        assert_eq!(info(&answer?).attempts, 2, "{learns:?}");
        assert_eq!(count, 1, "{learns:?}");
    }
    Ok(())
}

#[test]
fn a_post_that_was_written_is_not_repeated() -> Result<(), BoxError> {
    let (answer, count) = over_a_closed_connection(Learns::AfterWriting, quick(), plain(), post)?;
    let error = answer.expect_err("the client's error");
    let error = hyper(&error).expect("hyper's own error");
    assert!(!error.is_canceled(), "{error:?}");
    assert_eq!(count, 0);
    Ok(())
}

#[test]
fn a_post_that_was_not_written_is_repeated_when_a_policy_takes_the_clients_word_for_it()
-> Result<(), BoxError> {
    let policy = quick().classifier(|outcome: &Outcome<'_>| {
        let error = outcome.downcast_error::<hyper::Error>()?;
        let unsent = error.is_canceled();
        unsent.then(|| Verdict::retry(Cause::Unprocessed).unprocessed())
    });
    let (answer, count) = over_a_closed_connection(Learns::BeforeWriting, policy, plain(), post)?;
    assert_eq!(info(&answer?).attempts, 2);
    assert_eq!(count, 1);
    Ok(())
}

#[test]
fn what_the_client_repeats_by_itself_is_one_attempt() -> Result<(), BoxError> {
    let mut builder = builder();
    builder.retry_canceled_requests(true);
    let client = builder.build(connector());
    let (answer, count) = over_a_closed_connection(Learns::BeforeWriting, quick(), client, post)?;
    let answer = answer?;
    assert_eq!(answer.status(), 200);
    assert!(answer.extensions().get::<RetryInfo>().is_none());
    assert_eq!(count, 1);
    Ok(())
}

fn hyper(error: &legacy::Error) -> Option<&hyper::Error> {
    error.source()?.downcast_ref()
}
