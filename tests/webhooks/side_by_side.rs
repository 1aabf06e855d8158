//! An endpoint that is broken does not slow the others.

use crate::{
    alone,
    clock::now_ms,
    endpoint::{Answers, Endpoint, args},
    process::Folder,
};
use futures_util::future::join_all;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const MS: Duration = Duration::from_millis(1);
const EVENTS: u32 = 200;

/// The 99th percentile of the time from an event's acceptance to its coming, in milliseconds, beside these
/// other endpoints.
async fn p99(name: &str, others: &[Answers]) -> i64 {
    let well = Endpoint::start("well", Answers::Well).await;
    let names = ["a", "b", "c", "d"];
    let mut broken = Vec::new();
    for (name, answers) in names.iter().zip(others) {
        broken.push((*name, Endpoint::start(name, *answers).await));
    }
    let mut all = vec![&well];
    all.extend(broken.iter().map(|(_, endpoint)| endpoint));
    let folder = Folder::new(name);
    let process = folder.start(&args(&all, &["--window=event=12s", "--attempt-timeout=1s"]));
    let start = Instant::now();
    let mut accepted = Vec::new();
    for n in 0..EVENTS {
        sleep_until(start + 10 * MS * n).await;
        let id = format!("well-{n}");
        accepted.push((id, now_ms()));
        let all = broken.iter().map(|(name, _)| *name).chain(["well"]);
        let accept = all.map(async |name| process.accept(name, &format!("{name}-{n}")).await);
        join_all(accept).await;
    }
    let ids: Vec<_> = accepted.iter().map(|(id, _)| id.clone()).collect();
    process.finish(&ids, Duration::from_secs(30)).await;
    let came = well.came();
    let mut took: Vec<_> = accepted.iter().map(|(id, at)| came[id][0] - at).collect();
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_broken_does_not_slow_one_that_is_well() {
    let _alone = alone().await;
    let broken = [
        Answers::Fails,
        Answers::Never,
        Answers::Throttles(3),
        Answers::Gone,
    ];
    let mut best = None;
    for round in 1..=3 {
        let alone = p99("alone", &[]).await;
        let beside = p99("beside", &broken).await;
        println!("round {round}: p99 {alone} ms alone, {beside} ms beside four that are broken");
        let over = beside - (3 * alone + 50);
        best = best.into_iter().chain([over]).min();
        if over <= 0 {
            break;
        }
    }
    assert!(best <= Some(0), "{best:?} ms too slow");
}
