//! What a deadline does to a chain: it goes down hop by hop, and ends all work.

use crate::{
    hops::{Answer, Chain, Client, Hop, Seen, Server, bounded, eager, layer, middle, until},
    support::MS,
};
use axum::{Router, http::StatusCode};
use std::time::Duration;
use tokio::time::Instant;
use tower_retry_budget::{RetryBudgetLayer, deadline::LayeredRetries, policy::RetryPolicyBuilder};

const TOTAL: Duration = Duration::from_millis(600);

/// How long after the deadline the last request may be on its way to a leaf, and an answer to whoever
/// asked. Nothing of it is spent on purpose.
const ARRIVED: Duration = Duration::from_millis(100);
const ANSWERED: Duration = Duration::from_millis(250);

/// An attempt is written down just after it was stamped, if the machine has nothing else to do.
const NOTED: Duration = Duration::from_millis(30);

fn limited(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    layer(policy.total_timeout(TOTAL))
}

/// Asks through a chain whose leaf does not help, and sees that the deadline holds everywhere.
async fn runs_out(chain: &Chain) {
    let response = bounded(chain.client.get()).await;
    // As the first attempt was told, rounded down.
    let told = &chain.client.stamps.all()[0];
    let deadline = told.at + told.left().expect("a deadline") + MS;
    assert!(response.status().is_server_error());
    let late = Instant::now().saturating_duration_since(deadline);
    assert!(late < ANSWERED, "answered {late:?} after the deadline");
    until(|| chain.live() == 0).await;
    let late = Instant::now().saturating_duration_since(deadline);
    assert!(late < ANSWERED, "at work {late:?} after the deadline");

    for stamp in chain.stamps() {
        assert!(stamp.at < deadline + NOTED, "{stamp:?}");
        let left = stamp.left().expect("every attempt is told");
        let most = deadline.saturating_duration_since(stamp.at) + NOTED;
        assert!(left <= most, "{left:?} of {most:?}");
    }
    for answer in chain.servers().flat_map(|hop| hop.answers.all()) {
        assert!(answer.at < deadline + ANSWERED);
    }
    for arrival in chain.leaf.arrivals.all() {
        assert!(arrival.at < deadline + ARRIVED);
    }
    // Nobody comes back to it.
    let counts = chain.counts();
    tokio::time::sleep(50 * MS).await;
    assert_eq!(chain.counts(), counts);
}

/// The time that was left when the first request came.
fn first(seen: &[Seen]) -> Duration {
    seen[0].left().expect("a deadline")
}

#[tokio::test]
async fn a_deadline_ends_the_work_of_all_hops() {
    for server in [Server::deadline(), Server::handlers()] {
        let layer = || limited(eager(3));
        let leaf = Hop::hanging().await;
        let chain = Chain::new(5, layer, &server, Answer::Plain, leaf).await;
        runs_out(&chain).await;
        assert_eq!(chain.counts(), [1; 5]);
        let left: Vec<_> = chain
            .servers()
            .map(|hop| first(&hop.arrivals.all()))
            .collect();
        assert!(left[0] <= TOTAL);
        assert!(left.is_sorted_by(|upper, lower| upper > lower), "{left:?}");
    }
}

#[tokio::test]
async fn nothing_is_sent_after_a_deadline_however_many_would_try() {
    for layered in [
        LayeredRetries::Skip,
        LayeredRetries::SkipRetried,
        LayeredRetries::WithinDeadline,
    ] {
        let layer = || limited(eager(10_000)).layered_retries(layered);
        let app = Router::new().fallback(|| async {
            tokio::time::sleep(20 * MS).await;
            StatusCode::INTERNAL_SERVER_ERROR
        });
        let leaf = Hop::serve(app).await;
        let chain = Chain::new(3, layer, &Server::deadline(), Answer::Plain, leaf).await;
        runs_out(&chain).await;
        assert!(chain.leaf.count() > 2, "{layered:?}");
    }
}

#[tokio::test]
async fn an_attempt_is_told_its_own_time_until_less_is_left() {
    let policy = eager(3).attempt_timeout(250 * MS);
    let leaf = Hop::hanging().await;
    let client = Client::new(&limited(policy), &leaf);
    let response = bounded(client.get()).await;
    assert_eq!(response.status(), 503);
    let told: Vec<_> = leaf.arrivals.all().iter().filter_map(Seen::left).collect();
    assert_eq!(told[..2], [250 * MS; 2]);
    assert!(told[2] < 100 * MS, "{told:?}");
}

#[tokio::test]
async fn a_hop_works_with_the_shorter_of_its_own_time_and_the_callers() {
    for (own, most) in [(5_000, 285), (200, 200)] {
        let leaf = Hop::hanging().await;
        let policy = eager(1).total_timeout(own * MS);
        let client = Client::new(&layer(policy), &leaf);
        let hop = middle(&Server::deadline(), client, Answer::Plain).await;
        let caller = Client::new(&layer(eager(1).total_timeout(300 * MS)), &hop);
        bounded(caller.get()).await;
        let left = first(&leaf.arrivals.all());
        assert!(left <= most * MS, "{left:?}");
        assert!(left >= (most - 150) * MS, "{left:?}");
    }
}
