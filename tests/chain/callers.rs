//! Callers who give up, and callers and servers that know nothing of this crate.

use crate::{
    hops::{Answer, Chain, Client, Hop, Server, bounded, eager, layer, middle, until},
    support::{Body, BoxError, MS, client::request},
};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::Client as Bare,
    rt::{TokioExecutor, TokioTimer},
};
use tower_retry_budget::deadline::RetryHeaders;

#[tokio::test]
async fn a_caller_that_gives_up_stops_the_work_of_all_hops() {
    for server in [Server::Bare, Server::deadline(), Server::handlers()] {
        let layer = || layer(eager(3));
        let leaf = Hop::hanging().await;
        let chain = Chain::new(5, layer, &server, Answer::Plain, leaf).await;
        let client = chain.client.clone();
        let calling = tokio::spawn(async move { client.get().await });
        until(|| chain.leaf.live() == 1).await;
        assert_eq!(chain.live(), 5);
        calling.abort();
        until(|| chain.live() == 0).await;
        // Nobody takes it for a failure that is worth another attempt.
        tokio::time::sleep(50 * MS).await;
        assert_eq!(chain.counts(), [1; 5]);
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_during_a_wait_stops_all_retries() {
    let policy = || {
        let wait = tower_retry_budget::policy::Backoff::fixed(100 * MS);
        eager(3).backoff(wait)
    };
    let leaf = Hop::always(500).await;
    let lower = Client::new(&layer(policy()), &leaf);
    let hop = middle(&Server::deadline(), lower, Answer::Plain).await;
    let upper = Client::new(&layer(policy()).headers(RetryHeaders::none()), &hop);
    let calling = tokio::spawn(async move { upper.get().await.status() });
    until(|| leaf.count() == 1 && leaf.live() == 0).await;
    calling.abort();
    until(|| hop.live() == 0).await;
    tokio::time::sleep(150 * MS).await;
    assert_eq!((hop.count(), leaf.count()), (1, 1));
}

/// A client without the crate: whether it was answered, and the names of the headers.
async fn plain_get(uri: &str) -> Result<(u16, Vec<String>, String), BoxError> {
    let mut client = Bare::builder(TokioExecutor::new());
    let client = client.pool_timer(TokioTimer::new()).build_http::<Body>();
    let response = client.request(request("GET", uri, Body::default())).await?;
    let status = response.status().as_u16();
    let names = response.headers().keys().map(ToString::to_string).collect();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, names, String::from_utf8(body.to_vec())?))
}

#[tokio::test]
async fn a_client_that_does_not_know_the_crate_sees_nothing_of_it() {
    for server in [Server::Bare, Server::deadline(), Server::handlers()] {
        for (failures, status, sent) in [(0, 200, 1), (2, 200, 3), (9, 502, 3)] {
            let leaf = Hop::flaky(failures).await;
            let client = Client::new(&layer(eager(3)), &leaf);
            let hop = middle(&server, client, Answer::Plain).await;
            let (answered, mut names, body) = bounded(plain_get(&hop.uri())).await.unwrap();
            assert_eq!(answered, status);
            names.sort();
            assert_eq!(names, ["content-length", "date"]);
            assert_eq!(body, "");
            assert_eq!((hop.count(), leaf.count()), (1, sent));
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_know_the_crate_is_retried_as_ever() {
    for (failures, status, sent) in [(0, 200, 1), (2, 200, 3), (9, 503, 3)] {
        let leaf = Hop::flaky(failures).await;
        let client = Client::new(&layer(eager(3)), &leaf);
        assert_eq!(bounded(client.get()).await.status(), status);
        assert_eq!(leaf.count(), sent);
    }
}
