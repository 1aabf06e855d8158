//! What a hop tells whoever called it of a call that it gave up.

use crate::{
    hops::{Answer, Client, Hop, Server, bounded, eager, layer, middle},
    support::{MS, SECOND, client::request},
};
use axum::{Router, http::StatusCode, response::IntoResponse};
use http::HeaderMap;
use http_body_util::Full;
use tower_retry_budget::{
    DeadlineLayer, RetryBudgetLayer,
    budget::TokenBudget,
    deadline::{LayeredRetries, RETRY_EXHAUSTED},
    reason::SkipReason,
};

/// Layers that retry under a caller that does, so that they have something to give up.
fn retrying() -> RetryBudgetLayer {
    layer(eager(3)).layered_retries(LayeredRetries::WithinDeadline)
}

/// A server that answers with a plain 502 when its call through this layer fails.
async fn telling(layer: &RetryBudgetLayer, leaf: &Hop) -> Hop {
    middle(&Server::deadline(), Client::new(layer, leaf), Answer::Plain).await
}

fn marker(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(RETRY_EXHAUSTED).iter();
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "one line");
    Some(line.to_str().expect("a readable header"))
}

/// A caller that retries, or one that does not, and what it got.
async fn ask(hop: &Hop, retries: bool) -> (StatusCode, HeaderMap, Option<SkipReason>) {
    let policy = eager(if retries { 3 } else { 1 }).total_timeout(10 * SECOND);
    let caller = Client::new(&layer(policy), hop);
    let response = bounded(caller.get()).await;
    let info = response.extensions().get();
    let skipped = info.and_then(|info: &tower_retry_budget::RetryInfo| info.skipped);
    (response.status(), response.headers().clone(), skipped)
}

#[tokio::test]
async fn a_hop_that_gave_up_tells_a_caller_that_retries_and_is_not_asked_again() {
    for server in [Server::deadline(), Server::handlers()] {
        let leaf = Hop::always(500).await;
        let hop = middle(&server, Client::new(&retrying(), &leaf), Answer::Plain).await;
        let (status, headers, skipped) = ask(&hop, true).await;
        assert_eq!(status, 502);
        let told = marker(&headers).expect("it asked");
        assert!(told.starts_with("reason=max_attempts, attempts=3, elapsed-ms="));
        assert_eq!(skipped, Some(SkipReason::FinalAnswer));
        assert_eq!((hop.count(), leaf.count()), (1, 3));
        let mut names: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "date", "x-retry-exhausted"]);
    }
}

#[tokio::test]
async fn a_marker_goes_up_to_the_first_who_retries() {
    let leaf = Hop::always(500).await;
    let hop = telling(&retrying(), &leaf).await;
    let upper = Client::new(&retrying(), &hop);
    let top = middle(&Server::deadline(), upper, Answer::Plain).await;
    let (status, headers, _) = ask(&top, true).await;
    assert_eq!(status, 502);
    assert!(
        marker(&headers)
            .expect("it asked")
            .starts_with("reason=max_attempts")
    );
    assert_eq!((top.count(), hop.count(), leaf.count()), (1, 1, 3));
}

#[tokio::test]
async fn a_caller_that_does_not_retry_is_told_nothing() {
    for server in [Server::deadline(), Server::handlers()] {
        for answer in [Answer::Plain, Answer::Proxied] {
            let leaf = Hop::always(500).await;
            let hop = middle(&server, Client::new(&retrying(), &leaf), answer).await;
            let (status, headers, _) = ask(&hop, false).await;
            assert!(status.is_server_error());
            assert_eq!(marker(&headers), None);
            assert_eq!(leaf.count(), 3);
        }
    }
}

#[tokio::test]
async fn a_success_and_a_plain_failure_are_not_marked() {
    for (status, answered) in [(200, 200), (500, 502), (404, 502)] {
        let leaf = Hop::always(status).await;
        // It skips its retries: nothing is given up.
        let hop = telling(&layer(eager(3)), &leaf).await;
        let sent = raw(&hop, &[("x-retry-attempt", "1;max=3")]).await;
        assert_eq!(sent.0, answered);
        assert_eq!(marker(&sent.1), None);
        assert_eq!(leaf.count(), 1);
    }
    // What was given up does not matter to an answer that is none of a failure.
    let leaf = Hop::always(500).await;
    let client = Client::new(&retrying(), &leaf);
    let handler = move || async move {
        client.get().await;
        StatusCode::OK
    };
    let hop = Hop::serve(Server::deadline().around(Router::new().fallback(handler))).await;
    let sent = raw(&hop, &[("x-retry-attempt", "1;max=3")]).await;
    assert_eq!((sent.0, marker(&sent.1)), (StatusCode::OK, None));
    assert_eq!(leaf.count(), 3);
}

/// One request as it is, without anything around the client.
async fn raw(hop: &Hop, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap) {
    let client = crate::support::client::builder().build_http::<Full<bytes::Bytes>>();
    let mut get = request("GET", &hop.uri(), Full::default());
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        get.headers_mut()
            .append(name, value.parse().expect("a value"));
    }
    let response = bounded(client.request(get)).await.expect("a response");
    (response.status(), response.headers().clone())
}

#[tokio::test]
async fn each_reason_is_told_and_heeded_as_the_table_says() {
    let policy = || eager(3).total_timeout(10 * SECOND);
    let none = || TokenBudget::builder().cap(0).initial(0).no_trickle();
    let close = policy().min_attempt(20 * SECOND);
    let within = |layer: RetryBudgetLayer| layer.layered_retries(LayeredRetries::WithinDeadline);
    let cases = [
        ("max_attempts", layer(policy()), 1, 3),
        (
            "budget",
            layer(policy()).budget(none().build().expect("valid")),
            1,
            1,
        ),
        ("deadline_too_close", layer(close), 1, 1),
        ("overloaded", layer(policy()).max_waiting(0), 3, 3),
    ];
    for (reason, layer, asked, sent) in cases {
        let leaf = Hop::always(500).await;
        let hop = telling(&within(layer), &leaf).await;
        let (_, headers) = raw(&hop, &[("x-retry-attempt", "1;max=3")]).await;
        let told = marker(&headers).expect("it asked").to_owned();
        assert!(told.starts_with(&format!("reason={reason}, ")), "{told}");
        assert_eq!(leaf.count(), sent / asked);
        ask(&hop, true).await;
        assert_eq!(hop.count() - 1, asked, "{reason}");
    }
}

#[tokio::test]
async fn an_only_attempt_that_was_cut_is_asked_for_again() {
    let leaf = Hop::hanging().await;
    let lower = layer(eager(1).attempt_timeout(20 * MS));
    let hop = telling(&lower, &leaf).await;
    ask(&hop, true).await;
    assert_eq!((hop.count(), leaf.count()), (3, 3));
    for answer in hop.answers.all() {
        let told = answer.text(RETRY_EXHAUSTED).expect("it asked");
        assert!(told.starts_with("reason=attempt_timeout, attempts=1, "));
    }
}

#[tokio::test]
async fn too_long_a_wait_is_handed_on_and_not_waited_for() {
    let app = Router::new().fallback(|| async {
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "86400")]).into_response()
    });
    let leaf = Hop::serve(app).await;
    let hop = telling(&retrying(), &leaf).await;
    let (_, headers, _) = ask(&hop, true).await;
    let told = marker(&headers).expect("it asked");
    assert!(told.starts_with("reason=retry_after_too_long, attempts=1, "));
    assert_eq!((hop.count(), leaf.count()), (1, 1));
}

#[tokio::test]
async fn what_an_upstream_said_does_not_get_past_the_edge_or_to_whoever_did_not_ask() {
    let upstream = || async {
        let told = [("x-retry-exhausted", "reason=max_attempts")];
        (StatusCode::BAD_GATEWAY, told)
    };
    let asking: &[(&str, &str)] = &[("x-retry-attempt", "1;max=3")];
    let edge = DeadlineLayer::new().edge();
    let handlers = RetryBudgetLayer::for_handlers;
    for (server, headers, told) in [
        (Server::deadline(), asking, true),
        (Server::handlers(), asking, true),
        (Server::deadline(), &[], false),
        (Server::handlers(), &[], false),
        (Server::Deadline(edge.clone()), asking, false),
        (Server::Handlers(handlers().edge()), asking, false),
        (Server::Handlers(handlers().inbound(edge)), asking, false),
    ] {
        let leaf = Hop::serve(Router::new().fallback(upstream)).await;
        let client = Client::new(&layer(eager(1)), &leaf);
        let hop = middle(&server, client, Answer::Proxied).await;
        let (status, headers) = raw(&hop, headers).await;
        assert_eq!(status, 502);
        assert_eq!(marker(&headers).is_some(), told);
    }
}

#[tokio::test]
async fn an_edge_is_told_by_those_below_and_tells_nobody() {
    let leaf = Hop::always(500).await;
    let lower = Client::new(&retrying(), &leaf);
    let hop = middle(&Server::deadline(), lower, Answer::Plain).await;
    let upper = Client::new(&layer(eager(3)), &hop);
    let edge = Server::Deadline(DeadlineLayer::new().edge());
    let top = middle(&edge, upper, Answer::Proxied).await;
    let forged = [
        ("x-retry-attempt", "9;max=9"),
        ("x-deadline-remaining-ms", "1"),
    ];
    let (status, headers) = raw(&top, &forged).await;
    assert_eq!((status, marker(&headers)), (StatusCode::BAD_GATEWAY, None));
    assert_eq!((hop.count(), leaf.count()), (1, 3));
    assert_eq!(hop.arrivals.all()[0].attempt(), Some("1;max=3"));
}
