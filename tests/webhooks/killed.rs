//! Killed in the midst of a thousand deliveries, told to end, and killed before an answer came.

use crate::{
    alone,
    clock::now_ms,
    endpoint::{Answers, Came, Endpoint, args},
    process::Folder,
};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::sleep;
use tower_retry_budget::Delivery;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// What the 429 asks for: a whole number of seconds, longer than a call sleeps.
const THROTTLE: u32 = 3;

fn ids(endpoint: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{endpoint}-{n}")).collect()
}

fn outcomes(events: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        let outcome = event["outcome"].as_str().expect("an outcome");
        *counts.entry(outcome.to_owned()).or_default() += 1;
    }
    counts
}

fn most_attempts(came: &Came) -> usize {
    came.values().map(Vec::len).max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loses_nothing_and_exceeds_nothing_when_it_is_killed_amid_a_thousand_deliveries() {
    let _alone = alone().await;
    let well = Endpoint::start("well", Answers::After(150 * MS)).await;
    let fails = Endpoint::start("fails", Answers::Fails).await;
    let hangs = Endpoint::start("hangs", Answers::Never).await;
    let throttles = Endpoint::start("throttles", Answers::Throttles(THROTTLE)).await;
    let gone = Endpoint::start("gone", Answers::Gone).await;
    let all = [&well, &fails, &hangs, &throttles, &gone];
    let args = args(&all, &["--window=event=12s", "--attempt-timeout=1s"]);
    let counts = [
        ("well", 450),
        ("fails", 200),
        ("hangs", 90),
        ("throttles", 60),
        ("gone", 200),
    ];
    let ids: BTreeMap<_, _> = counts.map(|(name, count)| (name, ids(name, count))).into();

    let folder = Folder::new("killed");
    let process = folder.start(&args);
    // In turn, and twenty at a time.
    let in_turn = (0..450).flat_map(|n| {
        let of = ids
            .iter()
            .filter_map(move |(name, ids)| Some((name, ids.get(n)?)));
        of.collect::<Vec<_>>()
    });
    stream::iter(in_turn)
        .for_each_concurrent(20, |(name, id)| process.accept(name, id))
        .await;
    while well.came().len() < 150 {
        sleep(5 * MS).await;
    }
    let killed_ms = now_ms();
    process.kill();
    let delivered = well.came().len();
    assert!(delivered < 400, "it was to be killed in the midst of them");
    let process = folder.start(&args);
    let mut ended = BTreeMap::new();
    for (name, ids) in &ids {
        ended.insert(*name, process.finish(ids, 60 * SECOND).await);
    }

    // Every event has an outcome, and a true one.
    let of = |name: &str| outcomes(&ended[name]);
    println!("{delivered} of 450 had come when it was killed");
    for (name, events) in &ended {
        println!("{name}: {:?}", outcomes(events));
    }
    assert_eq!(of("well"), [("delivered".into(), 450)].into());
    assert_eq!(of("gone"), [("terminal_response".into(), 200)].into());
    assert_eq!(of("throttles"), [("delivered".into(), 60)].into());
    for name in ["fails", "hangs"] {
        for outcome in of(name).keys() {
            let stopped = Delivery::from_name(outcome);
            assert!(
                matches!(stopped, Some(Delivery::Stopped(_))),
                "{name}: {outcome}"
            );
        }
    }
    for event in &ended["fails"] {
        let record = &event["record"];
        let tried = record["attempts"].as_u64().expect("a number");
        let came = fails
            .came()
            .get(event["id"].as_str().expect("an id"))
            .map_or(0, Vec::len);
        // What was kept as begun may not have been sent, when it was killed in between.
        assert!(
            (tried.saturating_sub(1)..=tried).contains(&(came as u64)),
            "{event}: {came} came"
        );
        assert!(tried >= 1);
        assert_eq!(record["last_status"].as_u64().or(Some(500)), Some(500));
    }

    // Nobody was sent more than the window has room for: 12 s with waits from 100 ms to 1.2 s.
    for endpoint in all {
        assert_eq!(endpoint.bad(), Vec::<String>::new());
        assert!(
            most_attempts(&endpoint.came()) <= 12,
            "{}",
            most_attempts(&endpoint.came())
        );
    }
    assert!(
        most_attempts(&well.came()) <= 2,
        "one again, whose answer was lost"
    );
    // All that was sent to the one that is gone was under way when it said so, before or after.
    assert!(gone.came().len() <= 64, "{}", gone.came().len());
    // Never earlier than asked, also over the restart.
    for (id, attempts) in throttles.came() {
        let cut = (attempts[0] - killed_ms).abs() < 200;
        let waited = attempts.get(1).map(|second| second - attempts[0]);
        assert!(
            cut || waited >= Some(i64::from(THROTTLE) * 1000),
            "{id}: {waited:?}"
        );
    }
    let (_, dead) = process.ask("GET", "/dead-letters", "").await;
    assert_eq!(dead.as_array().map(Vec::len), Some(100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_a_delivery_whose_answer_was_lost_under_the_same_id() {
    let _alone = alone().await;
    let slow = Endpoint::start("slow", Answers::After(400 * MS)).await;
    let args = args(&[&slow], &["--window=event=30s"]);
    let folder = Folder::new("lost-answer");
    let process = folder.start(&args);
    process.accept("slow", "one").await;
    while slow.came().is_empty() {
        sleep(5 * MS).await;
    }
    process.kill();
    let process = folder.start(&args);
    let ended = process.finish(&["one".into()], 20 * SECOND).await;
    assert_eq!(outcomes(&ended), [("delivered".into(), 1)].into());
    let came = slow.came();
    assert_eq!(came.keys().collect::<Vec<_>>(), ["one"]);
    assert_eq!(came["one"].len(), 2);
    assert_eq!(ended[0]["record"]["attempts"], 2);
    assert_eq!(slow.bad(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_when_it_is_told_to_and_what_was_under_way_ends_before() {
    let _alone = alone().await;
    let slow = Endpoint::start("slow", Answers::After(500 * MS)).await;
    let args = args(&[&slow], &["--window=event=30s"]);
    let folder = Folder::new("told-to-end");
    let process = folder.start(&args);
    let ids = ids("slow", 30);
    for id in &ids {
        process.accept("slow", id).await;
    }
    while slow.came().is_empty() {
        sleep(5 * MS).await;
    }
    let status = process.terminate().await;
    assert!(status.success(), "{status}");
    let before = slow.came().len();
    assert!((1..30).contains(&before), "{before} were under way");
    let process = folder.start(&args);
    let ended = process.finish(&ids, 20 * SECOND).await;
    assert_eq!(outcomes(&ended), [("delivered".into(), 30)].into());
    assert_eq!(most_attempts(&slow.came()), 1, "none was sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivers_dead_letters_anew_under_the_same_id() {
    let _alone = alone().await;
    let gone = Endpoint::start("target", Answers::Gone).await;
    let folder = Folder::new("replay");
    let process = folder.start(&args(&[&gone], &[]));
    let ids = ids("target", 3);
    for id in &ids {
        process.accept("target", id).await;
    }
    let ended = process.finish(&ids, 20 * SECOND).await;
    assert_eq!(outcomes(&ended), [("terminal_response".into(), 3)].into());
    process.kill();

    let well = Endpoint::start("target", Answers::Well).await;
    let process = folder.start(&args(&[&well], &[]));
    process.accept("target", "late").await;
    let late = process.finish(&["late".into()], 20 * SECOND).await;
    assert_eq!(
        late[0]["record"]["skipped"], "gone",
        "the quarantine outlives the process"
    );
    let (status, answer) = process.ask("POST", "/endpoints/target/replay", "").await;
    assert_eq!((status, &answer["replayed"]), (200, &4.into()));
    let ended = process.finish(&ids, 20 * SECOND).await;
    assert_eq!(outcomes(&ended), [("delivered".into(), 3)].into());
    assert!(well.came().contains_key("target-0") && well.came().contains_key("late"));
    for (path, expected) in [
        ("/dead-letters/target-0/replay", 404),
        ("/dead-letters/nobody/replay", 404),
        ("/endpoints/nobody/replay", 404),
    ] {
        assert_eq!(process.ask("POST", path, "").await.0, expected, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_what_it_cannot_deliver_and_keeps_an_id_once() {
    let _alone = alone().await;
    let well = Endpoint::start("well", Answers::Well).await;
    let folder = Folder::new("refuses");
    let process = folder.start(&args(&[&well], &[]));
    for (event, expected) in [
        (r#"{"endpoint":"nobody","class":"event","data":1}"#, 404),
        (r#"{"endpoint":"well","class":"nothing","data":1}"#, 404),
        (r#"{"endpoint":"well","class":"event"}"#, 422),
        (
            r#"{"endpoint":"well","class":"event","data":1,"more":1}"#,
            422,
        ),
        (
            r#"{"endpoint":"well","class":"event","data":1,"id":""}"#,
            422,
        ),
        (
            r#"{"endpoint":"well","class":"event","data":1,"id":"a\nb"}"#,
            422,
        ),
        ("{", 400),
    ] {
        let (status, answer) = process.ask("POST", "/events", event).await;
        assert_eq!(status, expected, "{event}: {answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
    for new in [true, false] {
        let event = r#"{"endpoint":"well","class":"event","data":1,"id":"once"}"#;
        let (status, answer) = process.ask("POST", "/events", event).await;
        assert_eq!((status, &answer["new"]), (202, &new.into()));
    }
    process.finish(&["once".into()], 20 * SECOND).await;
    assert_eq!(well.came()["once"].len(), 1);
}

/// Or each would deliver what the other does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_have_the_same_file() {
    let _alone = alone().await;
    let well = Endpoint::start("well", Answers::Well).await;
    let folder = Folder::new("twice");
    let args = args(&[&well], &[]);
    let first = folder.start(&args);
    assert!(folder.try_start(&args).is_none());
    first.kill();
    folder.start(&args).accept("well", "one").await;
}
