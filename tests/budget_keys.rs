//! What a key is, and what becomes of many of them.

#[path = "support/budget.rs"]
mod support;

use http::{Uri, uri};
use proptest::prelude::*;
use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};
use support::{build, drain, fail, start, withdraw};
use tower_retry_budget::{
    budget::{Budget, Key, TokenBudget},
    reason::Cause,
};

fn key(uri: &str) -> Key {
    Key::from_uri(&uri.parse().expect("a URI"))
}

fn host(len: usize) -> String {
    "Ab.".chars().cycle().take(len).collect()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn takes_different_spellings_of_one_dependency_as_one_key() {
    let hasher = RandomState::new();
    for (one, other) in [
        ("http://a/", "http://a:80/x?y=1"),
        ("https://a/", "https://a:443/"),
        ("http://Search.Example.COM/", "HTTP://search.example.com/"),
        ("http://user:secret@a/", "http://a/"),
        ("http://[::1]/", "http://[::1]:80/"),
        ("http://[2001:DB8::1]:8080/", "http://[2001:db8::1]:8080/"),
        ("ws://A:80/", "WS://a:80/"),
        ("A:443", "a:443"),
    ] {
        let (one, other) = (key(one), key(other));
        assert_eq!(one, other);
        assert_eq!(hasher.hash_one(&one), hasher.hash_one(&other), "{one}");
    }
}

#[test]
fn takes_different_dependencies_as_different_keys() {
    let long = format!("http://{}", host(100));
    let keys = [
        key("http://a/"),
        key("https://a/"),
        key("http://a:443/"),
        key("https://a:80/"),
        key("http://a:8080/"),
        key("http://b/"),
        key("http://a./"),
        key("http://aa/"),
        key("a:80"),
        key("a"),
        key("ws://a/"),
        key("ws://a:80/"),
        key("wss://a/"),
        key(&long),
        key(&format!("{long}:8080")),
        key(&long.replace("http", "https")),
        key("/path"),
        Key::new("a"),
        Key::new("http://a"),
        Key::new(long.to_ascii_lowercase()),
        Key::new("no-authority"),
        Key::new("overflow"),
        Key::new(""),
    ];
    let distinct: HashSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
}

#[test]
fn is_the_same_key_at_every_length_of_host() {
    let hasher = RandomState::new();
    for len in 1..=253 {
        for (scheme, port) in [("http://", ":80"), ("https://", ":443")] {
            let host = host(len);
            let one = key(&format!("{scheme}{host}"));
            let other = key(&format!("{scheme}{}{port}", host.to_ascii_uppercase()));
            assert_eq!(one, other);
            assert_eq!(hasher.hash_one(&one), hasher.hash_one(&other));
            assert_eq!(
                one.to_string(),
                format!("{scheme}{}", host.to_ascii_lowercase())
            );
            assert_ne!(one, key(&format!("{scheme}{host}:8080")));
            assert_ne!(one, key(&format!("{scheme}{host}c")));
        }
    }
}

#[test]
fn takes_a_scheme_in_capitals_from_parts() {
    let mut parts = uri::Parts::default();
    parts.scheme = Some("HTTP".parse().unwrap());
    parts.authority = Some("a".parse().unwrap());
    parts.path_and_query = Some("/".parse().unwrap());
    let uri = Uri::from_parts(parts).unwrap();
    assert_eq!(Key::from_uri(&uri), key("http://a/"));
}

#[test]
fn has_one_constant_key_for_requests_without_an_authority() {
    assert_eq!(key("/"), Key::no_authority());
    assert_eq!(key("/a?b"), key("*"));
    assert_ne!(key("/"), Key::new("no-authority"));
}

#[test]
fn is_one_name_however_it_was_made() {
    const REPORTS: Key = Key::from_static("reports");

    let hasher = RandomState::new();
    for other in [Key::new("reports"), Key::new(String::from("reports"))] {
        assert_eq!(REPORTS, other);
        assert_eq!(hasher.hash_one(REPORTS), hasher.hash_one(&other));
    }
    assert_ne!(REPORTS, Key::new("Reports"));
}

#[test]
fn prints_what_one_would_write() {
    for (uri, text) in [
        ("http://u@Search:8080/x", "http://search:8080"),
        ("http://a:80/", "http://a"),
        ("https://a:443/", "https://a"),
        ("https://a:80/", "https://a:80"),
        ("https://[::1]:8443/", "https://[::1]:8443"),
        ("WS://A/", "ws://a"),
        ("ws://a:80/", "ws://a:80"),
        ("a:443", "a:443"),
        ("/x", "no-authority"),
    ] {
        assert_eq!(key(uri).to_string(), text);
        assert_eq!(format!("{:?}", key(uri)), format!("Key({text})"));
    }
    assert_eq!(Key::new("reports").to_string(), "reports");
    assert_eq!(
        format!("{:?}", Key::from_static("reports")),
        r#"Key("reports")"#
    );
}

proptest! {
    #[test]
    fn never_fails_and_prints_what_it_parses_from(
        scheme in "(http|https|ws|h2c)",
        host in "[a-zA-Z0-9.-]{1,80}",
        port in proptest::option::of(any::<u16>()),
    ) {
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let one = key(&format!("{scheme}://{host}{port}"));
        prop_assert_eq!(&key(&one.to_string()), &one);
    }
}

#[test]
fn holds_no_more_keys_than_it_has_room_for() {
    let budget = build(TokenBudget::builder().max_keys(100));
    let start = start();
    for n in 0..20_000 {
        let now = start + Duration::from_millis(n);
        budget.deposit(&Key::new(format!("tenant {n}")), true, now);
        assert!(budget.keys() <= 100);
    }
    assert_eq!(budget.keys(), 100);
    // Keys that were used once are let go two seconds later: the newest have accounts again.
    assert!(budget.overflowed() < 20_000 - 100);
}

#[test]
fn gives_keys_beyond_the_limit_one_account_and_counts_its_use() {
    let budget = build(TokenBudget::builder().max_keys(1));
    let now = start();
    let [own, second, third] = ["own", "second", "third"].map(Key::from_static);
    budget.deposit(&own, true, now);
    assert_eq!(budget.overflowed(), 0);

    for _ in 0..3 {
        assert!(fail(&budget, &second, now));
    }
    assert_eq!(budget.snapshot(&third, now).balance(), 2.0);
    assert_eq!(drain(&budget, &third, now), 2);
    assert!(!fail(&budget, &second, now));
    // Three granted, two and a denial, and one more denial.
    assert_eq!(budget.overflowed(), 7);
    assert_eq!(budget.keys(), 1);
    assert_eq!(
        drain(&budget, &own, now),
        5,
        "an account of one's own is not touched"
    );
    assert_eq!(budget.overflowed(), 7);
}

#[test]
fn does_not_share_while_there_is_room() {
    let budget = Arc::new(TokenBudget::default());
    let now = start();
    for n in 0..4096 {
        assert_eq!(drain(&budget, &Key::new(format!("tenant {n}")), now), 5);
    }
    assert_eq!((budget.keys(), budget.overflowed()), (4096, 0));
    budget.deposit(&Key::from_static("one more"), false, now);
    assert_eq!((budget.keys(), budget.overflowed()), (4096, 1));
}

#[test]
fn never_gives_a_key_more_by_forgetting_it_than_by_waiting() {
    let [key, rival] = ["key", "rival"].map(Key::from_static);
    for tenths in 0..=700 {
        let waited = Duration::from_millis(tenths * 100);
        let granted = |max_keys| {
            let budget = build(TokenBudget::builder().max_keys(max_keys));
            let start = start();
            budget.deposit(&key, true, start);
            assert_eq!(drain(&budget, &key, start), 5);
            budget.deposit(&rival, true, start + waited);
            let forgotten = max_keys == 1 && budget.overflowed() == 0;
            (drain(&budget, &key, start + waited), forgotten)
        };
        let (by_waiting, _) = granted(2);
        let (by_forgetting, forgotten) = granted(1);
        assert!(by_forgetting <= by_waiting, "after {waited:?}");
        assert_eq!(forgotten, waited >= secs(50), "after {waited:?}");
    }
}

#[test]
fn never_forgets_a_drained_key_that_nothing_refills() {
    let budget = build(TokenBudget::builder().max_keys(1).no_trickle());
    let start = start();
    let key = Key::from_static("key");
    assert_eq!(drain(&budget, &key, start), 5);
    for day in 1..100 {
        let now = start + secs(day * 86_400);
        budget.deposit(&Key::from_static("rival"), false, now);
        assert!(!fail(&budget, &key, now));
    }
    assert_eq!(budget.overflowed(), 99);
}

#[test]
fn does_not_forget_a_key_in_use() {
    let budget = build(TokenBudget::builder().max_keys(1));
    let mut now = start();
    let key = Key::from_static("busy");
    for _ in 0..100 {
        now += Duration::from_millis(900);
        budget.deposit(&key, false, now);
        budget.deposit(&Key::from_static("rival"), false, now);
    }
    assert_eq!(budget.overflowed(), 100);
    assert_eq!(budget.snapshot(&key, now).balance(), 10.0);
}

#[test]
fn gives_a_retry_back_to_the_account_that_paid_for_it() {
    let budget = build(TokenBudget::builder().max_keys(1).no_trickle());
    let start = start();
    let [first, second, third] = ["first", "second", "third"].map(Key::from_static);
    budget.deposit(&first, true, start);

    // The second key borrows from the shared account, and has its own when it gives back.
    let permit = withdraw(&budget, &second, Cause::Other, start).unwrap();
    let later = start + secs(10);
    budget.deposit(&second, true, later);
    assert_eq!(budget.snapshot(&second, later).balance(), 5.0);
    assert_eq!(budget.snapshot(&third, later).balance(), 4.0);
    drop(permit);
    assert_eq!(budget.snapshot(&second, later).balance(), 5.0);
    assert_eq!(budget.snapshot(&third, later).balance(), 5.0);
}

#[test]
fn gives_nobody_else_a_retry_whose_account_was_forgotten() {
    let budget = build(TokenBudget::builder().max_keys(1).initial(1).no_trickle());
    let start = start();
    let [first, second] = ["first", "second"].map(Key::from_static);
    // A permit is out, yet the account holds all that a new one would.
    for _ in 0..50 {
        budget.deposit(&first, false, start);
    }
    let permit = withdraw(&budget, &first, Cause::Other, start).unwrap();
    budget.deposit(&first, false, start);
    budget.deposit(&first, false, start);
    let later = start + secs(10);
    budget.deposit(&second, true, later);
    assert_eq!(budget.overflowed(), 0, "the first key was forgotten");
    // The shared account comes into being, with its one token.
    assert_eq!(drain(&budget, &first, later), 1);
    drop(permit);
    assert_eq!(budget.snapshot(&first, later).balance(), 0.0);
    assert_eq!(budget.snapshot(&second, later).balance(), 1.0);
}
