//! A hop in the middle that does not use this crate.

use crate::{
    hops::{Answer, Client, Hop, Server, bounded, eager, layer, middle},
    support::{MS, SECOND},
};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, StatusCode, uri::PathAndQuery},
    response::{IntoResponse, Response},
};
use hyper_util::{client::legacy::Client as Bare, rt::TokioExecutor};
use tower_retry_budget::deadline::{LayeredRetries, RETRY_EXHAUSTED};

/// A proxy with a client of its own, which hands on the headers of requests and responses, or not.
async fn proxy(next: &Hop, forwards: bool) -> Hop {
    let client = Bare::builder(TokioExecutor::new()).build_http::<Body>();
    let uri = next.uri();
    let handler = move |request: Request| {
        let (client, uri) = (client.clone(), uri.clone());
        async move {
            let (mut head, body) = request.into_parts();
            let path = head.uri.path_and_query().map(PathAndQuery::as_str);
            assert_eq!(path, Some("/find?q=1"));
            head.uri = uri.parse().expect("a URI");
            if !forwards {
                head.headers = HeaderMap::new();
            }
            match client.request(Request::from_parts(head, body)).await {
                Ok(response) if forwards => response.map(Body::new),
                Ok(response) => response.status().into_response(),
                Err(_) => StatusCode::BAD_GATEWAY.into_response(),
            }
        }
    };
    Hop::serve(Router::new().fallback(handler)).await
}

/// A retrying caller, a proxy, a server that retries, and a leaf.
async fn through(forwards: bool, layered: LayeredRetries, leaf: &Hop) -> (Response, Hop, Hop) {
    let policy = eager(3).total_timeout(20 * SECOND);
    let lower = layer(policy.clone()).layered_retries(layered);
    let server = middle(
        &Server::deadline(),
        Client::new(&lower, leaf),
        Answer::Plain,
    )
    .await;
    let proxy = proxy(&server, forwards).await;
    let caller = Client::new(&layer(policy), &proxy);
    let response = bounded(caller.get()).await.map(Body::new);
    (response, proxy, server)
}

#[tokio::test]
async fn a_proxy_that_hands_headers_on_keeps_the_chain_together() {
    let leaf = Hop::always(500).await;
    let (response, proxy, server) = through(true, LayeredRetries::Skip, &leaf).await;
    assert_eq!(response.status(), 503);
    assert_eq!((proxy.count(), server.count(), leaf.count()), (3, 3, 3));
    let told = leaf.arrivals.all();
    assert_eq!(told[2].attempt(), Some("3;max=3"));
    assert!(told[0].left().expect("a deadline") < 20 * SECOND - 40 * MS);
}

#[tokio::test]
async fn a_proxy_that_hands_headers_on_hands_on_that_a_call_was_given_up() {
    let leaf = Hop::always(500).await;
    let (response, proxy, server) = through(true, LayeredRetries::WithinDeadline, &leaf).await;
    assert_eq!(response.status(), 502);
    assert!(response.headers().contains_key(RETRY_EXHAUSTED));
    assert_eq!((proxy.count(), server.count(), leaf.count()), (1, 1, 3));
}

#[tokio::test]
async fn a_proxy_that_drops_headers_divides_the_chain() {
    let leaf = Hop::always(500).await;
    let (response, proxy, server) = through(false, LayeredRetries::Skip, &leaf).await;
    assert_eq!(response.status(), 503);
    // As it was without the crate's headers: each retries by itself.
    assert_eq!((proxy.count(), server.count(), leaf.count()), (3, 3, 9));
    let arrivals = server.arrivals.all();
    assert!(
        arrivals
            .iter()
            .all(|seen| seen.attempt().is_none() && seen.left().is_none())
    );
    assert_eq!(leaf.arrivals.all()[0].attempt(), Some("1;max=3"));
}

#[tokio::test]
async fn saves_a_request_through_a_proxy_of_either_kind() {
    for (forwards, came) in [(true, 2), (false, 1)] {
        let leaf = Hop::flaky(1).await;
        let (response, proxy, _) = through(forwards, LayeredRetries::Skip, &leaf).await;
        assert_eq!(response.status(), 200);
        assert_eq!((proxy.count(), leaf.count()), (came, 2));
    }
}
