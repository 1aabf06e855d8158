//! What stands inside of the layer is called for each attempt, and leaves nothing in the next.

use crate::{
    get, post,
    support::{
        MS, SECOND,
        client::{bounded, http1, layer, quick},
        info, send,
        wire::{Wire, status},
    },
};
use http::{HeaderValue, Request};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tower::{ServiceBuilder, timeout::error::Elapsed};

/// Counts what it stamps, and adds rather than replaces: what came with the request would show.
fn stamp<B>(name: &'static str) -> impl Fn(Request<B>) -> Request<B> + Clone {
    let stamped = Arc::<AtomicUsize>::default();
    move |mut request| {
        let number = stamped.fetch_add(1, Ordering::SeqCst) + 1;
        let value = HeaderValue::from_str(&number.to_string()).expect("digits");
        request.headers_mut().append(name, value);
        request
    }
}

#[tokio::test]
async fn a_signature_made_inside_is_made_anew_and_one_made_outside_stays() {
    let wire = Wire::answers([status(503), status(500)]).await;
    let service = ServiceBuilder::new()
        .map_request(stamp("x-once"))
        .layer(layer(quick()))
        .map_request(stamp("date"))
        .map_request(stamp("authorization"))
        .service(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a response");
    assert_eq!(info(&response).attempts, 3);
    let requests = wire.requests();
    for (request, number) in requests.iter().zip(["1", "2", "3"]) {
        assert_eq!(request.values("date"), [number]);
        assert_eq!(request.values("authorization"), [number]);
        assert_eq!(request.values("x-once"), ["1"]);
        assert_eq!(
            request.values("x-retry-attempt"),
            [format!("{number};max=3")]
        );
        assert_eq!(request.values("x-deadline-remaining-ms").len(), 1);
        assert_eq!(request.values("host").len(), 1);
    }
    assert_eq!(requests.len(), 3);
}

/// Does not answer on its first connection.
async fn hangs_once() -> Wire {
    Wire::serve(|mut conn| async move {
        while conn.request().await.is_ok() {
            if conn.number > 1 {
                conn.send(status(200)).await?;
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_time_out_inside_proves_nothing() {
    let service = ServiceBuilder::new()
        .layer(layer(quick()))
        .timeout(100 * MS)
        .service(http1());
    let wire = hangs_once().await;
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a response");
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(wire.count(), 2);

    let wire = hangs_once().await;
    let error = bounded(send(&service, post(&wire.uri()))).await;
    assert!(error.expect_err("the time-out").is::<Elapsed>());
    assert_eq!(wire.count(), 1);
}

#[tokio::test]
async fn a_time_out_outside_ends_the_call() {
    let service = ServiceBuilder::new()
        .timeout(100 * MS)
        .layer(layer(quick().total_timeout(10 * SECOND)))
        .service(http1());
    let wire = hangs_once().await;
    let error = bounded(send(&service, get(&wire.uri()))).await;
    assert!(error.expect_err("the time-out").is::<Elapsed>());
    tokio::time::sleep(30 * MS).await;
    assert_eq!((wire.count(), wire.open()), (1, 0));
}
