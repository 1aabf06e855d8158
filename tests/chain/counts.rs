//! How many requests reach a leaf that fails, with an ample budget.

use crate::hops::{Answer, Chain, Client, Hop, Server, bounded, eager, layer, middle};
use axum::{
    Router,
    http::StatusCode,
    routing::{get, post},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tower_retry_budget::{
    DeadlineLayer, RetryBudgetLayer,
    deadline::{LayeredRetries, RetryHeaders},
};

/// The requests that one call makes arrive at each server, the leaf last.
async fn arrive(chain: Chain) -> Vec<usize> {
    let response = bounded(chain.client.get()).await;
    assert!(response.status().is_server_error());
    assert_eq!(chain.live(), 0);
    chain.counts()
}

/// What the layers do under a caller that retries, and whether they tell that they gave up.
fn layered(layered: LayeredRetries, attempts: u32, tell: bool) -> RetryBudgetLayer {
    let layer = layer(eager(attempts)).layered_retries(layered);
    if tell {
        return layer;
    }
    layer.headers(RetryHeaders::default().exhausted(None))
}

#[tokio::test]
async fn layers_that_know_nothing_of_each_other_multiply() {
    for (clients, attempts, expected) in [
        (2, 3, vec![3, 9]),
        (3, 3, vec![3, 9, 27]),
        (5, 3, vec![3, 9, 27, 81, 243]),
        (2, 4, vec![4, 16]),
        (3, 4, vec![4, 16, 64]),
    ] {
        let layer = || layer(eager(attempts));
        let chain = Chain::deaf(clients, layer, Hop::always(500).await).await;
        assert_eq!(arrive(chain).await, expected);
    }
}

#[tokio::test]
async fn layers_that_know_of_each_other_do_not() {
    for (clients, attempts) in [(2, 3), (3, 3), (5, 3), (2, 4), (3, 4), (5, 4)] {
        for server in [Server::deadline(), Server::handlers()] {
            for answer in [Answer::Plain, Answer::Proxied] {
                let layer = || layer(eager(attempts));
                let leaf = Hop::always(500).await;
                let chain = Chain::new(clients, layer, &server, answer, leaf).await;
                let told = chain.leaf.arrivals.clone();
                let counts = arrive(chain).await;
                assert_eq!(counts, vec![attempts as usize; clients]);
                let numbers = (1..=attempts).map(|number| format!("{number};max={attempts}"));
                assert_eq!(told.attempts(), numbers.map(Some).collect::<Vec<_>>());
            }
        }
    }
}

/// The layer nearest to the leaf retries a first attempt, and when it is known to have given up, nobody
/// above asks again: the attempts of one layer. Where that is not told, each layer above asks again
/// too, and each of those retries is one request to the leaf: every layer adds `attempts - 1` to the
/// one request that there would be anyway, `1 + hops * (attempts - 1)`.
#[tokio::test]
async fn skipping_retries_only_adds_up_unless_it_is_told_who_gave_up() {
    for (clients, attempts, told, untold) in [
        (2, 3, 3, 5),
        (3, 3, 3, 7),
        (5, 3, 3, 11),
        (2, 4, 4, 7),
        (3, 4, 4, 10),
    ] {
        for (tell, expected) in [(true, told), (false, untold)] {
            let layer = || layered(LayeredRetries::SkipRetried, attempts, tell);
            let server = deadline(tell);
            let leaf = Hop::always(500).await;
            let chain = Chain::new(clients, layer, &server, Answer::Plain, leaf).await;
            let counts = arrive(chain).await;
            assert_eq!(counts.last(), Some(&expected), "{counts:?}");
        }
    }
}

#[tokio::test]
async fn retrying_everywhere_multiplies_unless_it_is_told_who_gave_up() {
    for (clients, attempts, told, untold) in [
        (2, 3, 3, 9),
        (3, 3, 3, 27),
        (5, 3, 3, 243),
        (2, 4, 4, 16),
        (3, 4, 4, 64),
    ] {
        for (tell, expected) in [(true, told), (false, untold)] {
            let layer = || layered(LayeredRetries::WithinDeadline, attempts, tell);
            let server = deadline(tell);
            let leaf = Hop::always(500).await;
            let chain = Chain::new(clients, layer, &server, Answer::Plain, leaf).await;
            let counts = arrive(chain).await;
            assert_eq!(counts.last(), Some(&expected), "{counts:?}");
        }
    }
}

fn deadline(tell: bool) -> Server {
    if tell {
        return Server::deadline();
    }
    let headers = RetryHeaders::default().exhausted(None);
    Server::Deadline(DeadlineLayer::new().headers(headers))
}

#[tokio::test]
async fn a_layer_for_handlers_that_retries_owns_what_its_handlers_call() {
    for (asks_more, expected) in [(false, 3), (true, 3)] {
        let leaf = Hop::always(502).await;
        let client = Client::new(&layer(eager(3)), &leaf);
        let mut server = RetryBudgetLayer::for_handlers();
        if asks_more {
            server = server.policy(eager(3).build().expect("a valid policy"));
        }
        let hop = middle(&Server::Handlers(server), client, Answer::Plain).await;
        // The caller does not retry.
        let caller = Client::new(&layer(eager(1)), &hop);
        let response = bounded(caller.get()).await;
        assert!(response.status().is_server_error());
        assert_eq!((hop.count(), leaf.count()), (1, expected));
    }
}

#[tokio::test]
async fn a_get_for_the_sake_of_a_post_is_retried_where_it_is_made() {
    for server in [Server::deadline(), Server::handlers()] {
        let leaf = Hop::flaky(2).await;
        let client = Client::new(&layer(eager(3)), &leaf);
        let stamps = client.stamps.clone();
        let handler = move || async move { client.get().await.status() };
        let app = Router::new().route("/find", post(handler));
        let hop = Hop::serve(server.around(app)).await;
        let edge = Client::new(&layer(eager(3)), &hop);
        let response = bounded(edge.call("POST")).await;
        assert_eq!(response.status(), 200);
        assert_eq!((hop.count(), leaf.count()), (1, 3));
        assert_eq!(hop.arrivals.attempts(), [None]);
        let numbers = ["1;max=3", "2;max=3", "3;max=3"].map(|number| Some(number.to_owned()));
        assert_eq!(stamps.attempts(), numbers);
    }
}

#[tokio::test]
async fn a_get_that_the_edge_retries_is_not_retried_below_and_is_saved_all_the_same() {
    let leaf = Hop::flaky(1).await;
    let layer = || layer(eager(3));
    let chain = Chain::new(3, layer, &Server::deadline(), Answer::Plain, leaf).await;
    let response = bounded(chain.client.get()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(chain.counts(), [2, 2, 2]);
}

#[tokio::test]
async fn a_hop_that_recovers_is_asked_again_and_asks_on() {
    let leaf = Hop::always(200).await;
    let client = Client::new(&layer(eager(3)), &leaf);
    let failed = Arc::new(AtomicBool::new(false));
    let handler = move || async move {
        if !failed.swap(true, Ordering::SeqCst) {
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        client.get().await.status()
    };
    let app = Router::new().route("/find", get(handler));
    let hop = Hop::serve(Server::deadline().around(app)).await;
    let upper = Client::new(&layer(eager(3)), &hop);
    let top = middle(&Server::deadline(), upper, Answer::Plain).await;
    let caller = Client::new(&layer(eager(3)), &top);
    assert_eq!(bounded(caller.get()).await.status(), 200);
    assert_eq!((top.count(), hop.count(), leaf.count()), (2, 2, 1));
    // The attempt number of the one who retries came through to the end.
    assert_eq!(leaf.arrivals.all()[0].attempt(), Some("2;max=3"));
}
