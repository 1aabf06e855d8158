//! How many requests reach a leaf that fails, with the budget that is there by default.

use crate::hops::{Answer, Chain, Client, Hop, Server, bounded, eager, layer as unlimited, middle};
use std::sync::Arc;
use tower_retry_budget::{
    RetryBudgetLayer,
    budget::{Key, TokenBudget},
};

fn layer() -> RetryBudgetLayer {
    let policy = eager(3).build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy)
}

async fn arrive(chain: &Chain, calls: usize) -> Vec<usize> {
    let asking = async {
        for _ in 0..calls {
            let response = chain.client.get().await;
            assert!(response.status().is_server_error());
        }
    };
    bounded(asking).await;
    chain.counts()
}

/// Each hop has a budget of its own, which starts with 5 retries. Nothing is earned, since no first
/// attempt succeeds, nothing is given back, since no retry does, and the next token trickles in after
/// 10 s. So a hop sends on what it gets, and 5 retries at most: two for each of the calls.
///
/// One call of three attempts: 3 to the first server, which could make 6 retries of them and makes 5:
/// 8 to the second, 13 to the third, and so on.
#[tokio::test]
async fn each_deaf_hop_adds_what_its_budget_starts_with() {
    for (clients, expected) in [
        (2, vec![3, 8]),
        (3, vec![3, 8, 13]),
        (5, vec![3, 8, 13, 18, 23]),
    ] {
        let chain = Chain::deaf(clients, layer, Hop::always(500).await).await;
        assert_eq!(arrive(&chain, 1).await, expected);
    }
    let chain = Chain::deaf(3, layer, Hop::always(500).await).await;
    assert_eq!(arrive(&chain, 20).await, [25, 30, 35]);
}

/// One hop retries, so one budget is spent: 3 for one call, and 20 calls are 25 requests everywhere.
#[tokio::test]
async fn hops_that_know_of_each_other_spend_one_budget_among_them() {
    for (calls, expected) in [(1, 3), (20, 25)] {
        let leaf = Hop::always(500).await;
        let chain = Chain::new(3, layer, &Server::deadline(), Answer::Plain, leaf).await;
        assert_eq!(arrive(&chain, calls).await, [expected; 3]);
    }
}

/// A first attempt that succeeds earns 0.2, and somebody's retry earns nothing: where the first attempt
/// fails and the caller's second one succeeds, the hop below still has the 5 tokens that it began with.
#[tokio::test]
async fn somebodys_retries_earn_nothing_further_down() {
    let budget = TokenBudget::builder().no_trickle().build();
    let budget = Arc::new(budget.expect("a valid budget"));
    for (failures, earned) in [(1, 0.0), (0, 0.2)] {
        let leaf = Hop::flaky(failures).await;
        let key = Key::from_uri(&leaf.uri().parse().expect("a URI"));
        let below = Client::new(&layer().shared_budget(budget.clone()), &leaf);
        let hop = middle(&Server::deadline(), below, Answer::Plain).await;
        let caller = Client::new(&unlimited(eager(3)), &hop);
        assert_eq!(bounded(caller.get()).await.status(), 200);
        let now = tokio::time::Instant::now().into_std();
        let held = budget.snapshot(&key, now).balance();
        assert_eq!(held, 5.0 + earned);
    }
}
